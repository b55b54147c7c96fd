"""One request at a time: what no server that is worth its GPUs is asked."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

IN_FLIGHT = 1.5


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    seen = [_in_flight(evidence, level.label) for level in evidence.plan.load.levels]
    known = [value for value in seen if value is not None]
    if not known or max(known) >= IN_FLIGHT:
        return []
    message = (
        f"no load of this run keeps more than {max(known):.1f} requests in flight: its speed-ups are those of an idle"
        " engine, and say nothing of a loaded one, where drafting gains less or loses"
    )
    return [Seen(Severity.NOTE, message, value=max(known), threshold=IN_FLIGHT)]


def _in_flight(evidence: RunEvidence, load: str) -> float | None:
    """The streams of a closed loop as asked; the most that any point of an open one had."""
    levels = [level for level in evidence.plan.load.levels if level.label == load]
    if levels[0].concurrency is not None:
        return float(levels[0].concurrency)
    watches = [each.self_watch for each in evidence.summaries if each.level.label == load]
    return max((each.reached_concurrency for each in watches if each.reached_concurrency is not None), default=None)


CHECK: Check[RunEvidence] = Check(
    name="OneStream",
    severities=(Severity.NOTE,),
    says="Every load of the run keeps about one request in flight.",
    threshold=(
        f"fewer than {IN_FLIGHT:g} requests in flight at the highest load: as asked of a closed loop, as seen of an"
        " open one"
    ),
    argument=(
        "A batch of one leaves the GPU waiting for memory, and drafts are verified for nothing; a full one has no time"
        " to spare: n-gram drafts for Llama-3.3-70B are published with a speed-up of 0.88 at 32 streams. Who serves"
        " one user at a time may mean it, so it is a note."
    ),
    remedy="Add the concurrency, or the rate, of your service to load; `specbench curve` tells where the gain ends.",
    look=_look,
)
