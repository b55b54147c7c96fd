"""Errors of the test cluster.

ClusterError
├── RequirementMissing   this machine lacks something; the message lists everything
├── BuildFailed          a Go program could not be built
├── CommandFailed        a system command failed
├── StartFailed          a component exited, or was not ready in time
├── NotUp                the call requires a running cluster
├── ForeignCluster       another cluster uses this machine
└── UnknownComponent     no component has that name
"""

from collections.abc import Sequence

_OTHER_CLUSTER = "Any other cluster, such as kind, can be used instead: set SPECBENCH_KUBECONFIG to its kubeconfig."


class ClusterError(Exception):
    """Base class of this package's errors; the message is shown to the user."""


class RequirementMissing(ClusterError):
    """Requirements are missing; lists all of them, not only the first.

    `cannot`: what is not possible without them; `instead`: an alternative.
    """

    def __init__(
        self,
        missing: Sequence[str],
        *,
        cannot: str = "a cluster cannot be created on this machine",
        instead: str = _OTHER_CLUSTER,
    ) -> None:
        self.missing = tuple(missing)
        lines = "\n".join(f"  - {item}" for item in self.missing)
        super().__init__(f"{cannot}:\n{lines}\n{instead}".rstrip())


class BuildFailed(ClusterError):
    """The Go toolchain failed; contains the end of its output."""


class CommandFailed(ClusterError):
    """A command failed; contains the command and the end of its output."""

    def __init__(self, argv: Sequence[str], code: int, output: str) -> None:
        self.argv, self.code, self.output = tuple(argv), code, output
        super().__init__(f"`{' '.join(argv)}` failed with exit code {code}:\n{output.strip()[-2000:]}")


class StartFailed(ClusterError):
    """A component did not start; contains the end of its log."""


class NotUp(ClusterError):
    """The state folder has no running cluster."""


class ForeignCluster(ClusterError):
    """Another cluster is on this machine; it is neither shared nor stopped."""


class UnknownComponent(ClusterError):
    """No component of the cluster has that name."""
