"""Starts, awaits and stops the cluster's daemons by name, and finds those that another process started.

containerd and kubelet run in a mount namespace of their own. Some of their paths are fixed (/var/lib/cni, shim sockets,
device plugins); in that namespace these paths lead into the state folder, so a containerd of the host is not affected.
When the last process ends, the kernel removes every mount that a pod made, even if the cluster was killed.
"""

from pathlib import Path

from specbench_cluster.commands import SEARCH_PATH, tail, wait_until
from specbench_cluster.components import COMPONENTS, Component
from specbench_cluster.errors import NotUp, StartFailed, UnknownComponent
from specbench_cluster.host import FIXED_FOLDERS
from specbench_cluster.processes import Process, called_below, end, recorded, spawn
from specbench_cluster.settings import Settings

NAMESPACE_HOLDER = "node-namespace"
"""Name of the process that keeps the node's mount namespace while containerd is restarted."""


class Daemons:
    """All daemons of a state folder. The records in the folder are authoritative; the object has no state."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A minimal environment: a proxy set for the shell would also affect calls within the cluster.
        self._environment = {"PATH": SEARCH_PATH, "HOME": str(settings.state), "LANG": "C.UTF-8"}

    def process(self, name: str) -> Process | None:
        """Return the running process of a component, or of the node's namespace."""
        process = recorded(self._record(name))
        return process if process is not None and process.alive else None

    def hold_namespace(self) -> None:
        """Create the node's mount namespace unless it exists."""
        if self.process(NAMESPACE_HOLDER) is not None:
            return
        log = self._settings.logs / f"{NAMESPACE_HOLDER}.log"
        holder = spawn(_holder_call(self._settings), log, self._environment, self._record(NAMESPACE_HOLDER))
        wait_until(
            lambda: _is_held(self._settings, holder),
            "the node's mount namespace",
            timeout_s=10,
            explain=lambda: self.log(NAMESPACE_HOLDER),
        )

    def start(self, name: str) -> None:
        """Start a component unless it runs, without waiting for it."""
        component = component_named(name)
        if self.process(name) is not None:
            return
        s = self._settings
        if not s.kubeconfig.exists():
            raise NotUp(f"no cluster in {s.state}: start one with `cluster up`")
        call = [str(s.programs / name), *component.arguments(s)]
        if component.in_node:
            holder = self.process(NAMESPACE_HOLDER)
            if holder is None:
                raise NotUp("the node's namespace is gone: run `cluster down` and `cluster up`")
            call = [*_inside(holder), *call]
        spawn(call, s.logs / f"{name}.log", {**self._environment, **component.environment(s)}, self._record(name))

    def wait_for(self, name: str) -> None:
        """Wait until a component is ready. Raises StartFailed with the end of its log."""
        component = component_named(name)

        def serves() -> bool:
            if self.process(name) is None:  # otherwise another process on the same port could answer instead
                raise StartFailed(f"{name} exited immediately. {self.log(name)}")
            return component.ready(self._settings)

        wait_until(serves, name, explain=lambda: self.log(name))

    def end(self, name: str, *, patience_s: float) -> None:
        """Stop a component and wait until it is gone."""
        component_named(name)
        process = self.process(name)
        if process is not None:
            end([process], patience_s=patience_s)

    def end_all(self) -> None:
        """Kill every daemon and shim, recorded or not, starting with the two that would restart others."""
        for name in ("kubelet", "containerd"):
            self.end(name, patience_s=0)
        known = [process for name in (NAMESPACE_HOLDER, *COMPONENTS) if (process := self.process(name))]
        end([*known, *called_below(self._settings.programs, self._settings.containerd_socket)])

    def log(self, name: str) -> str:
        """Return the end of a daemon's log for an error message."""
        log = self._settings.logs / f"{name}.log"
        return f"{log} ends:\n{tail(log)}"

    def _record(self, name: str) -> Path:
        return self._settings.records / f"{name}.json"


def component_named(name: str) -> Component:
    """Return the component with this name. Raises UnknownComponent."""
    if name not in COMPONENTS:
        raise UnknownComponent(f"unknown component {name!r}: give one of {', '.join(COMPONENTS)}")
    return COMPONENTS[name]


def _holder_call(settings: Settings) -> list[str]:
    """Return the command that mounts the fixed folders and then waits, holding the namespace.

    Propagation `slave`: later mounts of the host appear in the namespace, mounts of pods do not appear on the host.
    """
    private = settings.state / "fixed"
    binds = []
    for folder in FIXED_FOLDERS:
        inside = private / folder.strip("/").replace("/", "-")
        inside.mkdir(parents=True, exist_ok=True)
        binds.append(f"mount --bind '{inside}' '{folder}'")
    script = " && ".join([*binds, f"exec '{settings.programs / NAMESPACE_HOLDER}'"])
    return ["unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", script]


def _is_held(settings: Settings, holder: Process) -> bool:
    """Return whether the mounts are complete: only then has the shell replaced itself with the holder."""
    if not holder.alive:
        return False
    program = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")[0]
    return program.decode() == str(settings.programs / NAMESPACE_HOLDER)


def _inside(holder: Process) -> list[str]:
    """Return the prefix of a command that runs it in the node's namespace."""
    return ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
