"""The command: measures each number of runs on a new cluster, and stores and prints the figures."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from operator_bench.figures import BenchmarkFigures
from operator_bench.phases import QUICK, Durations, Phases
from operator_bench.population import Mix
from operator_bench.preparation import PreparedRuns, make_runs, make_templates
from operator_bench.profile import py_spy
from operator_bench.reactions import Reactions
from operator_bench.simulated_clients import SimulatedClients
from operator_bench.site import NAMESPACE, PREFIX, ScaleSite, scale_site
from operator_bench.table import markdown
from operator_bench.usage import Sampler
from operator_bench.users import Users
from specbench_cluster import ClusterError

ROOT = Path(__file__).resolve().parents[2]
_DESCRIPTION = """Measure the operator from outside, on a real API server with kwok's nodes and pods.

    benchmarks/operator --runs 100,1000,10000           everything; an hour on two cores
    benchmarks/operator --runs 100,1000 --quick         shorter phases and storms; minutes
    benchmarks/operator --idle-requests 100             requests a minute for 100 suspended runs; two minutes

Each number of runs gets a new test cluster, which is removed afterwards, also after Ctrl-C. No other test cluster may
be running. What is measured, and how: benchmarks/operator.md.
"""
PHASES: dict[str, Callable[[Phases], None]] = {
    "idle": Phases.idle,
    "steady": Phases.steady,
    "creations": Phases.creations,
    "deletions": Phases.deletions,
    "operator-restart": Phases.operator_restart,
    "api-restart": Phases.api_restart,
}
IDLE_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> int:
    """Measure and print. Returns 1 if more requests than --at-most were sent, 2 if nothing could be measured."""
    options = _parser().parse_args()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        if options.idle_requests:
            return _idle_requests(options.idle_requests, options.at_most)
        return _benchmark(options)
    except ClusterError as error:
        sys.stderr.write(f"operator: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=_numbers, default=[100, 1000, 10_000], metavar="N,N,...")
    parser.add_argument("--quick", action="store_true", help="shorter phases, storms of 200 runs")
    parser.add_argument("--storm", type=int, help="number of runs of a storm")
    parser.add_argument("--phases", type=_phases, default=list(PHASES), metavar="NAME,...", help=", ".join(PHASES))
    parser.add_argument("--output", type=Path, help="folder of the results; default: results/bench-operator/TIME")
    parser.add_argument("--profile", action="store_true", help="profile the steady state with py-spy")
    parser.add_argument("--idle-requests", type=int, metavar="N", help="only count requests for N suspended runs")
    parser.add_argument("--at-most", type=int, help="with --idle-requests: fail above this number of requests")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _phases(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(PHASES):
        raise argparse.ArgumentTypeError(f"unknown phase {', '.join(sorted(unknown))}: choose from {', '.join(PHASES)}")
    if "deletions" in names and "creations" not in names:
        raise argparse.ArgumentTypeError("deletions needs creations, whose runs it deletes: add creations")
    return [name for name in PHASES if name in names]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as after Ctrl-C, so that everything is removed; further signals do not interrupt that."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _progress(message: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {message}\n")
    sys.stderr.flush()


@dataclass
class _Parts:
    """What one benchmark consists of, besides its phases."""

    site: ScaleSite
    users: Users
    clients: SimulatedClients
    sampler: Sampler


@contextmanager
def _parts(output: Path, name: str) -> Iterator[_Parts]:
    """A site with users, clients and a sampler; the operator's log is kept in the output folder."""
    with tempfile.TemporaryDirectory(prefix="specbench-bench-operator-") as text:
        folder = Path(text)
        with scale_site(folder) as site:
            reactions = Reactions()
            clients = SimulatedClients(site.cluster, NAMESPACE, site.ground.s3, PREFIX, reactions)
            users = Users(site.cluster, NAMESPACE, reactions, clients.on_pod)
            sampler = Sampler(site.operator, site.api_server_pid)
            try:
                yield _Parts(site, users, clients, sampler)
            finally:
                sampler.stop()
                users.stop()
                if site.operator.log.exists():
                    shutil.copy(site.operator.log, output / f"operator-{name}.log")


def _benchmark(options: Any) -> int:
    if options.profile and py_spy() is None:
        sys.stderr.write("operator: --profile needs py-spy: `pip install py-spy` in this environment\n")
        return 2
    output = options.output or ROOT / "results/bench-operator" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    output.mkdir(parents=True, exist_ok=True)
    durations = QUICK if options.quick else Durations()
    durations = replace(durations, storm=options.storm or durations.storm)
    found: list[BenchmarkFigures] = []
    try:
        for runs in options.runs:
            _progress(f"{runs:,} runs")
            with _parts(output, str(runs)) as parts:
                profile = output / f"profile-{runs}.raw" if options.profile else None
                _measure(parts, runs, options.phases, partial(_phases_of, parts, durations, profile), found)
    finally:  # also after Ctrl-C, with the phases that ended before
        (output / "figures.json").write_text(json.dumps([one.to_dict() for one in found], indent=2) + "\n")
        (output / "table.md").write_text(markdown(found))
        sys.stdout.write(markdown(found))
        _progress(f"results: {output}")
    return 0


def _phases_of(parts: _Parts, durations: Durations, profile: Path | None, runs: PreparedRuns) -> Phases:
    return Phases(parts.site, parts.users, parts.clients, runs, parts.sampler, durations, _progress, profile)


def _measure(
    parts: _Parts,
    runs: int,
    chosen: Sequence[str],
    phases_of: Callable[[PreparedRuns], Phases],
    found: list[BenchmarkFigures],
) -> None:
    """Measure one number of runs, and append the figures of the phases that ended."""
    mix = Mix.of(runs)
    templates = make_templates(parts.site, parts.sampler.supervised)
    prepared = make_runs(parts.users, mix, templates, _progress)
    parts.users.watch()
    phases = phases_of(prepared)
    try:
        for phase in (Phases.cold_start, Phases.resumption, *(PHASES[name] for name in chosen)):
            phase(phases)
    finally:
        figures = BenchmarkFigures(
            runs=runs,
            mix=mix,
            created_s=prepared.seconds,
            database_mib=parts.site.database_mib(),
            restarts=parts.sampler.restarts,
            watch_gaps=parts.users.gaps,
            phases=phases.figures,
        )
        found.append(figures)


def _idle_requests(runs: int, at_most: int | None) -> int:
    """Count the requests of one minute for suspended runs without a campaign, as JSON."""
    with tempfile.TemporaryDirectory() as output, _parts(Path(output), str(runs)) as parts:
        phases = _phases_of(parts, Durations(idle_s=IDLE_S, storm=runs), None, PreparedRuns())
        parts.users.watch()
        with parts.sampler.supervised:
            parts.site.operator.launch()
        phases.creations()
        phases.idle()
    idle = phases.figures["idle"]
    count = sum(idle.requests.values())
    figures = {
        "runs": runs,
        "seconds": round(idle.seconds, 1),
        "requests": count,
        "cores": round(idle.usage.cores, 3),
        "byVerbAndResource": idle.requests,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    if at_most is not None and count > at_most:
        sys.stderr.write(f"operator: {count} requests for {runs} suspended runs in a minute, {at_most} are allowed\n")
        return 1
    return 0
