"""inference-perf's lifecycle reports, and llm-d's benchmark report (versions 0.1 and 0.2), which it also writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api.spec.load import Level
from specbench_client.documents.peer_results import PeerResult
from specbench_client.peer_results.reading import (
    PER_CHUNK,
    WHOLE_RUN,
    WITH_INPUT,
    FigureList,
    PeerReading,
    PeerRequest,
    finite,
    inside,
    level_of,
    ns_of,
    whole,
)

INFERENCE_PERF, LLM_D = "inference-perf", "llm-d benchmark report"
WITH_TTFT = "the whole latency / all tokens: it contains the time to the first token"
OWN_TOKENS = (
    "divides by the tokens of its own tokenizer, which differ from the server's count in some answers"
    " (token_count_mismatches)"
)
UNKNOWN_TPOT = (
    "the report does not state whether the time to the first token is part of it: that depends on the harness, {tool!r}"
)
_TPOT_IS_OURS = ("vllm-benchmark", "vllm", "inference-perf", "inferencemax", "aiperf")
"""Harnesses whose `time_per_output_token` in the report is (last - first) / (tokens - 1)."""
_STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99"}
_LATENCIES = {"time_to_first_token": "ttft_from_send_ms", "request_latency": "e2e_from_send_ms"}


def is_lifecycle(data: Any) -> bool:
    """Return whether it is inference-perf's report of all requests or of a stage."""
    return isinstance(inside(data, "successes", "latency"), Mapping) and "load_summary" in data


def is_lifecycle_rows(data: Any) -> bool:
    """Return whether it is inference-perf's `per_request_lifecycle_metrics.json`."""
    return isinstance(data, list) and bool(data) and {"start_time", "end_time", "info"} <= set(data[0] or ())


def read_lifecycle(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read the report of all requests or of one stage. Its times are in s."""
    figures = FigureList()
    agree = not finite(inside(data, "successes", "token_count_mismatches"))
    for theirs in ("time_to_first_token", "request_latency", "time_per_output_token"):
        for statistic, suffix in _STATISTICS.items():
            where = f"successes.latency.{theirs}.{statistic}"
            printed = inside(data, "successes", "latency", theirs, statistic)
            if theirs in _LATENCIES:
                figures.same(f"{_LATENCIES[theirs]}_{suffix}", "ms", where, printed, factor=1e3)
            elif agree:
                figures.same(f"tpot_ms_{suffix}", "ms", where, printed, factor=1e3)
            else:
                figures.refuse(f"tpot_ms_{suffix}", "ms", where, printed, OWN_TOKENS, factor=1e3)
    for theirs, reason in (("inter_token_latency", PER_CHUNK), ("normalized_time_per_output_token", WITH_TTFT)):
        printed = inside(data, "successes", "latency", theirs, "mean")
        figures.refuse(theirs, "ms", f"successes.latency.{theirs}.mean", printed, reason, factor=1e3)
    for theirs, reason in (("output_tokens_per_sec", WHOLE_RUN), ("total_tokens_per_sec", WITH_INPUT)):
        printed = inside(data, "successes", "throughput", theirs)
        figures.refuse("output_tps", "tokens/s", f"successes.throughput.{theirs}", printed, reason)
    load = data["load_summary"]
    result = PeerResult(
        file=name,
        tool=INFERENCE_PERF,
        level=_level(load),
        requests=whole(inside(data, "successes", "count")) or 0,
        figures=figures.figures,
        limits=[
            "summary: import per_request_lifecycle_metrics.json (report.request_lifecycle.per_request) for requests"
        ],
    )
    return [PeerReading(result)]


def read_lifecycle_rows(rows: Sequence[Any], name: str, stage: Any) -> list[PeerReading]:
    """Read the requests. `stage`: the report of the only stage in the same folder, for the load; None without one."""
    ordered = sorted(rows, key=lambda row: finite(row.get("start_time")) or 0.0)
    requests = [_request(row, index) for index, row in enumerate(ordered)]
    level = _level(inside(stage, "load_summary"))
    result = PeerResult(
        file=name,
        tool=INFERENCE_PERF,
        level=level,
        requests=sum(request.error is None for request in requests),
        requests_stored=len(requests),
        limits=[] if level else ["the file does not state its load: give --concurrency or --rate"],
    )
    return [PeerReading(result, requests)]


def _level(load: Any) -> Level | None:
    """Return the load; with a number of streams, the rate is only how it starts them."""
    return level_of(inside(load, "concurrency")) or level_of(None, inside(load, "requested_rate"))


def _request(row: Mapping[str, Any], index: int) -> PeerRequest:
    start_s, response = finite(row.get("start_time")), inside(row, "info", "response_metrics")
    sent = row.get("request")
    prompt = str(sent) if sent else f"{index:06d}-{inside(row, 'info', 'request_metrics', 'text', 'input_tokens')}"
    times = inside(response, "output_token_times") or inside(response, "chunk_times") or []
    seconds = [time for time in map(finite, times) if time is not None] if isinstance(times, list) else []
    if row.get("error") or start_s is None or not seconds:
        message = inside(row, "error", "error_msg") or "the answer has no token times"
        return PeerRequest(prompt, start_ns=ns_of(start_s), error=str(message))
    usage = inside(response, "server_usage")
    chunk_ns = tuple(dict.fromkeys(round((second - start_s) * 1e9) for second in seconds))
    return PeerRequest(
        prompt,
        start_ns=ns_of(start_s),
        first_ns=chunk_ns[0],
        last_ns=chunk_ns[-1],
        chunk_ns=chunk_ns,
        input_tokens=whole(inside(usage, "prompt_tokens"))
        or whole(inside(row, "info", "request_metrics", "text", "input_tokens")),
        output_tokens=whole(inside(usage, "completion_tokens")),
    )


def is_llm_d(data: Any) -> bool:
    """Return whether it is llm-d's benchmark report."""
    version = str(inside(data, "version"))
    known = inside(data, "metrics", "latency") or inside(data, "results", "request_performance", "aggregate")
    return version.startswith("0.") and isinstance(known, Mapping)


def read_llm_d(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read a report. Each of its distributions states its unit."""
    load = inside(data, "scenario", "load", "standardized")
    tool = str(inside(load, "tool") or inside(data, "scenario", "load", "name") or "unknown")
    performance = inside(data, "results", "request_performance", "aggregate") or data.get("metrics")
    figures = FigureList()
    for theirs in (*_LATENCIES, "time_per_output_token"):
        row = inside(performance, "latency", theirs)
        factor = {"ms": 1.0, "s": 1e3}.get(str(inside(row, "units")).partition("/")[0])
        for statistic in ("mean", "p50", "p95", "p99") if factor else ():
            where, printed = f"latency.{theirs}.{statistic}", inside(row, statistic)
            ours = f"{_LATENCIES.get(theirs, 'tpot_ms')}_{statistic}"
            if theirs in _LATENCIES or tool in _TPOT_IS_OURS:
                figures.same(ours, "ms", where, printed, factor=factor or 1.0)
            else:
                reason = WITH_TTFT if tool == "guidellm" else UNKNOWN_TPOT.format(tool=tool)
                figures.refuse(ours, "ms", where, printed, reason, factor=factor or 1.0)
    for theirs, reason in (("inter_token_latency", PER_CHUNK), ("normalized_time_per_output_token", WITH_TTFT)):
        row = inside(performance, "latency", theirs)
        factor = {"ms": 1.0, "s": 1e3}.get(str(inside(row, "units")).partition("/")[0])
        if factor:
            figures.refuse(theirs, "ms", f"latency.{theirs}.mean", inside(row, "mean"), reason, factor=factor)
    for theirs, reason in (("output_token_rate", WHOLE_RUN), ("total_token_rate", WITH_INPUT)):
        row = inside(performance, "throughput", theirs)
        printed = inside(row, "mean") if isinstance(row, Mapping) else None
        figures.refuse("output_tps", "tokens/s", f"throughput.{theirs}.mean", printed, reason)
    for theirs, reason in (("output_tokens_per_sec", WHOLE_RUN), ("total_tokens_per_sec", WITH_INPUT)):
        figures.refuse(
            "output_tps", "tokens/s", f"throughput.{theirs}", inside(performance, "throughput", theirs), reason
        )
    model = inside(data, "scenario", "model", "name") or _stack_model(data)
    total, failed = inside(performance, "requests", "total"), inside(performance, "requests", "failures")
    result = PeerResult(
        file=name,
        tool=f"{LLM_D} {data['version']} of {tool}",
        tool_version=inside(load, "tool_version"),
        model=model,
        level=level_of(inside(load, "concurrency"), inside(load, "rate_qps")),
        requests=(whole(total) or 0) - (whole(failed) or 0),
        figures=figures.figures,
        limits=["summary only: the report has no requests and no drafts; import the harness's own file for them"],
    )
    return [PeerReading(result)]


def _stack_model(data: Any) -> str | None:
    stack = inside(data, "scenario", "stack")
    parts = stack if isinstance(stack, list) else []
    return next((name for part in parts if (name := inside(part, "standardized", "model", "name"))), None)
