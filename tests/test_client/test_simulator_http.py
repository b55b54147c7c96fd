"""The simulator's vLLM dialect: chunk keys, counters, errors, and the truth file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.drafter import Method
from specbench_client.simulator import (
    AcceptanceProbabilities,
    PromptCategories,
    SimulatorConfig,
    TruthFile,
    make_drafter,
)
from specbench_testing.simulator_client import (
    CHAT,
    COMPLETION,
    accepted_response,
    get_page,
    key_structure,
    samples,
    serve_dialect,
)

# Shapes of vLLM 0.32's chunks, copied from a real engine: keys in order, nested keys after their parent.
ROLE_CHUNK = (
    "id object created model choices[index delta{role content} logprobs finish_reason] prompt_token_ids prompt_text"
)
TEXT_CHUNK = "id object created model choices[index delta{content} logprobs finish_reason token_ids]"
LAST_CHUNK = "id object created model choices[index delta{content} logprobs finish_reason stop_reason token_ids]"
USAGE = "usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details{cached_tokens created_cache_tokens}}"
TIMING = "time_to_first_token_ms generation_time_ms queue_time_ms mean_itl_ms tokens_per_second"
SPECULATION = (
    "speculative_decoding{mean_acceptance_length draft_acceptance_rate acceptance_histogram num_spec_steps "
    "num_accepted_draft_tokens num_draft_tokens num_spec_tokens per_step_accepted per_step_drafted}"
)
USAGE_CHUNK = f"id object created model choices {USAGE} system_fingerprint metrics{{{TIMING} {SPECULATION}}}"

EAGLE = SimulatorConfig(time_scale=0, output_mean_tokens=40, drafter=make_drafter(Method.EAGLE3, 3))
BASELINE = SimulatorConfig(time_scale=0, output_mean_tokens=40)
HELLO = {"model": "simulated", "temperature": 0, "messages": [{"role": "user", "content": "Say hello"}]}
STREAM = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}


async def test_streamed_chunks_have_vllms_key_structure() -> None:
    async with serve_dialect("vllm", EAGLE) as client:
        first, *middle, last, usage = await accepted_response(client, STREAM)
    assert key_structure(first) == ROLE_CHUNK
    assert {key_structure(chunk) for chunk in middle} == {TEXT_CHUNK}
    assert key_structure(last) == LAST_CHUNK
    assert key_structure(usage) == USAGE_CHUNK
    assert {chunk["object"] for chunk in (first, *middle, last, usage)} == {"chat.completion.chunk"}
    assert usage["choices"] == []


async def test_usage_is_sent_only_if_requested() -> None:
    async with serve_dialect("vllm", EAGLE) as client:
        plain = await accepted_response(client, {**HELLO, "stream": True})
        options = {"include_usage": True, "continuous_usage_stats": True}
        *running, last = await accepted_response(client, {**STREAM, "stream_options": options})
    assert not any("usage" in chunk for chunk in plain)
    counts = [chunk["usage"]["completion_tokens"] for chunk in running]
    assert counts[:2] == [0, 1]
    assert counts == sorted(counts)
    assert counts[-1] == last["usage"]["completion_tokens"]
    assert list(running[0]["usage"]) == [
        "prompt_tokens",
        "total_tokens",
        "completion_tokens",
        "completion_tokens_details",
    ]


async def test_sampled_text_depends_on_the_request_seed() -> None:
    warm = {**HELLO, "temperature": 0.8, "max_tokens": 20, "ignore_eos": True}
    async with serve_dialect("vllm", BASELINE) as client:
        bodies = [{**warm, "seed": 1}, {**warm, "seed": 1}, {**warm, "seed": 2}, warm, warm]
        one, again, *others = [
            (await accepted_response(client, body))["choices"][0]["message"]["content"] for body in bodies
        ]
    assert one == again
    assert len({one, *others}) == 4


async def test_completions_endpoint_has_its_own_format() -> None:
    body = {"temperature": 0, "prompt": "Once upon a time", "ignore_eos": True}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    async with serve_dialect("vllm", EAGLE) as client:
        whole = await accepted_response(client, body, COMPLETION)
        *chunks, last = await accepted_response(client, {**body, **usage}, COMPLETION)
        ids = await accepted_response(client, {**body, "prompt": [5, 6, 7], "return_token_ids": True}, COMPLETION)
    assert whole["object"] == chunks[0]["object"] == "text_completion"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert whole["usage"]["completion_tokens"] == last["usage"]["completion_tokens"] == 16
    assert (whole["usage"]["prompt_tokens"], ids["usage"]["prompt_tokens"]) == (4, 3)
    assert len(ids["choices"][0]["token_ids"]) == 16


async def test_counters_are_the_sums_over_requests() -> None:
    async with serve_dialect("vllm", EAGLE) as client:
        bodies = [{**HELLO, "messages": [{"role": "user", "content": f"number {i}"}]} for i in range(4)]
        answers = [await accepted_response(client, body) for body in bodies]
        found = await samples(client)
    labels = '{engine="0",model_name="simulated"}'
    blocks = [answer["metrics"]["speculative_decoding"] for answer in answers]
    for counter, key in (
        ("drafts", "num_spec_steps"),
        ("draft_tokens", "num_draft_tokens"),
        ("accepted_tokens", "num_accepted_draft_tokens"),
    ):
        assert found[f"vllm:spec_decode_num_{counter}_total{labels}"] == sum(block[key] for block in blocks)
    name = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="simulated",position="%d"}'
    histogram = [sum(column) for column in zip(*(block["acceptance_histogram"] for block in blocks), strict=True)]
    assert [found[name % position] for position in range(3)] == [
        sum(histogram[position + 1 :]) for position in range(3)
    ]
    assert found[f"vllm:generation_tokens_total{labels}"] == sum(
        answer["usage"]["completion_tokens"] for answer in answers
    )
    assert found[f"vllm:prompt_tokens_total{labels}"] == found[f"vllm:prefix_cache_queries_total{labels}"] == 8
    assert found[f"vllm:num_requests_running{labels}"] == found[f"vllm:num_requests_waiting{labels}"] == 0
    assert sum(value for name, value in found.items() if name.startswith("vllm:request_success_total")) == 4
    assert found[f"vllm:e2e_request_latency_seconds_count{labels}"] == 4


async def test_every_response_is_marked_as_simulated() -> None:
    async with serve_dialect("vllm", EAGLE) as client:
        async with client.post(CHAT, json=HELLO, headers={"X-Request-Id": "mine"}) as response:
            answer, headers = await response.json(), response.headers
        models = await get_page(client, "/v1/models")
    assert (headers["X-Specbench-Simulated"], headers["X-Request-Id"]) == ("true", "mine")
    assert (answer["id"], answer["model"]) == ("chatcmpl-mine", "simulated")
    assert answer["system_fingerprint"].startswith("simulated-")
    assert models["data"][0]["id"] == "simulated"


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        (CHAT, {**HELLO, "model": "gpt-9"}, 404, "does not exist"),
        (CHAT, {"model": "simulated"}, 400, "messages"),
        (CHAT, {**HELLO, "max_tokens": 0}, 400, "max_tokens"),
        (CHAT, {**HELLO, "max_tokens": 40_000}, 400, "maximum context length"),
        (CHAT, {**HELLO, "n": 2}, 400, "n=2"),
        (CHAT, {**HELLO, "stream_options": {}}, 400, "stream=True"),
        (COMPLETION, {"prompt": ""}, 400, "prompt"),
        (COMPLETION, {"prompt": ["a", "b"]}, 400, "one prompt"),
        (COMPLETION, "no object", 400, "body"),
        ("/v2/completions", {}, 404, "Not Found"),
    ],
)
async def test_bad_requests_get_vllms_error_object(path: str, body: Any, status: int, word: str) -> None:
    async with serve_dialect("vllm", BASELINE) as client, client.post(path, json=body) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"]) == (status, status)
    assert list(error) == ["message", "type", "param", "code"]
    assert word in error["message"]


async def test_truth_file_contains_what_was_delivered(tmp_path: Path) -> None:
    file = tmp_path / "truth.jsonl"
    known = PromptCategories({"Say hello": "greeting"})
    config = SimulatorConfig(
        time_scale=0,
        drafter=make_drafter(Method.NGRAM, 4),
        acceptance=AcceptanceProbabilities({"default": (0.0,), "greeting": (1.0,)}),
    )
    bodies = [
        {**STREAM, "max_tokens": 23, "ignore_eos": True},
        {**HELLO, "messages": [{"role": "user", "content": "Other"}]},
    ]
    async with serve_dialect("vllm", config, TruthFile(file), known) as client:
        usage = (await accepted_response(client, bodies[0]))[-1]
        other = await accepted_response(client, bodies[1])
        greeting, unknown = [json.loads(line) for line in file.read_text().splitlines()]
    block = usage["metrics"]["speculative_decoding"]
    assert greeting["output_tokens"] == 23 == 1 + sum(accepted + 1 for accepted in greeting["step_accepted"])
    assert greeting["steps"] == len(greeting["step_accepted"]) == len(greeting["sent_ns"]) - 1
    assert greeting["accepted_tokens"] == sum(greeting["step_accepted"])
    assert greeting["reported"]["step_accepted"] == block["per_step_accepted"]
    assert greeting["reported"]["accepted_tokens"] >= greeting["accepted_tokens"]
    assert [greeting["category"], unknown["category"], greeting["model"]] == ["greeting", "default", "simulated"]
    assert greeting["received_ns"] <= greeting["sent_ns"][0]
    assert greeting["sent_ns"] == sorted(greeting["sent_ns"])
    assert usage["id"] == f"chatcmpl-{greeting['request_id']}"
    assert unknown["output_tokens"] == other["usage"]["completion_tokens"]
    assert (unknown["accepted_tokens"], len(unknown["sent_ns"])) == (0, 1)


async def test_disconnected_request_is_aborted(tmp_path: Path) -> None:
    file = tmp_path / "truth.jsonl"
    config = SimulatorConfig(max_num_seqs=1)
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="simulated"}'
    async with serve_dialect("vllm", config, TruthFile(file)) as client:
        async with client.post(CHAT, json={**STREAM, "max_tokens": 30_000, "ignore_eos": True}) as response:
            await response.content.readuntil(b"token_ids")
            response.close()
        # The only slot is taken, so this answer arrives after the disconnected request is removed.
        await accepted_response(client, {**HELLO, "max_tokens": 1})
        assert (await samples(client))[aborted] == 1
        first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert first["finish_reason"] == "abort"
    assert first["output_tokens"] == 1 + sum(accepted + 1 for accepted in first["step_accepted"])
    assert second["output_tokens"] == 1
