"""`spec.slo`: how fast an answer must be for its user, and what a result tells of it.

Nothing here is part of what is measured: it is in no hash and may change under a run. What a run answers is judged by
the targets as they stand when the answer is made; `specbench report --slo-…` judges a finished one by others.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule, refuse_broken

SLO_VARIABLE = "SPECBENCH_SLO"
"""In the environment of a report's Job: the run's targets, as one line of JSON."""

Target = Annotated[float, Field(gt=0, le=86_400_000)]


class Slo(ApiModel):
    """Targets of one request; those that are given must all be met."""

    rules: ClassVar = (
        Rule(
            "has(self.ttftMs) || has(self.tpotMs) || has(self.e2eMs)",
            "give at least one of slo.ttftMs, slo.tpotMs and slo.e2eMs",
        ),
    )

    ttft_ms: Target | None = None
    """Longest time to the first token, from the moment at which the request should have been sent."""
    tpot_ms: Target | None = None
    """Longest time per output token after the first."""
    e2e_ms: Annotated[Target | None, Field(alias="e2eMs")] = None
    """Longest time to the last token, from the moment at which the request should have been sent."""
    percentile: Literal[50, 95, 99] = 95
    """Which percentile of the requests must meet them where one load or drafter is recommended over another."""

    @model_validator(mode="after")
    def _some_target(self) -> Slo:
        refuse_broken(self.rules, (bool(self.targets),))
        return self

    @property
    def targets(self) -> dict[str, float]:
        """The targets that are given, in ms, by the name of their figure: ttft_ms, tpot_ms, e2e_ms."""
        told = {"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms, "e2e_ms": self.e2e_ms}
        return {name: target for name, target in told.items() if target is not None}

    @property
    def words(self) -> str:
        """For tables: `TTFT ≤ 500 ms, TPOT ≤ 35 ms`."""
        return ", ".join(f"{name.removesuffix('_ms').upper()} ≤ {target:g} ms" for name, target in self.targets.items())

    def to_line(self) -> str:
        """As one line of JSON for the environment of a pod."""
        return self.model_dump_json(by_alias=True, exclude_none=True)
