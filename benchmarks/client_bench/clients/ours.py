"""Adapter of specbench's client, run as in a measurement: prompt file, plan, engine group, Parquet records."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet

import client_bench
import specbench_api
import specbench_client
from client_bench.clients.client import BenchmarkJob, Command, ObservedRequest

_PACKAGES = (client_bench, specbench_client, specbench_api)


@dataclass(frozen=True)
class Specbench:
    """specbench's client. `workers`: number of its processes, all on the client's core."""

    name: str = "specbench"
    workers: int = 1

    def version(self) -> str | None:
        return specbench_client.__version__

    def command(self, job: BenchmarkJob) -> Command:
        prompts = job.folder / "prompts.jsonl"
        rows = [{"id": f"p{number}", "prompt": prompt} for number, prompt in enumerate(job.prompts())]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        argv = [
            sys.executable, "-m", "client_bench.measure", "--endpoint", job.url, "--dataset", str(prompts),
            "--concurrency", str(job.case.streams), "--requests", str(job.case.requests),
            "--max-tokens", str(job.case.max_tokens), "--workers", str(self.workers),
            "--results", str(job.folder / "results"),
        ]  # fmt: skip
        # Use the same code as this process. Paths are made absolute because the client runs in another folder.
        homes = [str(Path(package.__file__ or "").resolve().parents[1]) for package in _PACKAGES]
        return Command(argv, {"PYTHONPATH": os.pathsep.join(homes)})

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        (manifest,) = (job.folder / "results").rglob("points/*/manifest.json")
        started_ns = json.loads(manifest.read_text())["startedMonotonicNs"]
        columns = ["request_id", "sent_ns", "first_token_ns", "chunk_ns", "error_class", "phase"]
        rows = pyarrow.parquet.read_table(manifest.parent / "records", columns=columns).to_pylist()
        return [
            ObservedRequest(
                None,
                row["request_id"],
                row["first_token_ns"] - row["sent_ns"],
                [started_ns + at_ns for at_ns in row["chunk_ns"]],
                absolute=True,
            )
            for row in rows
            if row["error_class"] is None and row["phase"] != "warmup"
        ]
