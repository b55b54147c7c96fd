"""The client adapters: each converts the client's own output format into ObservedRequest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from client_bench.cases import Case
from client_bench.clients.client import BenchmarkJob, Client, ObservedRequest
from client_bench.clients.registry import CLIENTS

CASE = Case("small", streams=3, requests=7, max_tokens=11)


@pytest.fixture
def job(tmp_path: Path) -> BenchmarkJob:
    return BenchmarkJob("http://127.0.0.1:1234", CASE, tmp_path)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_every_client_command_has_the_same_load_url_and_output_folder(client: Client, job: BenchmarkJob) -> None:
    words = " ".join(client.command(job).argv)
    assert job.url in words
    for number in ("3", "7", "11"):
        assert any(word.rpartition("=")[2].rpartition(":")[2] == number for word in words.replace(",", " ").split())
    assert str(job.folder) in words


def test_there_is_one_distinct_prompt_of_equal_length_per_request(job: BenchmarkJob) -> None:
    prompts = job.prompts()
    assert len(set(prompts)) == len(prompts) == 7
    assert len({len(prompt) for prompt in prompts}) == 1


def test_aiperf_output_has_chunk_gaps_after_a_wall_clock_start(job: BenchmarkJob) -> None:
    row = {
        "metadata": {"x_request_id": "a", "request_start_ns": 5_000},
        "metrics": {
            "time_to_first_token": {"value": 0.002, "unit": "ms"},
            "inter_chunk_latency": {"value": [0.001, 0.003], "unit": "ms"},
        },
    }
    failed = {"metadata": {"x_request_id": "b", "request_start_ns": 5_000}, "metrics": {}}
    (job.folder / "aiperf").mkdir()
    lines = "".join(json.dumps(one) + "\n" for one in (row, failed))
    (job.folder / "aiperf/profile_export.jsonl").write_text(lines)

    observed = CLIENTS["aiperf"].read(replace(job, monotonic_less_wall_ns=-4_000))

    assert observed == [ObservedRequest(None, "a", 2_000, [3_000, 4_000, 7_000], absolute=True)]


def test_vllm_output_has_chunk_gaps_after_a_monotonic_start(job: BenchmarkJob) -> None:
    output = {
        "generated_texts": ["0000000000000004 word", ""],
        "start_times": [10.0, 11.0],
        "ttfts": [0.5, 0.0],
        "itls": [[0.25], []],
        "errors": ["", "refused"],
    }
    (job.folder / "vllm.json").write_text(json.dumps(output))

    assert CLIENTS["vllm"].read(job) == [
        ObservedRequest(4, None, 500_000_000, [10_500_000_000, 10_750_000_000], absolute=True),
    ]


def test_sglang_output_has_chunk_gaps_without_a_start_time(job: BenchmarkJob) -> None:
    output = {"generated_texts": ["0000000000000004 word"], "ttfts": [0.5], "itls": [[0.25]], "errors": [""]}
    (job.folder / "sglang.jsonl").write_text(json.dumps(output) + "\n")

    assert CLIENTS["sglang"].read(job) == [ObservedRequest(4, None, 500_000_000, [0, 250_000_000])]


def test_guidellm_output_has_no_chunk_times(job: BenchmarkJob) -> None:
    row = {"output": "0000000000000004 word", "time_to_first_token_ms": 20.5}
    output = {"benchmarks": [{"requests": {"successful": [row], "errored": []}}]}
    (job.folder / "guidellm.json").write_text(json.dumps(output))

    assert CLIENTS["guidellm"].read(job) == [ObservedRequest(4, None, 20_500_000)]
