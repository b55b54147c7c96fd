"""`spec.gate`: how much worse a run may be than an earlier result, and how sure the test must be.

The gate is a non-inferiority test: passing requires evidence that nothing got worse. The mere absence of a significant
regression is not enough, because measuring less would be the easiest way to get it. If the data show neither, the
result is `Inconclusive`, which fails by default. The gate is not part of what is measured: it is in no hash, and may be
changed after the run has started.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel, Distinct, Names, RuledModel, ValidationRule
from specbench_api.spec.latency_percentiles import Percentile
from specbench_api.spec.patterns import DNS_LABEL

DEFAULT_PERCENT = 5.0
"""Allowed regression, in percent, if a gate lists no tolerances."""
MIN_REPEATS = 3
"""Fewer repeats do not show run-to-run variation."""

ArmName = Annotated[str, Field(min_length=1, max_length=32)]


class GateMetric(Names):
    """Metrics that a gate can test. For tpot, ttft and e2e less is better; for the others more is better."""

    SPEEDUP = "speedup"
    """Output tokens per second of stream time, divided by the paired baseline's. Pairing cancels machine-wide effects.
    """
    TPOT = "tpot"
    """Time per output token after the first."""
    TTFT = "ttft"
    """Time to first token."""
    OUTPUT_TPS = "outputTps"
    """Output tokens per second of the whole engine."""
    E2E = "e2e"
    """Time to the last token."""
    ACCEPTANCE_LENGTH = "acceptanceLength"
    """Emitted tokens per step, pooled over steps."""


LATENCIES = (GateMetric.TPOT, GateMetric.TTFT, GateMetric.E2E)
"""The metrics that have percentiles; less is better."""


class BaselineRef(RuledModel):
    """The earlier result to compare with: exactly one of `run`, `campaign` and `uri`."""

    rules: ClassVar = (
        ValidationRule(
            "[has(self.run), has(self.campaign), has(self.uri)].filter(x, x).size() == 1",
            "set exactly one of baselineRef.run, baselineRef.campaign and baselineRef.uri",
            lambda ref: sum(each is not None for each in (ref.run, ref.campaign, ref.uri)) == 1,
        ),
    )

    run: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = None
    """Name of a SpecBenchRun in this namespace, which must have finished."""
    campaign: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = None
    """Name of a SpecBenchCampaign in this namespace: uses its newest finished run of the same combination that is older
    than this run."""
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S(.*\S)?$")] | None = None
    """Root folder of a stored result: `s3://bucket/prefix/namespace/name/uid` (read with this run's credentials), or
    with the command line a local folder."""


class Tolerance(RuledModel):
    """How much worse one metric may be, in every cell (arm × workload × load) that the filters select."""

    rules: ClassVar = (
        ValidationRule(
            "!has(self.percentile) || self.metric in ['tpot', 'ttft', 'e2e']",
            "tolerances[].percentile is only valid with metric tpot, ttft or e2e: remove it, or change the metric",
            lambda tolerance: tolerance.percentile is None or tolerance.metric in LATENCIES,
        ),
    )

    metric: GateMetric
    """The metric to compare. For tpot, ttft and e2e less is better; for the others more is better."""
    percentile: Percentile | None = None
    """Percentile over requests, for tpot, ttft and e2e. Without it: for tpot the time pooled over tokens, for the
    others the mean."""
    max_regression_percent: Annotated[float, Field(gt=0, lt=100)] = DEFAULT_PERCENT
    """Allowed regression in percent. With 5, a speed-up of 2.0 may fall to 1.9, and a TPOT of 20 ms may rise to 21 ms.
    """
    arms: Annotated[list[ArmName], Field(max_length=257), Distinct()] = []
    """Test only these arms; `none` is the baseline. Empty: all."""
    workloads: Annotated[list[ArmName], Field(max_length=16), Distinct()] = []
    """Test only these workloads. Empty: all."""

    @property
    def label(self) -> str:
        """Label for tables: `speedup`, `ttft p95`."""
        return f"{self.metric} {self.percentile}" if self.percentile else str(self.metric)


class Gate(ApiModel):
    """A regression test against an earlier result. The condition GatePassed reports its outcome.

    See docs, "Compare two results and gate a change".
    """

    baseline_ref: BaselineRef
    """The earlier result to compare with."""
    tolerances: Annotated[list[Tolerance], Field(max_length=16)] = []
    """Which metrics to test, and how much worse each may be. Empty: speedup and tpot, 5 % each."""
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    """Confidence of each one-sided test, both that a cell is within its tolerance and that it is not."""
    min_repeats: Annotated[int, Field(ge=MIN_REPEATS, le=64)] = MIN_REPEATS
    """Repeats that both results must have in a cell. A cell with fewer is inconclusive."""
    on_missing: Literal["Fail", "Pass"] = "Fail"
    """Outcome for a cell of the earlier result that this run does not have, or whose comparison a check invalidated."""
    on_inconclusive: Literal["Fail", "Pass"] = "Fail"
    """Outcome for a cell that the data show to be neither within its tolerance nor beyond it."""
    require_trustworthy: bool = True
    """Whether both results must be trustworthy for the gate to pass."""

    @property
    def effective_tolerances(self) -> list[Tolerance]:
        """The tolerances, or the default ones if none are listed."""
        return self.tolerances or [Tolerance(metric=GateMetric.SPEEDUP), Tolerance(metric=GateMetric.TPOT)]


GATE_VARIABLE = "SPECBENCH_GATE"
"""Environment variable of a gate Job with its GateRequest."""


class GateRequest(ApiModel):
    """A gate with its resolved baseline: what the operator passes to the gate Job."""

    gate_digest: str
    """Digest of the gate, which identifies its report."""
    gate: Gate
    """The gate."""
    baseline: str
    """Root folder of the earlier result."""

    def to_line(self) -> str:
        """Return the request as one line of JSON for a pod's environment, where Kubernetes expands `$(NAME)`."""
        return self.model_dump_json(by_alias=True, exclude_none=True).replace("$", "\\u0024")
