"""Choose among arms, each at one load: a drafter, no drafter, or inconclusive; and name what may be better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import BASELINE_NAME, TEXT_ONLY
from specbench_api.spec.load import REPEATS_MAX
from specbench_client.analysis.decision.candidates import CandidateCell
from specbench_client.analysis.statistics.effects import is_larger
from specbench_client.documents.figure import TOO_WIDE, Figure, Verdict
from specbench_client.documents.recommendation import ArmChoice, Attainment, RecommendationAnswer

Complexity = Mapping[str, tuple[int, int]]
"""Arm → how complex it is to run, to be compared with that of others."""
MEASURE_BASELINE = "`specbench measure --endpoint URL --baseline URL` and `specbench run FILE` measure one"


def choose(entrants: Sequence[CandidateCell], complexity: Complexity, worth: float) -> ArmChoice:
    """Choose one arm. `entrants`: every arm, eligible or not, in the plan's order; `complexity`: of all arms.

    Cells that could not be judged may be better than any answer; other arms only than a drafter, from which they are
    not shown to differ.
    """
    choice = _answer(entrants, complexity, worth)
    settled = [each for each in entrants if each.arm in (choice.arm, *choice.tied)]
    unknown = [cell for each in entrants for cell in each.unjudged]
    if choice.answer is RecommendationAnswer.DRAFTER:
        best = max(settled, key=_rank)
        unknown += [each for each in entrants if each not in settled and _may_beat(each, best)]
    return choice.model_copy(update={"unknown": [cell.unknown for cell in unknown]})


def _may_beat(each: CandidateCell, best: CandidateCell) -> bool:
    """Return whether this arm, whose interval is too wide or whose repeats are too few, may be better than the best."""
    return each.eligible and not each.is_baseline and not _apart(best, each)


def _answer(entrants: Sequence[CandidateCell], complexity: Complexity, worth: float) -> ArmChoice:
    baseline = next((each for each in entrants if each.arm == BASELINE_NAME), None)
    drafters = [each for each in entrants if each.arm != BASELINE_NAME]
    if not any(each.eligible for each in entrants):
        return _nothing(entrants)
    is_out = baseline is not None and not baseline.eligible and not baseline.unjudged
    better = [each for each in drafters if each.eligible and each.candidate.conclusion is Verdict.BETTER]
    winners = [each for each in drafters if each in better or (is_out and _is_enough(each))]
    if winners:
        return _winner(winners, complexity, baseline)
    if baseline is not None and baseline.eligible:
        return _baseline(drafters, worth)
    return _without_baseline(drafters, baseline, worth)


def _nothing(entrants: Sequence[CandidateCell]) -> ArmChoice:
    if entrants and all(_missed(each) and not each.unjudged for each in entrants):
        reason = "every arm is shown to miss the targets"
        return ArmChoice(answer=RecommendationAnswer.NOTHING_MEETS, reason=reason)
    reason = "no arm is known to meet the targets" if any(map(_missed, entrants)) else "no arm could be judged"
    return ArmChoice(answer=RecommendationAnswer.INCONCLUSIVE, reason=reason)


def _winner(winners: Sequence[CandidateCell], complexity: Complexity, baseline: CandidateCell | None) -> ArmChoice:
    best = max(winners, key=_rank)
    equals = [each for each in winners if each is best or not _apart(best, each)]
    chosen = min(equals, key=lambda each: complexity[each.arm])
    tied = [each.arm for each in equals if each is not chosen]
    reason = f"{_words(chosen.candidate.gain)} the baseline's"
    if tied:
        is_simpler = all(complexity[chosen.arm] < complexity[arm] for arm in tied)
        simpler = ", and simpler to run" if is_simpler else ""
        reason += f"; indistinguishable from {', '.join(tied)}{simpler}"
    if baseline is not None and _missed(baseline):
        shown = baseline.candidate.attainment is Attainment.MISSED
        reason += f"; the baseline misses the targets{'' if shown else ' by value'}"
    reason += _unshown(chosen)
    return ArmChoice(answer=RecommendationAnswer.DRAFTER, arm=chosen.arm, tied=tied, reason=reason)


def _baseline(drafters: Sequence[CandidateCell], worth: float) -> ArmChoice:
    if not drafters:
        return ArmChoice(answer=RecommendationAnswer.INCONCLUSIVE, reason="only the baseline was measured")
    open_ones = [each for each in drafters if not _ruled_out(each, worth)]
    if not open_ones:
        states = ", ".join(f"{each.arm} {_state(each, worth)}" for each in drafters)
        reason = f"every drafter is shown to gain less than {100 * (worth - 1):g}% or to miss the targets: {states}"
        return ArmChoice(answer=RecommendationAnswer.NO_DRAFTER, arm=BASELINE_NAME, reason=reason)
    states = ", ".join(f"{each.arm} {_state(each, worth)}" for each in open_ones if each.eligible)
    reason = f"{states}{'; ' if states else ''}keep the baseline until more is measured"
    return ArmChoice(answer=RecommendationAnswer.INCONCLUSIVE, reason=reason)


def _without_baseline(drafters: Sequence[CandidateCell], baseline: CandidateCell | None, worth: float) -> ArmChoice:
    """Explain why no arm is the answer where the baseline is not eligible."""
    if baseline is None or baseline.unjudged:
        why = f"this run has no baseline ({MEASURE_BASELINE})" if baseline is None else "the baseline is unknown"
        return ArmChoice(
            answer=RecommendationAnswer.INCONCLUSIVE, reason=f"{why}, so whether a drafter pays is unknown"
        )
    states = ", ".join(f"{each.arm} {_state(each, worth)}" for each in drafters if each.eligible)
    reason = f"the baseline is shown to miss the targets; {states}"
    return ArmChoice(answer=RecommendationAnswer.INCONCLUSIVE, reason=reason)


def _is_enough(each: CandidateCell) -> bool:
    """Return whether this drafter may be used where the baseline is shown to miss the targets."""
    return each.eligible and each.candidate.attainment is Attainment.MET and not each.is_below(1)


def _ruled_out(each: CandidateCell, worth: float) -> bool:
    """Return whether this drafter is shown not to be worth it: by the gain's upper bound or a missed target."""
    return not each.unjudged and (each.candidate.attainment is Attainment.MISSED or each.is_below(worth))


def _missed(each: CandidateCell) -> bool:
    return each.judged and not each.candidate.attainment.within


def _apart(best: CandidateCell, other: CandidateCell) -> bool:
    larger, smaller = (each.merit or each.candidate.gain for each in (best, other))
    return larger is not None and smaller is not None and is_larger(larger, smaller)


def _rank(each: CandidateCell) -> float:
    """Return what ranks the arm, for sorting; 0 where there is nothing."""
    figure = each.merit or each.candidate.gain
    return figure.value if figure is not None and figure.value is not None else 0.0


def _state(each: CandidateCell, worth: float) -> str:
    if each.candidate.attainment is Attainment.MISSED:
        return "is shown to miss the targets"
    gain = each.candidate.gain
    words = {
        Verdict.INDISTINGUISHABLE: f"is unknown: {TOO_WIDE}" if gain and gain.is_too_wide else "is indistinguishable",
        Verdict.UNCLEAR: "is unclear once corrected for the number of comparisons",
        Verdict.TOO_FEW_REPEATS: "has too few repeats to tell",
        Verdict.NO_INTERVAL: "has no interval",
        Verdict.WORSE: "is worse than the baseline",
        Verdict.BETTER: "is better than the baseline",
        None: "was not compared",
    }[each.candidate.conclusion]
    more = ""
    if gain is not None and each.candidate.conclusion is Verdict.INDISTINGUISHABLE:
        forecast = (
            "" if gain.is_too_wide or each.is_below(worth) else _what_would_decide(gain, len(each.cell.points), worth)
        )
        more = f", {'; '.join(filter(None, [gain.excluded, forecast]))}".removesuffix(", ")
    return f"{words} ({_words(gain)}{each.loads}{more})" if gain is not None and gain.value is not None else words


def _what_would_decide(gain: Figure, repeats: int, worth: float) -> str:
    """Return about how many repeats with the same noise show a gain, or that it is not worth a drafter.

    The interval contains 1 and `worth`, and narrows with the root of the number of repeats until it excludes one.
    """
    assert gain.interval is not None, "an indistinguishable gain has one"
    value, low, high = (math.log(each or 1.0) for each in (gain.value, gain.interval.low, gain.interval.high))
    now_and_then = ((value - low, value), (high - value, math.log(worth) - value))
    needed = repeats * min((now / then for now, then in now_and_then if then > 0), default=math.inf) ** 2
    more = f"about {math.floor(needed) + 1} repeats" if needed < REPEATS_MAX else "more requests in each repeat"
    share, unit = gain.interval.runs_share, gain.interval.runs
    if share is None:
        return f"{more}, or more prompts, would decide"
    half = (gain.interval.high - gain.interval.low) / 2
    part = f"{half * math.sqrt(share):.2f} of the ± {half:.2f} are differences between {unit}"  # squares add up
    return f"{more} would decide: {part}" if share > 1 / 2 else f"more prompts would decide: only {part}"


def _words(gain: Figure | None) -> str:
    return (gain.factor if gain else "") or "its gain is unknown"


def _unshown(chosen: CandidateCell) -> str:
    if chosen.candidate.attainment is not Attainment.MET_BY_VALUE:
        return ""
    return f"; it meets the targets by value, but this is not shown: {chosen.why_by_value}"


# The simpler arm is chosen among arms that are indistinguishable.
#
# The baseline is simplest; then methods that draft from the text alone (no weights, no memory of their own); then heads
# that are part of the target; then separate models. Ties are settled by the shorter draft, then by the plan's order.


def complexity_of(arm: Arm) -> tuple[int, int]:
    """Return how complex an arm is to run."""
    drafter = arm.drafter
    if drafter is None:
        return 0, 0
    kind = 1 if drafter.method in TEXT_ONLY else 2 if drafter.model is None else 3
    return kind, drafter.num_draft_tokens or drafter.num_speculative_tokens
