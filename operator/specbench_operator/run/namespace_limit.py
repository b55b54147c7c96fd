"""The limit of the fence on the runs of a namespace that are in progress: further ones wait until others end.

Runs in progress are never stopped by it; it only decides which run may begin. Waiting runs begin in the order of
their creation. A run that could not begin anyway, because its store cannot be read for example, does not keep its
turn: otherwise one wrong name would stop its namespace. Runs that are resumed or corrected together do not observe
each other as in progress yet; `handlers.reconcilers` remembers those that just began.
"""

from __future__ import annotations

from specbench_api.spec.conditions import IN_PROGRESS_PHASES, Phase
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import RunStatus
from specbench_operator.run.launches.children import Children
from specbench_operator.run.view import NamespaceWait
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import list_names
from specbench_operator.state.run import NamespaceRun, RunObservation

_STARTABLE_PHASES = (Phase.PENDING, Phase.SUSPENDED, "")
WAITING_FOR_RUNS = "WaitingForRuns"
_KEEPS_ITS_TURN = ("", str(Phase.PENDING), str(Phase.SUSPENDED), "WaitingForS3", WAITING_FOR_RUNS)
"""Reasons of a run that begins as soon as it may."""


def _is_ahead(other: NamespaceRun, own: tuple[str, str]) -> bool:
    """Whether the other run is in progress, or waits for longer."""
    if other.ended:
        return False
    if other.phase in IN_PROGRESS_PHASES:
        return True
    startable = other.phase in _STARTABLE_PHASES and other.reason in _KEEPS_ITS_TURN
    return startable and not (other.suspended or other.deleting) and (other.created, other.name) < own


def find_namespace_wait(
    run: SpecBenchRun, observed: RunObservation, children: Children, previous: RunStatus, settings: OperatorSettings
) -> NamespaceWait | None:
    """Why the run must not begin yet; None if it may, or if it is in progress."""
    jobs = (*children.engines, *children.clients)
    if previous.phase in IN_PROGRESS_PHASES or any(not (job.stopping_or_ended or job.deleting) for job in jobs):
        return None
    own = (str(observed.resource["metadata"].get("creationTimestamp", "")), run.metadata.name)
    others = [other for other in observed.namespace_runs if other.uid != run.metadata.uid]
    ahead, most = sorted(other.name for other in others if _is_ahead(other, own)), settings.limits.runs
    if not 0 < most <= len(ahead):
        return None
    message = (
        f"this cluster allows {most} runs of a namespace at a time, and {list_names(ahead)} come first:"
        " this run starts when one of them ends or is suspended"
    )
    return NamespaceWait(message, frozenset(ahead))
