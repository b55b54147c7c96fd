"""A research runtime is no production engine."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.launched import Launched
from specbench_api.spec.engine import RESEARCH_RUNTIME, EngineKind
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    if evidence.plan.engine.kind is not EngineKind.TRANSFORMERS and not _says_so(evidence.launches):
        return []
    message = (
        "the engine was transformers, a research runtime: no batching, and a step that costs what no engine's does"
    )
    return [Seen(Severity.NOTE, message)]


def _says_so(launches: Sequence[Launched]) -> bool:
    """Whether an endpoint that somebody else started told that it is one."""
    versions = [launch.value(FactName.ENGINE_VERSION) for launch in launches]
    return any(RESEARCH_RUNTIME in version for version in versions if isinstance(version, str))


CHECK: Check[RunEvidence] = Check(
    name="ResearchRuntime",
    severities=(Severity.NOTE,),
    says="The engine was a research runtime.",
    threshold="engine kind transformers, or an endpoint whose version says that it is our research runtime",
    argument="It answers one request at a time and spends most of a step in Python, which a drafter saves too: its "
    "acceptance is the model's, and its speed-up is nobody's but its own.",
    remedy="Take acceptance from it, and measure the speed-up on the engine that will serve.",
    look=_look,
)
