"""guidellm: `benchmarks.json` with its requests, and `benchmarks.csv` with the summary."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api.spec.load import Level
from specbench_client.bounded_json import parse_json
from specbench_client.peer_results.reading import (
    WHOLE_RUN,
    WITH_INPUT,
    FigureList,
    PeerReading,
    PeerRequest,
    PeerResult,
    PeerRow,
    inside,
    level_of,
    ns_of,
    scaled,
    whole,
)

GUIDELLM = "guidellm"
WITH_TTFT = (
    "the whole latency / all tokens: it contains the time to the first token; its inter_token_latency is our TPOT"
)
OVER_TOKENS = "percentile over tokens, in which a long answer counts more often; ours is over requests"
BY_CHUNK = "tokens per chunk after the first, weighted by tokens: chunks are steps only if nothing merges them"
_LATENCIES = (("time_to_first_token_ms", "ttft_from_send_ms", ""), ("request_latency", "e2e_from_send_ms", ""))
_TO_MS = {"time_to_first_token_ms": 1.0, "request_latency": 1e3}
_QUANTILES = {
    "mean": ("mean",),
    "p50": ("percentiles", "p50"),
    "p95": ("percentiles", "p95"),
    "p99": ("percentiles", "p99"),
}


def is_guidellm(data: Any) -> bool:
    """Return whether it is guidellm's `benchmarks.json`."""
    return isinstance(inside(data, "benchmarks"), list) and isinstance(
        inside(data, "benchmarks", 0, "metrics", "inter_token_latency_ms"), Mapping
    )


def read_guidellm(data: Mapping[str, Any], name: str) -> list[PeerReading]:
    """Read `benchmarks.json`: one measurement for each benchmark, so one for each load."""
    found = []
    for number, benchmark in enumerate(data["benchmarks"], start=1):
        place = name if len(data["benchmarks"]) == 1 else f"{name}, benchmark {number}"
        rows = inside(benchmark, "requests", "successful") or []
        failed = inside(benchmark, "requests", "errored") or []
        numbered = [PeerRow(f"{place}, request {at}", row) for at, row in enumerate([*rows, *failed], start=1)]
        requests = [row.checked(_request(row, index)) for index, row in enumerate(numbered)]
        strategy = inside(benchmark, "config", "strategy") or inside(benchmark, "args", "strategy")
        totals = inside(benchmark, "metrics", "request_totals", "successful")
        result = PeerResult(
            file=place,
            tool=GUIDELLM,
            tool_version=inside(data, "metadata", "guidellm_version"),
            model=inside(benchmark, "config", "backend", "model"),
            level=_level(strategy),
            requests=len(rows) or whole(totals) or 0,
            requests_stored=len(requests),
            figures=_figures(lambda metric, path, at=benchmark: inside(at, "metrics", metric, "successful", *path)),
            limits=[] if requests else ["summary only: its requests were not sampled (sample_size)"],
        )
        found.append(PeerReading(result, requests))
    return found


def _level(strategy: Any) -> Level | None:
    if inside(strategy, "type_") == "synchronous":
        return level_of(1)
    return level_of(inside(strategy, "streams"), inside(strategy, "rate"))


def _figures(value: Any) -> list[Any]:
    """Return the figures. `value`: metric, path in its distribution → number or None."""
    figures = FigureList()
    figures.add_latencies(
        _LATENCIES,
        {suffix: suffix for suffix in _QUANTILES},
        lambda metric, suffix: (f"{metric}.{suffix}", scaled(value(metric, _QUANTILES[suffix]), _TO_MS[metric])),
    )
    for suffix, path in _QUANTILES.items():
        metric = "inter_token_latency_ms"
        printed = value(metric, path)
        if suffix == "mean":
            note = "its mean over tokens is our pooled figure"
            figures.convert("tpot_ms_pooled", "ms", f"{metric}.mean", printed, value=printed, how=note)
        else:
            figures.add(f"tpot_ms_{suffix}", "ms", f"{metric}.{suffix}", printed, OVER_TOKENS)
        metric = "time_per_output_token_ms"
        figures.add(f"{metric}_{suffix}", "ms", f"{metric}.{suffix}", value(metric, path), WITH_TTFT)
    figures.add("output_tokens_mean", "tokens", "output_token_count.mean", value("output_token_count", ("mean",)))
    metric = "iter_tokens_per_iteration"
    figures.add("acceptance_length_emitted_pooled", "tokens/step", f"{metric}.mean", value(metric, ("mean",)), BY_CHUNK)
    total = "tokens_per_second"
    for name, metric, reason in (("output_tps", "output_tokens_per_second", WHOLE_RUN), (total, total, WITH_INPUT)):
        figures.add(name, "tokens/s", f"{metric}.mean", value(metric, ("mean",)), reason)
    return figures.figures


def _request(row: PeerRow, index: int) -> PeerRequest:
    timings = ("info", "timings")
    starts = (row.positive(*timings, "request_start"), row.positive("request_start_time"), row.positive("start_time"))
    start_s = next(filter(None, starts), None)
    first_s, last_s, end_s = (
        row.positive(*timings, name) or row.positive(older)
        for name, older in (
            ("first_token_iteration", "first_token_time"),
            ("last_token_iteration", "last_token_time"),
            ("request_end", "end_time"),
        )
    )
    prompt, turn = _prompt(row.data, index), whole(inside(row.data, "info", "turn_index")) or 0
    start_ns, error = ns_of(start_s), inside(row.data, "info", "error")
    if error or start_s is None or first_s is None or last_s is None:
        return PeerRequest(prompt, start_ns=start_ns, turn=turn, error=str(error or "the answer has no token times"))
    drafting = ("response_metrics", "speculative_decoding")
    return PeerRequest(
        prompt,
        start_ns=start_ns,
        first_ns=round((first_s - start_s) * 1e9),
        last_ns=round((last_s - start_s) * 1e9),
        ends_ns=(round((end_s - start_s) * 1e9),) if end_s else (),
        input_tokens=row.count("prompt_tokens"),
        output_tokens=row.count("output_tokens") or None,
        draft_steps=row.count(*drafting, "num_spec_steps"),
        drafted_tokens=row.count(*drafting, "num_draft_tokens"),
        accepted_tokens=row.count(*drafting, "num_accepted_draft_tokens"),
        turn=turn,
        text=row.data.get("output") or None,
    )


def _prompt(row: Mapping[str, Any], index: int) -> str:
    """Return the prompt's text, from the body of the request."""
    body = row.get("request_args")
    try:
        parsed = parse_json(body) if isinstance(body, str) else body
    except ValueError:
        parsed = None
    found = inside(parsed, "body", "messages") or inside(parsed, "body", "prompt")
    return json.dumps(found) if found else f"{index:06d}-{row.get('prompt_tokens')}"


def is_guidellm_csv(text: str) -> bool:
    """Return whether it is guidellm's `benchmarks.csv`: three lines of headings, of which each column's form one."""
    head = text[:20_000].lower()
    return "inter token latency" in head and "time per output token" in head and "," in head


def read_guidellm_csv(text: str, name: str) -> list[PeerReading]:
    """Read `benchmarks.csv`: group, metric and statistic in the three lines of the heading."""
    lines = list(csv.reader(io.StringIO(text)))
    groups, metrics, statistics = lines[:3] if len(lines) > 3 else ([], [], [])
    rows = lines[3:]
    columns = {
        (_words(group, metric), statistic.strip().lower()): at
        for at, (group, metric, statistic) in enumerate(zip(groups, metrics, statistics, strict=False))
    }
    readings = []
    for number, row in enumerate(rows, start=1):
        place = name if len(rows) == 1 else f"{name}, row {number}"
        figures = _figures(lambda metric, path, at=row: _cell(columns, at, metric, path[-1]))
        result = PeerResult(
            file=place,
            tool=GUIDELLM,
            level=_csv_level(_field(columns, row, "benchmark strategy")),
            requests=whole(_field(columns, row, "request counts successful")) or 0,
            figures=figures,
            limits=["summary only: import benchmarks.json for its requests"],
        )
        readings.append(PeerReading(result))
    return readings


def _csv_level(strategy: str) -> Level | None:
    """Return the load of a strategy such as `concurrent@4`, `constant@2.5` or `synchronous`."""
    kind, _, number = strategy.partition("@")
    if kind == "synchronous":
        return level_of(1)
    return level_of(number) if kind == "concurrent" else level_of(None, number)


def _field(columns: Mapping[tuple[str, str], int], row: Sequence[str], words: str) -> str:
    """Return the cell of a column without a statistic; empty if there is none."""
    at = columns.get((words, ""))
    return row[at] if at is not None and at < len(row) else ""


def _words(group: str, metric: str) -> str:
    return " ".join(f"{group} {metric}".lower().replace("_", " ").split())


def _cell(columns: Mapping[tuple[str, str], int], row: Sequence[str], metric: str, statistic: str) -> str | None:
    """Return the cell of a metric of successful requests."""
    wanted = metric.removesuffix("_ms").replace("_", " ")
    names = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99"}
    at = next(
        (
            at for (words, shown), at in columns.items()
            if wanted in words and "successful" in words and names[statistic] in shown
        ),
        None,
    )  # fmt: skip
    return row[at] if at is not None and at < len(row) else None
