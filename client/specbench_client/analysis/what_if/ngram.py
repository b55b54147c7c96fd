"""Builds the report of `specbench analyze ngram`: every n-gram setting replayed over recorded answers.

The report also contains how much of each output is copied from its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from specbench_client.analysis.what_if.answers import (
    STEPPED_MIN,
    AnswerSet,
    DraftedAnswer,
    PositionAcceptance,
    Tokens,
    join_answers,
)
from specbench_client.analysis.what_if.ngram_lookup import NgramLookup, copied_share, replay_lookup
from specbench_client.analysis.what_if.policies import (
    AL,
    AL_MEAN,
    SPEEDUP,
    FigureDescription,
    PolicyWalk,
    PricedDrafter,
    Pricing,
    SummedRatio,
    acceptance_lengths,
    cost_limit,
    figure_of,
    resample,
    walk_fixed,
    walk_speedup,
)
from specbench_client.columns import Mask, Values
from specbench_client.documents.figure import Figure
from specbench_client.documents.what_if import (
    NgramFigures,
    NgramReport,
    NgramSetting,
)

DRAFTED = FigureDescription("ratio", "steps that found a match to draft from / steps", "replayed")
RATE = FigureDescription("ratio", "accepted / drafted tokens", "replayed")
COPIED = FigureDescription(
    "ratio", "share of the output's token 4-grams that occur in the prompt, mean over answers", "token ids"
)
NGRAM = "ngram"
Progress = Callable[[int, int], None]
LIMITS = (
    "exact for greedy answers of the target itself: at a temperature other drafts would have led to other texts",
    "token ids must be the target's own, including those of the chat template; another tokenizer gives an estimate",
    "looks up as vLLM does (earliest match of the longest suffix); other engines choose other matches",
    "drafts from pools of other requests (suffix decoding, SGLang's n-gram cache) are not included",
)


@dataclass(frozen=True)
class LoggedAnswer:
    """One answer of a log, as token ids."""

    prompt_id: str
    category: str | None
    prompt: Tokens
    output: Tokens
    repeat: int = 0


@dataclass(frozen=True)
class AnswerLog:
    """Answers that were read, the origin of their token ids, and the number of rows left out by reason."""

    source: str
    token_ids: str
    answers: Sequence[LoggedAnswer]
    left_out: Mapping[str, int]
    simulated: bool = False
    """Whether the answers come from the simulator and not from an engine."""


@dataclass(frozen=True)
class NgramGrid:
    """Settings to replay: each pair of shortest ≤ longest suffix, with each draft length."""

    shortest: tuple[int, ...]
    longest: tuple[int, ...]
    drafts: tuple[int, ...]

    @property
    def lookups(self) -> list[NgramLookup]:
        """One look-up per pair of suffix lengths, with the largest draft length: shorter drafts are a prefix of it."""
        pairs = product(self.shortest, self.longest)
        return [NgramLookup(low, high, max(self.drafts)) for low, high in pairs if low <= high]


def replayed_answer(logged: LoggedAnswer, lookup: NgramLookup) -> DraftedAnswer:
    """Replay an n-gram drafter over one answer."""
    acceptance = replay_lookup(logged.prompt, logged.output, lookup)
    return DraftedAnswer(logged.prompt_id, logged.category, logged.repeat, int(logged.prompt.size), acceptance)


def ngram_report(
    log: AnswerLog, knobs: NgramGrid, pricing: Pricing, tick: Progress = lambda _done, _of: None
) -> NgramReport:
    """Replay every setting over the log. `tick`: called with (look-ups done, look-ups in total)."""
    logged = [each for each in log.answers if each.output.size >= STEPPED_MIN]
    short = len(log.answers) - len(logged)
    left_out = {**log.left_out, **({"fewer than two output tokens": short} if short else {})}
    settings: list[NgramSetting] = []
    lookups = knobs.lookups
    for number, lookup in enumerate(lookups):
        put = join_answers([replayed_answer(each, lookup) for each in logged])
        settings += [_setting(put.answers, put.acceptance, lookup, drafts, pricing) for drafts in knobs.drafts]
        tick(number + 1, len(lookups))
    answers = put.answers
    copied = np.array([copied_share(each.prompt, each.output) for each in logged], dtype=np.float64)
    everything = np.ones(answers.count, dtype=np.bool_)
    return NgramReport(
        source=log.source,
        simulated=log.simulated,
        token_ids=log.token_ids,
        answers=answers.count,
        prompt_tokens=int(answers.prompt_tokens.sum()),
        output_tokens=answers.positions,
        left_out=left_out,
        copied_share=_copied(answers, copied, everything),
        copied_share_by_category={
            name: _copied(answers, copied, chosen) for name, chosen in _categories(answers).items()
        },
        step_cost=pricing.cost,
        settings=settings,
        limits=[*LIMITS, cost_limit(pricing.cost)],
    )


def _setting(
    answers: AnswerSet, acceptance: PositionAcceptance, lookup: NgramLookup, drafts: int, pricing: Pricing
) -> NgramSetting:
    def of(some: AnswerSet, places: Tokens) -> NgramFigures:
        drafter = PricedDrafter(acceptance.at(places), pricing.cost.drafters.get(NGRAM) if pricing.cost else None)
        return _figures(some, walk_fixed(some, drafter, drafts), drafter.acceptance, pricing)

    everywhere = np.arange(answers.positions)
    parts = {name: answers.of(chosen) for name, chosen in _categories(answers).items()}
    return NgramSetting(
        drafts=drafts,
        lookup_min=lookup.shortest,
        lookup_max=lookup.longest,
        overall=of(answers, everywhere),
        categories={name: of(some, places) for name, (some, places) in parts.items()},
    )


def _figures(
    answers: AnswerSet, policy_walk: PolicyWalk, acceptance: PositionAcceptance, pricing: Pricing
) -> NgramFigures:
    drafted = policy_walk.drafts.astype(np.float64)
    accepted = np.minimum(acceptance.accepted[policy_walk.steps.place], policy_walk.drafts).astype(np.float64)
    sums = policy_walk.steps.sums
    ratios = [
        *acceptance_lengths(answers, policy_walk),
        SummedRatio(sums(answers, (drafted > 0).astype(np.float64)), sums(answers)),
        SummedRatio(sums(answers, accepted), sums(answers, drafted)),
        *(walk_speedup(answers, policy_walk, pricing.cost, batch) for batch in pricing.priced if pricing.cost),
    ]
    descriptions = [AL, AL_MEAN, DRAFTED, RATE, *[SPEEDUP] * len(pricing.priced)]
    shown = [
        figure_of(number, answers.layout, description)
        for number, description in zip(resample(ratios, answers.layout), descriptions, strict=True)
    ]
    return NgramFigures(
        acceptance_length=shown[0],
        acceptance_length_mean=shown[1],
        drafted_steps=shown[2],
        acceptance_rate=shown[3],
        speedups={str(batch): each for batch, each in zip(pricing.priced, shown[4:], strict=True)},
    )


def _categories(answers: AnswerSet) -> dict[str, Mask]:
    """Return a mask of the answers of each category; empty if there is only one."""
    names = sorted({name for name in answers.categories if name is not None})
    if len(set(answers.categories)) < STEPPED_MIN:
        return {}
    return {name: np.array([each == name for each in answers.categories], dtype=np.bool_) for name in names}


def _copied(answers: AnswerSet, copied: Values, chosen: Mask) -> Figure:
    """Return the mean over the chosen answers; `copied` is NaN for answers of fewer than four tokens."""
    some, _ = answers.of(chosen)
    known = ~np.isnan(copied[chosen])
    ratio = SummedRatio(np.where(known, copied[chosen], 0.0), known.astype(np.float64))
    return figure_of(resample([ratio], some.layout)[0], some.layout, COPIED)
