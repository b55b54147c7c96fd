"""The stop rule of `--until-sure` (`stop: WhenDecided`): after which repeat a run is decided."""

from __future__ import annotations

from collections.abc import Container, Sequence

from specbench_api.plan.plan import REPEATS_OF_ROUND, REPEATS_TO_DECIDE, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.request import WORTH
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.documents.figure import Figure, Verdict


def decided_after(plan: Plan, measured: Container[str], judged: Sequence[EvaluatedCell]) -> int | None:
    """Return after how many repeats a run that stops when it is decided has ended; None for another or a later end.

    A speed-up is decided if it is found to be above or below 1 and its interval is not too wide, or if this
    excludes every difference that would matter (`WORTH`). An invalid cell keeps the run going only while the rounds
    with invalid points may still become few enough to leave them out (`RoundsLeftOut`). No cell does if the last
    round sent prompts again: others would too.
    """
    complete = ended_repeats(plan, measured)
    if not may_be_decided(plan, complete):
        return None
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    return complete if compared and all(map(_is_decided, compared)) else None


def may_be_decided(plan: Plan, complete: int) -> bool:
    """Return whether a run with a stop rule may be decided after this number of complete repeats."""
    return plan.stop == "WhenDecided" and complete >= REPEATS_TO_DECIDE and complete % REPEATS_OF_ROUND == 0


def ended_repeats(plan: Plan, measured: Container[str]) -> int:
    """Return how many repeats are complete; 0 if a further one has begun.

    An added round begins at an even index, so after an odd number of repeats one index has no point.
    """
    unfinished = {point.repeat for point in plan.points if point.hash not in measured}
    complete = min(unfinished, default=plan.load.repeats)
    begun = any(point.repeat >= complete and point.hash in measured for point in plan.points)
    return 0 if begun else len({point.repeat for point in plan.points if point.repeat < complete})


def _is_decided(judged: EvaluatedCell) -> bool:
    cell = judged.cell
    if judged.prompts_spent or not cell.valid:
        return judged.prompts_spent or not judged.may_become_valid
    enough = (cell.compared_repeats or 0) >= REPEATS_TO_DECIDE
    return enough and cell.claims is not None and is_settled(cell.claims.overall, cell.speedup)


def is_settled(claimed: Verdict, speedup: Figure | None) -> bool:
    """Return whether more repeats of a valid comparison would not change what it is good for."""
    if claimed.is_claim:
        return not (speedup and speedup.is_too_wide)
    bounds = speedup.interval if speedup else None
    return bounds is not None and bounds.low >= 1 / WORTH and bounds.high <= WORTH
