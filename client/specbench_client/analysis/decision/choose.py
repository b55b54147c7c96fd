"""One choice among arms, each at one load: a drafter, no drafter, or that neither can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.comparison import Standing
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import Answer, Attainment
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.candidates import Entry
from specbench_client.analysis.estimates.evidence import apart


@dataclass(frozen=True)
class Entrant:
    """One arm at the load at which it enters, and its gain over the baseline there or at the baseline's best."""

    entry: Entry
    gain: Figure | None
    standing: Standing | None
    whole: bool = True
    """Whether nothing is lacking of the arm that could have been better: it was judged at every load in question."""

    @property
    def arm(self) -> str:
        return self.entry.cell.arm

    @property
    def eligible(self) -> bool:
        return self.entry.eligible


@dataclass(frozen=True)
class Choice:
    """What can be said. `arm` is None where none is recommended."""

    answer: Answer
    arm: str | None
    reason: str
    tied: tuple[str, ...] = ()
    gain: Figure | None = None


def choose(entrants: Sequence[Entrant], simplest: Sequence[str], worth: float) -> Choice:
    """Choose. `entrants`: every arm, eligible or not; `simplest`: arms, the simplest first."""
    baseline = next((each for each in entrants if each.arm == BASELINE_NAME), None)
    drafters = [each for each in entrants if each.arm != BASELINE_NAME]
    if not any(each.eligible for each in entrants):
        return _nothing(entrants)
    winners = [each for each in drafters if each.eligible and each.standing is Standing.BETTER]
    if winners:
        return _winner(winners, simplest, baseline)
    if baseline is not None and baseline.eligible:
        return _baseline(drafters, worth)
    return _without_baseline(drafters, baseline, simplest)


def _nothing(entrants: Sequence[Entrant]) -> Choice:
    judged = [each for each in entrants if not each.entry.candidate.excluded]
    if judged and all(_missed(each) for each in judged):
        return Choice(Answer.NOTHING_MEETS, None, "no arm meets the targets here")
    reasons = dict.fromkeys(_why_not(each) for each in entrants)
    told = [f"{', '.join(_named(each) for each in entrants if _why_not(each) == why)} {why}" for why in reasons]
    return Choice(Answer.CANNOT_TELL, None, "; ".join(told) or "nothing was measured")


def _named(each: Entrant) -> str:
    """The arm in a sentence, in which `none` would be read as "not one"."""
    return "the baseline" if each.arm == BASELINE_NAME else each.arm


def _winner(winners: Sequence[Entrant], simplest: Sequence[str], baseline: Entrant | None) -> Choice:
    best = max(winners, key=lambda each: _value(each.gain))
    equals = [each for each in winners if each is best or not _apart(best, each)]
    chosen = min(equals, key=lambda each: simplest.index(each.arm))
    tied = tuple(each.arm for each in equals if each is not chosen)
    reason = f"{_words(chosen.gain)} the baseline's"
    if tied:
        reason += f"; not told apart from {', '.join(tied)}, and simpler to run"
    if baseline is not None and _missed(baseline):
        reason += "; the baseline misses the targets"
    return Choice(Answer.DRAFTER, chosen.arm, f"{reason}{_unshown(chosen)}", tied, chosen.gain)


def _baseline(drafters: Sequence[Entrant], worth: float) -> Choice:
    if not drafters:
        return Choice(Answer.CANNOT_TELL, None, "only the baseline was measured")
    open_ones = [each for each in drafters if not _ruled_out(each, worth)]
    if not open_ones:
        told = ", ".join(f"{each.arm} {_state(each)}" for each in drafters)
        reason = f"every drafter is shown to gain less than {worth - 1:.0%}, or to miss the targets: {told}"
        return Choice(Answer.NO_DRAFTER, BASELINE_NAME, reason)
    told = ", ".join(f"{each.arm} {_state(each)}{_lacking(each)}" for each in open_ones)
    return Choice(Answer.CANNOT_TELL, None, f"{told}; until more is measured, the baseline is the simpler one")


def _without_baseline(drafters: Sequence[Entrant], baseline: Entrant | None, simplest: Sequence[str]) -> Choice:
    """The baseline cannot be chosen: where that is because it misses the targets, what meets them is the answer."""
    if baseline is None or baseline.entry.candidate.excluded:
        why = "was not measured" if baseline is None else _why_not(baseline)
        return Choice(Answer.CANNOT_TELL, None, f"the baseline {why}, so it cannot be said whether a drafter pays")
    meeting = [each for each in drafters if each.entry.candidate.attainment is Attainment.MET and each.eligible]
    usable = [each for each in meeting if not _below(each.gain)]
    if usable and baseline.entry.candidate.attainment is Attainment.MISSED:
        chosen = min(usable, key=lambda each: simplest.index(each.arm))
        reason = f"it meets the targets, which the baseline is shown to miss; {_state(chosen)}"
        tied = tuple(each.arm for each in usable if each is not chosen)
        return Choice(Answer.DRAFTER, chosen.arm, reason, tied, chosen.gain)
    told = ", ".join(f"{each.arm} {_state(each)}" for each in drafters if each.eligible)
    return Choice(Answer.CANNOT_TELL, None, f"the baseline {_why_not(baseline)}; {told}")


def _ruled_out(each: Entrant, worth: float) -> bool:
    """Whether it is shown that this drafter is not worth while: its gain's upper bound, or a target that it misses."""
    if each.entry.candidate.excluded or not each.whole:
        return False
    if each.entry.candidate.attainment is Attainment.MISSED:
        return True
    told = each.standing not in (None, Standing.TOO_FEW_REPEATS, Standing.NO_INTERVAL)
    bounds = each.gain.interval if each.gain and told else None
    return bounds is not None and bounds.high < worth


def _missed(each: Entrant) -> bool:
    return each.entry.candidate.attainment in (Attainment.MISSED, Attainment.MISSED_BY_VALUE)


def _below(gain: Figure | None) -> bool:
    return gain is not None and gain.interval is not None and gain.interval.high < 1


def _apart(best: Entrant, other: Entrant) -> bool:
    return best.gain is not None and other.gain is not None and apart(best.gain, other.gain)


def _value(gain: Figure | None) -> float:
    return gain.value if gain is not None and gain.value is not None else 0.0


def _why_not(each: Entrant) -> str:
    candidate = each.entry.candidate
    if candidate.excluded:
        return f"cannot be chosen: {candidate.excluded}"
    return {
        Attainment.UNKNOWN: "lacks a figure that a target asks for",
        Attainment.MISSED: "is shown to miss the targets",
        Attainment.MISSED_BY_VALUE: "misses the targets by its value, which is not shown",
    }.get(candidate.attainment, "meets the targets")


def _state(each: Entrant) -> str:
    if not each.eligible:
        return _why_not(each)
    words = {
        Standing.INDISTINGUISHABLE: "is indistinguishable",
        Standing.UNCLEAR: "is not clearly different among so many comparisons",
        Standing.TOO_FEW_REPEATS: "has too few repeats to tell",
        Standing.NO_INTERVAL: "has no interval",
        Standing.WORSE: "is worse than the baseline",
        Standing.BETTER: "is better than the baseline",
        None: "was not compared",
    }[each.standing]
    return f"{words} ({_words(each.gain)})" if each.gain is not None and each.gain.value is not None else words


def _lacking(each: Entrant) -> str:
    return "" if each.whole or not each.eligible else ", and could not be judged at every load"


def _words(gain: Figure | None) -> str:
    if gain is None or gain.value is None:
        return "no gain to tell"
    bounds = gain.interval
    return f"{gain.value:.2f}x" + (f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else "")


def _unshown(chosen: Entrant) -> str:
    by_value = chosen.entry.candidate.attainment is Attainment.MET_BY_VALUE
    return "; it meets the targets by value, its bounds do not show it" if by_value else ""
