"""Programs of other projects, each built once from a Go module of its own beside this file, and kept.

Such a module requires one project at one version and imports its program in `tools.go`. Its program lies in a folder of
the cache that is named by a digest of the module; the folder appears by a rename and is therefore always whole.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster.commands import run
from specbench_cluster.errors import RequirementMissing
from specbench_cluster.locks import locked

HERE = Path(__file__).resolve().parent
MODULE_FILES = ("go.mod", "go.sum", "tools.go")
FLAGS = ("-trimpath", "-ldflags", "-s -w")


@dataclass(frozen=True, slots=True)
class Peer:
    """`folder`: the module beside this file; `module`: the project that it requires; `package`: its program there."""

    folder: str
    module: str
    package: str

    @property
    def name(self) -> str:
        """What the program is called."""
        return self.package.rpartition("/")[2]

    @property
    def _built(self) -> Path:
        digest = hashlib.sha256(b"".join((HERE / self.folder / name).read_bytes() for name in MODULE_FILES))
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:12]}-{platform.machine()}" / self.name

    def program(self) -> Path:
        """The program's file, built where the cache lacks it. Raises RequirementMissing without Go, CommandFailed."""
        built = self._built
        if not built.exists():
            with locked(cache_folder() / f"{self.name}.lock"):
                if not built.exists():  # another process may have built it while we waited
                    self._build(built)
        return built

    def sources(self) -> Path:
        """The project's own folder, where Go keeps it. Raises RequirementMissing, CommandFailed."""
        told = run([_go(), "list", "-m", "-f", "{{.Dir}}", self.module], env=_environment(), cwd=HERE / self.folder)
        return Path(told.strip())

    def _build(self, built: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{self.name}-") as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            call = [_go(), "build", *FLAGS, "-o", str(whole / self.name), f"{self.module}/{self.package}"]
            run(call, env=_environment(), cwd=HERE / self.folder)
            whole.rename(built.parent)


def cache_folder() -> Path:
    """Where programs are kept: SPECBENCH_PEERS_CACHE, or beside the test cluster's."""
    given = os.environ.get("SPECBENCH_PEERS_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given).absolute() if given else Path(home).absolute() / "specbench" / "peers"


def _environment() -> dict[str, str]:
    """`GOWORK=off`: a workspace around us, or around the cache, is none of ours."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise RequirementMissing(["Go 1.25 or newer, as `go` on PATH"])
    return go
