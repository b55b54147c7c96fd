"""`benchmarks/imports`: other benchmarks measure the simulator, and their imported figures are compared with the truth.

The simulator drafts with a known acceptance and writes every step of every answer to its truth file. In each run of a
peer, each comparable figure of `specbench import` must agree with the truth file of that run: acceptance length within
0.5 %, time per output token within 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from client_bench.cases import Case
from client_bench.clients.client import BenchmarkJob, Command
from client_bench.clients.registry import CLIENTS
from client_bench.clients.tokenizer import write_tokenizer
from client_bench.clients.venv import Venv
from client_bench.server_responses import MODEL
from specbench_client.peer_results.reading import PeerReading, PeerResult, emitted_length
from specbench_client.peer_results.registry import read_peer_file

RESULTS = Path("results/bench-imports")
LIMITS = {"acceptance_length": 0.005, "tpot": 0.01}
STARTUP_S = 60.0


@dataclass(frozen=True)
class ImportRun:
    """One run of each peer: its load, and further options of `specbench simulate`."""

    case: Case
    simulator: tuple[str, ...]


RANDOM_LENGTHS = ("--output-mean", "160")
FIXED_LENGTHS = ("--output-mean", "1000000")
"""Every answer has as many tokens as were requested."""
RUNS = (
    ImportRun(Case("1-stream", streams=1, requests=16, max_tokens=384), RANDOM_LENGTHS),
    ImportRun(
        Case("8-streams-merged-chunks", streams=8, requests=48, max_tokens=384),
        (*RANDOM_LENGTHS, "--fault", "merge-chunks=4"),
    ),
    ImportRun(Case("32-streams-fixed-lengths", streams=32, requests=64, max_tokens=384), FIXED_LENGTHS),
)


class InferencePerf:
    """inference-perf: random prompts of the tokenizer's words; its requests are in their own file."""

    name = "inference-perf"
    venv = Venv("inference_perf", "0.7.0", interpreter=">=3.12")

    def version(self) -> str | None:
        return self.venv.version()

    def command(self, job: BenchmarkJob) -> Command:
        count, most = job.case.requests, job.case.max_tokens
        lengths = {"min": 8, "max": 24, "mean": 16, "std_dev": 2, "total_count": count}
        config = {
            "api": {"type": "completion", "streaming": True},
            "data": {
                "type": "random",
                "input_distribution": lengths,
                "output_distribution": {**lengths, "min": most // 2, "max": most, "mean": most},
            },
            "load": {
                "type": "concurrent",
                "num_workers": 1,
                "stages": [{"num_requests": count, "concurrency_level": job.case.streams}],
            },
            "server": {"type": "vllm", "model_name": MODEL, "base_url": job.url, "ignore_eos": False},
            "tokenizer": {"pretrained_model_name_or_path": str(write_tokenizer(job.folder / "tokenizer"))},
            "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
            "storage": {"local_storage": {"path": str(job.folder / "reports")}},
        }
        (job.folder / "config.json").write_text(json.dumps(config))
        argv = [str(self.venv.folder / "bin/inference-perf"), "--config_file", str(job.folder / "config.json")]
        return Command(argv, {"HF_HUB_OFFLINE": "1"})


PEERS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "vllm": (CLIENTS["vllm"], ("vllm.json",)),
    "sglang": (CLIENTS["sglang"], ("sglang.jsonl",)),
    "aiperf": (CLIENTS["aiperf"], ("aiperf/profile_export_aiperf.json", "aiperf/profile_export.jsonl")),
    "guidellm": (CLIENTS["guidellm"], ("guidellm.json",)),
    "inference-perf": (
        InferencePerf(),
        ("reports/stage_0_lifecycle_metrics.json", "reports/per_request_lifecycle_metrics.json"),
    ),
}
"""Client → the files that it writes."""


@dataclass(frozen=True)
class Deviation:
    """One figure of one peer. `deviation`: from the truth, relative; None if the import refuses it."""

    peer: str
    figure: str
    source: str
    imported: float | None
    truth: float
    reason: str

    @property
    def deviation(self) -> float | None:
        return None if self.imported is None else self.imported / self.truth - 1

    @property
    def holds(self) -> bool:
        limit = LIMITS["acceptance_length" if "acceptance" in self.figure else "tpot"]
        return self.deviation is None or abs(self.deviation) <= limit


def main() -> int:
    """Run the peers and print the table; return 0 if every comparable figure agrees with the truth."""
    parser = argparse.ArgumentParser(prog="benchmarks/imports", description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--install", action="store_true", help="install the peers and exit")
    parser.add_argument("--runs", nargs="+", choices=[run.case.name for run in RUNS])
    parser.add_argument("--drafter", default="eagle3", help="as of `specbench simulate`; none: no drafts")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    options = parser.parse_args()
    if options.install:
        return int(any([not _install(name) for name in options.peers]))  # noqa: C419 -- installs all of them
    folder, rows, failed = options.results.resolve() / time.strftime("%Y%m%d-%H%M%S"), list[Deviation](), False
    for name in options.peers:
        if PEERS[name][0].version() is None:
            sys.stderr.write(f"{name}: not installed: run benchmarks/imports --install --peers {name}\n")
            failed = True
            continue
        for run in RUNS:
            if not options.runs or run.case.name in options.runs:
                rows += _compare(name, run, folder / name / run.case.name, options.drafter)
    sys.stdout.write("\n".join(_table(rows)) + "\n")
    return int(failed or not all(row.holds for row in rows))


def _install(name: str) -> bool:
    """Install a peer. Return whether it is installed; uv has printed why not."""
    venv: Venv = PEERS[name][0].venv
    try:
        venv.install()
    except subprocess.CalledProcessError:
        sys.stderr.write(f"{name}: not installed: it needs Python {venv.interpreter} (on PATH) and a package index\n")
        return False
    return True


def _compare(name: str, run: ImportRun, folder: Path, drafter: str) -> list[Deviation]:
    client, files = PEERS[name]
    folder.mkdir(parents=True)
    with _simulator(folder, drafter, run.simulator) as url:
        command = client.command(BenchmarkJob(url, run.case, folder))
        with (folder / "client.log").open("w") as log:
            subprocess.run(
                list(command.argv), cwd=folder, env={**os.environ, **command.environment}, check=True, timeout=600,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
    answers = _answers(folder, files)
    label = f"{name} {client.version()}"
    return [
        row
        for file in files
        for reading in read_peer_file(folder / file)
        for row in _rows(label, file, reading, answers)
    ]


def _answers(folder: Path, files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the truth of the requests that the files name; of all requests if they name none."""
    answers = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    text = "".join((folder / file).read_text() for file in files)
    return [each for each in answers if each["request_id"] in text] or answers


@contextmanager
def _simulator(folder: Path, drafter: str, options: Sequence[str]) -> Iterator[str]:
    port, truth = folder / "port", folder / "truth.jsonl"
    argv = [sys.executable, "-c", "from specbench_client.cli import main; main()", "simulate", "--port", "0"]
    argv += ["--port-file", str(port), "--truth", str(truth), "--served-model-name", MODEL, "--base-ms", "20"]
    argv += ["--drafter", drafter, *options]
    with (folder / "simulator.log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline_s = time.monotonic() + STARTUP_S
        while not (port.exists() and port.read_text().strip()):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the simulator did not start: see {folder / 'simulator.log'}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().strip()}"
    finally:
        process.terminate()
        process.wait()


def _rows(peer: str, file: str, reading: PeerReading, answers: Sequence[Mapping[str, Any]]) -> Iterator[Deviation]:
    """Yield the figures of a file, and those of its requests, beside the truth of the same requests."""
    measured = answers[-reading.result.requests :]  # a request before the run comes first
    spans = [(each["sent_ns"][-1] - each["sent_ns"][0]) / 1e6 for each in measured]
    later = [each["output_tokens"] - 1 for each in measured]
    each_ms = [span / tokens for span, tokens in zip(spans, later, strict=True)]
    truth = {
        "tpot_ms_mean": mean(each_ms),
        "tpot_ms_p50": median(each_ms),
        "tpot_ms_pooled": sum(spans) / sum(later),
        "acceptance_length_emitted_pooled": sum(later) / sum(each["steps"] for each in measured),
    }
    yield from _of_summary(peer, file, reading.result, truth)
    requests = [each for each in reading.requests if each.error is None]
    timed = [(each.last_ns - each.first_ns, each.output_tokens - 1) for each in requests
             if each.last_ns is not None and each.first_ns is not None and each.output_tokens]  # fmt: skip
    if timed:
        value = mean(span / tokens for span, tokens in timed) / 1e6
        yield Deviation(peer, "tpot_ms_mean", f"{file}: requests", value, truth["tpot_ms_mean"], "")
    drafted = [each for each in requests if each.draft_steps]
    if drafted:
        steps, accepted = (
            sum(each.draft_steps or 0 for each in drafted), sum(each.accepted_tokens or 0 for each in drafted)
        )  # fmt: skip
        value_al = emitted_length(sum(each.output_tokens or 0 for each in drafted), len(drafted), steps, accepted)
        name = "acceptance_length_emitted_pooled"
        yield Deviation(peer, name, f"{file}: requests", value_al, truth[name], "")


def _of_summary(peer: str, file: str, result: PeerResult, truth: Mapping[str, float]) -> Iterator[Deviation]:
    for figure in result.figures:
        if figure.name in truth:
            source = f"{Path(file).name}: {figure.field}"
            yield Deviation(peer, figure.name, source, figure.value, truth[figure.name], figure.reason)


def _table(rows: Sequence[Deviation]) -> list[str]:
    lines = ["| peer | figure | from | runs | worst deviation | not comparable |", "|---|---|---|---:|---:|---|"]
    groups: dict[tuple[str, str, str], list[Deviation]] = {}
    for row in rows:
        groups.setdefault((row.peer, row.figure, row.source), []).append(row)
    for (peer, figure, source), group in groups.items():
        known = [row for row in group if row.deviation is not None]
        worst = max(known, key=lambda row: abs(row.deviation or 0.0), default=None)
        shown = "–" if worst is None else f"{worst.deviation:+.2%}{'' if worst.holds else ' too much'}"
        refused = len(group) - len(known)
        reason = f"{refused} of {len(group)}: {next(r.reason for r in group if r.imported is None)}" if refused else "–"
        lines.append(f"| {peer} | `{figure}` | {source} | {len(group)} | {shown} | {reason} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
