"""`spec.gate`: what a run must not have lost against an earlier result, and how sure one must be of that.

A gate asks for evidence of harmlessness (non-inferiority), because the absence of a significant regression is none: the
cheapest way to it is to measure less. What cannot be told either way is `Inconclusive`, and fails unless asked
otherwise. Nothing here is part of what is measured: it is in no hash and may change under a run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Distinct, Rule, refuse_broken
from specbench_api.spec.kubernetes import DNS_LABEL

DEFAULT_PERCENT = 5.0
"""What a gate without tolerances allows."""
MIN_REPEATS = 3
"""Of fewer, no interval holds what runs do: see outcome.summary.REPEATS_TO_TELL."""

ArmName = Annotated[str, Field(min_length=1, max_length=32)]


class GateMetric(StrEnum):
    """What may be gated on. Of the latencies (tpot, ttft, e2e) less is better, of the others more."""

    SPEEDUP = "speedup"
    """Output tokens a second of stream time over the paired baseline's: what the machine did that day cancels."""
    TPOT = "tpot"
    """Time per output token after the first."""
    TTFT = "ttft"
    """Time to first token."""
    OUTPUT_TPS = "outputTps"
    """Output tokens a second of the whole engine."""
    E2E = "e2e"
    """Time to the last token."""
    ACCEPTANCE_LENGTH = "acceptanceLength"
    """Tokens emitted a step, pooled over steps."""


LATENCIES = (GateMetric.TPOT, GateMetric.TTFT, GateMetric.E2E)
"""Have percentiles; less is better."""


class BaselineRef(ApiModel):
    """What is compared with: exactly one of `run`, `campaign` and `uri`."""

    rules: ClassVar = (
        Rule(
            "[has(self.run), has(self.campaign), has(self.uri)].filter(x, x).size() == 1",
            "give exactly one of baselineRef.run, baselineRef.campaign and baselineRef.uri",
        ),
    )

    run: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = None
    """A SpecBenchRun of this namespace, which must be finished."""
    campaign: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = None
    """A SpecBenchCampaign of this namespace: its newest finished run of the same cell that is older than this run."""
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S(.*\S)?$")] | None = None
    """A stored result, by its run's root: s3://… (read with this run's own credentials), or a folder of this machine
    for the command line."""

    @model_validator(mode="after")
    def _one(self) -> BaselineRef:
        refuse_broken(self.rules, (sum(way is not None for way in (self.run, self.campaign, self.uri)) == 1,))
        return self


class Tolerance(ApiModel):
    """How much worse one metric may be, in every cell (arm × workload × load) that the filters leave."""

    rules: ClassVar = (
        Rule(
            "!has(self.percentile) || self.metric in ['tpot', 'ttft', 'e2e']",
            "tolerances[].percentile goes with the metrics tpot, ttft and e2e alone",
        ),
    )

    metric: GateMetric
    """What is compared."""
    percentile: Literal["p50", "p95", "p99"] | None = None
    """Of tpot, ttft and e2e, over requests. Without: of tpot the time pooled over tokens, of the others the mean."""
    max_regression_percent: Annotated[float, Field(gt=0, lt=100)] = DEFAULT_PERCENT
    """So much worse it may be: a speed-up of 2.0 with 5 may fall to 1.9, a TPOT of 20 ms may grow to 21 ms."""
    arms: Annotated[list[ArmName], Field(max_length=17), Distinct()] = []
    """Only these arms; `none` is the baseline. Empty: all."""
    workloads: Annotated[list[ArmName], Field(max_length=16), Distinct()] = []
    """Only these workloads. Empty: all."""

    @model_validator(mode="after")
    def _with_percentiles(self) -> Tolerance:
        refuse_broken(self.rules, (self.percentile is None or self.metric in LATENCIES,))
        return self

    @property
    def label(self) -> str:
        """For tables: `speedup`, `ttft p95`."""
        return f"{self.metric} {self.percentile}" if self.percentile else str(self.metric)


class Gate(ApiModel):
    """Whether a run may pass, given an earlier result. Told in the condition GatePassed; see docs/gate.md."""

    baseline_ref: BaselineRef
    """The earlier result."""
    tolerances: Annotated[list[Tolerance], Field(max_length=16)] = []
    """What may get how much worse. Empty: speedup and tpot by 5 % each."""
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    """Of each one-sided test: how sure a pass is that a cell is within its tolerance, and a failure that one is not."""
    min_repeats: Annotated[int, Field(ge=MIN_REPEATS, le=64)] = MIN_REPEATS
    """Repeats that each side must have in a cell; of fewer nothing is told."""
    on_missing: Literal["Fail", "Pass"] = "Fail"
    """What a cell of the earlier result means that this run lacks, or whose comparison a check broke."""
    inconclusive: Literal["Fail", "Pass"] = "Fail"
    """What it means that neither can be shown: that a cell is within its tolerance, nor that it is not."""
    require_trustworthy: bool = True
    """Whether both results must be trustworthy."""

    @property
    def asked(self) -> list[Tolerance]:
        """The tolerances, with the default ones written out."""
        return self.tolerances or [Tolerance(metric=GateMetric.SPEEDUP), Tolerance(metric=GateMetric.TPOT)]
