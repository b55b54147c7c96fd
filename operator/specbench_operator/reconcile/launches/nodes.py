"""On which nodes the run's engines served: where the next launch is drawn to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from specbench_api.plan.names import ROLE_ENGINE
from specbench_operator.state.jobs import Job
from specbench_operator.state.pods import Pod
from specbench_operator.state.stored import LaunchStored


def served_on(pods: Iterable[Pod], known: Iterable[str]) -> tuple[str, ...]:
    """Nodes of the youngest launch that is seen ready; where none is, those that are known.

    One that never got ready counts for nothing: its node may be the very reason.
    """
    engines = [pod for pod in pods if pod.place.role == ROLE_ENGINE and pod.node]
    ready = [pod for pod in engines if pod.ready and not pod.worker]
    if not ready:
        return tuple(known)
    youngest = max(ready, key=lambda pod: pod.created_at)
    return tuple(sorted({pod.node for pod in engines if pod.place == youngest.place and pod.alive}))


def known_nodes(
    told: Iterable[str], clients: Iterable[Job], stored: LaunchStored | None, created: datetime | None
) -> tuple[str, ...]:
    """Nodes of the last launch of which no pod is left: by status, else by its client's Job, else by what S3 holds.

    A launch that was asked before the run was created is an earlier run's, whose results this one carries on: its node
    may be another cluster's, and one that waits for it would wait for ever.
    """
    if nodes := tuple(told):
        return nodes
    told_by = [client for client in clients if client.engine_nodes]
    if told_by:
        return max(told_by, key=lambda client: (client.created_at, client.ref.name)).engine_nodes
    if stored is None or (created is not None and stored.asked < created):
        return ()
    return (stored.node,)
