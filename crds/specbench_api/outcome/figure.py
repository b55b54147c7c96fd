"""A figure never travels alone: value, unit, definition, sample size, interval and source."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel


class Headline(StrEnum):
    """Names of the figures that go into `status`: what the client must provide under the name that the operator reads.

    Latencies have a name for each percentile: `ttft_ms_p50`, `ttft_ms_p95`, `ttft_ms_p99`.
    """

    ACCEPTANCE_LENGTH = "acceptance_length_emitted_pooled"
    ACCEPTANCE_LENGTH_VERIFIED = "acceptance_length_verified_pooled"
    ACCEPTANCE_RATE = "acceptance_rate"
    USER_TPS = "user_tps_p50"
    OUTPUT_TPS = "output_tps"
    TTFT_MS = "ttft_ms"
    TPOT_MS = "tpot_ms"
    E2E_MS = "e2e_ms"


PERCENTILES = ("p50", "p95", "p99")
LATENCIES = (Headline.TTFT_MS, Headline.TPOT_MS, Headline.E2E_MS)


class FigureInterval(ApiModel):
    """A confidence interval and how it was made."""

    low: float
    """Lower bound."""
    high: float
    """Upper bound."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How it was made, and what its sampling unit is."""
    freedom: float | None = None
    """Degrees of freedom of the t distribution that its width was taken from; None where there was none."""


class Figure(ApiModel):
    """One number with all that is needed to read it. `value` is missing when it was not to be had."""

    value: float | None = None
    """The number."""
    unit: str
    """Its unit; `ratio` for ratios."""
    definition: str
    """What it is, in one sentence."""
    n: int
    """How many sampling units it rests on."""
    interval: FigureInterval | None = None
    """Its uncertainty."""
    source: str
    """Where the numbers came from: client, engine (per_request, counters), or both."""
