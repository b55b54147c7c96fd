"""The report of `specbench analyze oracle`: bounds for an oracle that drafts exactly what will be accepted."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure
from specbench_client.documents.cost_model import CostModel


class DraftCharge(StrEnum):
    """Which drafting a step pays for if two drafters are combined."""

    WINNER = "winner"
    """That of the drafter whose drafts are verified: a bound for a perfect choice before drafting."""
    BOTH = "both"
    """That of both, at every step: a bound for a perfect choice after drafting."""
    UNCHARGED = "uncharged"
    """That of the first drafter in all cases, as published: not a bound, only for comparisons with the paper."""


class DraftPolicy(StrEnum):
    """How long the drafts of a step are."""

    FIXED = "fixed"
    """A fixed number at every step, or as many as the drafter proposes."""
    ORACLE = "oracle"
    """Exactly as many as will be accepted."""
    COMBINE = "combine"
    """As many as will be accepted, from the drafter that has more accepted there; from the first if both are equal."""


class OracleRow(ApiModel):
    """One policy over the same answers."""

    policy: DraftPolicy
    """How draft lengths are chosen."""
    drafter: str
    """Name of the arm or method; two names are joined by +."""
    drafts: int | None = None
    """Draft tokens per step; only for a fixed policy."""
    charge: DraftCharge | None = None
    """Whose drafting is paid for; only for a combined policy."""
    acceptance_length: Figure
    """Emitted tokens per step, pooled over steps."""
    acceptance_length_mean: Figure
    """Emitted tokens per step, mean over requests."""
    speedups: dict[str, Figure] = {}
    """Speed-ups by batch size; empty without a step cost."""


class BatchHeadroom(ApiModel):
    """The headroom at one batch size."""

    batch: int
    """Requests per step."""
    best_drafts: int
    """The best fixed draft length; 0 if none pays and the baseline is best."""
    best_fixed: Figure
    """Speed-up of the best fixed draft length; 1 for the baseline."""
    headroom: Figure
    """Speed-up of the oracle − of the best fixed draft length."""
    complementarity: Figure | None = None
    """Speed-up of the combined oracle (the winner pays) − of the better single oracle; None for one drafter."""


class WhatIf(ApiModel):
    """Tokens per step at another draft length, estimated from the steps of a run without running that length."""

    drafts: int
    """Draft tokens per step."""
    truncated: Figure
    """1 + mean of min(accepted, drafts) over the run's own steps: too low, because steps at good positions split into
    several."""
    span_split: Figure
    """The run's spans walked again with at most this many drafts per step: a lower bound, a few percent too low."""


class OracleReport(ApiModel):
    """What `specbench analyze oracle` prints as JSON."""

    schema_version: Literal["specbench.io/oracle/v1"] = "specbench.io/oracle/v1"
    """Version of this document."""
    source: str
    """File or run that was read."""
    simulated: bool = False
    """Whether the engine was the simulator, so that it is not a measurement."""
    drafters: list[str]
    """Names of the drafters."""
    conventions: Literal["specbench", "published"] = "specbench"
    """Rules for counting and charging steps; see docs/research/oracle.md."""
    answers: int
    """Walked answers."""
    tokens: int
    """Their output tokens."""
    left_out: dict[str, int] = {}
    """Answers that were left out, by reason."""
    covered: Figure | None = None
    """Share of the first drafter's output tokens of which both drafters have the same text; None for one drafter."""
    covered_by: str | None = None
    """How the two texts were compared; None for one drafter."""
    censored: dict[str, Figure] = {}
    """Share of steps with all drafts accepted, by drafter: longer drafts might have gained more, so the oracle is a
    lower bound there."""
    what_if: list[WhatIf] = []
    """Other draft lengths of the first drafter, from the steps of a run; empty for a trace."""
    step_cost: CostModel | None = None
    """The step cost; without it there are no speed-ups."""
    rows: list[OracleRow] = []
    """Every policy."""
    rooms: list[BatchHeadroom] = []
    """Headroom by batch size."""
    limits: list[str] = []
    """Limits of this report."""
