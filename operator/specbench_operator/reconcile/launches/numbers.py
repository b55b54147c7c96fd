"""No number of a launch is ever used twice, whatever is lost: results, pods and progress are told apart by it.

Status knows the numbers, and so do the Jobs. A Job goes only once status tells of its launch; where it does not (it was
lost, or a write of it was refused), the Job is stopped instead: its GPUs are free as soon, and it stays as the record.
Where neither knows, the results do: each launch that answered left a document there. One that never answered, whose
Job is gone and which status has forgotten, has left nothing that a later one of its number could be taken for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from specbench_api.spec.conditions import GroupState
from specbench_api.spec.status import GroupStatus
from specbench_operator.reconcile.launches.group import GroupView
from specbench_operator.reconcile.launches.judgement import SUSPENDED
from specbench_operator.state.decision import StopJob
from specbench_operator.state.jobs import Job, Scope, Verdict


def is_told(rows: Sequence[GroupStatus], engine: Job) -> bool:
    """Whether the rows of a status that was written know that this Job's launch had begun."""
    row = next((row for row in rows if row.index == engine.place.group), None)
    if row is None or engine.launch is None:
        return False
    return row.attempt > engine.launch or (row.attempt == engine.launch and row.state is not GroupState.WAITING)


def given_back(engine: Job, now: datetime) -> StopJob:
    """The end of a launch whose GPUs are wanted back, written on its Job."""
    message = "its GPUs were given back, and its Job stays because status did not tell of it"
    return StopJob(engine.ref, Verdict(Scope.LAUNCH, SUSPENDED, message, now), ended=False)


def unused(view: GroupView, stored: int | None) -> GroupView:
    """The view with a launch to be made that is younger than the last one that the results tell of.

    Nobody knows any more how those between them ended, so none of them counts as lost.
    """
    if view.launch is None or stored is None or view.launch > stored:
        return view
    following = stored + 1
    passed_over = following - view.launch
    return replace(view, attempt=following, launch=following, given_back=view.given_back + passed_over)
