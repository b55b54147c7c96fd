"""The search of a run (`spec.search`): its next round, and the speed-ups of arms that were launched less often.

Both follow from the stored records alone, so a client that was killed decides the same again. What is compared are the
paired log ratios of single repeats, which lack the speed of the baseline: all arms of a round share it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from specbench_api.plan.expansion import most_rounds
from specbench_api.plan.plan import Plan, PlanCell
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.statistics.bootstrap import ChosenInterval, IntervalBounds
from specbench_client.analysis.statistics.intervals import widened
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.analysis.statistics.race import Place, SpeedModel, next_round
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.documents.figure import counted


def cells_of_next_round(plan: Plan, judged: Sequence[EvaluatedCell]) -> set[PlanCell]:
    """Return what a search measures next; empty at its end. `judged`: the cells so far."""
    if plan.search is None or plan.added_rounds >= most_rounds(plan, retries=0):
        return set()
    worth = math.log1p(plan.search.worth_percent / 100)
    models = _speed_models(judged)
    raced = next_round(models, worth, plan.begun_repeats)
    compared = {(arm, *place) for place, model in models.items() for arm in model.arms}
    spoiled = {(each.cell.arm, each.cell.workload, each.cell.level) for each in judged if each.may_become_valid}
    lacking = spoiled - compared
    baseline = {(BASELINE_NAME, workload, level) for _, workload, level in lacking}
    return {(arm, *place) for arm, places in raced.items() for place in places} | lacking | baseline


def with_pooled_variance(judged: Sequence[EvaluatedCell]) -> list[EvaluatedCell]:
    """Return the cells of a search, whose speed-ups have the variance between launches of all arms at the same load."""
    models = _speed_models(judged)
    return [_pooled(each, models.get((each.cell.workload, each.cell.level))) for each in judged]


def _pooled(judged: EvaluatedCell, model: SpeedModel | None) -> EvaluatedCell:
    effect, speedup, arm = judged.effect, judged.cell.speedup, judged.cell.arm
    if model is None or effect is None or effect.prompts is None or speedup is None or arm not in model.arms:
        return judged
    found = model.difference(arm, BASELINE_NAME, 1 - LEVEL)
    if not math.isfinite(found.high):
        return judged
    method = (
        f"anytime-valid confidence sequence (mixture t), unit: launch; least squares over arms and rounds of a search,"
        f" variance of the launches of {counted(len(model.column_of), 'arm')}"
    )
    launches = ChosenInterval(IntervalBounds(found.low, found.high), method, float(model.freedom))
    chosen = widened(launches, found.value, effect.prompts, effect.value)
    pooled = replace(effect, value=found.value, chosen=chosen, anytime_p=found.p_value, pooled=True)
    update = {"value": math.exp(found.value), "interval": pooled.interval(), "missing": ""}
    return replace(
        judged, effect=pooled, cell=judged.cell.model_copy(update={"speedup": speedup.model_copy(update=update)})
    )


def _speed_models(judged: Sequence[EvaluatedCell]) -> dict[Place, SpeedModel]:
    """Fit the paired log ratios at each workload and load, of the valid cells; the baseline's are 0."""
    speeds: dict[Place, dict[tuple[str, int], float]] = defaultdict(dict)
    for each in judged:
        if each.cell.valid and each.effect and each.effect.draws:
            of_place = speeds[each.cell.workload, each.cell.level]
            for repeat, ratio in zip(each.effect.draws.repeats, each.effect.draws.runs, strict=True):
                if math.isfinite(ratio):
                    of_place[each.cell.arm, int(repeat)] = float(ratio)
                    of_place[BASELINE_NAME, int(repeat)] = 0.0
    return {place: SpeedModel.fit(of_place) for place, of_place in speeds.items() if of_place}
