"""Writes the pause image as an archive; a single static program needs no image builder."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write_pause(program: Path, reference: str, archive: Path) -> None:
    """Write a Docker archive with one layer and one program; the same program gives the same bytes."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    described = json.dumps(config).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    files = {"manifest.json": (manifest, 0o644), name: (described, 0o644), "layer.tar": (layer, 0o644)}
    archive.write_bytes(_tar(files))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
