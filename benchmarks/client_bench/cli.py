"""`benchmarks/client`: compares specbench's client with other clients in one run."""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import specbench_client
from client_bench.cases import CASES, Case
from client_bench.clients.client import BenchmarkJob, Client, Command, ObservedRequest
from client_bench.clients.registry import CLIENTS, MAIN, PY_SPY, VENVS
from client_bench.cpu import Cores, cores
from client_bench.markdown_table import markdown
from client_bench.profile import by_function, profiled
from client_bench.run import Failure, Run, run_once

RESULTS = Path("results/bench-client")


def main() -> int:
    """Run the benchmark; return 0 if every run was completed."""
    options = _options()
    if options.install is not None:
        return _install(options.install or list(VENVS))
    cases = [CASES[name] for name in options.cases]
    if options.short:
        cases = [case.shortened() for case in cases]
    clients = [client for name in options.clients if (client := _installed(CLIENTS[name]))]
    folder = options.results.resolve() / time.strftime("%Y%m%d-%H%M%S")
    if options.profile:
        return _profile(clients, cases, folder)
    return _compare(clients, cases, options.repeats, folder, short=options.short)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/client", description=__doc__)
    parser.add_argument("--install", nargs="*", choices=VENVS, metavar="PEER", help=f"install {', '.join(VENVS)}")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=MAIN, metavar="CLIENT",
                        help=", ".join(CLIENTS))  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each, at least 1 (default: 3)")
    parser.add_argument(
        "--short", action="store_true", help="two short requests per stream, to check that everything works"
    )
    parser.add_argument("--profile", action="store_true", help="profile with py-spy instead of measuring")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    return options


def _install(names: Sequence[str]) -> int:
    for name in names:
        _say(f"{name}: installing {VENVS[name].package}=={VENVS[name].pinned} into {VENVS[name].folder}")
        try:
            VENVS[name].install()
        except subprocess.CalledProcessError as error:
            _say(f"{name}: not installed: {error}")
            return 1
    return 0


def _installed(client: Client) -> Client | None:
    if client.version() is None:
        _say(f"{client.name}: not installed, left out; `benchmarks/client --install {client.name}` installs it")
        return None
    return client


def _compare(clients: Sequence[Client], cases: Sequence[Case], repeats: int, folder: Path, *, short: bool) -> int:
    places, runs, failures = cores(), [], []
    folder.mkdir(parents=True)
    for case in cases:
        for repeat in range(repeats):  # interleaved, so that a temporary disturbance affects all clients alike
            for client in clients:
                name = f"{client.name}, {case.title}, run {repeat + 1}"
                try:
                    run = run_once(client, case, repeat, folder / f"{case.name}-{client.name}-{repeat}", places)
                except Failure as failure:
                    failures.append(f"{name} failed: {failure}")
                    _say(failures[-1])
                    continue
                runs.append(run)
                with (folder / "runs.jsonl").open("a") as lines:
                    lines.write(run.to_json() + "\n")
                _say(f"{name}: {_described(run)}")
    text = f"{heading(places, short=short)}\n\n{markdown(runs, failures)}"
    (folder / "table.md").write_text(text)
    sys.stdout.write(text)
    _say(f"\n{folder}/table.md and runs.jsonl")
    return 1 if failures else 0


def _described(run: Run) -> str:
    figures = run.figures()
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if value is not None)


def heading(places: Cores, *, short: bool) -> str:
    """Return the first line of the table: what was run, of which code, and on which machine."""
    extent = "--short: only a check that everything works, no figure to compare" if short else "whole run"
    where = "client and server share the only core" if places.shared else "client on one core, server on another"
    machine = f"{where}; Linux {platform.release()}, Python {platform.python_version()}, {_processor()}"
    return f"{extent}; specbench {_code_version()}; {machine}"


def _code_version() -> str:
    """Return the commit of this checkout, and whether files differ from it; without Git, the installed version."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"{specbench_client.__version__} (not a Git checkout)"
    return f"commit {found.stdout.strip()}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


@dataclass(frozen=True)
class _Profiled:
    """Run a client under the profiler."""

    client: Client

    @property
    def name(self) -> str:
        return self.client.name

    def version(self) -> str | None:
        return self.client.version()

    def command(self, job: BenchmarkJob) -> Command:
        return profiled(self.client.command(job), job.folder / "samples.txt")

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        return self.client.read(job)


def _profile(clients: Sequence[Client], cases: Sequence[Case], folder: Path) -> int:
    if PY_SPY.version() is None:
        _say("py-spy is not installed: `benchmarks/client --install py-spy`")
        return 1
    for case in cases:
        for client in clients:
            place = folder / f"{case.name}-{client.name}-profile"
            try:
                run_once(_Profiled(client), case, 0, place, cores())
            except Failure as failure:
                _say(f"{client.name}, {case.title} failed: {failure}")
                return 1
            text = by_function((place / "samples.txt").read_text().splitlines())
            (place / "profile.txt").write_text(text)
            sys.stdout.write(f"{client.name}, {case.title} ({place}/profile.txt)\n{text}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
