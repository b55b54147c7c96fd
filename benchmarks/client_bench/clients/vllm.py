"""`vllm bench serve`: reports times of every chunk by `perf_counter`, which is the monotonic clock.

Its module is called without the command `vllm`, which would import the server and its dependencies.
"""

from __future__ import annotations

import json
from itertools import accumulate

from client_bench.clients.client import BenchmarkJob, Command, ObservedRequest, number_in
from client_bench.clients.tokenizer import write_tokenizer
from client_bench.clients.venv import Venv
from client_bench.server_responses import MODEL

_START = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main;"
    " parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)
_IMPORTED = (
    "torch==2.15.0", "aiohttp==3.14.5", "cachetools==8.0.1", "cbor2==6.2.1", "cloudpickle==3.1.2", "datasets==5.2.0",
    "einops==0.8.2", "fastapi==0.165.0", "llguidance==1.9.1", "msgspec==0.22.0", "openai==3.54.0",
    "openai-harmony==0.0.8", "pandas==3.1.1", "partial-json-parser==0.2.1.1.post7", "pillow==13.0.0",
    "prometheus-client==0.26.0", "psutil==7.2.2", "py-cpuinfo==9.0.0", "pybase64==1.5.1", "pyzmq==27.3.0",
    "regex==2026.11.15", "requests==2.34.2", "tqdm==4.70.1", "transformers==5.23.0", "uvloop==0.23.0",
    "xgrammar==0.2.8",
)  # fmt: skip


class VllmBench:
    """See `Client`."""

    name = "vllm"
    venv = Venv("vllm", "0.33.0", beside=_IMPORTED, bare=True)

    def version(self) -> str | None:
        return self.venv.version()

    def command(self, job: BenchmarkJob) -> Command:
        prompts = job.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in job.prompts()))
        argv = [
            str(self.venv.python), "-c", _START,
            "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", job.url,
            "--model", MODEL, "--tokenizer", str(write_tokenizer(job.folder / "tokenizer")),
            "--dataset-name", "custom", "--dataset-path", str(prompts),
            "--custom-output-len", str(job.case.max_tokens), "--disable-shuffle",
            "--num-prompts", str(job.case.requests), "--max-concurrency", str(job.case.streams),
            "--save-result", "--save-detailed", "--result-dir", str(job.folder), "--result-filename", "vllm.json",
            "--disable-tqdm",
        ]  # fmt: skip
        return Command(argv, {"HF_HUB_OFFLINE": "1"})

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        output = json.loads((job.folder / "vllm.json").read_text())
        rows = zip(
            output["generated_texts"],
            output["start_times"],
            output["ttfts"],
            output["itls"],
            output["errors"],
            strict=True,
        )
        return [
            ObservedRequest(
                number_in(text),
                None,
                round(ttft_s * 1e9),
                [round(at_s * 1e9) for at_s in accumulate(gaps_s, initial=start_s + ttft_s)],
                absolute=True,
            )
            for text, start_s, ttft_s, gaps_s, error in rows
            if not error
        ]
