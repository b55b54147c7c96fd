"""guidellm: reports the first and the last token of a request on the wall clock, but no times of single chunks."""

from __future__ import annotations

import json

from client_bench.clients.client import BenchmarkJob, Command, ObservedRequest, number_in
from client_bench.clients.tokenizer import write_tokenizer
from client_bench.clients.venv import Venv
from client_bench.server_responses import MODEL


class Guidellm:
    """See `Client`."""

    name = "guidellm"
    venv = Venv("guidellm", "0.8.1", beside=("torch==2.15.0",))

    def version(self) -> str | None:
        return self.venv.version()

    def command(self, job: BenchmarkJob) -> Command:
        prompts = job.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in job.prompts()))
        tokenizer = write_tokenizer(job.folder / "tokenizer")
        argv = [
            str(self.venv.folder / "bin/guidellm"), "run",
            "--backend", f"kind=openai_http,target={job.url},model={MODEL},max_tokens={job.case.max_tokens}",
            "--profile", f"kind=concurrent,streams={job.case.streams}",
            "--constraint", f"kind=max_requests,count={job.case.requests}",
            "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
            "--data", f"kind=json_file,path={prompts}",
            "--output", f"kind=json,path={job.folder / 'guidellm.json'}", "--disable-console",
        ]  # fmt: skip
        # Its default of ten processes is slower on a single core.
        return Command(argv, {"HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"})

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        (benchmark,) = json.loads((job.folder / "guidellm.json").read_text())["benchmarks"]
        return [
            ObservedRequest(number_in(row["output"]), None, round(row["time_to_first_token_ms"] * 1e6))
            for row in benchmark["requests"]["successful"]
        ]
