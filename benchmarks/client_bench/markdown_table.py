"""Medians of the repeats, as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from client_bench.run import Run

_COLUMNS = {
    "chunks_per_s_a_core": "chunks/s a core",
    "chunks_per_s": "chunks/s",
    "cpu_s_per_million_hot": "CPU-s per 1M, hot",
    "cpu_s_per_million_in_all": "in all",
    "ttft_error_p50_ms": "TTFT error p50, ms",
    "ttft_error_p99_ms": "p99",
    "chunk_error_p50_ms": "chunk error p50, ms",
    "chunk_error_p99_ms": "p99",
    "chunk_error_p999_ms": "p99.9",
    "coalesced_share": "coalesced",
    "client_share": "client's core",
    "server_share": "server's core",
    "step_p50_ms": "step p50, ms",
}
_SHARES = ("coalesced_share", "client_share", "server_share")


def medians(runs: Sequence[Run]) -> dict[str, float | None]:
    """Return the median of each figure over the runs that have it."""
    had = [run.figures() for run in runs]
    values = {name: [one for figures in had if (one := figures[name]) is not None] for name in _COLUMNS}
    return {name: median(found) if found else None for name, found in values.items()}


def markdown(runs: Iterable[Run], failures: Iterable[str]) -> str:
    """Return one table per case, with clients in run order, and the failed runs."""
    by_case: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        by_case.setdefault(run.case.title, {}).setdefault(run.client, []).append(run)
    parts = [_case(title, clients) for title, clients in by_case.items()]
    return "\n".join([*parts, *(f"- {failure}" for failure in failures), ""])


def _case(title: str, clients: dict[str, list[Run]]) -> str:
    head = ["client", "runs", *_COLUMNS.values(), "remarks"]
    rows = [[_name(runs[0]), str(len(runs)), *_cells(runs), _remarks(runs)] for runs in clients.values()]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join([f"### {title}", "", *("| " + " | ".join(line) + " |" for line in lines), ""])


def _name(run: Run) -> str:
    return f"{run.client} {run.version}"


def _cells(runs: Sequence[Run]) -> list[str]:
    return [_shown(name, value) for name, value in medians(runs).items()]


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in _SHARES:
        return f"{value:.0%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _remarks(runs: Sequence[Run]) -> str:
    """Return notes on the interpretation of the figures."""
    judgements = [run.judgement for run in runs]
    lost, miscounted = sum(one.lost for one in judgements), sum(one.miscounted for one in judgements)
    found = {
        "chunk times since the first chunk": any(one.chunk is not None and not one.absolute for one in judgements),
        f"{miscounted} requests with another number of chunks": miscounted,
        f"{lost} requests unknown to the server": lost,
    }
    return "; ".join(remark for remark, applies in found.items() if applies)
