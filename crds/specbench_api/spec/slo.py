"""`spec.slo`: latency targets of a request.

The targets are not part of what is measured: they are in no hash, and may be changed at any time. A result uses the
targets at the time it is computed; `specbench report --slo-…` evaluates a finished run with others.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from specbench_api.api_model import RuledModel, ValidationRule
from specbench_api.spec.latency_percentiles import Percent

SLO_VARIABLE = "SPECBENCH_SLO"
"""Environment variable of a report Job with the run's targets, as one line of JSON."""

Target = Annotated[float, Field(gt=0, le=86_400_000)]


class Slo(RuledModel):
    """Latency targets of a request. A request meets the SLO if it meets every target that is set."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.ttftMs) || has(self.tpotMs) || has(self.e2eMs)",
            "set at least one of slo.ttftMs, slo.tpotMs and slo.e2eMs",
            lambda slo: bool(slo.targets),
        ),
    )

    ttft_ms: Target | None = None
    """Maximum time to first token in milliseconds, from the intended send time: `500`."""
    tpot_ms: Target | None = None
    """Maximum time per output token after the first, in milliseconds: `35`."""
    e2e_ms: Annotated[Target | None, Field(alias="e2eMs")] = None
    """Maximum time to the last token in milliseconds, from the intended send time: `10000`."""
    percentile: Percent = 95
    """Percentile of requests that must meet the targets for a load or drafter to be recommended."""

    @property
    def targets(self) -> dict[str, float]:
        """The targets that are set, in ms, by figure name: ttft_ms, tpot_ms, e2e_ms."""
        limits = {"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms, "e2e_ms": self.e2e_ms}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def words(self) -> str:
        """Label for tables: `TTFT ≤ 500 ms, TPOT ≤ 35 ms`."""
        return ", ".join(f"{name.removesuffix('_ms').upper()} ≤ {target:g} ms" for name, target in self.targets.items())

    def to_line(self) -> str:
        """Return the targets as one line of JSON, for the environment of a pod."""
        return self.model_dump_json(by_alias=True, exclude_none=True)
