"""inference-perf's lifecycle reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api.spec.load import Level
from specbench_client.peer_results.reading import (
    PER_CHUNK,
    WHOLE_RUN,
    WITH_INPUT,
    FigureList,
    PeerReading,
    PeerRequest,
    PeerResult,
    PeerRow,
    finite,
    inside,
    level_of,
    ns_of,
    scaled,
    whole,
)

INFERENCE_PERF = "inference-perf"
WITH_TTFT = "the whole latency / all tokens: it contains the time to the first token"
OWN_TOKENS = (
    "divides by the tokens of its own tokenizer, which differ from the server's count in some answers"
    " (token_count_mismatches)"
)
_STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99"}


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

    def look_up(theirs: str, statistic: str) -> tuple[str, Any]:
        printed = inside(data, "successes", "latency", theirs, statistic)
        return f"successes.latency.{theirs}.{statistic}", scaled(printed, 1e3)

    rows = (
        ("time_to_first_token", "ttft_from_send_ms", ""),
        ("request_latency", "e2e_from_send_ms", ""),
        ("time_per_output_token", "tpot_ms", "" if agree else OWN_TOKENS),
    )
    figures.add_latencies(rows, _STATISTICS, look_up)
    for theirs, reason in (("inter_token_latency", PER_CHUNK), ("normalized_time_per_output_token", WITH_TTFT)):
        figures.add(theirs, "ms", *look_up(theirs, "mean"), reason)
    total = "total_tokens_per_sec"
    for named, theirs, reason in (("output_tps", "output_tokens_per_sec", WHOLE_RUN), (total, total, WITH_INPUT)):
        printed = inside(data, "successes", "throughput", theirs)
        figures.add(named, "tokens/s", f"successes.throughput.{theirs}", printed, reason)
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
    numbered = [PeerRow(f"{name}, request {number}", row) for number, row in enumerate(rows, start=1)]
    numbered.sort(key=lambda row: finite(row.data.get("start_time")) or 0.0)
    requests = [row.checked(_request(row, index)) for index, row in enumerate(numbered)]
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


def _request(row: PeerRow, index: int) -> PeerRequest:
    start_s, end_s = row.positive("start_time"), row.positive("end_time")
    sent, response = row.data.get("request"), ("info", "response_metrics")
    text = ("info", "request_metrics", "text", "input_tokens")
    prompt = str(sent) if sent else f"{index:06d}-{inside(row.data, *text)}"
    seconds = row.times(*response, "output_token_times") or row.times(*response, "chunk_times")
    if row.data.get("error") or start_s is None or not seconds:
        message = inside(row.data, "error", "error_msg") or "the answer has no token times"
        return PeerRequest(prompt, start_ns=ns_of(start_s), error=str(message))
    chunk_ns = tuple(dict.fromkeys(round((second - start_s) * 1e9) for second in seconds))
    return PeerRequest(
        prompt,
        start_ns=ns_of(start_s),
        first_ns=chunk_ns[0],
        last_ns=chunk_ns[-1],
        ends_ns=(round((end_s - start_s) * 1e9),) if end_s else (),
        chunk_ns=chunk_ns,
        input_tokens=row.count(*response, "server_usage", "prompt_tokens") or row.count(*text),
        output_tokens=row.count(*response, "server_usage", "completion_tokens") or None,
    )
