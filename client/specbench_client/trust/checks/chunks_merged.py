"""A chunk with more tokens than one step can emit: somebody between engine and client merges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, tally
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.01


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    if evidence.drafts is None:
        return []
    most = evidence.drafts + 1
    held, often = tally(evidence.answered, "tokens_of_chunks").fields
    chunks = float(often.sum(dtype=np.float64))
    merged = float(often[held > most].sum(dtype=np.float64))
    share = merged / chunks if chunks else _share_of_answers(evidence, most)
    if share <= SHARE:
        return []
    what = "chunks hold" if chunks else "answers came in chunks that hold on average"
    message = (
        f"{share:.0%} of the {what} more than the {most} tokens that one step can emit: chunks are merged on the way,"
        " so times of first and last token are late and gaps between chunks mean nothing"
    )
    return [Seen(Severity.DOUBT, message, value=share, threshold=SHARE)]


def _share_of_answers(evidence: PointEvidence, most: int) -> float:
    """Where chunks do not tell their tokens: answers whose mean chunk is larger than a step."""
    rows = evidence.answered
    chunks = numbers(rows, "chunks")
    mean = numbers(rows, "tokens") / np.where(chunks > 0, chunks, np.nan)
    known = mean[~np.isnan(mean)]
    return float((known > most).mean()) if known.size else 0.0


CHECK: Check[PointEvidence] = Check(
    name="ChunksMerged",
    severities=(Severity.DOUBT,),
    says="Streamed chunks hold more than k + 1 tokens (one for the baseline).",
    threshold=f"more than {SHARE:.0%} of the chunks",
    argument=(
        "A step emits at most its k accepted drafts and one token more. A detokenizer that waits for the rest of a"
        " character merges now and then; 1 % leaves it room."
    ),
    remedy="Set the engine's stream interval to 1, and let no proxy buffer between client and engine.",
    look=_look,
)
