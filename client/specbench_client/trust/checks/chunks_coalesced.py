"""Chunks of several steps that share one arrival time, so that all but the last have a time that is too late.

There are two causes, and the records do not distinguish them. The client may have read late, so that one read returned
everything that had arrived in the meantime. Or the engine's own server, or a proxy, holds chunks back and sends them in
one write. The last chunk's time is exact; the others arrived, or would have arrived, earlier by up to the steps in
between. That distorts the gaps between chunks, and the TTFT if the first chunk is among them. Time per token depends on
the first and the last chunk only and hardly changes, unless the whole answer arrived at once: its TTFT is then the time
of the whole answer, and its tokens take no time.

The client's own health separates the causes: an event loop cause lateness (99th percentile) stays below the time of a
step (half an answer) coalesced few chunks itself.

One step may be sent as several chunks (llama.cpp streams one token per chunk, also with speculation), and these are
then rightly read together. So chunks count only where they contain more tokens together than one step can emit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.decode_speed import STEP_MS, TPOT_MS
from specbench_client.metrics.latency import E2E_SENT_MS, NS_PER_MS
from specbench_client.metrics.metric_types import RequestMetric
from specbench_client.metrics.record_lists import BURST_NS
from specbench_client.metrics.tidy_frame import numbers, steady_rows, tally
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

WARNING_SHARE = 0.05
INVALID_SHARE = 0.2
HALF = 0.5
ANSWERS_SHARE = 0.05
CHUNKS_MIN = 8
TOGETHER_MS = BURST_NS / NS_PER_MS


def _evaluate(evidence: PointEvidence) -> CheckResults:
    rows = steady_rows(evidence.rows)
    streamed = rows[numbers(rows, "chunks") > 0]
    return _at_once(evidence, streamed) or _coalesced(evidence, streamed)


def _at_once(evidence: PointEvidence, streamed: pd.DataFrame) -> list[CheckResult]:
    """Report answers of which at least half arrived in one piece."""
    chunks, largest = numbers(streamed, "chunks"), numbers(streamed, "burst_chunks")
    half = (largest >= HALF * chunks) & (numbers(streamed, "burst_tokens") > _tokens_per_step(evidence))
    long = chunks >= CHUNKS_MIN
    share = float(half[long].mean()) if long.any() else 0.0
    if share <= ANSWERS_SHARE:
        return []
    cause = _probable_cause(evidence, "half an answer", _half_an_answer_ms(evidence))
    message = (
        f"in {share:.0%} of the answers at least half of the chunks, from several steps, arrived at the same time:"
        f" TTFT and time per token are not the engine's; {cause}"
    )
    return [CheckResult(_severity(evidence, sure=True), message, value=share, threshold=ANSWERS_SHARE)]


def _coalesced(evidence: PointEvidence, streamed: pd.DataFrame) -> list[CheckResult]:
    """Report chunks with the arrival time of a later one, among groups with more tokens than one step can emit."""
    chunks, most = float(numbers(streamed, "chunks").sum()), _tokens_per_step(evidence)
    tokens, counts = tally(streamed, "coalesced").fields
    late = float(counts[tokens > most].sum())
    share = late / chunks if chunks else 0.0
    if share <= WARNING_SHARE:
        return []
    severity = _severity(evidence, sure=share > INVALID_SHARE)
    threshold = INVALID_SHARE if severity is Severity.INVALID else WARNING_SHARE
    cause = _probable_cause(evidence, "a step", _step_ms(evidence))
    message = (
        f"{share:.0%} of the chunks were received only with those of a later step and have its timestamp, so TTFT and"
        f" the gaps between chunks are wrong by whole steps; {cause}"
    )
    return [CheckResult(severity, message, value=share, threshold=threshold)]


def _tokens_per_step(evidence: PointEvidence) -> int:
    return (evidence.drafts or 0) + 1


def _severity(evidence: PointEvidence, *, sure: bool) -> Severity:
    return Severity.INVALID if sure and evidence.drafts is not None else Severity.WARNING


def _probable_cause(evidence: PointEvidence, what: str, enough_ms: float | None) -> str:
    """Name the client if its event loop was late by at least `enough_ms`, else the engine or a proxy.

    `enough_ms` is how long `what`, the part of an answer that was coalesced, takes.
    """
    lag = evidence.health.loop_lag_p99_ms
    if lag is None or enough_ms is None:
        return "the client read late, or the engine or a proxy holds chunks back"
    if lag >= enough_ms:
        return (
            f"the client itself was late ({lag:.1f} ms at the 99th percentile), or the engine or a proxy holds chunks"
            " back"
        )
    late = f"its event loop was {lag:.1f} ms late at the 99th percentile, and {what} takes {enough_ms:.1f} ms"
    return f"the engine or a proxy holds chunks back; the client was not late enough to cause it ({late})"


def _step_ms(evidence: PointEvidence) -> float | None:
    """The median time of a step, else of a token, in ms."""
    return _median(evidence, STEP_MS) or _median(evidence, TPOT_MS)


def _half_an_answer_ms(evidence: PointEvidence) -> float | None:
    whole = _median(evidence, E2E_SENT_MS)
    return whole and HALF * whole


def _median(evidence: PointEvidence, measure: RequestMetric) -> float | None:
    times = measure.values(steady_rows(evidence.rows))
    known = times[times > 0]
    return float(np.median(known)) if known.size else None


CHECK: Check[PointEvidence] = Check(
    name="ChunksCoalesced",
    severities=(Severity.INVALID, Severity.WARNING),
    description=(
        "Chunks of several steps share one arrival time: the client read late, or chunks were held back on the way."
    ),
    threshold=(
        f"Warning above {WARNING_SHARE:.0%} of the chunks of steady answers, Invalid above {INVALID_SHARE:.0%}."
        f" Also Invalid if, in more than {ANSWERS_SHARE:.0%} of the answers with at least {CHUNKS_MIN} chunks, half"
        f" of the chunks arrived within {TOGETHER_MS:g} ms of one another. Chunks with no more than k + 1 tokens"
        " together may come from one step and do not count. Only Warning if k is unknown: an external endpoint that"
        " does not report its drafts"
    ),
    rationale=(
        "First tokens are coalesced as often as others: above 5 % the 95th percentile of TTFT may rest on late"
        " timestamps. If one chunk in five is coalesced, two gaps in five are missing or doubled, and single steps"
        " cannot be timed. Time per token is still correct, unless half an answer arrives at once. No engine decodes"
        f" a step in {TOGETHER_MS:g} ms, but the segments of one write arrive within that time."
    ),
    remedy=(
        "If the client was late, give it more CPU or more workers, or lower the load. If it was not, let no proxy"
        " buffer between client and engine (proxy_buffering off), and check that the engine flushes each chunk."
    ),
    evaluate=_evaluate,
)
