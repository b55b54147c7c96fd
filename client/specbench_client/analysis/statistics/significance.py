"""Verdicts on effects by their p-values, with Holm's correction for multiple comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.analysis.statistics.effects import Effect
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.documents.figure import Verdict


def verdicts(
    effects: Sequence[Effect | None], above: Verdict = Verdict.FASTER, below: Verdict = Verdict.SLOWER
) -> list[Verdict]:
    """Return the verdict on each effect of one family, after Holm's correction over all of them; None: not comparable.

    `above` and `below`: the words for a ratio that is significantly above and below 1.
    """
    significant = holm_rejections([each.p_value if each else None for each in effects], 1 - LEVEL)
    return [
        _verdict(each, above if each and each.value > 0 else below, significant=is_significant)
        for each, is_significant in zip(effects, significant, strict=True)
    ]


def _verdict(effect: Effect | None, claim: Verdict, *, significant: bool) -> Verdict:
    if effect is None:
        return Verdict.NOT_COMPARABLE
    if effect.too_few_repeats:
        return Verdict.TOO_FEW_REPEATS
    interval = effect.interval()
    if interval is None:
        return Verdict.NO_INTERVAL
    if interval.low <= 1 <= interval.high:
        return Verdict.INDISTINGUISHABLE
    return claim if significant else Verdict.UNCLEAR


def holm_rejections(p_values: Sequence[float | None], alpha: float) -> list[bool]:
    """Return which hypotheses are rejected (Holm 1979); none without a p-value.

    `alpha`: bound of the probability of any false rejection among all of them.
    """
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    found = [False] * len(p_values)
    for rank, (value, index) in enumerate(ranked):
        if value > alpha / (len(ranked) - rank):
            break
        found[index] = True
    return found
