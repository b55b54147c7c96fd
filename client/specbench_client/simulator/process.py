"""One request's draft-and-verify process: pure, seeded, no clock.

Each step proposes drafts, accepts them left to right, each with its position's conditional probability, stops at the
first rejection, and emits the accepted drafts plus the target's own token. The first token comes from the prefill and
belongs to no step. So at any moment, with accepted counted as *delivered*::

    output tokens = 1 + sum over steps of (delivered accepted + 1)

vLLM counts accepted drafts before it cuts the last step at the output's end (reference: vLLM #56101). Both numbers are
kept: ``accepted`` is what such an engine reports, ``delivered_accepted`` is what the reader of the text got.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from specbench_client.simulator.drafters import Drafter


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did for one request."""

    tokens: int
    drafted: int = 0
    accepted: int = 0
    prefill: bool = False

    @property
    def delivered_accepted(self) -> int:
        """Accepted drafts that are part of the output."""
        return 0 if self.prefill else self.tokens - 1


def accept(rng: Random, drafted: int, conditional: tuple[float, ...]) -> int:
    """Return how many of the drafts are accepted before the first rejection."""
    for position in range(drafted):
        if rng.random() >= conditional[position]:
            return position
    return drafted


class Generation:
    """The steps of one request, from its prefill to its last token."""

    def __init__(self, output_tokens: int, drafter: Drafter, conditional: tuple[float, ...], rng: Random) -> None:
        self.remaining = output_tokens
        self.produced = 0
        self._drafter = drafter
        self._conditional = conditional
        self._rng = rng

    @property
    def finished(self) -> bool:
        return self.remaining == 0

    def advance(self) -> StepOutcome:
        """Do the next step; the first is the prefill."""
        if not self.produced:
            outcome = StepOutcome(tokens=min(1, self.remaining), prefill=True)
        else:
            drafted = self._propose()
            accepted = accept(self._rng, drafted, self._conditional)
            outcome = StepOutcome(min(accepted + 1, self.remaining), drafted, accepted)
        self.produced += outcome.tokens
        self.remaining -= outcome.tokens
        return outcome

    def _propose(self) -> int:
        """Return how many drafts this step has; like vLLM's scheduler it never shortens them near the output's end."""
        if not self._drafter.speculates or self._rng.random() >= self._drafter.match_probability:
            return 0
        most = self._drafter.num_speculative_tokens
        return self._rng.randint(1, most) if self._drafter.variable_length else most
