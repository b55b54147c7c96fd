"""The figures as Markdown: one column per number of runs, with the aim of each figure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from operator_bench.figures import BenchmarkFigures, PhaseFigures
from operator_bench.phases import (
    API_RESTART,
    COLD_START,
    CREATIONS,
    DELETIONS,
    IDLE,
    OPERATOR_RESTART,
    RESUMPTION,
    STEADY,
)
from operator_bench.simulated_clients import POINT_STORED
from operator_bench.users import CREATE, EDIT, READY, RESUME, SUSPEND

_NONE = "–"
OfPhase = Callable[[PhaseFigures, BenchmarkFigures], str]


@dataclass(frozen=True)
class _Row:
    title: str
    aim: str
    phase: str
    shown: OfPhase


def markdown(benchmarks: Sequence[BenchmarkFigures]) -> str:
    """The table of all figures, and the table of requests in the steady state."""
    return f"{_figures(benchmarks)}\n{_requests(benchmarks, IDLE)}\n{_requests(benchmarks, STEADY)}"


def _figures(benchmarks: Sequence[BenchmarkFigures]) -> str:
    head = ["figure", "aim", *(f"{one.runs:,} runs" for one in benchmarks)]
    rows = [
        ["runs waiting / active / finished", "", *(_mix(one) for one in benchmarks)],
        *([row.title, row.aim, *(_cell(row, one) for one in benchmarks)] for row in _ROWS),
        ["largest RSS in any phase", "< 512 MiB", *(f"{one.rss_max_mib:.0f} MiB" for one in benchmarks)],
        ["operator ended by itself", "0", *(str(one.restarts) for one in benchmarks)],
        ["size of etcd's database", "", *(f"{one.database_mib:.0f} MiB" for one in benchmarks)],
    ]
    return _table(head, [row for row in rows if any(cell != _NONE for cell in row[2:])])


def _requests(benchmarks: Sequence[BenchmarkFigures], phase: str) -> str:
    found = {one.runs: one.phases[phase] for one in benchmarks if phase in one.phases}
    names = dict.fromkeys(name for figures in found.values() for name in figures.requests)
    rows = [
        [name, *(f"{figures.requests.get(name, 0) / figures.seconds:.2f}" for figures in found.values())]
        for name in names
    ]
    head = [f"requests per second, {phase}", *(f"{runs:,} runs" for runs in found)]
    return _table(head, rows) if rows else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""])


def _mix(one: BenchmarkFigures) -> str:
    return f"{one.mix.waiting:,} / {one.mix.active:,} / {one.mix.finished:,}"


def _cell(row: _Row, one: BenchmarkFigures) -> str:
    phase = one.phases.get(row.phase)
    return _NONE if phase is None else row.shown(phase, one)


def _latency(kind: str) -> OfPhase:
    def shown(phase: PhaseFigures, _: BenchmarkFigures) -> str:
        found = phase.latencies.get(kind)
        return _NONE if found is None else found.text

    return shown


def _settled(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return phase.settled_text


def _cores(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return f"{phase.usage.cores:.2f}"


def _api_server_cores(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return f"{phase.usage.api_server_cores:.2f}"


def _rate(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return f"{phase.requests_per_s:.1f}"


def _by_verb(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return ", ".join(f"{verb} {rate:.2f}" for verb, rate in phase.requests_by_verb.items()) or "0"


def _depth(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    usage = phase.usage
    return _NONE if usage.depth_max is None else f"{usage.depth_mean or 0:.0f} / {usage.depth_max:.0f}"


def _rss(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return f"{phase.usage.rss_max_mib:.0f} MiB"


def _load(phase: PhaseFigures, _: BenchmarkFigures) -> str:
    return f"{phase.load_average:.1f}"


def _requests_per_run(phase: PhaseFigures, one: BenchmarkFigures) -> str:
    return f"{phase.requests_per_s * 60 / one.runs:.2f}"


def _cpu_per_run(phase: PhaseFigures, one: BenchmarkFigures) -> str:
    return f"{phase.usage.cores * 60_000 / one.runs:.1f} ms"


_LATENCY = "p50 / p99"
_ROWS = (
    _Row("idle: CPU of the operator, cores", "< 0.1", IDLE, _cores),
    _Row("idle: CPU of the API server, cores", "", IDLE, _api_server_cores),
    _Row("idle: requests per second", "", IDLE, _rate),
    _Row("idle: by verb", "", IDLE, _by_verb),
    _Row("idle: requests per run and minute", "flat", IDLE, _requests_per_run),
    _Row("idle: CPU per run and minute", "flat", IDLE, _cpu_per_run),
    _Row("idle: queue depth, mean / max", "0", IDLE, _depth),
    *(
        _Row(f"steady: {kind}, {_LATENCY}", aim, STEADY, _latency(kind))
        for kind, aim in (
            (EDIT, "p99 < 1 s"),
            (RESUME, "p99 < 1 s"),
            (READY, "p99 < 1 s"),
            (SUSPEND, "p99 < 1 s"),
            (POINT_STORED, "polled"),
        )
    ),
    _Row("steady: CPU of the operator, cores", "", STEADY, _cores),
    _Row("steady: CPU of the API server, cores", "", STEADY, _api_server_cores),
    _Row("steady: requests per second", "", STEADY, _rate),
    _Row("steady: by verb", "", STEADY, _by_verb),
    _Row("steady: CPU per run and minute", "flat", STEADY, _cpu_per_run),
    _Row("steady: queue depth, mean / max", "", STEADY, _depth),
    _Row("steady: RSS", "< 512 MiB", STEADY, _rss),
    _Row("steady: load average of the machine", "< its cores", STEADY, _load),
    _Row("cold start: settled after", "", COLD_START, _settled),
    _Row(f"active runs resumed at once: {RESUME}, {_LATENCY}", "", RESUMPTION, _latency(RESUME)),
    _Row(f"storm of creations: {CREATE}, {_LATENCY}", "", CREATIONS, _latency(CREATE)),
    _Row("storm of creations: settled after", "", CREATIONS, _settled),
    _Row("storm of creations: queue depth, mean / max", "", CREATIONS, _depth),
    _Row("storm of creations: requests per second", "", CREATIONS, _rate),
    _Row(f"storm of deletions: {EDIT} of other runs, {_LATENCY}", "", DELETIONS, _latency(EDIT)),
    _Row("storm of deletions: settled after", "", DELETIONS, _settled),
    _Row("operator restart: settled after", "", OPERATOR_RESTART, _settled),
    _Row("API server restart: settled after", "", API_RESTART, _settled),
)
