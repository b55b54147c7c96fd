"""AIPerf: reports wall-clock times of every chunk; requests are matched by the X-Request-Id that it sends."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

from client_bench.clients.client import BenchmarkJob, Command, ObservedRequest
from client_bench.clients.tokenizer import write_tokenizer
from client_bench.clients.venv import Venv
from client_bench.server_responses import MODEL


class Aiperf:
    """See `Client`."""

    name = "aiperf"
    venv = Venv("aiperf", "0.13.0")

    def version(self) -> str | None:
        return self.venv.version()

    def command(self, job: BenchmarkJob) -> Command:
        rows = [{"text": prompt, "output_length": job.case.max_tokens} for prompt in job.prompts()]
        prompts = job.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        argv = [
            str(self.venv.folder / "bin/aiperf"), "profile", "--model", MODEL, "--url", job.url,
            "--endpoint-type", "chat", "--streaming", "--use-server-token-count",
            "--concurrency", str(job.case.streams), "--request-count", str(job.case.requests),
            "--input-file", str(prompts), "--custom-dataset-type", "single_turn",
            "--extra-inputs", f"max_tokens:{job.case.max_tokens}",
            "--tokenizer", str(write_tokenizer(job.folder / "tokenizer")),
            "--workers-max", "1", "--record-processors", "1", "--ui", "none",
            "--artifact-dir", str(job.folder / "aiperf"),
        ]  # fmt: skip
        return Command(argv)

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        lines = (job.folder / "aiperf/profile_export.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return [_seen(row, job) for row in rows if "time_to_first_token" in row["metrics"]]


def _seen(row: dict[str, Any], job: BenchmarkJob) -> ObservedRequest:
    metrics, about = row["metrics"], row["metadata"]
    ttft_ns = round(metrics["time_to_first_token"]["value"] * 1e6)
    gaps_ms = metrics["inter_chunk_latency"]["value"] if "inter_chunk_latency" in metrics else []
    first_ns = about["request_start_ns"] + job.monotonic_less_wall_ns + ttft_ns
    chunk_ns = [round(first_ns + after_ms * 1e6) for after_ms in accumulate(gaps_ms, initial=0.0)]
    return ObservedRequest(None, about["x_request_id"], ttft_ns, chunk_ns, absolute=True)
