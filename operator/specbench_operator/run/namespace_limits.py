"""Limits of the fence that concern all runs of a namespace: a run that exceeds one waits until others end.

Runs in progress are never stopped by a limit; it only decides which run may begin. Waiting runs begin in the order of
their creation. A run that could not begin anyway, because its store cannot be read for example, does not keep its turn:
otherwise one wrong name would stop its namespace. Runs that are resumed or corrected together do not observe each other
as in progress yet; `handlers.begun_runs` remembers those that just began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specbench_api.fence.model import Limits
from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.conditions import IN_PROGRESS_PHASES, Phase
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.state.run import NamespaceRun

NAMED_MAX = 3
"""Maximum number of runs that a message names."""
_STARTABLE_PHASES = (Phase.PENDING, Phase.SUSPENDED, "")
_WAITING_FOR_RUNS = "WaitingForRuns"
_KEEPS_ITS_TURN = ("", str(Phase.PENDING), str(Phase.SUSPENDED), "WaitingForS3", _WAITING_FOR_RUNS)
"""Reasons of a run that begins as soon as it may."""


@dataclass(frozen=True)
class NamespaceWait:
    """Why a run must not begin yet. `awaits`: names of the runs of which one must end first."""

    reason: str
    message: str
    awaits: frozenset[str]


def namespace_wait(
    run: SpecBenchRun, created: str, runs: Iterable[NamespaceRun], limits: Limits
) -> NamespaceWait | None:
    """Why a run that is not in progress must wait; None if it may begin.

    `created`: its creationTimestamp. `runs`: all runs of its namespace.
    """
    others = [other for other in runs if other.uid != run.metadata.uid]
    used_hours = sum(each.gpu_seconds for each in runs) / SECONDS_AN_HOUR
    if run.spec.placement.engine_devices and 0 < limits.gpu_hours <= used_hours:
        message = (
            f"the runs of this namespace have used {used_hours:.1f} GPU-hours, and this cluster allows"
            f" {limits.gpu_hours:g}: delete finished runs (their results stay), or ask the administrator to raise"
            " fence.limits.gpuHours"
        )
        return NamespaceWait("WaitingForGpuHours", message, frozenset())
    ahead = sorted(other.name for other in others if _is_ahead(other, (created, run.metadata.name)))
    if not 0 < limits.runs <= len(ahead):
        return None
    named = ", ".join(ahead[:NAMED_MAX]) + (f" and {len(ahead) - NAMED_MAX} more" if len(ahead) > NAMED_MAX else "")
    message = (
        f"this cluster allows {limits.runs} runs of a namespace at a time, and {named} come first: this run starts when"
        " one of them ends or is suspended"
    )
    return NamespaceWait(_WAITING_FOR_RUNS, message, frozenset(ahead))


def _is_ahead(other: NamespaceRun, own: tuple[str, str]) -> bool:
    """Whether the other run is in progress, or waits for longer."""
    if other.ended:
        return False
    if other.phase in IN_PROGRESS_PHASES:
        return True
    startable = other.phase in _STARTABLE_PHASES and other.reason in _KEEPS_ITS_TURN
    return startable and not (other.suspended or other.deleting) and (other.created, other.name) < own
