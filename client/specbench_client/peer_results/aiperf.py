"""AIPerf: its summary and its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from specbench_client.peer_results.reading import (
    PER_CHUNK,
    SECONDS_MAX,
    WHOLE_RUN,
    WITH_INPUT,
    DraftCounts,
    FigureList,
    PeerReading,
    PeerRequest,
    PeerResult,
    PeerRow,
    damaged,
    finite,
    inside,
    level_of,
    scaled,
    whole,
)

AIPERF = "AIPerf"
_STATISTICS = {"avg": "mean", "p50": "p50", "p95": "p95", "p99": "p99"}
_CHUNKS = "inter_chunk_latency"
_TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
CUT_TOKENS = (
    "counts accepted tokens that were cut off at the end of answers; computed again from tokens and steps, which the"
    " file has"
)
CUT_TOKENS_KEPT = "counts accepted tokens that were cut off at the end of answers"
CLIENT_TOKENS = (
    "tokens are counted with the client's own tokenizer, chunk by chunk: run it with --use-server-token-count, or check"
    " the tokenizer"
)


def is_summary(data: Any) -> bool:
    """Return whether it is a summary of AIPerf."""
    return (
        isinstance(data, Mapping)
        and "aiperf_version" in data
        and isinstance(inside(data, "request_latency", "avg"), int | float)
    )


def is_aiperf_row(data: Any) -> bool:
    """Return whether it is a line of AIPerf's `profile_export.jsonl`."""
    return isinstance(data, Mapping) and "metrics" in data and "request_start_ns" in (data.get("metadata") or {})


def read_summary(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read `profile_export_aiperf.json`."""
    figures = FigureList()
    counted = inside(data, "input_config", "endpoint", "use_server_token_count") is True

    def look_up(theirs: str, statistic: str) -> tuple[str, Any]:
        return f"{theirs}.{statistic}", scaled(inside(data, theirs, statistic), _to_ms(name, data, theirs))

    rows = (
        ("time_to_first_token", "ttft_from_send_ms", ""),
        ("request_latency", "e2e_from_send_ms", ""),
        ("inter_token_latency", "tpot_ms", "" if counted else CLIENT_TOKENS),
    )
    figures.add_latencies(rows, _STATISTICS, look_up)
    for statistic, suffix in _STATISTICS.items():
        figures.add(f"{_CHUNKS}_{suffix}", "ms", *look_up(_CHUNKS, statistic), PER_CHUNK)
    total = "total_token_throughput"
    for named, theirs, reason in (("output_tps", "output_token_throughput", WHOLE_RUN), (total, total, WITH_INPUT)):
        figures.add(named, "tokens/s", theirs, inside(data, theirs, "avg"), reason)
    if counted:
        where = "output_sequence_length"
        figures.add("output_tokens_mean", "tokens", f"{where}.avg", inside(data, where, "avg"))
    answered = finite(inside(data, "request_count", "avg")) or 0.0
    _drafting(data, figures, answered)
    result = PeerResult(
        file=name,
        tool=AIPERF,
        tool_version=data["aiperf_version"],
        model=_model(data),
        level=_aiperf_level(data),
        requests=int(answered),
        figures=figures.figures,
        limits=["summary: import profile_export.jsonl of the same folder for its requests"],
    )
    return [PeerReading(result)]


def _drafting(data: Mapping[str, Any], figures: FigureList, answered: float) -> None:
    tokens, steps, accepted, drafted = (
        finite(inside(data, field, "avg"))
        for field in (
            "total_output_tokens",
            "total_spec_decode_steps",
            "total_accepted_draft_tokens",
            "total_draft_tokens",
        )
    )
    length, rate, own = (
        (where, inside(data, where, "avg"))
        for where in (
            "spec_decode_token_weighted_acceptance_length",
            "spec_decode_overall_draft_acceptance_rate",
            "spec_decode_acceptance_length",
        )
    )
    if tokens is not None and steps and answered:
        figures.add_acceptance(DraftCounts(tokens, answered, steps, accepted, drafted), length, rate, CUT_TOKENS)
    figures.add("acceptance_length_verified_mean", "tokens/step", *own, CUT_TOKENS_KEPT)


def _model(data: Mapping[str, Any]) -> str | None:
    found = inside(data, "input_config", "models", "items", 0, "name")
    return found if isinstance(found, str) else None


def _aiperf_level(data: Any) -> Any:
    phases = inside(data, "input_config", "phases")
    phase = next((one for one in phases or () if inside(one, "kind") == "profiling"), None)
    return level_of(inside(phase, "concurrency"), inside(phase, "request_rate") or inside(phase, "rate"))


def read_aiperf_rows(rows: Sequence[Any], name: str, summary: Any) -> list[PeerReading]:
    """Read `profile_export.jsonl`. `summary`: the JSON summary of the same folder, for the load; None without one."""
    ordered = sorted(
        (
            PeerRow(f"{name}, line {number}", row)
            for number, row in enumerate(rows, start=1)
            if inside(row, "metadata", "phase_kind") in (None, "profiling")
        ),
        key=lambda row: tuple(inside(row.data, "metadata", name) or 0 for name in ("session_num", "turn_index")),
    )
    requests = [row.checked(_aiperf_request(row)) for row in ordered]
    answered = sum(request.error is None for request in requests)
    limits = [] if _aiperf_level(summary) else ["its load is in profile_export_aiperf.json, which is not in its folder"]
    result = PeerResult(
        file=name,
        tool=AIPERF,
        tool_version=inside(summary, "aiperf_version"),
        model=_model(summary) if isinstance(summary, Mapping) else None,
        level=_aiperf_level(summary),
        requests=answered,
        requests_stored=len(requests),
        limits=limits,
    )
    return [PeerReading(result, requests)]


def _to_ms(place: str, metrics: Any, metric: str) -> float:
    """Return the factor from a metric's unit to ms, if there is this metric. Raises BadInput for an unknown unit."""
    unit = inside(metrics, metric, "unit")
    if inside(metrics, metric) is not None and unit not in _TO_MS:
        raise damaged(f"{place}: {metric}.unit is {unit}, which is none of {', '.join(_TO_MS)}")
    return _TO_MS.get(unit, 1.0)


def _aiperf_request(row: PeerRow) -> PeerRequest:
    about, metrics, failure = row.data["metadata"], row.data["metrics"], row.data.get("error")

    def count(metric: str) -> int | None:
        return row.count("metrics", metric, "value")

    def time_ns(metric: str) -> int | None:
        time = row.positive("metrics", metric, "value")
        return None if time is None else round(time * 1e6 * _to_ms(row.place, metrics, metric))

    prompt = f"{whole(about.get('session_num')) or 0:06d}-{inside(metrics, 'input_sequence_length', 'value')}"
    turn = whole(about.get("turn_index")) or 0
    start_ns, end_ns = (
        int(row.positive("metadata", name, most=SECONDS_MAX * 1e9) or 0) or None
        for name in ("request_start_ns", "request_end_ns")
    )
    if failure:
        return PeerRequest(prompt, start_ns=start_ns, turn=turn, error=str(inside(failure, "message") or failure))
    first_ns, latency_ns = time_ns("time_to_first_token"), time_ns("request_latency")
    if first_ns is None or latency_ns is None:
        return PeerRequest(prompt, start_ns=start_ns, turn=turn, error="the answer has no first token")
    to_ns = 1e6 * _to_ms(row.place, metrics, "inter_chunk_latency")
    gaps = row.times("metrics", "inter_chunk_latency", "value")
    chunk_ns = tuple(first_ns + round(after * to_ns) for after in accumulate(gaps, initial=0.0)) if gaps else None
    return PeerRequest(
        prompt,
        start_ns=start_ns,
        first_ns=first_ns,
        last_ns=chunk_ns[-1] if chunk_ns else latency_ns,
        ends_ns=(latency_ns, *([end_ns - start_ns] if start_ns and end_ns else [])),
        chunk_ns=chunk_ns,
        input_tokens=count("usage_prompt_tokens") or count("input_sequence_length"),
        output_tokens=count("usage_completion_tokens") or None,
        draft_steps=count("spec_decode_steps"),
        drafted_tokens=count("spec_decode_draft_tokens"),
        accepted_tokens=count("spec_decode_accepted_draft_tokens"),
        turn=turn,
    )
