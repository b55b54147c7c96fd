"""The Kueue objects that a platform team creates: a quota, the queue of a namespace, and priorities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peers.kueue.controller import GROUP, Kueue

VERSION = f"{GROUP}/v1beta2"
GPU = "nvidia.com/gpu"
LOW, HIGH = "nightly", "release"
"""Priorities: one that can be preempted, and one that preempts."""


@dataclass(frozen=True)
class Quota:
    """GPUs for one namespace. Cluster-scoped objects are named after it."""

    kueue: Kueue
    namespace: str
    gpus: int
    queue: str = "bench"

    def grant(self) -> None:
        """Create the quota and the priorities, without a queue."""
        quota = {"name": GPU, "nominalQuota": self.gpus}
        resources = {"coveredResources": [GPU], "flavors": [{"name": self.namespace, "resources": [quota]}]}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "preemption": preemption, "resourceGroups": [resources]}
        self.kueue.apply(
            _named("ResourceFlavor", self.namespace, spec={}),
            _named("ClusterQueue", self.namespace, spec=spec),
            *(
                _named("WorkloadPriorityClass", self._priority(name), value=value)
                for name, value in _PRIORITIES.items()
            ),
        )

    def open(self) -> None:
        """Create the queue of the namespace."""
        queue = _named("LocalQueue", self.queue, spec={"clusterQueue": self.namespace})
        self.kueue.apply({**queue, "metadata": {"name": self.queue, "namespace": self.namespace}})

    def take_back(self) -> None:
        """Delete the cluster-scoped objects once nothing uses them."""
        priorities = (f"workloadpriorityclass.{GROUP}/{self._priority(name)}" for name in _PRIORITIES)
        self.kueue.delete(
            f"clusterqueue.{GROUP}/{self.namespace}", f"resourceflavor.{GROUP}/{self.namespace}", *priorities
        )

    def placement(self, priority: str | None = None) -> dict[str, Any]:
        """`spec.placement` of a run whose engine takes the whole quota."""
        named = {"queuePriorityClass": self._priority(priority)} if priority else {}
        return {"gpus": self.gpus, "queueName": self.queue, **named}

    def _priority(self, name: str) -> str:
        return f"{self.namespace}-{name}"


_PRIORITIES = {LOW: 10, HIGH: 1000}


def _named(kind: str, name: str, **fields: Any) -> Mapping[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **fields}
