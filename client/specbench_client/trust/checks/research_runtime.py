"""A research runtime is not a production engine, so its speed-ups do not transfer."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.provenance import FactName, LaunchRecord
from specbench_api.spec.engine import RESEARCH_RUNTIME, EngineKind
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    if evidence.plan.engine.kind is not EngineKind.TRANSFORMERS and not _reports_research_runtime(evidence.launches):
        return []
    message = (
        "the engine is transformers, a research runtime: it does not batch, and its step times are not those of a"
        " serving engine"
    )
    return [CheckResult(Severity.INFO, message)]


def _reports_research_runtime(launches: Sequence[LaunchRecord]) -> bool:
    """Whether an external endpoint reports the version of our research runtime."""
    versions = [launch.value(FactName.ENGINE_VERSION) for launch in launches]
    return any(RESEARCH_RUNTIME in version for version in versions if isinstance(version, str))


CHECK: Check[RunEvidence] = Check(
    name="ResearchRuntime",
    severities=(Severity.INFO,),
    description="The engine was a research runtime.",
    threshold="engine kind transformers, or an endpoint whose reported version is that of our research runtime",
    rationale=(
        "It answers one request at a time and spends most of a step in Python, which a drafter saves too: its"
        " acceptance is the model's, but its speed-up is valid for no other engine."
    ),
    remedy="Use its acceptance, and measure the speed-up on the engine that you will deploy.",
    evaluate=_evaluate,
)
