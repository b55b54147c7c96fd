"""Drafting policies walked over answers: their steps, the drafts each step verifies, and the drafting it pays for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from specbench_client.analysis.what_if.answers import AnswerSet, PositionAcceptance, Tokens
from specbench_client.documents.cost_model import DraftCost
from specbench_client.documents.oracle import DraftCharge
from specbench_client.metrics.tidy_frame import Mask, Values


class FirstStep(IntEnum):
    """Position of the first step in an answer."""

    PUBLISHED = 0
    """Position 0, whose token comes from the prefill, so that every step looks one position too early. The simulator of
    "Performance or Illusion?" does this; only for comparisons with its numbers."""
    AFTER_PREFILL = 1
    """Position 1, after the token of the prefill."""


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


def walk(answers: AnswerSet, emitted: Tokens, first: FirstStep = FirstStep.AFTER_PREFILL) -> WalkedSteps:
    """Walk through all answers at once, step by step.

    `emitted`: tokens (≥ 1) that a step emits at each position, shape (positions,).
    """
    at = answers.starts + first
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
    out = places - answers.starts[owners] + (FirstStep.AFTER_PREFILL - first)
    return WalkedSteps(owners, places, answers.prompt_tokens[owners] + out, _joined(emitted_by_step))


def _joined(parts: list[Tokens]) -> Tokens:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class WalkRules:
    """How steps are counted and charged.

    `idle_pays`: an oracle pays for drafting even where it knows that nothing will be accepted. It is then not an upper
    bound: it may be slower than the baseline, which never drafts.
    """

    first: FirstStep = FirstStep.AFTER_PREFILL
    idle_pays: bool = False


OUR_RULES = WalkRules()
PUBLISHED_RULES = WalkRules(FirstStep.PUBLISHED, idle_pays=True)
"""The rules of the simulator of "Performance or Illusion?" (SpecDecode-Bench/simulator)."""


@dataclass(frozen=True)
class PricedDrafter:
    """A drafter by name with its acceptance and the cost of its drafting; the cost is None if unknown."""

    name: str
    acceptance: PositionAcceptance
    cost: DraftCost | None = None


@dataclass(frozen=True)
class DraftingCharge:
    """The steps that pay for a drafter's drafting. `pays`: shape (steps,)."""

    cost: DraftCost
    pays: Mask


@dataclass(frozen=True)
class PolicyWalk:
    """A walk of one policy. `drafts`: verified drafts of each step, besides the target's own token; shape (steps,)."""

    steps: WalkedSteps
    drafts: Tokens
    charges: tuple[DraftingCharge, ...] = ()


def walk_fixed(answers: AnswerSet, drafter: PricedDrafter, drafts: int, rules: WalkRules = OUR_RULES) -> PolicyWalk:
    """Walk with a fixed number of drafts per step, or as many as the drafter proposes."""
    steps = walk(answers, np.minimum(drafter.acceptance.accepted, drafts) + 1, rules.first)
    proposed = drafter.acceptance.drafts(drafts)[steps.place]
    return PolicyWalk(steps, proposed, _charges((drafter, proposed > 0)))


def walk_oracle(answers: AnswerSet, drafter: PricedDrafter, rules: WalkRules = OUR_RULES) -> PolicyWalk:
    """Walk with exactly as many drafts as will be accepted.

    A drafter that looks its drafts up (`proposed` is known) never pays for a look-up that finds nothing.
    """
    steps = walk(answers, drafter.acceptance.accepted + 1, rules.first)
    drafts = drafter.acceptance.accepted[steps.place]
    always = rules.idle_pays and drafter.acceptance.proposed is None
    return PolicyWalk(steps, drafts, _charges((drafter, (drafts > 0) | always)))


def walk_combined(
    answers: AnswerSet, first: PricedDrafter, second: PricedDrafter, charge: DraftCharge, rules: WalkRules = OUR_RULES
) -> PolicyWalk:
    """Walk with the oracle of the drafter that has more accepted at each position; the first one where both are equal.

    The first drafter should be the cheaper one.
    """
    better = np.maximum(first.acceptance.accepted, second.acceptance.accepted)
    steps = walk(answers, better + 1, rules.first)
    drafts = better[steps.place]
    first_wins = first.acceptance.accepted[steps.place] >= second.acceptance.accepted[steps.place]
    drafting = (drafts > 0) | rules.idle_pays
    if charge is DraftCharge.BOTH:
        everywhere = np.ones_like(first_wins)
        return PolicyWalk(steps, drafts, _charges((first, everywhere), (second, everywhere)))
    if charge is DraftCharge.UNCHARGED:
        return PolicyWalk(steps, drafts, _charges((first, drafting)))
    return PolicyWalk(steps, drafts, _charges((first, first_wins & drafting), (second, ~first_wins & drafting)))


def _charges(*parts: tuple[PricedDrafter, Mask]) -> tuple[DraftingCharge, ...]:
    return tuple(DraftingCharge(drafter.cost, pays) for drafter, pays in parts if drafter.cost is not None)
