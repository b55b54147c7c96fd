"""What tells health as Flux and Argo CD do, as programs: built once from Go modules, and kept.

Each lies in a folder of its own in the cache, named by its version or by a digest of its sources, so that a change of
one rebuilds one. A folder appears by a rename and is therefore always whole.
"""

from __future__ import annotations

import hashlib
import json
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
SOURCES = (".go", ".mod", ".sum")
FLAGS = ("-trimpath", "-ldflags", "-s -w")


@dataclass(frozen=True, slots=True)
class Program:
    """`module` is a folder beside this file, or a published module where there is a version; `package` lies in it."""

    module: str
    package: str
    version: str | None = None


PROGRAMS = {
    "kstatus": Program("flux", "./kstatus"),  # 23 s, 9 MB
    "healthchecks": Program("flux", "./healthchecks"),  # a minute, 30 MB
    "argo": Program("argo", "."),  # five minutes, 100 MB
    "actionlint": Program("github.com/rhysd/actionlint", "cmd/actionlint", "v1.7.12"),
}

PUBLISHED = {
    "applications.argoproj.io": (
        "github.com/argoproj/argo-cd/v3",
        "v3.1.16",
        "manifests/crds/application-crd.yaml",
    ),
    "kustomizations.kustomize.toolkit.fluxcd.io": (
        "github.com/fluxcd/kustomize-controller",
        "v1.7.3",
        "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
    ),
    "gitrepositories.source.toolkit.fluxcd.io": (
        "github.com/fluxcd/source-controller",
        "v1.7.0",
        "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml",
    ),
}
"""Definitions of others' resources: module, version, and the file in it. They are read where Go keeps them."""


def cache_folder() -> Path:
    """Where programs are kept: SPECBENCH_PEERS_CACHE, or beside the test cluster's."""
    given = os.environ.get("SPECBENCH_PEERS_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given).absolute() if given else Path(home).absolute() / "specbench" / "peers"


def program(name: str) -> Path:
    """The program's file, built where the cache lacks it. Raises RequirementMissing without Go, CommandFailed."""
    what = PROGRAMS[name]
    cache = cache_folder()
    built = cache / f"{name}-{what.version or _digest(HERE / what.module)}-{platform.machine()}" / name
    if not built.exists():
        with locked(cache / f"{name}.lock"):
            if not built.exists():  # another process may have built it while we waited
                _build(what, built)
    return built


def definition(name: str) -> Path:
    """The file with another's CustomResourceDefinition. Raises RequirementMissing without Go, CommandFailed."""
    module, version, file = PUBLISHED[name]
    # Outside any module, and never with a vendor folder: the version is all that counts.
    told = run([_go(), "mod", "download", "-json", f"{module}@{version}"], cwd=Path(tempfile.gettempdir()))
    return Path(json.loads(told)["Dir"]) / file


def _build(what: Program, built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parents[1], prefix=".build-") as scratch:
        folder = Path(scratch) / "built"
        folder.mkdir()
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder)}
        if what.version is None:
            call = [_go(), "build", *FLAGS, "-o", str(folder / built.name), what.package]
            run(call, env=environment, cwd=HERE / what.module)
        else:
            call = [_go(), "install", *FLAGS, f"{what.module}/{what.package}@{what.version}"]
            run(call, env=environment, cwd=Path(scratch))
        folder.rename(built.parent)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _go() -> str:
    found = shutil.which("go")
    if found is None:
        raise RequirementMissing(["Go 1.26 or newer, as `go` on PATH (it builds what Flux and Argo CD tell health by)"])
    return found
