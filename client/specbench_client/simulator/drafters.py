"""The drafters the simulator can imitate, each as three numbers.

A drafter is imitated by what it does to time and to counts, not by how it guesses: how many tokens it proposes,
how often it has a proposal at all, and what a proposal costs. The costs are round numbers in the order of what such
drafters cost beside a 5 ms target step; they are inputs of an experiment, never a claim about a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specbench_client.simulator.errors import ConfigError

# vLLM's own bound is lower for most methods; ours only keeps a typing error from eating the machine.
MAX_DRAFT_TOKENS = 64


class Method(StrEnum):
    """How draft tokens are proposed."""

    NONE = "none"
    NGRAM = "ngram"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    LOOKAHEAD = "lookahead"
    PARD = "pard"
    DFLASH = "dflash"
    DSPARK = "dspark"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Habit:
    """A method's defaults: how often it drafts, whether the number varies, what one draft position costs."""

    match_probability: float
    per_draft_ms: float
    variable_length: bool = False


HABITS: dict[Method, Habit] = {
    Method.NONE: Habit(0.0, 0.0),
    Method.NGRAM: Habit(0.6, 0.02),
    Method.SUFFIX: Habit(0.8, 0.05, variable_length=True),
    Method.DRAFT_MODEL: Habit(1.0, 0.8),
    Method.EAGLE: Habit(1.0, 0.3),
    Method.EAGLE3: Habit(1.0, 0.3),
    Method.MTP: Habit(1.0, 0.25),
    Method.MEDUSA: Habit(1.0, 0.1),
    Method.LOOKAHEAD: Habit(0.7, 0.1),
    Method.PARD: Habit(1.0, 0.2),
    Method.DFLASH: Habit(1.0, 0.1),
    Method.DSPARK: Habit(1.0, 0.15),
    Method.CUSTOM: Habit(1.0, 0.3),
}


@dataclass(frozen=True, slots=True)
class Drafter:
    """One drafter with its knobs.

    ``match_probability`` is the chance that a step has drafts at all: look-up methods often find nothing, and such a
    step is no speculative step in vLLM's counters. ``variable_length`` proposes 1..k tokens instead of always k.
    """

    method: Method = Method.NONE
    num_speculative_tokens: int = 0
    match_probability: float = 0.0
    variable_length: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.match_probability <= 1.0:
            raise ConfigError(f"match probability is {self.match_probability}: it lies between 0 and 1")
        if self.method is Method.NONE and self.num_speculative_tokens:
            raise ConfigError("the drafter 'none' proposes nothing: leave the number of speculative tokens out")
        if self.method is not Method.NONE and not 1 <= self.num_speculative_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(
                f"drafter {self.method} with {self.num_speculative_tokens} speculative tokens: "
                f"give 1 to {MAX_DRAFT_TOKENS}"
            )

    @property
    def speculates(self) -> bool:
        """Whether the engine was asked to speculate (not whether it ever does)."""
        return self.method is not Method.NONE


def drafter(method: Method, num_speculative_tokens: int, match_probability: float | None = None) -> Drafter:
    """Return the drafter with its method's habits, save where the caller says otherwise."""
    habit = HABITS[method]
    return Drafter(
        method=method,
        num_speculative_tokens=num_speculative_tokens,
        match_probability=habit.match_probability if match_probability is None else match_probability,
        variable_length=habit.variable_length,
    )
