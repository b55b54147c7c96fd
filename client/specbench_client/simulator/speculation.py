"""Simulated drafters, acceptance probabilities, and the draft-and-verify process of a request. Pure, without a clock.

A drafter is imitated by its effect on time and counts: how many tokens it proposes, how often it has a proposal, and
what a proposal costs. The costs are round numbers of a realistic order of magnitude relative to a target step of 5 ms.
They are inputs of an experiment and no claim about a product.

Each step proposes draft tokens, accepts them from left to right, each with the conditional probability of its position,
stops at the first rejection, and emits the accepted ones plus the target's own token. The first token comes from the
prefill and belongs to no step. With accepted tokens counted as *delivered*, at any moment::

    output tokens = 1 + sum over steps of (delivered accepted + 1)

vLLM counts accepted tokens before it cuts the last step at the output's end (vLLM #56101). Both numbers are stored:
``accepted`` is what such an engine reports, ``delivered_accepted`` is what the client received.

Acceptance is written ``0.7`` (every position, every category), ``default=0.7,coding=0.85`` (by category) or
``coding=0.8/0.6/0.4`` (by position; the last one repeats). The probabilities are conditional, because position i is
only verified if 1..i-1 were accepted; the joint probability that a client may estimate is their running product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from specbench_client.simulator.errors import ConfigError

# vLLM's own bound is lower for most methods. This one only catches typing errors.
MAX_DRAFT_TOKENS = 64


class SimulatedMethod(StrEnum):
    """Methods of proposing draft tokens."""

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
class DrafterProfile:
    """A method's defaults: how often it drafts, the cost per draft position, and whether the number varies."""

    match_probability: float
    per_draft_ms: float
    variable_length: bool = False


DRAFTER_PROFILES: dict[SimulatedMethod, DrafterProfile] = {
    SimulatedMethod.NONE: DrafterProfile(0.0, 0.0),
    SimulatedMethod.NGRAM: DrafterProfile(0.6, 0.02),
    SimulatedMethod.SUFFIX: DrafterProfile(0.8, 0.05, variable_length=True),
    SimulatedMethod.DRAFT_MODEL: DrafterProfile(1.0, 0.8),
    SimulatedMethod.EAGLE: DrafterProfile(1.0, 0.3),
    SimulatedMethod.EAGLE3: DrafterProfile(1.0, 0.3),
    SimulatedMethod.MTP: DrafterProfile(1.0, 0.25),
    SimulatedMethod.MEDUSA: DrafterProfile(1.0, 0.1),
    SimulatedMethod.LOOKAHEAD: DrafterProfile(0.7, 0.1),
    SimulatedMethod.PARD: DrafterProfile(1.0, 0.2),
    SimulatedMethod.DFLASH: DrafterProfile(1.0, 0.1),
    SimulatedMethod.DSPARK: DrafterProfile(1.0, 0.15),
    SimulatedMethod.CUSTOM: DrafterProfile(1.0, 0.3),
}


@dataclass(frozen=True, slots=True)
class SimulatedDrafter:
    """The settings of one drafter.

    ``match_probability``: probability that a step has draft tokens at all. Look-up methods often find nothing, and vLLM
    does not count such a step as speculative. ``variable_length``: proposes 1..k tokens instead of always k.
    """

    method: SimulatedMethod = SimulatedMethod.NONE
    num_speculative_tokens: int = 0
    match_probability: float = 0.0
    variable_length: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.match_probability <= 1.0:
            raise ConfigError(f"match probability is {self.match_probability}: give a value between 0 and 1")
        if self.method is SimulatedMethod.NONE and self.num_speculative_tokens:
            raise ConfigError("the drafter 'none' proposes nothing: omit the number of speculative tokens")
        if self.method is not SimulatedMethod.NONE and not 1 <= self.num_speculative_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(
                f"drafter {self.method} with {self.num_speculative_tokens} speculative tokens: "
                f"give 1 to {MAX_DRAFT_TOKENS}"
            )

    @property
    def speculates(self) -> bool:
        """Whether speculation is configured, even if no step ever has draft tokens."""
        return self.method is not SimulatedMethod.NONE


def make_drafter(
    method: SimulatedMethod, num_speculative_tokens: int, match_probability: float | None = None
) -> SimulatedDrafter:
    """Return a drafter with its method's defaults, except for the given match probability."""
    profile = DRAFTER_PROFILES[method]
    return SimulatedDrafter(
        method=method,
        num_speculative_tokens=num_speculative_tokens,
        match_probability=profile.match_probability if match_probability is None else match_probability,
        variable_length=profile.variable_length,
    )


DEFAULT_CATEGORY = "default"


@dataclass(frozen=True, slots=True)
class AcceptanceProbabilities:
    """Conditional acceptance by position for each category; ``default`` applies to categories not listed."""

    by_category: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: {DEFAULT_CATEGORY: (0.7,)})

    def __post_init__(self) -> None:
        if DEFAULT_CATEGORY not in self.by_category:
            raise ConfigError("acceptance lists categories but no default: add 'default=0.7'")
        for category, positions in self.by_category.items():
            if not positions or not all(0.0 <= one <= 1.0 for one in positions):
                raise ConfigError(f"acceptance of {category!r} is {positions}: probabilities are between 0 and 1")

    def positions(self, category: str, depth: int) -> tuple[float, ...]:
        """Return ``depth`` conditional probabilities for the category."""
        known = self.by_category.get(category, self.by_category[DEFAULT_CATEGORY])
        return tuple(known[min(index, len(known) - 1)] for index in range(depth))


def parse_acceptance(text: str) -> AcceptanceProbabilities:
    """Parse the notation in the module's docstring. Raises ConfigError with the invalid part."""
    by_category: dict[str, tuple[float, ...]] = {}
    for part in text.split(","):
        category, equals, numbers = part.strip().rpartition("=")
        name = category.strip() if equals else DEFAULT_CATEGORY
        if not name or name in by_category:
            raise ConfigError(f"acceptance {text!r}: category {name!r} is empty or given twice")
        by_category[name] = _probabilities(numbers, text)
    return AcceptanceProbabilities(by_category)


def _probabilities(numbers: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in numbers.split("/"))
    except ValueError as error:
        raise ConfigError(
            f"acceptance {text!r}: {numbers!r} is not a probability: write 0.7, 0.8/0.6/0.4 or default=0.7,coding=0.85"
        ) from error


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one step for one request, in tokens."""

    tokens: int
    drafted: int = 0
    accepted: int = 0
    prefill: bool = False

    @property
    def delivered_accepted(self) -> int:
        """Accepted draft tokens that are part of the output."""
        return 0 if self.prefill else self.tokens - 1


def count_accepted(rng: Random, drafted: int, conditional: tuple[float, ...]) -> int:
    """Return the number of draft tokens accepted before the first rejection."""
    for position in range(drafted):
        if rng.random() >= conditional[position]:
            return position
    return drafted


class DraftVerifyProcess:
    """The steps of one request, from its prefill to its last token."""

    def __init__(
        self, output_tokens: int, drafter: SimulatedDrafter, conditional: tuple[float, ...], rng: Random
    ) -> None:
        self.remaining = output_tokens
        self.produced = 0
        self._drafter = drafter
        self._conditional = conditional
        self._rng = rng

    @property
    def finished(self) -> bool:
        return self.remaining == 0

    def advance(self) -> StepOutcome:
        """Perform the next step; the first one is the prefill."""
        if not self.produced:
            outcome = StepOutcome(tokens=min(1, self.remaining), prefill=True)
        else:
            drafted = self._propose()
            accepted = count_accepted(self._rng, drafted, self._conditional)
            outcome = StepOutcome(min(accepted + 1, self.remaining), drafted, accepted)
        self.produced += outcome.tokens
        self.remaining -= outcome.tokens
        return outcome

    def _propose(self) -> int:
        """Return the number of draft tokens of this step; as in vLLM, they are not shortened near the output's end."""
        if not self._drafter.speculates or self._rng.random() >= self._drafter.match_probability:
            return 0
        most = self._drafter.num_speculative_tokens
        return self._rng.randint(1, most) if self._drafter.variable_length else most
