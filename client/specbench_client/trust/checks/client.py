"""Checks whether the client was fast enough and its times are right."""

from __future__ import annotations

import numpy as np

from specbench_client.documents.finding import Severity
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.chunks_and_steps import BURST_NS
from specbench_client.metrics.late_sends import (
    ATTAINMENT_SHARE,
    FIGURE_SHARE,
    LATE_MIN_MS,
    LATE_SHARE,
    MEAN_E2E,
    MEAN_TTFT,
    TAIL_MIN,
    TAIL_MIN_MS,
    late_figures,
)
from specbench_client.metrics.latency import E2E_SENT_MS
from specbench_client.metrics.metric_types import RequestMetric, TimingFault
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import REQUEST, numbers
from specbench_client.metrics.time_per_token import STEP_MS, TPOT_MS
from specbench_client.trust.check_type import BUSY, CheckResult, CheckResults, busy_machine, check, list_names
from specbench_client.trust.evidence import PointEvidence, RunEvidence

CPU_SHARE = 0.8


@check(
    name="ClientSaturated",
    severities=(Severity.INVALID, Severity.WARNING),
    threshold=(
        f"Event loop, unless the kernel timestamped every answer: 99th percentile over time of its lateness above"
        f" {LATE_SHARE:.0%} of the median request time (and {LATE_MIN_MS:g} ms). Late sends: the delay before sending"
        f" (connect_ns − intended_ns) adds more than {LATE_SHARE:.0%} to the mean E2E latency (and {LATE_MIN_MS:g} ms)."
        f" A warning, and the figure is left out: {FIGURE_SHARE:.0%} to the mean TTFT or a median"
        f" (and {LATE_MIN_MS:g} ms), or to another percentile of TTFT or E2E latency (and {TAIL_MIN_MS:g} ms) with at"
        f" least {TAIL_MIN} requests beyond it. A load's figures"
        f" are judged in the same way over all its repeats; goodput is left out if {ATTAINMENT_SHARE:.0%} of the"
        f" requests or more missed a target because they were sent more than {LATE_MIN_MS:g} ms late."
        f" Arrivals of an open loop: 99th percentile of the delay of first turns above {LATE_SHARE:.0%} of the median"
        f" request time or of the median gap between arrivals (and {LATE_MIN_MS:g} ms). CPU: more than {CPU_SHARE:.0%}"
        " of one core in any worker"
    ),
    rationale=(
        "Latency is measured from the intended time, so a client that is late measures itself. One pause of the client"
        " delays few requests, but these are the tail: a pause of 1 % of the load decides the 99th percentile. So"
        " each latency figure is computed again as if all requests had been sent in time, and lateness of the event"
        " loop is weighted by time. Where the kernel timestamps what arrives, a late event loop changes nothing else."
        " Tail percentiles of a few hundred requests are uncertain by 10 % and more, and on a busy machine a process"
        " waits up to 10 ms for a core. 5 % of the gap between arrivals leaves the arrival process as requested. Below"
        " 5 ms is the jitter of timers, and hardly any engine's step is shorter. If the server accepts late, the delay"
        " is after connect_ns and part of the latency. Python runs on one core: at 80 % utilisation, work waits four"
        " times its own length."
    ),
    remedy=(
        "Stop other work on the client's machine, or lower the load; on a cluster, give the client its own cores"
        " (placement.client.resources). If a worker used up its core, give `specbench measure` more"
        " workers (--workers). If the client was late only once, find out what stopped it, and measure again."
    ),
)
def client_saturated(evidence: PointEvidence) -> CheckResults:
    """The client's event loop was late, it sent requests late, or it used up its core."""
    stamped = evidence.health.kernel_clock_share == 1
    late_reads = [] if stamped else _late_loop(evidence)
    # Sends are so late that the arrivals are not those of the open loop, or that a latency figure changed.
    return [*_cpu_exhausted(evidence), *late_reads, *(_late_arrivals(evidence) or _changed_latency(evidence))]


def _cpu_exhausted(evidence: PointEvidence) -> list[CheckResult]:
    share = evidence.health.cpu_share
    if share is None or share <= CPU_SHARE:
        return []
    message = f"the client used {share:.0%} of one core: sending and timestamping wait for its own work"
    return [CheckResult(Severity.INVALID, message, value=share, threshold=CPU_SHARE)]


def _late_loop(evidence: PointEvidence) -> list[CheckResult]:
    lag, request = evidence.health.loop_lag_p99_ms, _request_ms(evidence)
    allowed = None if request is None else max(LATE_MIN_MS, LATE_SHARE * request)
    if lag is None or allowed is None or lag <= allowed:
        return []
    message = f"the client's event loop was {_lateness(evidence)}; {allowed:,.2f} ms is tolerable at that percentile"
    return [CheckResult(Severity.INVALID, message, value=lag, threshold=allowed)]


def _lateness(evidence: PointEvidence) -> str:
    """Describe the event loop's lag, which must be known."""
    late, longest = evidence.health.loop_lag_p99_ms, evidence.health.loop_lag_max_ms
    if late == longest:
        return f"up to {late:,.2f} ms late, which in so short a point is also the 99th percentile of the time"
    longest_words = "" if longest is None else f", at the longest {longest:,.2f} ms"
    return f"{late:,.2f} ms late at the 99th percentile of the time{longest_words}"


def _late_arrivals(evidence: PointEvidence) -> list[CheckResult]:
    """Report late starts of an open loop's conversations; a closed loop has no arrivals of its own to keep."""
    late, lengths = evidence.health.send_lateness_p99_ms, [_request_ms(evidence), _gap_ms(evidence)]
    known = [length for length in lengths if length is not None]
    if evidence.closed or late is None or not known:
        return []
    allowed = max(LATE_MIN_MS, LATE_SHARE * min(known))
    if late <= allowed:
        return []
    started = int((numbers(evidence.rows, "turn") == 0).sum())
    message = (
        f"conversations started {late:,.2f} ms after their intended time (99th percentile of {started}), and at"
        f" most {allowed:,.2f} ms is tolerable: the arrivals at the engine are not the requested ones"
    )
    return [CheckResult(Severity.INVALID, message, value=late, threshold=allowed)]


def _changed_latency(evidence: PointEvidence) -> list[CheckResult]:
    """Report the figure of TTFT or E2E latency that late sends changed most, if it is too much."""
    found = late_figures(evidence.steady)
    if not found:
        return []
    worst = max(found, key=lambda each: (each.name == MEAN_E2E, each.name == MEAN_TTFT, each.late_ms / each.allowed_ms))
    left_out = [each.name for each in found if each.name != MEAN_E2E]
    message = (
        f"the client sent requests late, which adds {worst.late_ms:,.2f} ms to {worst.name}; at most"
        f" {worst.allowed_ms:,.2f} ms is tolerable: the delay before sending (connect_ns − intended_ns) is the"
        f" client's, not the engine's; left out of repeat {evidence.point.repeat + 1}:"
        f" {list_names(left_out) or 'nothing'}; the load's figures are judged over all its repeats"
    )
    return [
        CheckResult(
            Severity.INVALID if worst.name == MEAN_E2E else Severity.WARNING,
            message,
            value=worst.late_ms,
            threshold=worst.allowed_ms,
        )
    ]


def _request_ms(evidence: PointEvidence) -> float | None:
    """The median E2E latency of a request, measured at the socket, in ms."""
    return _median(evidence, E2E_SENT_MS)


def _gap_ms(evidence: PointEvidence) -> float | None:
    """The median gap between the intended starts of two conversations, in ms."""
    first = evidence.rows.among(numbers(evidence.rows, "turn") == 0)
    gaps = np.diff(np.sort(numbers(first, "intended_ns"))) / NS_PER_MS
    return float(np.median(gaps)) if gaps.size else None


def timing_fault(evidence: PointEvidence) -> TimingFault:
    """Return which times of the point are not the engine's, because chunks were coalesced."""
    streamed = _streamed(evidence)
    for found, fault in ((_at_once, TimingFault.AT_ONCE), (_coalesced, TimingFault.COALESCED)):
        if any(result.severity is Severity.INVALID for result in found(evidence, streamed)):
            return fault
    return TimingFault.NONE


WARNING_SHARE = 0.05
INVALID_SHARE = 0.2
HALF = 0.5
ANSWERS_SHARE = 0.05
CHUNKS_MIN = 8
TOGETHER_MS = BURST_NS / NS_PER_MS


@check(
    name="ChunksCoalesced",
    severities=(Severity.INVALID, Severity.WARNING),
    threshold=(
        f"Warning above {WARNING_SHARE:.0%} of the chunks of steady answers, Invalid above {INVALID_SHARE:.0%}."
        f" Also Invalid if, in more than {ANSWERS_SHARE:.0%} of the answers with at least {CHUNKS_MIN} chunks, half"
        f" of the chunks arrived within {TOGETHER_MS:g} ms of one another. Chunks with no more than k + 1 tokens"
        " together may come from one step and do not count. Only Warning if k is unknown: an external endpoint"
        " whose answers and counters do not show it"
    ),
    rationale=(
        "First tokens are coalesced as often as others: above 5 % the 95th percentile of TTFT may rest on late"
        " timestamps. If one chunk in five is coalesced, two gaps in five are missing or doubled, and single steps"
        " cannot be timed. Time per token is still correct, unless half an answer arrives at once. Then it is left out"
        " of all answers: a buffer holds back short and fast ones, so the others would be a slow selection. No engine"
        f" decodes a step in {TOGETHER_MS:g} ms, but the segments of one write arrive within that time."
    ),
    remedy=(
        f"On a machine with a load average above {BUSY:g} per core, stop other work. If the client was late, give"
        " it more CPU (on a cluster placement.client.resources), or lower the load. If it was not, let no proxy buffer"
        " between client and engine (proxy_buffering off), and check that the engine flushes each chunk."
    ),
    imported_remedy=(
        "If the benchmark was late, give it more CPU, or lower the load. If it was not, let no proxy buffer "
        "between it and the engine (proxy_buffering off), and check that the engine flushes each chunk."
    ),
)
def chunks_coalesced(evidence: PointEvidence) -> CheckResults:
    """Chunks of several steps share one arrival time: the client read late, or chunks were held back on the way.

    There are two causes, and the records do not distinguish them. The client may have read late, so that one read
    returned everything that had arrived in the meantime. Or the engine's own server, or a proxy, holds chunks back and
    sends them in one write. The last chunk's time is exact; the others arrived, or would have arrived, earlier by up to
    the steps in between. That distorts the gaps between chunks, and the TTFT if the first chunk is among them. Time per
    token depends on the first and the last chunk only and hardly changes, unless the whole answer arrived at once: its
    TTFT is then the time of the whole answer, and its tokens take no time.

    The client's own health separates the causes: a client that sent in time, and whose event loop's lag (99th
    percentile over time) is below the time of a step (half an answer), coalesced few chunks itself.

    One step may be sent as several chunks (llama.cpp streams one token per chunk, also with speculation), and these are
    then rightly read together. So chunks count only where they contain more tokens together than one step can emit.
    """
    streamed = _streamed(evidence)
    return _at_once(evidence, streamed) or _coalesced(evidence, streamed)


_REMAINS = "; tokens/s and speed-ups only need the ends of answers, so they remain"
_IS_VOID = (
    "; they are left out, and tokens/s and speed-ups decide nothing: they only need the ends of answers, but what"
    " holds chunks back may delay these too"
)


def _streamed(evidence: PointEvidence) -> Table:
    """Return the steady answers with chunks; after a stall chunks arrive together, which RequestsStalled reports."""
    steady = evidence.steady
    return steady.among((numbers(steady, "chunks") > 0) & ~steady.known(REQUEST))


def _at_once(evidence: PointEvidence, streamed: Table) -> list[CheckResult]:
    """Report answers of which at least half arrived in one piece."""
    chunks, largest = numbers(streamed, "chunks"), numbers(streamed, "burst_chunks")
    half = (largest >= HALF * chunks) & (numbers(streamed, "burst_tokens") > (evidence.drafts or 0) + 1)
    long = chunks >= CHUNKS_MIN
    share = float(half[long].mean()) if long.any() else 0.0
    if share <= ANSWERS_SHARE:
        return []
    whole_ms = _request_ms(evidence)
    cause = _probable_cause(evidence, "half an answer", whole_ms and HALF * whole_ms)
    severity = _severity(evidence, sure=True)
    message = (
        f"in {share:.0%} of the answers at least half of the chunks, from several steps, arrived at the same time:"
        f" TTFT and time per token are not the engine's{_unless_of_one_step(evidence)}"
        f"{_IS_VOID if severity is Severity.INVALID else _REMAINS}; {cause}"
    )
    return [CheckResult(severity, message, value=share, threshold=ANSWERS_SHARE)]


def _coalesced(evidence: PointEvidence, streamed: Table) -> list[CheckResult]:
    """Report chunks with the arrival time of a later one, among groups with more tokens than one step can emit."""
    chunks, most = float(numbers(streamed, "chunks").sum()), (evidence.drafts or 0) + 1
    tokens, counts = streamed.lists("coalesced").entries.T
    late = float(counts[tokens > most].sum())
    share = late / chunks if chunks else 0.0
    if share <= WARNING_SHARE:
        return []
    severity = _severity(evidence, sure=share > INVALID_SHARE)
    threshold = INVALID_SHARE if severity is Severity.INVALID else WARNING_SHARE
    cause = _probable_cause(evidence, "a step", _median(evidence, STEP_MS) or _median(evidence, TPOT_MS))
    message = (
        f"{share:.0%} of the chunks were received only with those of a later step and have its timestamp, so TTFT and"
        f" the gaps between chunks are wrong by whole steps{_unless_of_one_step(evidence)}"
        f"{_IS_VOID if severity is Severity.INVALID else _REMAINS}; {cause}"
    )
    return [CheckResult(severity, message, value=share, threshold=threshold)]


def _unless_of_one_step(evidence: PointEvidence) -> str:
    return (
        ", unless one step emits several chunks (neither answers nor counters show how many tokens a step drafts)"
        if evidence.drafts is None
        else ""
    )


def _severity(evidence: PointEvidence, *, sure: bool) -> Severity:
    return Severity.INVALID if sure and evidence.drafts is not None else Severity.WARNING


def _probable_cause(evidence: PointEvidence, what: str, enough_ms: float | None) -> str:
    """Name the client if it was late for ClientSaturated, or by `enough_ms`; else others. Add a busy machine.

    `enough_ms` is how long `what`, the part of an answer that was coalesced, takes.
    """
    lag, busy = evidence.health.loop_lag_p99_ms, busy_machine(evidence.health.load_per_core)
    if lag is None or enough_ms is None:
        return f"the client read late, or the engine or a proxy holds chunks back{busy}"
    if lag >= enough_ms or _late_loop(evidence) or _late_arrivals(evidence) or _changed_latency(evidence):
        return (
            f"the client itself was late (its event loop was {_lateness(evidence)}), or the engine or a proxy holds"
            f" chunks back{busy}"
        )
    return (
        "the engine or a proxy holds chunks back, or lacks CPU; the client was not late enough to cause it (its event"
        f" loop was {_lateness(evidence)}, and {what} takes {enough_ms:.1f} ms){busy}"
    )


def _median(evidence: PointEvidence, measure: RequestMetric) -> float | None:
    times = measure.values(evidence.steady)
    known = times[times > 0]
    return float(np.median(known)) if known.size else None


@check(
    name="UserSpaceTimestamps",
    severities=(Severity.INFO,),
    threshold="any answer whose record has `timestamp_source: user`",
    rationale=(
        "The kernel timestamps bytes when they arrive, whatever the client is doing. A timestamp taken by our"
        " process waits for its event loop: about a millisecond on an idle client, and on a busy one the lag that"
        " ClientSaturated bounds then."
    ),
    remedy=(
        "Run the client on a Linux kernel of the node (sandboxes such as gVisor do not timestamp), and let the node's"
        " clock be slewed, not stepped."
    ),
)
def user_space_timestamps(evidence: RunEvidence) -> CheckResults:
    """Arrival times were taken in the client's process and not by the kernel."""
    known = [(summary, summary.client_health.kernel_clock_share) for summary in evidence.summaries]
    lower = [share for _, share in known if share is not None and share < 1]
    if not lower:
        return []
    share = sum(lower) / len(lower)
    message = (
        f"in {len(lower)} of {len(evidence.summaries)} points arrival times come from the client and not from the"
        f" kernel ({1 - share:.0%} of the answers there): each is late by as long as the client was busy"
    )
    return [CheckResult(Severity.INFO, message, value=share, threshold=1)]
