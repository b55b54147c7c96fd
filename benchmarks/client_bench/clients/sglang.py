"""SGLang's benchmark, a Rust client: reports times of every chunk since the first one.

The wheel's extension module is loaded directly, because its package would import torch and the server.
"""

from __future__ import annotations

import json
from itertools import accumulate

from client_bench.clients.client import BenchmarkJob, Command, ObservedRequest, number_in
from client_bench.clients.tokenizer import write_tokenizer
from client_bench.clients.venv import Venv
from client_bench.server_responses import MODEL

_START = """
import importlib.machinery, importlib.util, pathlib, sys
(file,) = pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/sglang/srt/rust_extensions/_bench.*.so")
loader = importlib.machinery.ExtensionFileLoader("_bench", str(file))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(module)
module.run_argv(["sglang-bench", *sys.argv[1:]])
"""


class SglangBench:
    """See `Client`."""

    name = "sglang"
    venv = Venv("sglang", "0.5.23", bare=True)

    def version(self) -> str | None:
        return self.venv.version()

    def command(self, job: BenchmarkJob) -> Command:
        prompts = job.folder / "prompts.json"
        answer = " ".join(["word1"] * job.case.max_tokens)
        rows = [
            {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": answer}]}
            for prompt in job.prompts()
        ]
        prompts.write_text(json.dumps(rows))
        argv = [
            str(self.venv.python), "-c", _START, "--backend", "vllm-chat", "--base-url", job.url, "--model", MODEL,
            "--tokenizer", str(write_tokenizer(job.folder / "tokenizer")),
            "--dataset-name", "sharegpt", "--dataset-path", str(prompts),
            "--sharegpt-output-len", str(job.case.max_tokens),
            "--num-prompts", str(job.case.requests), "--max-concurrency", str(job.case.streams),
            "--worker-threads", "1", "--output-file", str(job.folder / "sglang.jsonl"), "--output-details",
            "--disable-ignore-eos", "--disable-tqdm",
        ]  # fmt: skip
        return Command(argv)

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        output = json.loads((job.folder / "sglang.jsonl").read_text().splitlines()[-1])
        rows = zip(output["generated_texts"], output["ttfts"], output["itls"], output["errors"], strict=True)
        return [
            ObservedRequest(
                number_in(text),
                None,
                round(ttft_s * 1e9),
                [round(after_s * 1e9) for after_s in accumulate(gaps_s, initial=0.0)],
            )
            for text, ttft_s, gaps_s, error in rows
            if not error
        ]
