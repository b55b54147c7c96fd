"""Chunks with more tokens than one step can emit: something between the engine and the client merges them."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import numbers, tally
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01


def _evaluate(evidence: PointEvidence) -> CheckResults:
    if evidence.drafts is None:
        return []
    most = evidence.drafts + 1
    tokens, counts = tally(evidence.answered, "tokens_of_chunks").fields
    chunks = float(counts.sum(dtype=np.float64))
    merged = float(counts[tokens > most].sum(dtype=np.float64))
    share = merged / chunks if chunks else _share_of_answers(evidence, most)
    if share <= SHARE:
        return []
    what = "chunks contain" if chunks else "answers arrived in chunks that contain, on average,"
    message = (
        f"{share:.0%} of the {what} more than the {most} tokens that one step can emit: chunks are merged on the"
        " way, so first and last token times are late and gaps between chunks are meaningless"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=SHARE)]


def _share_of_answers(evidence: PointEvidence, most: int) -> float:
    """Share of answers whose mean chunk is larger than a step; used if chunks do not report their tokens."""
    rows = evidence.answered
    chunks = numbers(rows, "chunks")
    mean = numbers(rows, "tokens") / np.where(chunks > 0, chunks, np.nan)
    known = mean[~np.isnan(mean)]
    return float((known > most).mean()) if known.size else 0.0


CHECK: Check[PointEvidence] = Check(
    name="MultiStepChunks",
    severities=(Severity.WARNING,),
    description="Streamed chunks contain more than k + 1 tokens (more than one for the baseline).",
    threshold=f"more than {SHARE:.0%} of the chunks",
    rationale=(
        "A step emits at most its k accepted drafts and one more token. A detokenizer that waits for the rest of a"
        " character merges chunks now and then; 1 % allows for that."
    ),
    remedy="Set the engine's stream interval to 1, and let no proxy buffer between client and engine.",
    evaluate=_evaluate,
)
