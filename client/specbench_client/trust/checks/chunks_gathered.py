"""Chunks of several steps that arrived at one time: all but the last of them bear a time that is not theirs.

Two things do that, and in the records they look alike. The client read late, and one read gathered what had come in the
meantime. Or the engine's own server, or somebody between (a proxy), holds chunks back and hands them over in one write.
The last chunk's time is exact; the others came, or would have come, earlier by up to the steps in
between. That falsifies the gaps between chunks, and the time to the first token where the first chunk is among them.
Time per token needs the first and the last chunk alone and is hardly touched, unless the whole answer came at once:
then the time to the first token is the answer's, and a token takes no time.

The client's own watch tells them apart: a loop that was hardly ever (at the 99th percentile) late by as much as a step
(half an answer) gathered few.

What one step emits may leave the engine as several chunks (llama.cpp streams one a token, also under speculation), and
is then rightly read at once. So chunks count only where they hold together more tokens than one step can emit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady, tally
from specbench_client.metrics.latency import E2E_SENT_MS, NS_PER_MS
from specbench_client.metrics.lists import TOGETHER_NS
from specbench_client.metrics.metric import Measure
from specbench_client.metrics.pace import STEP_MS, TPOT_MS
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

DOUBT_SHARE = 0.05
INVALID_SHARE = 0.2
HALF = 0.5
ANSWERS_SHARE = 0.05
CHUNKS_MIN = 8
TOGETHER_MS = TOGETHER_NS / NS_PER_MS


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    rows = steady(evidence.rows)
    streamed = rows[numbers(rows, "chunks") > 0]
    return _at_once(evidence, streamed) or _gathered(evidence, streamed)


def _at_once(evidence: PointEvidence, streamed: pd.DataFrame) -> list[Seen]:
    """Answers of which half and more came in one piece."""
    chunks, largest = numbers(streamed, "chunks"), numbers(streamed, "burst_chunks")
    half = (largest >= HALF * chunks) & (numbers(streamed, "burst_tokens") > _a_step(evidence))
    long = chunks >= CHUNKS_MIN
    share = float(half[long].mean()) if long.any() else 0.0
    if share <= ANSWERS_SHARE:
        return []
    whose = _by_whom(evidence, "half an answer", _half_an_answer_ms(evidence))
    message = (
        f"of {share:.0%} of the answers half the chunks and more, of several steps, arrived at one time: times to the"
        f" first token and per token are not the engine's; {whose}"
    )
    return [Seen(_severity(evidence, sure=True), message, value=share, threshold=ANSWERS_SHARE)]


def _gathered(evidence: PointEvidence, streamed: pd.DataFrame) -> list[Seen]:
    """Chunks that bear a later one's time, among those that hold more tokens together than a step can emit."""
    chunks, most = float(numbers(streamed, "chunks").sum()), _a_step(evidence)
    held, often = tally(streamed, "gathered").fields
    late = float(often[held > most].sum())
    share = late / chunks if chunks else 0.0
    if share <= DOUBT_SHARE:
        return []
    severity = _severity(evidence, sure=share > INVALID_SHARE)
    threshold = INVALID_SHARE if severity is Severity.INVALID else DOUBT_SHARE
    whose = _by_whom(evidence, "a step", _step_ms(evidence))
    message = (
        f"{share:.0%} of the chunks arrived together with a later step's and bear its time: times to the first token"
        f" and gaps between chunks are off by whole steps; {whose}"
    )
    return [Seen(severity, message, value=share, threshold=threshold)]


def _a_step(evidence: PointEvidence) -> int:
    return (evidence.drafts or 0) + 1


def _severity(evidence: PointEvidence, *, sure: bool) -> Severity:
    return Severity.INVALID if sure and evidence.drafts is not None else Severity.DOUBT


def _by_whom(evidence: PointEvidence, what: str, enough_ms: float | None) -> str:
    """The client, where its loop was late by as much as such gathering takes; else the engine or what lies between.

    `enough_ms`: how long `what` takes that was gathered.
    """
    lag = evidence.watch.loop_lag_p99_ms
    if lag is None or enough_ms is None:
        return "the client read late, or the engine, or somebody between, holds chunks back"
    if lag >= enough_ms:
        late = f"the client was late itself ({lag:.1f} ms at the 99th percentile)"
        return f"{late}, or the engine, or somebody between, holds chunks back"
    late = f"its loop was {lag:.1f} ms late at the 99th percentile, and {what} takes {enough_ms:.1f} ms"
    return f"the engine, or somebody between, holds chunks back: the client was in time for that ({late})"


def _step_ms(evidence: PointEvidence) -> float | None:
    """The median step, else the median token."""
    return _median(evidence, STEP_MS) or _median(evidence, TPOT_MS)


def _half_an_answer_ms(evidence: PointEvidence) -> float | None:
    whole = _median(evidence, E2E_SENT_MS)
    return whole and HALF * whole


def _median(evidence: PointEvidence, measure: Measure) -> float | None:
    times = measure.values(steady(evidence.rows))
    known = times[times > 0]
    return float(np.median(known)) if known.size else None


CHECK: Check[PointEvidence] = Check(
    name="ChunksGathered",
    severities=(Severity.INVALID, Severity.DOUBT),
    says="Chunks of several steps share one arrival time: read late by the client, or held back on the way.",
    threshold=(
        f"a Doubt above {DOUBT_SHARE:.0%} of the chunks of steady answers, Invalid above {INVALID_SHARE:.0%}; Invalid,"
        f" too, where of more than {ANSWERS_SHARE:.0%} of the answers with at least {CHUNKS_MIN} chunks half the chunks"
        f" came within {TOGETHER_MS:g} ms of one another. Chunks that hold no more than k + 1 tokens together may be"
        " one step's and do not count. Only a Doubt where nobody knows k: an endpoint that we did not start, and that"
        " does not tell its drafts"
    ),
    argument=(
        "First tokens are gathered as often as others: beyond 5 % the 95th percentile of the time to first token may"
        " rest on late stamps. At one in five, two gaps in five are missing or doubled, and a client or a path"
        " that coalesces so much no longer resolves a step. Time per token alone would stand, but not where half an"
        " answer comes at once: it is then divided by a time in which no token was made. No engine decodes a step in"
        f" {TOGETHER_MS:g} ms; the segments of one write are closer."
    ),
    remedy=(
        "Where the client was late: give it more CPU or more workers, or lower the load. Where it was in time: let no"
        " proxy buffer between client and engine (proxy_buffering off), and see that the engine flushes each chunk."
    ),
    look=_look,
)
