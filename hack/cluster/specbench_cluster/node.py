"""The node's own mount namespace, in which containerd and kubelet run.

Some paths are fixed in kubelet, containerd and the CNI library (/var/lib/cni, shim
sockets, device plugins). In this namespace those paths are mounts of the state folder.
All mounts of pods disappear with the last process, so a killed cluster leaves no mounts
on the host, and there is no conflict with a containerd of the host.
"""

from pathlib import Path

from specbench_cluster.host import FIXED_FOLDERS
from specbench_cluster.processes import Process
from specbench_cluster.settings import Settings

HOLDER = "node-namespace"


def holder_call(settings: Settings) -> list[str]:
    """The command that keeps the namespace while containerd restarts: it mounts folders, then waits.

    `slave` propagation: later mounts of the host are visible inside, mounts of pods are not visible outside.
    """
    private = settings.state / "fixed"
    binds = []
    for folder in FIXED_FOLDERS:
        inside = private / folder.strip("/").replace("/", "-")
        inside.mkdir(parents=True, exist_ok=True)
        binds.append(f"mount --bind '{inside}' '{folder}'")
    script = " && ".join([*binds, f"exec '{settings.programs / HOLDER}'"])
    return ["unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", script]


def is_held(settings: Settings, holder: Process) -> bool:
    """Whether the mounts are complete: only then does the shell exec the holder."""
    if not holder.alive:
        return False
    called = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")[0]
    return called.decode() == str(settings.programs / HOLDER)


def inside(holder: Process) -> list[str]:
    """The command prefix that runs a command in the node's namespace."""
    return ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
