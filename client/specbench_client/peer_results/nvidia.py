"""NVIDIA's benchmarks: AIPerf and genai-perf, trtllm-bench, and specdec_bench of Model Optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from specbench_client.documents.peer_results import PeerResult
from specbench_client.peer_results.reading import (
    PER_CHUNK,
    WHOLE_RUN,
    WITH_INPUT,
    FigureList,
    PeerReading,
    PeerRequest,
    emitted_length,
    finite,
    inside,
    level_of,
    whole,
)

AIPERF, GENAI_PERF = "AIPerf", "genai-perf"
TRTLLM, SPECDEC = "trtllm-bench", "specdec_bench"
_STATISTICS = {"avg": "mean", "p50": "p50", "p95": "p95", "p99": "p99"}
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
    """Return whether it is a summary of AIPerf or genai-perf."""
    return isinstance(data, Mapping) and isinstance(inside(data, "request_latency", "avg"), int | float)


def is_aiperf_row(data: Any) -> bool:
    """Return whether it is a line of AIPerf's `profile_export.jsonl`."""
    return isinstance(data, Mapping) and "metrics" in data and "request_start_ns" in (data.get("metadata") or {})


def read_summary(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read AIPerf's `profile_export_aiperf.json` or genai-perf's `profile_export_genai_perf.json`."""
    tool = AIPERF if "aiperf_version" in data else GENAI_PERF
    figures = FigureList()
    counted = inside(data, "input_config", "endpoint", "use_server_token_count") is True
    for theirs, ours in (
        ("time_to_first_token", "ttft_from_send_ms"),
        ("request_latency", "e2e_from_send_ms"),
        ("inter_token_latency", "tpot_ms"),
        ("inter_chunk_latency", "inter_chunk_latency"),
    ):
        row = data.get(theirs)
        factor = _TO_MS.get(str(inside(row, "unit")))
        for statistic, suffix in _STATISTICS.items() if factor else ():
            where, printed = f"{theirs}.{statistic}", inside(row, statistic)
            if ours == "inter_chunk_latency":
                figures.refuse(theirs, "ms", where, printed, PER_CHUNK, factor=factor or 1.0)
            elif ours == "tpot_ms" and not counted:
                figures.refuse(f"{ours}_{suffix}", "ms", where, printed, CLIENT_TOKENS, factor=factor or 1.0)
            else:
                figures.same(f"{ours}_{suffix}", "ms", where, printed, factor=factor or 1.0)
    figures.refuse(
        "output_tps", "tokens/s", "output_token_throughput", inside(data, "output_token_throughput", "avg"), WHOLE_RUN
    )
    figures.refuse(
        "output_tps", "tokens/s", "total_token_throughput", inside(data, "total_token_throughput", "avg"), WITH_INPUT
    )
    if counted:
        where = "output_sequence_length"
        figures.same("output_tokens_mean", "tokens", f"{where}.avg", inside(data, where, "avg"))
    answered = finite(inside(data, "request_count", "avg")) or 0.0
    _drafting(data, figures, answered)
    limits = [] if tool == GENAI_PERF else ["summary: import profile_export.jsonl of the same folder for its requests"]
    result = PeerResult(
        file=name,
        tool=tool,
        tool_version=data.get("aiperf_version"),
        model=_model(data),
        level=_aiperf_level(data),
        requests=int(answered),
        figures=figures.figures,
        limits=limits,
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
    where = "spec_decode_token_weighted_acceptance_length"
    if tokens is not None and steps and answered:
        value = emitted_length(tokens, answered, steps, accepted)
        printed = inside(data, where, "avg")
        figures.convert("acceptance_length_emitted_pooled", "tokens/step", where, printed, value=value, how=CUT_TOKENS)
        kept = None if accepted is None else min(accepted, max(tokens - answered - steps, 0.0))
        where = "spec_decode_overall_draft_acceptance_rate"
        percent = finite(inside(data, where, "avg"))
        share = kept / drafted if kept is not None and drafted else None
        fraction = None if percent is None else percent / 100
        figures.convert("acceptance_rate", "ratio", where, fraction, value=share, how=CUT_TOKENS)
    where = "spec_decode_acceptance_length"
    figures.refuse("acceptance_length_verified_mean", "tokens/step", where, inside(data, where, "avg"), CUT_TOKENS_KEPT)


def _model(data: Mapping[str, Any]) -> str | None:
    found = inside(data, "input_config", "models", "items", 0, "name") or inside(data, "input_config", "model_names", 0)
    return found if isinstance(found, str) else None


def _aiperf_level(data: Any) -> Any:
    phases = inside(data, "input_config", "phases")
    phase = next((one for one in phases or () if inside(one, "kind") == "profiling"), None)
    stimulus = inside(data, "input_config", "perf_analyzer", "stimulus")
    if isinstance(stimulus, Mapping):
        return level_of(stimulus.get("concurrency"), stimulus.get("request_rate"))
    return level_of(inside(phase, "concurrency"), inside(phase, "request_rate") or inside(phase, "rate"))


def read_aiperf_rows(rows: Sequence[Any], name: str, summary: Any) -> list[PeerReading]:
    """Read `profile_export.jsonl`. `summary`: the JSON summary of the same folder, for the load; None without one."""
    ordered = sorted(
        (row for row in rows if inside(row, "metadata", "phase_kind") in (None, "profiling")),
        key=lambda row: (inside(row, "metadata", "session_num") or 0, inside(row, "metadata", "turn_index") or 0),
    )
    requests = [_aiperf_request(row) for row in ordered]
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


def _aiperf_request(row: Mapping[str, Any]) -> PeerRequest:
    about = row["metadata"]

    def value(metric: str) -> Any:
        return inside(row, "metrics", metric, "value")

    prompt = f"{whole(about.get('session_num')) or 0:06d}-{value('input_sequence_length')}"
    start_ns, turn = whole(about.get("request_start_ns")), whole(about.get("turn_index")) or 0
    first, latency = finite(value("time_to_first_token")), finite(value("request_latency"))
    failure = row.get("error")
    if failure or first is None or latency is None:
        message = inside(failure, "message") or "the answer has no first token"
        return PeerRequest(prompt, start_ns=start_ns, turn=turn, error=str(message))
    first_ns, gaps = round(first * 1e6), value("inter_chunk_latency")
    chunk_ns = (
        tuple(first_ns + round(after * 1e6) for after in accumulate(gaps, initial=0.0))
        if isinstance(gaps, list)
        else None
    )
    return PeerRequest(
        prompt,
        start_ns=start_ns,
        first_ns=first_ns,
        last_ns=chunk_ns[-1] if chunk_ns else round(latency * 1e6),
        chunk_ns=chunk_ns,
        input_tokens=whole(value("usage_prompt_tokens") or value("input_sequence_length")),
        output_tokens=whole(value("usage_completion_tokens")),
        draft_steps=whole(value("spec_decode_steps")),
        drafted_tokens=whole(value("spec_decode_draft_tokens")),
        accepted_tokens=whole(value("spec_decode_accepted_draft_tokens")),
        turn=turn,
    )


def is_trtllm(data: Any) -> bool:
    """Return whether it is a report of trtllm-bench (`--report_json`)."""
    return isinstance(data, Mapping) and {"engine", "world_info", "request_info", "performance"} <= data.keys()


def read_trtllm(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read a report of trtllm-bench. Its average acceptance length is a mean over requests."""
    figures, streaming = FigureList(), data.get("streaming_metrics")
    for theirs, ours in (("tpot_percentiles", "tpot_ms"), ("ttft_percentiles", "ttft_from_send_ms")):
        for statistic, suffix in {"average": "mean", "p50": "p50", "p95": "p95", "p99": "p99"}.items():
            figures.same(
                f"{ours}_{suffix}", "ms", f"streaming_metrics.{theirs}.{statistic}",
                inside(streaming, theirs, statistic),
            )  # fmt: skip
    where = "performance.request_latency_percentiles_ms"
    for statistic, suffix in {"average": "mean", "p50": "p50", "p95": "p95", "p99": "p99"}.items():
        printed = inside(data, "performance", "request_latency_percentiles_ms", statistic)
        figures.same(f"e2e_from_send_ms_{suffix}", "ms", f"{where}.{statistic}", printed)
    for field, reason in (("system_output_throughput_tok_s", WHOLE_RUN), ("system_total_throughput_tok_s", WITH_INPUT)):
        figures.refuse("output_tps", "tokens/s", f"performance.{field}", inside(data, "performance", field), reason)
    printed = inside(data, "request_info", "avg_output_length")
    figures.same("output_tokens_mean", "tokens", "request_info.avg_output_length", printed)
    where = "decoding_stats.acceptance_length_percentiles.average"
    printed = inside(data, "decoding_stats", "acceptance_length_percentiles", "average")
    figures.refuse("acceptance_length_emitted_mean", "tokens/step", where, printed, WITH_FIRST_OF_MEAN)
    result = PeerResult(
        file=name,
        tool=TRTLLM,
        tool_version=inside(data, "engine", "version"),
        model=inside(data, "engine", "model"),
        level=level_of(inside(data, "world_info", "max_batch_size")),
        requests=whole(inside(data, "request_info", "num_requests")) or 0,
        figures=figures.figures,
        limits=[
            "the engine runs in the benchmark's process: no HTTP, and requests are queued before they start",
            "its load is the largest batch, not a number of users",
        ],
    )
    return [PeerReading(result)]


WITH_FIRST_OF_MEAN = (
    "tokens / iterations, where the first token and its prefill count as one more iteration: it is too low, and a mean"
    " cannot be corrected"
)


def is_specdec(data: Any) -> bool:
    """Return whether it is `acceptance_rate.json` or `timing.json` of specdec_bench."""
    if not isinstance(data, list) or not data or not all(isinstance(one, Mapping) for one in data):
        return False
    return any("Average_AL" in one or "TTFT Time" in one for one in data)


def read_specdec(data: Sequence[Mapping[str, Any]], name: str) -> list[PeerReading]:
    """Read `acceptance_rate.json` or `timing.json`; it has one entry per run. Times are texts in seconds."""
    readings = []
    for number, entry in enumerate(data, start=1):
        figures = FigureList()
        figures.refuse(
            "acceptance_length_emitted_mean", "tokens/step", "Average_AL", entry.get("Average_AL"), SPECDEC_AL
        )
        for theirs, ours in (("TTFT Time", "ttft_from_send_ms"), ("E2E Request Time", "e2e_from_send_ms")):
            figures.same(f"{ours}_mean", "ms", f"{theirs}.mean", inside(entry, theirs, "mean"), factor=1e3)
            figures.same(
                f"{ours}_p50", "ms", f"{theirs}.quantiles.0.5", inside(entry, theirs, "quantiles", "0.5"), factor=1e3
            )
        theirs = "Request Generation Tokens Per Second"
        figures.same("user_tps_mean", "tokens/s", f"{theirs}.mean", inside(entry, theirs, "mean"))
        figures.same("user_tps_p50", "tokens/s", f"{theirs}.quantiles.0.5", inside(entry, theirs, "quantiles", "0.5"))
        theirs = "Request Generation Step Time"
        figures.refuse("step_ms_mean", "ms", f"{theirs}.mean", inside(entry, theirs, "mean"), SPECDEC_STEP, factor=1e3)
        figures.refuse("output_tps", "tokens/s", "Output TPS", entry.get("Output TPS"), WHOLE_RUN)
        answered = len(entry.get("Request_AL") or ())
        place = name if len(data) == 1 else f"{name}, entry {number}"
        limits = ["the file does not state the model or the load: give --concurrency"]
        result = PeerResult(file=place, tool=SPECDEC, requests=answered, figures=figures.figures, limits=limits)
        readings.append(PeerReading(result))
    return readings


SPECDEC_AL = (
    "tokens per chunk of the engine; whether the prefill's token and the last, cut step count depends on the version,"
    " which the file does not state"
)
SPECDEC_STEP = "gaps between chunks, among which it counts the time to the first token"
