"""Statuses of campaigns that cannot be worked on: one that has no plan, and a step that the cluster refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.campaign.conditions import dated, for_tools
from specbench_operator.campaign.course import Course
from specbench_operator.campaign.scene import condition_of, status_of
from specbench_operator.campaign.transitions import events_between
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.reconcile.telling.conditions import UNFINISHED, no, unknown
from specbench_operator.state.campaign import CampaignDecision

_UNKNOWN = (Kind.LOAD_FINISHED, Kind.RESULTS_DURABLE, Kind.TRUSTWORTHY, Kind.GATE_PASSED)


def invalid(
    resource: Mapping[str, Any], error: InvalidSpec, previous: CampaignStatus, now: datetime
) -> CampaignDecision:
    """Validated=False with every problem. Nothing is created, deleted or changed: runs that are at work go on."""
    message = "; ".join(str(problem) for problem in error.problems)
    generation = int(resource["metadata"].get("generation", 0))
    said = {
        Kind.VALIDATED: no("InvalidSpec", message),
        **dict.fromkeys(_UNKNOWN, unknown(UNFINISHED)),
        **for_tools(Course(CampaignPhase.INVALID, "InvalidSpec", message, stalled=True)),
    }
    conditions = dated(said, previous, generation, now)
    update = {"observed_generation": generation, "phase": CampaignPhase.INVALID, "conditions": conditions}
    status = previous.model_copy(update={**update, "next_schedule_time": None})
    return CampaignDecision(status, events=events_between(previous, status))


def hindered(resource: Mapping[str, Any], error: OperatorError, now: datetime) -> CampaignStatus:
    """The last status, with what hinders: Retry keeps Reconciling=True, Stop makes it Stalled=True.

    What was said at the end of a round stays: a request that fails after it does not make it unfinished.
    """
    previous = status_of(resource)
    if is_finished(previous):
        return previous
    generation = int(resource["metadata"].get("generation", 0))
    stopped = isinstance(error, Stop)
    phase = previous.phase or CampaignPhase.PENDING
    course = Course(phase, error.reason, str(error), reconciling=not stopped, stalled=stopped)
    rows = for_tools(course)
    kept = [row for row in previous.conditions if row.type not in rows]
    conditions = [*kept, *dated(rows, previous, generation, now)]
    return previous.model_copy(update={"observed_generation": generation, "phase": phase, "conditions": conditions})


def is_finished(status: CampaignStatus) -> bool:
    """Whether the round has ended, as far as status knows."""
    ready = condition_of(status, Kind.READY)
    return ready is not None and ready.status is ConditionStatus.TRUE
