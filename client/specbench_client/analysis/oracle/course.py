"""Policies of drafting as courses: the steps they take, what each verifies, and whose drafting it pays for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.cost_model import DraftCost
from specbench_api.outcome.oracle import Charge
from specbench_client.analysis.oracle.answers import Answers, Reach, Tokens
from specbench_client.analysis.oracle.walk import First, Steps, walk
from specbench_client.metrics.frame import Mask


@dataclass(frozen=True)
class Rules:
    """How steps are counted and charged.

    `idle_pays`: a step of an oracle that knows that nothing will be accepted drafts all the same, and pays for it. With
    it an oracle is no upper bound: it may be slower than the baseline, which drafts nothing.
    """

    first: First = First.AFTER_PREFILL
    idle_pays: bool = False


OURS = Rules()
PUBLISHED = Rules(First.PUBLISHED, idle_pays=True)
"""Of the simulator of "Performance or Illusion?" (SpecDecode-Bench/simulator)."""


@dataclass(frozen=True)
class Drafter:
    """A drafter by name with its reach, and what drafting costs; None where nothing is known of that."""

    name: str
    reach: Reach
    cost: DraftCost | None = None


@dataclass(frozen=True)
class Bill:
    """At which steps a drafter's drafting is paid for."""

    cost: DraftCost
    pays: Mask


@dataclass(frozen=True)
class Course:
    """One value a step: `drafts` verified besides the one token that the target makes by itself."""

    steps: Steps
    drafts: Tokens
    bills: tuple[Bill, ...] = ()


def fixed(answers: Answers, drafter: Drafter, drafts: int, rules: Rules = OURS) -> Course:
    """So many drafts at every step, as far as the drafter has them."""
    steps = walk(answers, np.minimum(drafter.reach.accepted, drafts) + 1, rules.first)
    asked = drafter.reach.drafts(drafts)[steps.place]
    return Course(steps, asked, _bills((drafter, asked > 0)))


def oracle(answers: Answers, drafter: Drafter, rules: Rules = OURS) -> Course:
    """Exactly as many drafts as will be accepted. A drafter that looks its drafts up never pays for finding none."""
    steps = walk(answers, drafter.reach.accepted + 1, rules.first)
    drafts = drafter.reach.accepted[steps.place]
    always = rules.idle_pays and drafter.reach.proposed is None
    return Course(steps, drafts, _bills((drafter, (drafts > 0) | always)))


def combine(answers: Answers, first: Drafter, second: Drafter, charge: Charge, rules: Rules = OURS) -> Course:
    """The oracle of whichever has more accepted at a position; of equals the first, which is to be the cheaper one."""
    better = np.maximum(first.reach.accepted, second.reach.accepted)
    steps = walk(answers, better + 1, rules.first)
    drafts = better[steps.place]
    first_wins = first.reach.accepted[steps.place] >= second.reach.accepted[steps.place]
    drafting = (drafts > 0) | rules.idle_pays
    if charge is Charge.BOTH:
        everywhere = np.ones_like(first_wins)
        return Course(steps, drafts, _bills((first, everywhere), (second, everywhere)))
    if charge is Charge.UNCHARGED:
        return Course(steps, drafts, _bills((first, drafting)))
    return Course(steps, drafts, _bills((first, first_wins & drafting), (second, ~first_wins & drafting)))


def _bills(*parts: tuple[Drafter, Mask]) -> tuple[Bill, ...]:
    return tuple(Bill(drafter.cost, pays) for drafter, pays in parts if drafter.cost is not None)
