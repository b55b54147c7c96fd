"""kwok itself: built once from its Go module and kept.

Its version, and every one below it, is pinned with its sum by a module of ours that imports its main package
(tools.go). The program's folder in the cache is named by the version and a digest of that module, and appears by a
rename: it is always whole.
"""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from specbench_cluster.commands import run
from specbench_cluster.errors import BuildFailed, CommandFailed, RequirementMissing
from specbench_cluster.locks import locked

VERSION = "v0.8.0"
PACKAGE = "sigs.k8s.io/kwok/cmd/kwok"
MODULE = Path(__file__).resolve().parent


def peers_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Where programs of peers are kept; it outlives clusters."""
    given = environment.get("SPECBENCH_PEERS_CACHE")
    if given:
        return Path(given).absolute()
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).absolute() / "specbench" / "peers"


def kwok_path(cache: Path) -> Path:
    """Where the program is once it is built."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "tools.go"):
        digest.update(name.encode() + b"\0" + (MODULE / name).read_bytes())
    return cache / f"kwok-{VERSION}-{digest.hexdigest()[:12]}-{platform.machine()}" / "kwok"


def kwok_program(cache: Path, progress: Callable[[str], None]) -> Path:
    """The program; built where it is missing. Raises RequirementMissing without Go, BuildFailed."""
    program = kwok_path(cache)
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise RequirementMissing([f"Go 1.25 or newer, as `go` on PATH (it builds kwok {VERSION})"])
    with locked(cache / "kwok.lock"):
        if not program.exists():  # another process may have built it while we waited
            progress(f"building kwok {VERSION} (once)")
            _build(go, program)
    return program


def _build(go: str, program: Path) -> None:
    cache = program.parent.parent
    with tempfile.TemporaryDirectory(dir=cache, prefix=".kwok-") as scratch:
        built = Path(scratch) / "built"
        call = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(built / "kwok"), PACKAGE]
        try:
            run(call, env={**os.environ, "CGO_ENABLED": "0"}, cwd=MODULE)
        except CommandFailed as failed:
            raise BuildFailed(f"kwok did not build: {failed}") from failed
        built.rename(program.parent)
