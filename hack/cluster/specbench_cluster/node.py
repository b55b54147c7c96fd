"""The node's own mount namespace, in which containerd and kubelet live.

Some paths are fixed in kubelet, containerd and the CNI library (/var/lib/cni, shim
sockets, device plugins). In a namespace of their own those paths lie in our state
folder, and every mount a pod makes goes with the last process: a host whose cluster
was killed outright has no mount of it left, and a containerd of its own is not met.
"""

from pathlib import Path

from specbench_cluster.host import FIXED_FOLDERS
from specbench_cluster.processes import Process
from specbench_cluster.settings import Settings

HOLDER = "node-namespace"


def holder_call(settings: Settings) -> list[str]:
    """The process that holds the namespace while containerd is restarted: mounts, then waits.

    `slave`: what the host mounts later is seen inside, what pods mount is not seen outside.
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
    """Whether the mounts are made: only then the shell has become the holder."""
    if not holder.alive:
        return False
    called = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")[0]
    return called.decode() == str(settings.programs / HOLDER)


def inside(holder: Process) -> list[str]:
    """What precedes a call so that it runs within the node's namespace."""
    return ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
