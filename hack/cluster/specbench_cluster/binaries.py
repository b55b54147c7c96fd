"""Builds the cluster's programs from their Go modules, once, and caches them.

Each program has its own folder in the cache, named by its version (and, for our
own module, by a digest of its sources), so that a change rebuilds only that program.
A folder is created by a rename and is therefore always complete.
"""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster.commands import locked, run
from specbench_cluster.errors import BuildFailed, CommandFailed, RequirementMissing

KUBERNETES_VERSION = "v1.35.4"
MODULES = Path(__file__).resolve().parent.parent
SOURCES = MODULES / "kubernetes"
COREDNS_SOURCES = MODULES / "coredns"
_STAMP = "k8s.io/component-base/version"
#: The names of the links to the single program `node`.
NODE_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")


@dataclass(frozen=True, slots=True)
class Tool:
    """One Go program: a published package, or, without a version, a package of our module `sources`."""

    name: str
    package: str
    version: str | None = None
    ldflags: str = "-s -w"
    sources: Path = SOURCES

    @property
    def key(self) -> str:
        """Return the name of this program's folder in the cache."""
        machine = platform.machine()
        if self.version is not None:
            return f"{self.name}-{self.version}-{machine}"
        release = f"{KUBERNETES_VERSION}-" if self.sources == SOURCES else ""
        return f"{self.name}-{release}{_digest_of_module(self.sources, self.ldflags)}-{machine}"


# In the order in which the tests need them: those of S3 run while the others are still being built.
TOOLS = (
    Tool("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
    # kubelet and API server compare their versions, which a Go build does not set by itself.
    Tool(
        "node",
        "./node",
        ldflags=f"-s -w -X {_STAMP}.gitVersion={KUBERNETES_VERSION} -X {_STAMP}.gitMajor=1 -X {_STAMP}.gitMinor=35",
    ),
    Tool("pause", "./pause"),
    # Upstream's main links every plugin with clients of three clouds; ours compiles in 60 % of the CPU time.
    Tool("coredns", ".", sources=COREDNS_SOURCES),
    Tool("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0"),
)


def _digest_of_module(sources: Path, ldflags: str) -> str:
    digest = hashlib.sha256(ldflags.encode())
    for source in sorted(p for p in sources.rglob("*") if p.suffix in {".go", ".mod", ".sum"}):
        digest.update(str(source.relative_to(sources)).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:12]


def path_of(cache: Path, tool: Tool) -> Path:
    """Return the path of a program after it is built."""
    return cache / tool.key / tool.name


def programs(cache: Path) -> dict[str, Path]:
    """Return every program's name and file."""
    files = {tool.name: path_of(cache, tool) for tool in TOOLS}
    return {**dict.fromkeys(NODE_NAMES, files["node"]), **{n: f for n, f in files.items() if n != "node"}}


def build(cache: Path, progress: Callable[[str], None], *names: str) -> dict[str, Path]:
    """Build the named tools, or all of them (nine minutes on two cores), unless cached; return `programs`.

    Each tool has its own lock: who needs one of them does not wait for the others.
    """
    for tool in TOOLS:
        if (tool.name in names or not names) and not path_of(cache, tool).exists():
            go = shutil.which("go")
            if go is None:
                raise RequirementMissing(["Go 1.26 or newer, as `go` on PATH (it builds the cluster's programs)"])
            with locked(cache / f"{tool.name}.lock"):
                if not path_of(cache, tool).exists():  # another process may have built it during the wait for the lock
                    progress(f"building {tool.name} {tool.version or KUBERNETES_VERSION} (once)")
                    _build(go, cache, tool)
    return programs(cache)


def _build(go: str, cache: Path, tool: Tool) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{tool.name}-") as scratch:
        built = Path(scratch) / "built"
        built.mkdir()
        # `-trimpath` makes builds reproducible in any folder. Debugging data would be stripped in the end, and takes a
        # tenth of the compiler's time.
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", tool.ldflags]
        env = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(built)}
        try:
            if tool.version is None:
                run([go, "build", *flags, "-o", str(built / tool.name), tool.package], env=env, cwd=tool.sources)
            else:
                run([go, "install", *flags, f"{tool.package}@{tool.version}"], env=env, cwd=Path(scratch))
        except CommandFailed as failed:
            raise BuildFailed(f"{tool.name} could not be built: {failed}") from failed
        built.rename(cache / tool.key)
