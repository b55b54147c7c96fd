"""The whole answer of `specbench replay`: every setting over every answer, and how much the outputs copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from specbench_api.outcome.cost_model import CostModel, DraftCost
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.replay import OverlapBin, OverlapFigures, ReplayFigures, ReplayReport, ReplaySetting
from specbench_client.analysis.oracle.answers import Answers, Reach, Tokens
from specbench_client.analysis.oracle.course import Course, Drafter, fixed
from specbench_client.analysis.oracle.policies import AL, AL_MEAN, SPEEDUP, Pricing, lengths
from specbench_client.analysis.oracle.sampled import Ratio, Words, figure, sampled
from specbench_client.analysis.oracle.seconds import course_seconds, plain_seconds
from specbench_client.analysis.oracle.told import STEPPED_MIN, Told, single
from specbench_client.analysis.replay.bins import Overlaps, bins_of, with_arms
from specbench_client.analysis.replay.lookup import Lookup, replay
from specbench_client.analysis.replay.overlap import overlap
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.pairing import Pairs

DRAFTED = Words("ratio", "steps that found a match to draft from / steps", "replayed")
RATE = Words("ratio", "accepted / drafted tokens", "replayed")
COPIED = Words(
    "ratio", "share of the output's 4-grams of tokens that occur in the prompt, mean over answers", "token ids"
)
BLEU = Words(
    "ratio",
    "BLEU-4 of the output against the prompt (clipped precisions of 1 to 4 tokens, brevity penalty, no smoothing), mean"
    " over answers",
    "token ids",
)
NGRAM = "ngram"
Tick = Callable[[int, int], None]
LIMITS = (
    "exact for greedy answers by the target itself: at a temperature other drafts would have led to other texts",
    "token ids must be the target's own, those of the chat template among them; another tokenizer gives an estimate",
    "as vLLM looks up (earliest match of the longest suffix); other engines choose otherwise between matches",
    "what an engine drafts from pools of other requests (suffix decoding, SGLang's n-gram cache) is not in it",
)
NO_COST = "no speed-up without a step cost: tokens a step alone do not say whether drafting pays (--step-cost)"
COST = "speed-ups are as good as the step cost ({name}: {source}), and hold for batches of copies"


@dataclass(frozen=True)
class Logged:
    """One answer of a log, as token ids."""

    prompt_id: str
    category: str | None
    prompt: Tokens
    output: Tokens
    repeat: int = 0


@dataclass(frozen=True)
class Log:
    """What was read: its answers, where the ids are from, and how many rows were left out for which reason."""

    source: str
    token_ids: str
    answers: Sequence[Logged]
    left_out: Mapping[str, int]
    simulated: bool = False
    """The answers, and what was measured of them, are of no engine."""


@dataclass(frozen=True)
class Knobs:
    """What is tried: every shortest with every longest suffix that is no shorter, and every draft length."""

    shortest: tuple[int, ...]
    longest: tuple[int, ...]
    drafts: tuple[int, ...]

    @property
    def lookups(self) -> list[Lookup]:
        """One for each pair of suffix lengths, with the most drafts: fewer are the same look-up cut."""
        pairs = product(self.shortest, self.longest)
        return [Lookup(low, high, max(self.drafts)) for low, high in pairs if low <= high]


def told_by_replay(logged: Logged, lookup: Lookup) -> Told:
    """What an n-gram drafter has accepted in one answer."""
    reach = replay(logged.prompt, logged.output, lookup)
    size = int(logged.prompt.size)
    return Told(logged.prompt_id, logged.category, logged.repeat, size, reach, logged.output)


def replay_report(
    log: Log,
    knobs: Knobs,
    pricing: Pricing,
    tick: Tick = lambda _done, _of: None,
    pairs: Mapping[str, Pairs] | None = None,
) -> ReplayReport:
    """Replay. `tick`: told how many look-ups of how many are done. `pairs`: of a run's arms with its baseline."""
    logged = [each for each in log.answers if each.output.size >= STEPPED_MIN]
    short = len(log.answers) - len(logged)
    left_out = {**log.left_out, **({"fewer than two output tokens": short} if short else {})}
    copying = _Overlap.of(logged)
    overlaps = Overlaps([each.prompt_id for each in logged], {"copied_share": copying.copied, "bleu4": copying.bleu})
    bins = bins_of(overlaps)
    lengths_in = [dict[str, Figure]() for _ in bins]
    settings: list[ReplaySetting] = []
    lookups = knobs.lookups
    for number, lookup in enumerate(lookups):
        put = single([told_by_replay(each, lookup) for each in logged])
        settings += [_setting(put.answers, put.reach, lookup, drafts, pricing) for drafts in knobs.drafts]
        for each, found in zip(bins, lengths_in, strict=True):
            some, places = put.answers.of(each.answers)
            found |= {
                f"k={drafts} n={lookup.shortest}-{lookup.longest}": _length(some, put.reach.at(places), drafts)
                for drafts in knobs.drafts
            }
        tick(number + 1, len(lookups))
    answers = single([_silent(each) for each in logged]).answers
    cost = pricing.cost
    by_overlap = [
        OverlapBin(by=each.by, low=each.low, high=each.high, answers=int(each.answers.sum()), acceptance_lengths=found)
        for each, found in zip(bins, lengths_in, strict=True)
    ]
    return ReplayReport(
        source=log.source,
        simulated=log.simulated,
        token_ids=log.token_ids,
        answers=answers.count,
        prompt_tokens=int(answers.prompt_tokens.sum()),
        output_tokens=answers.positions,
        left_out=left_out,
        overlap=copying.figures(answers, np.ones(answers.count, dtype=np.bool_)),
        overlap_by_category={name: copying.figures(answers, chosen) for name, chosen in _categories(answers).items()},
        by_overlap=with_arms(by_overlap, pairs, overlaps) if pairs else by_overlap,
        step_cost=cost,
        settings=settings,
        limits=[*LIMITS, COST.format(name=cost.name, source=cost.source) if cost else NO_COST],
    )


def _setting(answers: Answers, reach: Reach, lookup: Lookup, drafts: int, pricing: Pricing) -> ReplaySetting:
    def of(some: Answers, places: Tokens) -> ReplayFigures:
        drafter = Drafter(NGRAM, reach.at(places), _cost(pricing.cost))
        return _figures(some, fixed(some, drafter, drafts), drafter.reach, pricing)

    everywhere = np.arange(answers.positions)
    parts = {name: answers.of(chosen) for name, chosen in _categories(answers).items()}
    return ReplaySetting(
        drafts=drafts,
        lookup_min=lookup.shortest,
        lookup_max=lookup.longest,
        overall=of(answers, everywhere),
        categories={name: of(some, places) for name, (some, places) in parts.items()},
    )


def _length(answers: Answers, reach: Reach, drafts: int) -> Figure:
    course = fixed(answers, Drafter(NGRAM, reach, None), drafts)
    return figure(sampled([lengths(answers, course)[0]], answers.layout)[0], answers.layout, AL)


def _figures(answers: Answers, course: Course, reach: Reach, pricing: Pricing) -> ReplayFigures:
    drafted = course.drafts.astype(np.float64)
    accepted = np.minimum(reach.accepted[course.steps.place], course.drafts).astype(np.float64)
    sums = course.steps.sums
    ratios = [
        *lengths(answers, course),
        Ratio(sums(answers, (drafted > 0).astype(np.float64)), sums(answers)),
        Ratio(sums(answers, accepted), sums(answers, drafted)),
        *(_speedup(answers, course, pricing.cost, batch) for batch in pricing.priced if pricing.cost),
    ]
    told = sampled(ratios, answers.layout)
    shown = [
        figure(number, answers.layout, words)
        for number, words in zip(told, [AL, AL_MEAN, DRAFTED, RATE, *[SPEEDUP] * len(pricing.priced)], strict=True)
    ]
    return ReplayFigures(
        acceptance_length=shown[0],
        acceptance_length_mean=shown[1],
        drafted_steps=shown[2],
        acceptance_rate=shown[3],
        speedups={str(batch): each for batch, each in zip(pricing.priced, shown[4:], strict=True)},
    )


def _speedup(answers: Answers, course: Course, cost: CostModel, batch: int) -> Ratio:
    return Ratio(plain_seconds(answers, cost, batch), course_seconds(answers, course, cost, batch))


def _cost(cost: CostModel | None) -> DraftCost | None:
    return cost.drafters.get(NGRAM) if cost else None


def _silent(logged: Logged) -> Told:
    nothing = Reach(np.zeros(logged.output.size, dtype=np.int64))
    return Told(logged.prompt_id, logged.category, logged.repeat, int(logged.prompt.size), nothing)


def _categories(answers: Answers) -> dict[str, Mask]:
    """Which answers are of which category; empty for one alone."""
    names = sorted({name for name in answers.categories if name is not None})
    if len(set(answers.categories)) < STEPPED_MIN:
        return {}
    return {name: np.array([each == name for each in answers.categories], dtype=np.bool_) for name in names}


@dataclass(frozen=True)
class _Overlap:
    """Of each answer; NaN for fewer than four tokens."""

    copied: Values
    bleu: Values

    @classmethod
    def of(cls, logged: Sequence[Logged]) -> _Overlap:
        found = [overlap(each.prompt, each.output) for each in logged]
        copied, bleu = [each.copied_share for each in found], [each.bleu_4 for each in found]
        return cls(np.array(copied, dtype=np.float64), np.array(bleu, dtype=np.float64))

    def figures(self, answers: Answers, chosen: Mask) -> OverlapFigures:
        some, _ = answers.of(chosen)
        ratios = [_known(values[chosen]) for values in (self.copied, self.bleu)]
        copied, bleu = sampled(ratios, some.layout)
        return OverlapFigures(copied_share=figure(copied, some.layout, COPIED), bleu4=figure(bleu, some.layout, BLEU))


def _known(values: Values) -> Ratio:
    """A mean over those that are known."""
    known = ~np.isnan(values)
    return Ratio(np.where(known, values, 0.0), known.astype(np.float64))
