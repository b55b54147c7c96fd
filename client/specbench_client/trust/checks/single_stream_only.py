"""Only one request at a time, a load that hardly any production server has."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

IN_FLIGHT = 1.5


def _evaluate(evidence: RunEvidence) -> CheckResults:
    in_flight = [_in_flight(evidence, level.label) for level in evidence.plan.load.levels]
    known = [value for value in in_flight if value is not None]
    if not known or max(known) >= IN_FLIGHT:
        return []
    message = (
        f"no load of this run keeps more than {max(known):.1f} requests in flight: the speed-ups apply to an idle"
        " engine; on a loaded engine drafting gains less, or is slower"
    )
    return [CheckResult(Severity.INFO, message, value=max(known), threshold=IN_FLIGHT)]


def _in_flight(evidence: RunEvidence, load: str) -> float | None:
    """The requested concurrency of a closed loop; the highest number in flight in any point of an open loop."""
    levels = [level for level in evidence.plan.load.levels if level.label == load]
    if levels[0].concurrency is not None:
        return float(levels[0].concurrency)
    watches = [each.client_health for each in evidence.summaries if each.level.label == load]
    return max((each.reached_concurrency for each in watches if each.reached_concurrency is not None), default=None)


CHECK: Check[RunEvidence] = Check(
    name="SingleStreamOnly",
    severities=(Severity.INFO,),
    description="Every load of the run keeps about one request in flight.",
    threshold=(
        f"fewer than {IN_FLIGHT:g} requests in flight at the highest load: as requested for a closed loop, as"
        " measured for an open loop"
    ),
    rationale=(
        "With a batch of one the GPU waits for memory, and verifying drafts is free; a full batch has no spare"
        " time: n-gram drafts for Llama-3.3-70B are published with a speed-up of 0.88 at 32 streams. A service with"
        " one user at a time may be intended, so the severity is Info."
    ),
    remedy=(
        "Add your service's concurrency or rate to `load`; `specbench analyze curve` shows the load at which the"
        " gain ends."
    ),
    evaluate=_evaluate,
)
