"""How an engine draws draft tokens above temperature 0, and by which rule it accepts them.

Each launcher derives both from its own command line and the engine's defaults. At temperature 0 nothing is drawn: a
draft token is accepted if it is the target's most likely token, unless the verification is lossy there too.
"""

from __future__ import annotations

from dataclasses import dataclass

GREEDY = "greedy"
"""The drafter's most likely token, or looked-up text."""
PROBABILISTIC = "probabilistic"
"""Drawn from the drafter's distribution p_draft."""
TOKEN_MATCH = "token match"  # noqa: S105 -- no secret
"""Accepted if the target draws the same token, which has the probability p_target(token)."""
REJECTION = "rejection sampling"
"""Accepted with probability min(1, p_target / p_draft); equal to `TOKEN_MATCH` for greedy drafts."""
BLOCK = "block verification"
"""Like `REJECTION`, but decided for all draft tokens of a step together."""
LOSSY = " (lossy)"
"""The end of a rule's name if accepted tokens do not have the target's distribution."""


@dataclass(frozen=True)
class DerivedMethod:
    """A method that follows from the command line: its name, and the option or the engine's default that sets it.

    `name` is None if it does not follow; `source` then states why.
    """

    name: str | None
    source: str


@dataclass(frozen=True)
class Verification:
    """How drafts are drawn and accepted. `lossy`: the options by which answers lose the target's distribution.

    `partial`: whether the target verifies only some of the drafts, although the engine counts all of them.
    """

    drafts: DerivedMethod
    acceptance: DerivedMethod
    lossy: tuple[str, ...] = ()
    partial: bool = False


def unknown_verification(why: str, lossy: tuple[str, ...] = ()) -> Verification:
    """Return a verification that does not follow from the command line."""
    return Verification(DerivedMethod(None, why), DerivedMethod(None, why), lossy)


def default_verification(drafts: str, acceptance: str, release: str) -> Verification:
    """Return the engine's defaults. `release`: the engine and the release in whose source they were read."""
    source = f"default of {release}"
    return Verification(DerivedMethod(drafts, source), DerivedMethod(acceptance, source))
