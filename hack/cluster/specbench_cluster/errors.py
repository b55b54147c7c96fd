"""What can go wrong with a test cluster.

ClusterError
├── RequirementMissing   this machine lacks something; says all of it at once
├── BuildFailed          a Go program could not be built
├── CommandFailed        a program of the system ended with an error
├── StartFailed          a component ended, or was not ready in time
├── NotUp                the request needs a running cluster
├── ForeignCluster       something that is not ours holds the ground
└── UnknownComponent     no component has that name
"""

from collections.abc import Sequence

_OTHER_CLUSTER = "Any other cluster (kind, for example) serves as well: give its kubeconfig in SPECBENCH_KUBECONFIG."


class ClusterError(Exception):
    """Root of this package's errors; its text is meant for the person at the terminal."""


class RequirementMissing(ClusterError):
    """Something must be installed or granted first; carries every lack, not only the first.

    `cannot` says what is not possible without it, `instead` what else would do.
    """

    def __init__(
        self,
        missing: Sequence[str],
        *,
        cannot: str = "a cluster cannot be made on this machine",
        instead: str = _OTHER_CLUSTER,
    ) -> None:
        self.missing = tuple(missing)
        lines = "\n".join(f"  - {item}" for item in self.missing)
        super().__init__(f"{cannot}:\n{lines}\n{instead}".rstrip())


class BuildFailed(ClusterError):
    """The Go toolchain refused; carries the end of what it said."""


class CommandFailed(ClusterError):
    """A program ended with an error; carries its call and the end of what it said."""

    def __init__(self, argv: Sequence[str], code: int, said: str) -> None:
        self.argv, self.code, self.said = tuple(argv), code, said
        super().__init__(f"`{' '.join(argv)}` ended with {code}:\n{said.strip()[-2000:]}")


class StartFailed(ClusterError):
    """A component did not come up; carries the end of its log."""


class NotUp(ClusterError):
    """There is no running cluster in this state folder."""


class ForeignCluster(ClusterError):
    """Another cluster is on this machine; we neither share its ground nor end it."""


class UnknownComponent(ClusterError):
    """No component of the cluster has that name."""
