"""Acceptance that contradicts the engine's own counters.

Of the several ways to learn the acceptance of an answer, the weakest is to count its chunks: an engine that streams
four tokens at a time looks like one whose drafts are accepted, while its counters show that none was. See
`trust.acceptance_counters` for the differences that are allowed, and for which of the two is reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.trust.acceptance_counters import (
    TOLERATED_PER_ANSWER,
    TOLERATED_SHARE,
    Contradiction,
    contradictions,
    is_inferred,
)
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence


def _evaluate(evidence: PointEvidence) -> CheckResults:
    found = contradictions(evidence)
    if not found:
        return []
    worst = max(found, key=lambda each: each.beyond / max(each.reported, each.counted))
    value = abs(worst.reported - worst.counted) / max(worst.reported, worst.counted)
    message = (
        f"the answers contain {_counts(found, 'reported')}, but the engine's own counters {_counts(found, 'counted')}"
    )
    if (evidence.answered["acceptance_source"] == AcceptanceSource.CHUNKS.value).any():
        message += "; acceptance inferred from chunks alone is dropped, because a chunk is not one step here"
    only_our_inference = evidence.plan.engine.kind is EngineKind.EXTERNAL and bool(is_inferred(evidence.answered).all())
    return [
        CheckResult(
            Severity.INFO if only_our_inference else Severity.INVALID, message, value=value, threshold=TOLERATED_SHARE
        )
    ]


def _counts(found: Sequence[Contradiction], side: str) -> str:
    return ", ".join(f"{getattr(each, side):.0f} {each.name}" for each in found)


CHECK: Check[PointEvidence] = Check(
    name="AcceptanceCounterMismatch",
    severities=(Severity.INVALID, Severity.INFO),
    description="Draft steps, draft tokens or accepted tokens in the answers contradict the engine's own counters.",
    threshold=(
        f"a difference of more than {TOLERATED_SHARE:.0%} plus {TOLERATED_PER_ANSWER} step or accepted token per"
        " answer (k per answer for draft tokens). The counters may exceed the answers by up to k accepted tokens"
        " per answer, and by the longest answer for each failed request. Info if the contradicted number is only"
        " inferred from the chunks of an external endpoint: it is dropped"
    ),
    rationale=(
        "Engines count accepted tokens before they cut an answer at its stop, so up to k tokens per answer are"
        " never delivered. A larger difference means that one side counts wrongly, and acceptance length and"
        " acceptance rate with it."
    ),
    remedy=(
        "Enable per-request acceptance reporting in the engine, set its stream interval to 1, and let no proxy"
        " merge chunks. If the engine contradicts itself, report the bug and do not use the acceptance."
    ),
    evaluate=_evaluate,
)
