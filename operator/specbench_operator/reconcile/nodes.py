"""On which nodes the run's engines served: where the next launch is drawn to."""

from __future__ import annotations

from collections.abc import Iterable

from specbench_api.plan.names import ROLE_ENGINE
from specbench_operator.state import Pod


def served_on(pods: Iterable[Pod], known: Iterable[str]) -> tuple[str, ...]:
    """Nodes of the youngest launch that is seen ready; where none is, those that status knows.

    One that never got ready counts for nothing: its node may be the very reason.
    """
    engines = [pod for pod in pods if pod.place.role == ROLE_ENGINE and pod.node]
    ready = [pod for pod in engines if pod.ready and not pod.worker]
    if not ready:
        return tuple(known)
    youngest = max(ready, key=lambda pod: pod.created_at)
    return tuple(sorted({pod.node for pod in engines if pod.place == youngest.place and pod.alive}))
