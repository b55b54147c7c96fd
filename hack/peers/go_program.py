"""Builds third-party Go programs, once, and caches them.

A program's folder in the cache is named by its version, or by a digest of this project's module that pins it, so that a
change rebuilds only that program. The folder is created by a rename and is therefore always complete. A lock ensures
that only one process builds a program.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peers.toolchain import environment, go, go_for
from specbench_cluster.commands import locked, run
from specbench_cluster.errors import BuildFailed, CommandFailed

HERE = Path(__file__).resolve().parent
SOURCES = (".go", ".mod", ".sum")
FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w")
"""Builds are independent of folder and commit. Debugging data would be stripped, and takes a tenth of the time."""


def to_stderr(message: str) -> None:
    """Print progress to stderr, because only results go to stdout."""
    print(f"peers: {message}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class GoProgram:
    """`module` is a folder next to this file or, if `version` is set, a published module.

    `package`: the Go package to build; relative to a published module. `first_build_s`: seconds of a build on two
    cores with an empty Go build cache, measured once on a machine with other load.
    """

    name: str
    module: str
    package: str
    first_build_s: int
    version: str | None = None

    @property
    def file(self) -> Path:
        """The path of the built program."""
        key = self.version or _digest(HERE / self.module)
        return cache_folder() / f"{self.name}-{key}-{platform.machine()}" / self.name

    def built(self, progress: Callable[[str], None] = to_stderr) -> Path:
        """Build the program unless it is cached; return its path. Raises RequirementMissing (Go), BuildFailed."""
        file = self.file
        if not file.exists():
            with locked(cache_folder() / f"{self.name}.lock"):
                if not file.exists():  # another process may have built it during the wait for the lock
                    progress(f"building {self.name} (once; about {self.first_build_s} s on two cores)")
                    self._build(file)
        return file

    def sources(self) -> Path:
        """Return the project's folder in Go's module cache. Raises RequirementMissing, CommandFailed."""
        if self.version is not None:
            return downloaded(self.module, self.version)
        folder = HERE / self.module
        call = [go_for(folder / "go.mod", self.name), "list", "-f", "{{.Module.Dir}}", self.package]
        return Path(run(call, env=environment(), cwd=folder).strip())

    def _build(self, file: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{self.name}-") as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            try:
                self._pinned(whole) if self.version is None else self._published(whole, self.version)
            except CommandFailed as failed:
                raise BuildFailed(f"{self.name} could not be built: {failed}") from failed
            whole.rename(file.parent)

    def _pinned(self, into: Path) -> None:
        folder = HERE / self.module
        call = [go_for(folder / "go.mod", self.name), "build", *FLAGS, "-o", str(into / self.name), self.package]
        run(call, env=environment(), cwd=folder)

    def _published(self, into: Path, version: str) -> None:
        compiler = go_for(downloaded(self.module, version) / "go.mod", self.name)
        call = [compiler, "install", *FLAGS, f"{self.module}/{self.package}@{version}"]
        run(call, env={**environment(), "GOBIN": str(into)}, cwd=into)


def cache_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of built programs: SPECBENCH_PEERS_CACHE, or next to the test cluster's cache."""
    given = variables.get("SPECBENCH_PEERS_CACHE")
    home = variables.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given).absolute() if given else Path(home).absolute() / "specbench" / "peers"


def downloaded(module: str, version: str) -> Path:
    """Return a published module's folder in Go's cache. Raises RequirementMissing without Go, CommandFailed."""
    # Run outside any module and without a vendor folder, so that only the version matters.
    call = [go(), "mod", "download", "-json", f"{module}@{version}"]
    return Path(json.loads(run(call, env=environment(), cwd=Path(tempfile.gettempdir())))["Dir"])


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
