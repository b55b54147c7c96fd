"""Statuses of runs that cannot be worked on: a spec that cannot be run, and a step that the cluster refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.spec.conditions import ConditionType, GateWait, Phase
from specbench_api.spec.status import GroupStatus, RunStatus
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.reconcile.actions import releases
from specbench_operator.reconcile.course import Course
from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.launches.group import MESSAGE_MAX
from specbench_operator.reconcile.launches.numbers import given_back, is_told
from specbench_operator.reconcile.scene import condition_of, status_of
from specbench_operator.reconcile.telling.conditions import UNFINISHED, dated, for_tools, no, unknown, yes
from specbench_operator.reconcile.telling.problem import PROBLEM_MAX
from specbench_operator.reconcile.telling.size import fitted
from specbench_operator.reconcile.telling.transitions import events_between
from specbench_operator.state.decision import Decision

_UNTOUCHED = (
    ConditionType.QUEUED,
    ConditionType.ENGINE_READY,
    ConditionType.LOAD_FINISHED,
    ConditionType.RESULTS_DURABLE,
    ConditionType.TRUSTWORTHY,
)


def invalid(
    resource: Mapping[str, Any], error: InvalidSpec, children: Children, previous: RunStatus, now: datetime
) -> Decision:
    """Validated=False with every path and remedy. Nothing is created, and what an older operator left is released.

    An engine of which status does not tell is stopped, not deleted: the run may come to be valid and go on.
    """
    message = "; ".join(str(problem) for problem in error.problems)
    generation = int(resource["metadata"].get("generation", 0))
    said = {
        ConditionType.VALIDATED: no("InvalidSpec", message),
        **dict.fromkeys(_UNTOUCHED, unknown(UNFINISHED)),
        **({ConditionType.GATE_PASSED: unknown(GateWait.NOT_YET)} if resource.get("spec", {}).get("gate") else {}),
        **for_tools(Course(Phase.INVALID, "InvalidSpec", message)),
    }
    status = previous.model_copy(
        update={
            "observed_generation": generation,
            "phase": Phase.INVALID,
            "conditions": dated(said, previous, generation, now),
            "problem": "InvalidSpec",
        }
    )
    stop = tuple(
        given_back(job, now)
        for job in children.engines
        if not (job.harmless or job.deleting or job.suspended or is_told(previous.groups, job))
    )
    stopped = {each.ref for each in stop}
    delete = tuple(ref for ref in releases(children) if ref not in stopped)
    return Decision(status, stop=stop, delete=delete, events=events_between(previous, status), at_rest=True)


def hindered(resource: Mapping[str, Any], meant: RunStatus, error: OperatorError, now: datetime) -> RunStatus:
    """The last status, with what hinders: Retry keeps Reconciling=True, Stop makes it Stalled=True.

    Of the status that was `meant`, only what the refused step does not bear on is said: since when an engine idles.
    The last word of a run that has ended stays.
    """
    previous = status_of(resource)
    if is_finished(previous):
        return previous
    generation = int(resource["metadata"].get("generation", 0))
    message = str(error)
    stopped = isinstance(error, Stop)
    told = yes(error.reason, message)
    rows = {
        ConditionType.READY: no(error.reason, message),
        ConditionType.RECONCILING: no("Stalled") if stopped else told,
        ConditionType.STALLED: told if stopped else no("Reconciling"),
    }
    meant_rows = {(row.index, row.attempt): row for row in meant.groups}
    groups = [_idling(row, meant_rows.get((row.index, row.attempt), row), message) for row in previous.groups]
    kept = [row for row in previous.conditions if row.type not in rows]
    changed = dated({**rows}, previous, generation, now)
    update = {
        "observed_generation": generation,
        "conditions": [*kept, *changed],
        "groups": groups,
        "problem": error.reason[:PROBLEM_MAX],
    }
    return fitted(previous.model_copy(update=update))


def _idling(row: GroupStatus, meant: GroupStatus, why: str) -> GroupStatus:
    if meant.idle_since is None:
        return row
    return row.model_copy(update={"idle_since": meant.idle_since, "message": why[:MESSAGE_MAX]})


def is_finished(status: RunStatus) -> bool:
    """Whether the run has ended; then status is no cache any more but the last word."""
    return status.completion_time is not None and condition_of(status, ConditionType.READY) is not None
