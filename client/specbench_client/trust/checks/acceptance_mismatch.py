"""Acceptance that the engine's own counters deny.

Of several ways to learn the acceptance of an answer the weakest is its chunks: an engine that streams four tokens at a
time looks like one whose drafts are accepted, while its counters say that nothing was. See `trust.drafting` for what
the two may differ by, and what is printed of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.trust.check import Check
from specbench_client.trust.drafting import PER_ANSWER, SHARE, Contradiction, contradictions, inferred
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    found = contradictions(evidence)
    if not found:
        return []
    worst = max(found, key=lambda each: each.beyond / max(each.told, each.counted))
    value = abs(worst.told - worst.counted) / max(worst.told, worst.counted)
    message = f"the answers tell of {_counts(found, 'told')}, the engine's own counters of {_counts(found, 'counted')}"
    if (evidence.answered["acceptance_source"] == AcceptanceSource.CHUNKS.value).any():
        message += "; what was read from chunks alone is not believed: they are not one a step"
    of_a_stranger = evidence.plan.engine.kind is EngineKind.EXTERNAL and bool(inferred(evidence.answered).all())
    return [Seen(Severity.NOTE if of_a_stranger else Severity.INVALID, message, value=value, threshold=SHARE)]


def _counts(found: Sequence[Contradiction], side: str) -> str:
    return ", ".join(f"{getattr(each, side):.0f} {each.name}" for each in found)


CHECK: Check[PointEvidence] = Check(
    name="AcceptanceMismatch",
    severities=(Severity.INVALID, Severity.NOTE),
    says="Draft steps, drafted or accepted tokens of the answers contradict the engine's own counters.",
    threshold=(
        f"more than {SHARE:.0%} and {PER_ANSWER} step or accepted token an answer (k drafted tokens); the counters may"
        " hold up to k accepted tokens more an answer, and for each request that failed as much as the longest answer."
        " A Note where only our own reading of the chunks of an endpoint that we did not start is denied: it is dropped"
    ),
    argument=(
        "Engines count what they accept before they cut an answer at its stop: up to k tokens an answer never arrive."
        " Whatever differs beyond that is counted wrongly on one side, and acceptance length and rate with it."
    ),
    remedy=(
        "Switch the engine's acceptance of each request on, set its stream interval to 1, let no proxy merge; where the"
        " engine contradicts itself, report its bug and do not use the acceptance."
    ),
    look=_look,
)
