"""`vllm bench serve` (JSON) and SGLang's `bench_serving` (JSONL): one list per column of the requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from specbench_client.documents.summary import CounterDeltas
from specbench_client.peer_results.reading import (
    FROM_COUNTERS,
    PER_CHUNK,
    WHOLE_RUN,
    WITH_INPUT,
    DraftCounts,
    FigureList,
    PeerReading,
    PeerRequest,
    PeerResult,
    PeerRow,
    damaged,
    equal_columns,
    finite,
    inside,
    level_of,
    ns_of,
    whole,
)

VLLM, SGLANG = "vllm bench serve", "SGLang bench_serving"
_STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99"}
_LATENCIES = {
    "ttft": "ttft_from_send_ms",
    "tpot": "tpot_ms",
    "e2el": "e2e_from_send_ms",
    "e2e_latency": "e2e_from_send_ms",
}
SERVER_AVERAGE = (
    "the server's own running average, which starts before the benchmark and whose definition depends on the version"
)
RETOKENIZED = "where the server reports no token count, the benchmark counts the answer again with its own tokenizer"
REQUESTED = "where the server reports no token count, the benchmark takes the requested length for the answer's"
TOO_MANY_TOKENS = (
    "its token counts are higher than its own tokenizer's count of the answers (total_output_tokens_retokenized): it"
    " took the requested lengths. Run it without --disable-ignore-eos, or with a backend that reports token counts"
)
UNSEEN_TEXT = (
    "the benchmark saw no text, so no time (ttfts 0): a reasoning parser puts text into a field that it does not read."
    " Start the server without one, or use `specbench measure`"
)
TOKENS_TOLERANCE = 0.01
"""Share by which the tokens may exceed the tokenizer's count, besides one token that ends each answer."""


def is_vllm(data: Any) -> bool:
    """Return whether it is a result of `vllm bench serve`."""
    return isinstance(data, Mapping) and {"mean_ttft_ms", "model_id", "total_output_tokens"} <= data.keys()


def is_sglang(data: Any) -> bool:
    """Return whether it is a line of SGLang's `bench_serving`."""
    return isinstance(data, Mapping) and {"mean_ttft_ms", "accept_length", "dataset_name"} <= data.keys()


def read_vllm(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read a result of `vllm bench serve`, with or without `--save-detailed`."""
    figures = _summary(data)
    requests = list(_requests(data, name)) if "ttfts" in data and "output_lens" in data else []
    tokens, answered = finite(data.get("total_output_tokens")), finite(data.get("completed"))
    steps, accepted = finite(data.get("spec_decode_num_drafts")), finite(data.get("spec_decode_accepted_tokens"))
    if tokens is not None and answered is not None and steps:
        counts = DraftCounts(tokens, answered, steps, accepted, finite(data.get("spec_decode_draft_tokens")))
        length, rate = "spec_decode_acceptance_length", "spec_decode_acceptance_rate"
        figures.add_acceptance(counts, (length, data.get(length)), (rate, data.get(rate)), FROM_COUNTERS)
    reading = _reading(data, name, VLLM, figures, requests)
    if not steps:
        return [reading]
    chunks = sum(len(request.chunk_ns) - 1 for request in requests if request.chunk_ns)
    counters = CounterDeltas(
        draft_steps=whole(steps),
        drafted_tokens=whole(data.get("spec_decode_draft_tokens")),
        accepted_tokens=whole(accepted),
    )
    return [replace(reading, counters=counters, chunks_are_steps=abs(chunks - steps) <= STEPS_TOLERANCE * steps)]


STEPS_TOLERANCE = 0.005
"""Share by which chunks may differ from the server's steps for each to count as one."""


def read_sglang(lines: list[Any], name: str) -> list[PeerReading]:
    """Read the lines of SGLang's `bench_serving`, with or without `--output-details`."""
    readings = []
    for number, data in enumerate(lines, start=1):
        place = name if len(lines) == 1 else f"{name}, line {number}"
        doubtful = _counts_requested_tokens(data)
        figures = _summary(data, TOO_MANY_TOKENS if doubtful else "")
        figures.add(
            "acceptance_length_emitted_pooled", "tokens/step", "accept_length", data.get("accept_length"),
            SERVER_AVERAGE,
        )  # fmt: skip
        requests = list(_requests(data, place)) if "ttfts" in data else []
        if doubtful:
            requests = [replace(request, output_tokens=None) for request in requests]
        readings.append(_reading(data, place, SGLANG, figures, requests))
    return readings


def _counts_requested_tokens(data: Mapping[str, Any]) -> bool:
    """Return whether an SGLang result has the requested lengths instead of the answers' tokens."""
    tokens, counted = finite(data.get("total_output_tokens")), finite(data.get("total_output_tokens_retokenized"))
    if tokens is None or counted is None:
        return False
    return tokens - counted > TOKENS_TOLERANCE * tokens + (finite(data.get("completed")) or 0.0)


def _summary(data: Mapping[str, Any], doubt: str = "") -> FigureList:
    """Return the figures. `doubt`: why the file's token counts are wrong; empty if they are not."""
    figures = FigureList()

    def look_up(theirs: str, statistic: str) -> tuple[str, Any]:
        where = f"{statistic}_{theirs}_ms"
        return where, data.get(where)

    rows = [(theirs, ours, doubt if theirs == "tpot" else "") for theirs, ours in _LATENCIES.items()]
    figures.add_latencies(rows, _STATISTICS, look_up)
    for statistic in _STATISTICS:
        where = f"{statistic}_itl_ms"
        figures.add(where, "ms", where, data.get(where), PER_CHUNK)
    tokens, answered = finite(data.get("total_output_tokens")), finite(data.get("completed"))
    mean = tokens / answered if tokens is not None and answered else None
    figures.add("output_tokens_mean", "tokens", "total_output_tokens / completed", mean, doubt)
    figures.add("output_tps", "tokens/s", "output_throughput", data.get("output_throughput"), WHOLE_RUN)
    for where in ("total_token_throughput", "total_throughput"):
        figures.add(where, "tokens/s", where, data.get(where), WITH_INPUT)
    return figures


def _reading(
    data: Mapping[str, Any], name: str, tool: str, figures: FigureList, requests: list[PeerRequest]
) -> PeerReading:
    answered = whole(data.get("completed")) or 0
    _reject_contradictions(data, name, requests, answered)
    streams = data.get("max_concurrency") or (answered + (whole(data.get("failed")) or 0))
    timed = bool(requests) and requests[0].start_ns is not None
    limits = [RETOKENIZED if tool == VLLM else REQUESTED]
    if not requests:
        flag = "--save-detailed" if tool == VLLM else "--output-details"
        limits.append(f"summary only, so no run is stored: run the benchmark with {flag} to import its requests")
    elif not timed:
        limits.append("it does not store when requests were sent: start and end of the load are in the figures")
    ramped = data.get("ramp_up_strategy") is not None
    limits += ["its rate grew while it ran (ramp_up_strategy), so it has no single load"] if ramped else []
    result = PeerResult(
        file=name,
        tool=tool,
        model=data.get("model_id") or inside(data, "server_info", "model_path"),
        level=None if ramped else level_of(streams, data.get("request_rate")),
        requests=answered,
        requests_stored=len(requests),
        figures=figures.figures,
        limits=limits,
    )
    return PeerReading(result, requests)


def _reject_contradictions(data: Mapping[str, Any], name: str, requests: Sequence[PeerRequest], answered: int) -> None:
    """Raise BadInput if the file's totals are not those of its requests, or its percentiles are out of order."""
    done = [request for request in requests if request.error is None]
    if requests and (len(requests) < answered or len(done) > answered):
        raise damaged(f"{name}: {answered} requests were answered (completed), but {len(done)} of {len(requests)} are")
    counted = [request.output_tokens for request in done]
    total, tokens = whole(data.get("total_output_tokens")), sum(request.output_tokens or 0 for request in requests)
    if tokens and None not in counted and total is not None and abs(total - tokens) > TOKENS_TOLERANCE * tokens:
        raise damaged(f"{name}: has {total} tokens (total_output_tokens), but its requests have {tokens}")
    for latency in (*_LATENCIES, "itl"):
        printed = [finite(data.get(f"{percentile}_{latency}_ms")) for percentile in ("median", "p95", "p99")]
        known = [each for each in printed if each is not None]
        if known != sorted(known):
            raise damaged(f"{name}: the percentiles of {latency} are out of order")


def _requests(data: Mapping[str, Any], name: str) -> Iterator[PeerRequest]:
    """Yield the requests. Both tools start the latencies when the request is sent."""
    names = ("input_lens", "output_lens", "ttfts", "itls", "errors")
    columns = {key: data.get(key) for key in names} | {
        key: data[key] for key in ("start_times", "queue_times", "generated_texts") if key in data
    }
    open_loop = finite(data.get("request_rate")) is not None
    for index in range(equal_columns(name, columns)):
        row = {key: column[index] for key, column in columns.items() if isinstance(column, list)}
        fields = PeerRow(f"{name}, request {index + 1}", row)
        tokens, first_ns = fields.count("output_lens"), ns_of(row["ttfts"])
        prompt = f"{index:06d}-{row['input_lens']}"
        start_ns = ns_of(fields.positive("start_times"))
        if tokens and first_ns is None and not row["errors"]:
            raise damaged(f"{name}, request {index + 1}: its time to the first token (ttfts) is no time")
        if row["errors"] or not tokens or not first_ns:
            why = UNSEEN_TEXT if tokens else f"the answer has no token (output_lens {tokens}, ttfts {row['ttfts']})"
            yield PeerRequest(
                prompt,
                start_ns=start_ns,
                output_tokens=None if row["errors"] else tokens,
                error=str(row["errors"] or why),
            )
            continue
        if row["itls"] is None:
            raise damaged(f"{fields.place}: itls is null, so its last token has no time")
        chunk_ns = tuple(accumulate((round(gap * 1e9) for gap in fields.times("itls")), initial=first_ns))
        request = PeerRequest(
            prompt,
            start_ns=start_ns,
            # At a rate of inf all requests wait for a stream: that is the closed loop, not the client's delay.
            waited_ns=(ns_of(row.get("queue_times")) or 0) if open_loop else 0,
            first_ns=first_ns,
            last_ns=chunk_ns[-1],
            chunk_ns=chunk_ns,
            input_tokens=fields.count("input_lens"),
            output_tokens=tokens,
            text=row.get("generated_texts") or None,
        )
        yield fields.checked(request)
