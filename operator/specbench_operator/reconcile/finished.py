"""A run that has ended: nothing is measured again, whatever is found; its children go when their time is over.

Only children go. The SpecBenchRun stays: git would create it again, and it would run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from specbench_api.spec.conditions import ConditionStatus, ConditionType, Phase
from specbench_api.spec.run import RunSpec
from specbench_api.spec.status import RunStatus
from specbench_operator.reconcile.actions import releases
from specbench_operator.reconcile.course import Course
from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.moments import from_text
from specbench_operator.reconcile.scene import condition_of
from specbench_operator.reconcile.telling.conditions import dated, for_tools
from specbench_operator.state.decision import Decision
from specbench_operator.state.jobs import Job, Thing

DEFAULT_TTL_S = int(RunSpec.model_fields["ttl_seconds_after_finished"].default)


def finished(resource: Mapping[str, Any], previous: RunStatus, children: Children, now: datetime) -> Decision:
    """What is left to be done for it. It asks the raw spec, so that it works for a spec that this version refuses."""
    status = with_generation(last_word(previous, now), int(resource["metadata"].get("generation", 0)))
    ended = from_text(previous.completion_time) or now
    ttl_s = int(resource.get("spec", {}).get("ttlSecondsAfterFinished", DEFAULT_TTL_S))
    remaining_s = (ended + timedelta(seconds=ttl_s) - now).total_seconds()
    leftovers: tuple[Job | Thing, ...] = (*children.jobs, *children.things)
    if remaining_s > 0:
        wait_s = remaining_s if leftovers else None
        return Decision(status, delete=releases(children), look_again_s=wait_s, at_rest=True)
    gone = tuple(child.ref for child in leftovers if not child.deleting)
    return Decision(status, delete=gone, at_rest=not leftovers)


def last_word(status: RunStatus, now: datetime) -> RunStatus:
    """The status with its end told to tools, also where something that came after the end was written over it."""
    succeeded = status.phase is Phase.SUCCEEDED
    told = condition_of(status, ConditionType.READY if succeeded else ConditionType.STALLED)
    if told and told.status is ConditionStatus.TRUE:
        return status
    said = for_tools(_course(status, succeeded=succeeded))
    kept = [row for row in status.conditions if row.type not in said]
    return status.model_copy(update={"conditions": [*kept, *dated(said, status, status.observed_generation, now)]})


def _course(status: RunStatus, *, succeeded: bool) -> Course:
    """As the conditions that nothing writes over tell it."""
    if succeeded:
        trust = condition_of(status, ConditionType.TRUSTWORTHY)
        return Course(Phase.SUCCEEDED, "Finished", trust.message if trust else "")
    load = condition_of(status, ConditionType.LOAD_FINISHED)
    if load and load.status is ConditionStatus.FALSE:
        return Course(Phase.FAILED, load.reason, load.message)
    return Course(Phase.FAILED, str(Phase.FAILED), "")


def with_generation(status: RunStatus, generation: int) -> RunStatus:
    """The same status, said of a newer generation: kstatus asks for that."""
    conditions = [row.model_copy(update={"observed_generation": generation}) for row in status.conditions]
    return status.model_copy(update={"observed_generation": generation, "conditions": conditions})
