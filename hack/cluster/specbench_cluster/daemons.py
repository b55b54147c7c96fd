"""Starts, awaits and stops the cluster's daemons by name, and finds those that another process started."""

from pathlib import Path

from specbench_cluster import node
from specbench_cluster.commands import SEARCH_PATH, tail, wait_until
from specbench_cluster.components import COMPONENTS, Component
from specbench_cluster.errors import NotUp, StartFailed, UnknownComponent
from specbench_cluster.processes import Process, called_below, end, recorded, spawn
from specbench_cluster.settings import Settings


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
        if self.process(node.HOLDER) is not None:
            return
        log = self._settings.logs / f"{node.HOLDER}.log"
        holder = spawn(node.holder_call(self._settings), log, self._environment, self._record(node.HOLDER))
        wait_until(
            lambda: node.is_held(self._settings, holder),
            "the node's mount namespace",
            timeout_s=10,
            explain=lambda: self.log(node.HOLDER),
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
            holder = self.process(node.HOLDER)
            if holder is None:
                raise NotUp("the node's namespace is gone: run `cluster down` and `cluster up`")
            call = [*node.inside(holder), *call]
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
        known = [process for name in (node.HOLDER, *COMPONENTS) if (process := self.process(name))]
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
