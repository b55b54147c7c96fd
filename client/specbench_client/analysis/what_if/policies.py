"""Drafting policies walked over answers, and the price of each walk.

A walk has steps and the drafts that each step verifies; steps that draft pay for it. Its price is in tokens per step
and, with a step cost, in speed-up at each batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench_client.analysis.statistics.bootstrap import (
    ResamplingLayout,
    describe_bootstrap,
    expanded_percentiles,
    two_level_sums,
)
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.analysis.statistics.row_layout import RowLayout
from specbench_client.analysis.what_if.answers import AnswerSet, PositionAcceptance, Tokens
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.what_if import CostModel, DraftCost, DraftPolicy, OracleRow, TargetCost
from specbench_client.errors import BadInput
from specbench_client.numpy_columns import Values


@dataclass(frozen=True)
class WalkedSteps:
    """Steps over all answers; every array has shape (steps,).

    `answer`: index of the answer. `place`: index of the position in the flat arrays. `cached`: tokens of the request
    before the step. `emitted`: tokens that the step adds, at most what the answer still needs.
    """

    answer: Tokens
    place: Tokens
    cached: Tokens
    emitted: Tokens

    def sums(self, answers: AnswerSet, values: Values | None = None) -> Values:
        """Return the sum of a value over the steps of each answer, or their number; shape (answers,)."""
        return np.bincount(self.answer, weights=values, minlength=answers.count).astype(np.float64)


def walk(answers: AnswerSet, emitted: Tokens) -> WalkedSteps:
    """Walk through all answers at once, step by step. The first step is at position 1, after the token of the prefill.

    `emitted`: tokens (≥ 1) that a step emits at each position, shape (positions,).
    """
    at = answers.starts + 1
    end = at + answers.output_tokens - 1
    answer, place, emitted_by_step = [], [], []
    going = np.flatnonzero(at < end)
    while going.size:
        here = at[going]
        gained = np.minimum(emitted[here], end[going] - here)
        answer.append(going)
        place.append(here)
        emitted_by_step.append(gained)
        at[going] += gained
        going = going[at[going] < end[going]]
    owners, places = _joined(answer), _joined(place)
    cached = answers.prompt_tokens[owners] + places - answers.starts[owners]
    return WalkedSteps(owners, places, cached, _joined(emitted_by_step))


def _joined(parts: list[Tokens]) -> Tokens:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class PolicyWalk:
    """A walk of one policy. `drafts`: verified drafts of each step, besides the target's own token; shape (steps,)."""

    steps: WalkedSteps
    drafts: Tokens
    cost: DraftCost | None = None
    """What each step with drafts pays for them; None if it is not known."""

    def tokens(self, answers: AnswerSet) -> Values:
        """Return the tokens that the steps of each answer emit, shape (answers,)."""
        return self.steps.sums(answers, self.steps.emitted.astype(np.float64))


def walk_fixed(
    answers: AnswerSet, acceptance: PositionAcceptance, drafts: int, cost: DraftCost | None = None
) -> PolicyWalk:
    """Walk with a fixed number of drafts per step, or as many as the drafter proposes. `cost`: None if not known."""
    steps = walk(answers, np.minimum(acceptance.accepted, drafts) + 1)
    return PolicyWalk(steps, acceptance.drafts(drafts)[steps.place], cost)


def cut_steps(policy_walk: PolicyWalk, drafts: int) -> PolicyWalk:
    """Return the same steps with at most so many drafts each. They no longer reach the ends of the answers."""
    steps = replace(policy_walk.steps, emitted=np.minimum(policy_walk.steps.emitted, drafts + 1))
    return replace(policy_walk, steps=steps, drafts=np.minimum(policy_walk.drafts, drafts))


def walk_oracle(answers: AnswerSet, acceptance: PositionAcceptance, cost: DraftCost | None = None) -> PolicyWalk:
    """Walk with exactly as many drafts as will be accepted."""
    steps = walk(answers, acceptance.accepted + 1)
    return PolicyWalk(steps, acceptance.accepted[steps.place], cost)


# Numbers keep their resamples, so that differences of them have intervals too. The sampling unit is the prompt.

SEED = 0
"""Seed of the resamples, fixed so that the same answers give the same intervals."""


@dataclass(frozen=True)
class SummedRatio:
    """The ratio Σ over / Σ under. `over`, `under`: one value per answer, shape (answers,)."""

    over: Values
    under: Values


@dataclass(frozen=True)
class ResampledNumber:
    """A number and its value in each resample, shape (resamples,). `value`: None if the denominator is 0."""

    value: float | None
    samples: Values


@dataclass(frozen=True)
class FigureDescription:
    """Unit, definition, source and possible values of a figure."""

    unit: str
    definition: str
    source: str
    lowest: float = -np.inf
    highest: float = np.inf


def resample(ratios: Sequence[SummedRatio], layout: RowLayout) -> list[ResampledNumber]:
    """Resample all ratios with the same draws, so that values of one answer vary together."""
    if not ratios:
        return []
    sums = two_level_sums([layout.matrix(part) for each in ratios for part in (each.over, each.under)], layout, SEED)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = sums[:, 0::2] / sums[:, 1::2]
    totals = [(float(each.over.sum()), float(each.under.sum())) for each in ratios]
    values = [over / under if under else None for over, under in totals]
    return [ResampledNumber(value, drawn[:, index]) for index, value in enumerate(values)]


def difference(left: ResampledNumber, right: ResampledNumber) -> ResampledNumber:
    """Return the difference of two numbers with the same resamples."""
    value = None if left.value is None or right.value is None else left.value - right.value
    return ResampledNumber(value, left.samples - right.samples)


def best_of(of: Sequence[ResampledNumber]) -> tuple[int, ResampledNumber]:
    """Return the index of the largest number, and the largest number of each resample.

    Taking the largest in each resample includes the uncertainty of the choice.
    """
    values = [-np.inf if each.value is None else each.value for each in of]
    place = int(np.argmax(values))
    return place, ResampledNumber(of[place].value, np.max([each.samples for each in of], axis=0))


def figure_of(number: ResampledNumber, layout: ResamplingLayout, words: FigureDescription) -> Figure:
    """Return the number as a figure, with an interval if there are enough prompts."""
    bounds = None if number.value is None else expanded_percentiles(number.value, number.samples, layout)
    how = describe_bootstrap(layout)
    interval = FigureInterval(low=bounds.low, high=bounds.high, level=LEVEL, method=how) if bounds else None
    return Figure(
        value=number.value,
        unit=words.unit,
        definition=words.definition,
        n=layout.prompts,
        interval=interval,
        source=words.source,
    ).within(words.lowest, words.highest)


# The time of a walk by the step-cost model. Each request is a batch of B copies of itself, as in the published runs:
# one prefill pass over the prompts, then one pass per step, with B times the tokens in cache and batch.


def baseline_seconds(answers: AnswerSet, cost: CostModel, batch: int) -> Values:
    """Return the seconds of each answer without a drafter, shape (answers,): prefill, then one step per later token."""
    prompt, steps = answers.prompt_tokens.astype(np.float64), answers.output_tokens - 1.0
    cached = batch * (steps * prompt + steps * (steps + 1) / 2)
    each = cost.target.fixed_s + cost.target.per_token_s * batch + cost.overhead_s
    return _prefill(answers, cost, batch) + steps * each + cost.target.per_cached_token_s * cached


def walk_seconds(answers: AnswerSet, policy_walk: PolicyWalk, cost: CostModel, batch: int) -> Values:
    """Return the seconds of each answer on a walk, shape (answers,); what cut steps do not reach takes as long."""
    cached = (batch * policy_walk.steps.cached).astype(np.float64)
    drafts = policy_walk.drafts.astype(np.float64)
    target = _target(cost, cached, batch * (drafts + 1))
    step = target + cost.overhead_s
    own = policy_walk.cost
    if own is not None:
        drafting = own.fixed_s + own.per_draft_s * drafts + own.per_cached_token_s * cached
        step = step + np.where(drafts > 0, drafting + own.share_of_target * target, 0.0)
    part = (answers.output_tokens - 1) / policy_walk.tokens(answers)
    return _prefill(answers, cost, batch) + part * policy_walk.steps.sums(answers, step)


def _prefill(answers: AnswerSet, cost: CostModel, batch: int) -> Values:
    prompts = batch * answers.prompt_tokens.astype(np.float64)
    return _target(cost, np.zeros_like(prompts), prompts) + cost.overhead_s


def _target(cost: CostModel, cached: Values, tokens: Values) -> Values:
    target = cost.target
    return target.fixed_s + target.per_token_s * tokens + target.per_cached_token_s * cached


AL = FigureDescription("tokens/step", "(output tokens - 1) / steps, pooled over steps", "walked again", 1.0)
AL_MEAN = FigureDescription(
    "tokens/step", "(output tokens - 1) / steps of each answer, mean over answers", "walked again", 1.0
)
SPEEDUP = FigureDescription(
    "ratio",
    "seconds without a drafter / seconds with this policy, both summed over all answers, by the step cost; each answer"
    " as a batch of copies of itself",
    "step-cost model",
)


def cost_limit(cost: CostModel | None) -> str:
    """Return the limits of speed-ups computed with this cost model, or why there are none."""
    if cost is None:
        return "no speed-ups without a step cost: tokens per step alone do not show whether drafting pays (--step-cost)"
    return (
        f"speed-ups are only as good as the step cost ({cost.name}: {cost.source}): linear, without queueing, each"
        " answer as a batch of copies of itself, prefill included"
    )


@dataclass(frozen=True)
class Pricing:
    """How walks are priced: batch sizes and step cost."""

    batches: tuple[int, ...] = ()
    cost: CostModel | None = None

    @property
    def priced(self) -> tuple[int, ...]:
        """Batch sizes for which there are speed-ups: none without a step cost."""
        return self.batches if self.cost else ()


@dataclass(frozen=True)
class PricedPolicy:
    """A policy with its resampled acceptance lengths and speed-ups.

    `drafts`: of a fixed draft length. `speedups`: by batch size.
    """

    policy: DraftPolicy
    drafts: int | None
    length: ResampledNumber
    length_mean: ResampledNumber
    speedups: dict[int, ResampledNumber]

    def row(self, layout: RowLayout, bound: str = "") -> OracleRow:
        """Return the policy as a row of the report. `bound`: that its figures are bounds, which have no interval."""
        speedups = {batch: figure_of(number, layout, SPEEDUP) for batch, number in self.speedups.items()}
        return OracleRow(
            policy=self.policy,
            drafts=self.drafts,
            acceptance_length=figure_of(self.length, layout, AL).without_interval(bound),
            acceptance_length_mean=figure_of(self.length_mean, layout, AL_MEAN).without_interval(bound),
            speedups={str(batch): figure.without_interval(bound) for batch, figure in speedups.items()},
        )


def price_policies(
    answers: AnswerSet, walks: Sequence[tuple[DraftPolicy, int | None, PolicyWalk]], pricing: Pricing
) -> list[PricedPolicy]:
    """Price walks of policies with the same resamples, so that their differences have intervals."""
    ratios = [ratio for _, _, policy_walk in walks for ratio in _ratios(answers, policy_walk, pricing)]
    numbers = iter(resample(ratios, answers.layout))
    return [
        PricedPolicy(policy, drafts, next(numbers), next(numbers), {batch: next(numbers) for batch in pricing.priced})
        for policy, drafts, _ in walks
    ]


def acceptance_lengths(answers: AnswerSet, policy_walk: PolicyWalk) -> tuple[SummedRatio, SummedRatio]:
    """Return tokens per step, pooled over steps and as the mean over answers."""
    tokens, steps = policy_walk.tokens(answers), policy_walk.steps.sums(answers)
    return SummedRatio(tokens, steps), SummedRatio(tokens / steps, np.ones_like(steps))


def _ratios(answers: AnswerSet, policy_walk: PolicyWalk, pricing: Pricing) -> list[SummedRatio]:
    cost = pricing.cost
    speedups = [walk_speedup(answers, policy_walk, cost, batch) for batch in pricing.priced if cost]
    return [*acceptance_lengths(answers, policy_walk), *speedups]


def walk_speedup(answers: AnswerSet, policy_walk: PolicyWalk, cost: CostModel, batch: int) -> SummedRatio:
    """Return the speed-up of a walk over decoding without a drafter at this batch size."""
    return SummedRatio(baseline_seconds(answers, cost, batch), walk_seconds(answers, policy_walk, cost, batch))


# A published step-cost model. It holds for one model on one machine only.


_SOURCE = (
    "Llama-3.1-8B on one H100-80G, vLLM, fitted on InstructCoder at batch sizes 1 to 64 by the authors of"
    " 'Speculative Decoding: Performance or Illusion?' (github.com/SpecDecode-Bench/simulator, predictor.py)"
)
_PER_TOKEN_S, _FIXED_S, _PER_CACHED_S = 8.41429603e-07, 2.13526175e-03, 2.37768493e-09
_EAGLE = DraftCost(
    fixed_s=_FIXED_S + _PER_TOKEN_S,  # the published cost is per draft token and for the token before them
    per_draft_s=_PER_TOKEN_S,
    per_cached_token_s=_PER_CACHED_S,
)
PUBLISHED_H100 = CostModel(
    name="published-h100",
    source=f"{_SOURCE}; the cost of EAGLE's drafting hardly grows with the draft length",
    target=TargetCost(fixed_s=5.88590713e-03, per_token_s=2.10103129e-05, per_cached_token_s=3.92645679e-08),
    overhead_s=1.20683946e-03,
    drafters={"ngram": DraftCost(share_of_target=0.005875), "eagle": _EAGLE, "eagle3": _EAGLE},
)


def draft_cost(cost: CostModel | None, *names: str) -> DraftCost | None:
    """Return the drafting cost of the first of these names (arm, method) in the model; None without a model.

    Raises BadInput if the model has none of them.
    """
    if cost is None:
        return None
    found = next((cost.drafters[name] for name in names if name in cost.drafters), None)
    if found is None:
        known = ", ".join(cost.drafters) or "no drafter"
        raise BadInput(
            f"the step cost {cost.name} has {known} but not {' or '.join(names)}: add it to drafters"
            " ({} for a drafter that costs nothing)"
        )
    return found
