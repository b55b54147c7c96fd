"""Command lines of other load generators, given to `specbench measure`: they work, or the answer names our flag.

The lines are retyped from the documentation of vLLM, SGLang, AIPerf, TensorRT-LLM, GuideLLM and genai-perf, with few
requests, short answers and the address of a simulated engine. A line that leaves server or load to its tool's
default is completed with `SERVER` or `LOAD`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from specbench_api.outcome.summary import RunSummary
from specbench_client.cli import exit_code
from specbench_client.cli.measure import measure
from specbench_client.cli.peer_flags import BY_FLAG, PEER_FLAGS, Meaning, PeerFlag
from specbench_client.cli.peer_translation import own_arguments

MODEL = "--model simulated"
SERVER = "--base-url {url}"
LOAD = "--max-concurrency 2"


def translated(line: str) -> list[str]:
    return own_arguments(measure.params, shlex.split(line))


def answer(line: str) -> str:
    with pytest.raises(click.UsageError) as error:
        translated(line)
    return error.value.format_message()


WORKING = [
    # vLLM's Rust client, README.
    (
        f"--backend vllm --base-url {{url}} {MODEL} --dataset-name random --random-input-len 64 --random-output-len 16"
        " --num-prompts 4 --max-concurrency 2"
    ),
    # vLLM, benchmarking/cli: maximum throughput, on ShareGPT.
    (
        f"--backend openai-chat {MODEL} --endpoint /v1/chat/completions --dataset-name sharegpt --dataset-path"
        f" sharegpt.json --num-prompts 4 --request-rate=inf --max-concurrency=2 {SERVER}"
    ),
    # vLLM, custom dataset, on the chat endpoint.
    (
        f"--port {{port}} --save-result --save-detailed --backend openai-chat {MODEL} --endpoint /v1/chat/completions"
        " --dataset-name custom --dataset-path custom.jsonl --num-prompts 4 --max-concurrency 1 --temperature=0.3"
        ' --top-p=0.75 --result-dir "./log/"'
    ),
    # vLLM, Spec Bench.
    f"{MODEL} --dataset-name spec_bench --dataset-path question.jsonl --num-prompts -1 {SERVER} {LOAD}",
    # vLLM, bursts with limits.
    (
        f"--backend vllm {MODEL} {SERVER} --dataset-name custom --dataset-path custom.jsonl --num-prompts 4"
        " --request-rate 20 --burstiness 0.5 --goodput ttft:500 tpot:35 e2el:2000 --percentile-metrics ttft,tpot,e2el"
        " --metric-percentiles 50,90,99"
    ),
    # SGLang, real-world data.
    (
        "--backend sglang --dataset-name sharegpt --dataset-path ./sharegpt.json --num-prompts 4 --request-rate 10"
        f" {MODEL} --host 127.0.0.1 --port {{port}}"
    ),
    # SGLang, a rate with a maximum concurrency.
    (
        f"--backend sglang --host http://127.0.0.1:{{port}} {MODEL} --dataset-name sharegpt --num-prompts 4"
        " --request-rate 10 --max-concurrency 2 --dataset-path sharegpt.json"
    ),
    # AIPerf, chat completions with synthetic inputs.
    (
        f"{MODEL} --endpoint-type chat --endpoint /v1/chat/completions --streaming --synthetic-input-tokens-mean 100"
        " --synthetic-input-tokens-stddev 0 --output-tokens-mean 20 --output-tokens-stddev 0 --url localhost:{port}"
        " --request-count 4 --concurrency 2"
    ),
    # AIPerf, goodput.
    (
        "-m simulated --endpoint-type chat --streaming --url localhost:{port} --request-count 4 --concurrency 2"
        ' --goodput "time_to_first_token:100 inter_token_latency:3.40" --input-file custom.jsonl'
    ),
    # GuideLLM, README: load patterns.
    (
        f"--target {{url}} --profile constant --rate 10 --max-seconds 1 {MODEL}"
        ' --data "prompt_tokens=128,output_tokens=16"'
    ),
    # GuideLLM, README: the first benchmark.
    f'--target "{{url}}" --profile sweep --max-requests 4 --data "prompt_tokens=64,output_tokens=16" {MODEL}',
    # GuideLLM, concurrent users on a file.
    f"--target {{url}} --rate-type concurrent --rate 2 --max-requests 4 {MODEL} --data custom.jsonl",
    # genai-perf, tutorial.
    (
        "-m simulated --service-kind openai --endpoint-type chat --synthetic-input-tokens-mean 200"
        " --synthetic-input-tokens-stddev 0 --output-tokens-mean 10 --output-tokens-stddev 0"
        " --output-tokens-mean-deterministic --streaming --request-count 4 --warmup-request-count 2 --url {url}"
        " --concurrency 1"
    ),
]
ANSWERED = [
    # vLLM, first example.
    (
        (
            f"--backend vllm {MODEL} --endpoint /v1/completions --dataset-name sharegpt --dataset-path sharegpt.json"
            " --num-prompts 10"
        ),
        "measure sends chat completions (/v1/chat/completions): leave it out",
    ),
    # vLLM, custom dataset without a chat template.
    (
        (
            f"--port 9001 --save-result --backend vllm {MODEL} --dataset-name custom --dataset-path custom.jsonl"
            " --skip-chat-template --num-prompts 80 --max-concurrency 1"
        ),
        "the flag is --dataset FILE",
    ),
    # vLLM, one category of Spec Bench.
    (
        f"{MODEL} --dataset-name spec_bench --dataset-path question.jsonl --num-prompts -1 --spec-bench-category math",
        "specbench dataset select",
    ),
    # vLLM, images.
    (
        (
            f"--backend openai-chat {MODEL} --endpoint /v1/chat/completions --dataset-name hf --dataset-path"
            " lmarena-ai/VisionArena-Chat --num-prompts 1000"
        ),
        "give a source of `specbench dataset list`, or a file, as --dataset",
    ),
    # vLLM, sonnet.
    (
        f"--backend vllm {MODEL} --dataset-name sonnet --dataset-path sonnet.txt --num-prompts 10",
        "--dataset FILE",
    ),
    # vLLM, ramp-up.
    (
        f"{MODEL} --dataset-name random --ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 10",
        "--rate 1,2,4,8",
    ),
    # vLLM, maximum throughput without a limit.
    (f"{MODEL} --dataset-name custom --dataset-path custom.jsonl --request-rate inf", "give --concurrency N"),
    # SGLang, end-to-end example 1.
    (
        (
            f"--backend sglang --host 127.0.0.1 --port 30000 {MODEL} --dataset-name random --random-input-len 1024"
            " --random-output-len 1024 --random-range-ratio 0.5 --num-prompts 2000"
        ),
        "the flag is --dataset random:WORDS",
    ),
    # SGLang, shared prefixes.
    (
        (
            f"--backend sglang --host 127.0.0.1 --port 30000 {MODEL} --dataset-name generated-shared-prefix"
            " --num-prompts 1024"
        ),
        "--dataset FILE",
    ),
    # SGLang, Mooncake's trace.
    (
        (
            f"--backend sglang --host 127.0.0.1 --port 30000 {MODEL} --dataset-name mooncake-conversation"
            " --random-output-len 256"
        ),
        "--arrival Trace --trace FILE",
    ),
    # SGLang, images.
    (
        "--backend sglang-oai-chat --dataset-name image --num-prompts 500 --random-input-len 512",
        "--dataset FILE",
    ),
    # TensorRT-LLM's AIPerf client.
    (
        (
            "-m TinyLlama-1.1B-Chat-v1.0 --tokenizer TinyLlama/TinyLlama-1.1B-Chat-v1.0 --endpoint-type chat"
            " --random-seed 123 --synthetic-input-tokens-mean 128 --output-tokens-mean 128 --request-count 100"
            " --request-rate 10 --url localhost:8000 --streaming"
        ),
        "there it counts tokens",
    ),
    # GuideLLM, maximum throughput.
    ("--target http://localhost:8000 --rate-type throughput --max-seconds 30 --data prompt_tokens=256", "--sweep"),
]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, str]]:
    """Simulated engines in processes of their own: dialect → address."""
    program = str(Path(sys.executable).with_name("specbench"))
    with ExitStack() as stack:
        addresses = {}
        for dialect in ("vllm", "sglang"):
            command = [program, "simulate", "--port", "0", "--dialect", dialect, "--time-scale", "0.05"]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
            stack.callback(process.terminate)
            assert process.stdout is not None
            addresses[dialect] = process.stdout.readline().split()[-1]
        yield addresses


@pytest.fixture
def prompt_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with small files in the forms that the command lines name."""
    questions = [f"What is the number {number}?" for number in range(6)]
    talks = [
        {"id": f"t{at}", "conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": "No."}]}
        for at, text in enumerate(questions)
    ]
    (tmp_path / "sharegpt.json").write_text(json.dumps(talks))
    (tmp_path / "custom.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in questions))
    rows = [{"question_id": at, "category": "qa", "turns": [text]} for at, text in enumerate(questions)]
    (tmp_path / "question.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.process
@pytest.mark.parametrize("line", WORKING)
def test_command_line_of_another_tool_measures(line: str, engines: dict[str, str], prompt_files: Path) -> None:
    engine = engines["sglang" if "--backend sglang" in line else "vllm"]
    words = shlex.split(line.format(url=engine, port=engine.rpartition(":")[2]))
    shorter = [] if "--max-tokens" in own_arguments(measure.params, words) else ["--max-tokens", "8"]
    warmup = [] if "--warmup-request-count" in words else ["--warmup", "0"]
    assert exit_code(["measure", *words, *shorter, *warmup]) in (0, 3)  # too small to be trustworthy
    (summary,) = [
        RunSummary.from_json(path.read_bytes())
        for path in prompt_files.rglob("summary.json")
        if path.parent.parent.parent.name != "points" and b'"cells"' in path.read_bytes()
    ]
    assert len(summary.cells) == 1 or "sweep" in line
    assert summary.cells[0].figures["output_tps"].value


@pytest.mark.parametrize(("line", "expected"), ANSWERED)
def test_command_line_without_an_equivalent_is_answered_with_our_flag(line: str, expected: str) -> None:
    assert expected in answer(line)


def test_at_least_twenty_command_lines_are_tried() -> None:
    assert len({*WORKING, *(line for line, _ in ANSWERED)}) >= 20


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "--base-url http://h:1/ --num-prompts 5",
            "--base-url".replace("--base-url", "--endpoint http://h:1/ --requests 5"),
        ),
        ("--url h:1", "--endpoint http://h:1"),
        ("--host 0.0.0.0 --port 30000", "--endpoint http://127.0.0.1:30000"),
        ("--host http://h --port 1", "--endpoint http://h:1"),
        ("--request-rate 4 --burstiness 0.5", "--burstiness 0.5 --rate 4 --arrival Gamma"),
        ("--request-rate inf --max-concurrency 8", "--concurrency 8"),
        ("--request-rate 4 --max-concurrency 8", "--rate 4 --max-in-flight 8"),
        ("--request-rate 4 --concurrency=8", "--rate 4 --max-in-flight 8"),
        ("--arrival-pattern constant --request-rate 4", "--rate 4 --arrival Constant"),
        ("--rate-type poisson --rate=2,4", "--rate 2,4 --arrival Poisson"),
        ("--rate-type synchronous", "--concurrency 1"),
        ("--dataset-name hf --dataset-path philschmid/mt-bench", "--dataset mt-bench"),
        ("--dataset-name sharegpt", "--dataset sharegpt"),
        ("--dataset-name openai --dataset-path log.jsonl", "--dataset openai-logs:log.jsonl"),
        ("--isl 100", "--dataset random:100"),
        ("--data prompt_tokens=100,output_tokens=7", "--dataset random:100 --max-tokens 7 --ignore-eos"),
        ("--extra-inputs ignore_eos:true top_k:20", "--ignore-eos --extra-body '{\"top_k\": 20}'"),
        ("--num-prompts -1 --seed 3", "--seed 3"),
        ("--model folder --served-model-name m", "--model folder --model m"),
        ("--name --num-prompts --requests 3", "--name --num-prompts --requests 3"),
        ("--tokenizer folder --no-stream", "--tokenizer folder --no-stream"),
    ],
)
def test_flags_become_ours(line: str, expected: str) -> None:
    assert translated(line) == shlex.split(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--num-prompts", "--num-prompts needs a value"),
        ("--goodput", "--goodput needs a value"),
        ("--goodput itl:5", "--slo-tpot-ms"),
        ("--percentile-metrics ttft,itl", "TPOT is per token"),
        ("--backend tgi", "give --dialect"),
        ("--endpoint-type completions", "give --dialect"),
        ("--num-prompts 3 --no-stream", "here it requests whole answers"),
        ("--isl-stddev 5", "lengths are fixed"),
        ("--isl many", "not a number of input tokens"),
        ("--dataset-name random", "--random-input-len TOKENS"),
        ("--data prompt_tokens=9,prompt_tokens_stdev=2", "only prompt_tokens and output_tokens"),
        ("--profile --num-prompts 4", "SGLang's profiler"),
        ("--host h", "--endpoint http://h:8000"),
        ("--num-prompts 5 --requests 4", "--requests is given 2 times"),
        ("--random-output-len 5 --osl 4 --output-len 3", "--max-tokens is given 3 times"),
    ],
)
def test_flag_with_another_meaning_is_answered(line: str, expected: str) -> None:
    assert expected in answer(line)


def test_every_row_names_flags_of_ours_that_exist() -> None:
    known = {flag for option in measure.params for flag in option.opts}
    named = {
        word
        for row in PEER_FLAGS
        if row.meaning is Meaning.SAME
        for word in row.ours.replace(",", "").split()
        if word.startswith("--")
    }
    assert named <= known
    assert sum(len(row.flags) for row in PEER_FLAGS) == len(BY_FLAG), "a flag is listed twice"


def test_flags_shared_with_other_tools_keep_our_meaning_alone() -> None:
    known = {flag for option in measure.params for flag in option.opts}
    assert known & set(BY_FLAG) == {"--tokenizer", "--no-stream"}


@pytest.mark.parametrize(
    "row", [row for row in PEER_FLAGS if row.meaning is not Meaning.SAME], ids=lambda row: row.name
)
def test_refusal_says_what_to_do(row: PeerFlag) -> None:
    assert row.note
    assert bool(row.ours) == (row.meaning is Meaning.DIFFERENT)
