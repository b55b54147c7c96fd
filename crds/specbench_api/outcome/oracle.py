"""What `specbench oracle` answers: how far a drafter that knew its luck would come, and one of another draft length."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.cost_model import CostModel
from specbench_api.outcome.figure import Figure


class Charge(StrEnum):
    """Whose drafting a step pays for where two drafters are combined."""

    WINNER = "winner"
    """The one whose drafts are verified: a bound for a perfect choice before drafting."""
    BOTH = "both"
    """Both, at every step: a bound for a perfect choice after drafting."""
    UNCHARGED = "uncharged"
    """The first drafter's price whoever won, as published: no bound, shown to compare with the paper alone."""


class Policy(StrEnum):
    """How long the drafts of a step are."""

    FIXED = "fixed"
    """So many at every step, or as many as the drafter has."""
    ORACLE = "oracle"
    """Exactly as many as will be accepted."""
    COMBINE = "combine"
    """The same, by whichever of two drafters has more accepted there; of equals, by the first."""


class OracleRow(ApiModel):
    """One policy over the same answers."""

    policy: Policy
    """How long drafts are."""
    drafter: str
    """Whose: an arm's or a method's name; of two, joined by +."""
    drafts: int | None = None
    """Draft tokens a step; of a fixed policy alone."""
    charge: Charge | None = None
    """Whose drafting is paid for; of a combined policy alone."""
    acceptance_length: Figure
    """Emitted tokens a step, pooled over steps."""
    acceptance_length_mean: Figure
    """The same as the mean over requests."""
    speedups: dict[str, Figure] = {}
    """By batch size; empty without a step cost."""


class BatchRoom(ApiModel):
    """What a batch size leaves to be won. Missing where there was nothing to subtract."""

    batch: int
    """Requests a step."""
    best_drafts: int
    """The best fixed draft length; 0: none pays, and the baseline is best."""
    best_fixed: Figure
    """Its speed-up; 1 for the baseline."""
    headroom: Figure
    """Speed-up of the oracle − of the best fixed draft length."""
    complementarity: Figure | None = None
    """Speed-up of the combined oracle (the winner pays) − of the better single oracle."""


class WhatIf(ApiModel):
    """Tokens a step at another draft length, estimated from one run's steps, before any run at that length."""

    drafts: int
    """Draft tokens a step."""
    truncated: Figure
    """1 + mean of min(accepted, drafts) over the run's own steps: low, because the steps at the good positions become
    several."""
    span_split: Figure
    """The run's spans walked again with at most so many drafts a step: low by a few per cent at most, a safe bound."""


class OracleReport(ApiModel):
    """What `specbench oracle` prints as JSON."""

    schema_version: Literal["specbench.io/oracle/v1"] = "specbench.io/oracle/v1"
    """Version of this document."""
    source: str
    """What was read."""
    simulated: bool = False
    """True when the engine was the simulator: never a measurement."""
    drafters: list[str]
    """Whose acceptance it is."""
    conventions: Literal["specbench", "published"] = "specbench"
    """By whose rules steps are counted and charged; see docs/oracle.md."""
    answers: int
    """Answers that were walked."""
    tokens: int
    """Their output tokens."""
    left_out: dict[str, int] = {}
    """Answers that were not, by reason."""
    covered: Figure | None = None
    """Share of the first drafter's output tokens at which both drafters speak of the same text; of two alone."""
    covered_by: str | None = None
    """How the two texts were compared."""
    censored: dict[str, Figure] = {}
    """By drafter: share of steps that had all their drafts accepted, and would have had more: beyond these the oracle
    is a lower bound."""
    what_if: list[WhatIf] = []
    """Other draft lengths of the first drafter, where it is a run's steps that were read."""
    step_cost: CostModel | None = None
    """What a step takes; without it there are no speed-ups."""
    rows: list[OracleRow] = []
    """Every policy."""
    rooms: list[BatchRoom] = []
    """By batch size."""
    limits: list[str] = []
    """What this does not say."""
