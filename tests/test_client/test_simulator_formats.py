"""The simulator as vLLM, SGLang and TensorRT-LLM: chunk keys, pages, errors, and the truth file.

vLLM's keys are from recordings; those of the other two are from their source code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_client.simulator import (
    AcceptanceProbabilities,
    PromptCategories,
    SimulatedMethod,
    SimulatorConfig,
    TruthFile,
    make_drafter,
)
from specbench_testing.simulator_client import (
    CHAT,
    COMPLETION,
    Client,
    accepted_response,
    get_page,
    key_structure,
    post_request,
    samples,
    serve_dialect,
)

# Shapes of vLLM 0.32's chunks, copied from a real engine: keys in order, nested keys after their parent.
ROLE_CHUNK = (
    "id object created model choices[index delta{role content} logprobs finish_reason] prompt_token_ids prompt_text"
)
TEXT_CHUNK = "id object created model choices[index delta{content} logprobs finish_reason token_ids]"
LAST_CHUNK = "id object created model choices[index delta{content} logprobs finish_reason stop_reason token_ids]"
VLLM_USAGE = (
    "usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details{cached_tokens created_cache_tokens}}"
)
TIMING = "time_to_first_token_ms generation_time_ms queue_time_ms mean_itl_ms tokens_per_second"
SPECULATION = (
    "speculative_decoding{mean_acceptance_length draft_acceptance_rate acceptance_histogram num_spec_steps "
    "num_accepted_draft_tokens num_draft_tokens num_spec_tokens per_step_accepted per_step_drafted}"
)
USAGE_CHUNK = f"id object created model choices {VLLM_USAGE} system_fingerprint metrics{{{TIMING} {SPECULATION}}}"

EAGLE = SimulatorConfig(time_scale=0, output_mean_tokens=40, drafter=make_drafter(SimulatedMethod.EAGLE3, 3))
BASELINE = SimulatorConfig(time_scale=0, output_mean_tokens=40)
HELLO = {"model": "simulated", "temperature": 0, "messages": [{"role": "user", "content": "Say hello"}]}
VLLM_STREAM = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}


async def test_streamed_chunks_have_vllms_key_structure() -> None:
    async with serve_dialect("vllm", EAGLE) as client:
        first, *middle, last, usage = await accepted_response(client, VLLM_STREAM)
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
        *running, last = await accepted_response(client, {**VLLM_STREAM, "stream_options": options})
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
        ids = await accepted_response(client, {**body, "prompt": [5, 6, 7]}, COMPLETION)
    assert whole["object"] == chunks[0]["object"] == "text_completion"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert whole["usage"]["completion_tokens"] == last["usage"]["completion_tokens"] == 16
    assert (whole["usage"]["prompt_tokens"], ids["usage"]["prompt_tokens"]) == (4, 3)


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
    assert found[f"vllm:time_to_first_token_seconds_count{labels}"] == 4


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
        drafter=make_drafter(SimulatedMethod.NGRAM, 4),
        acceptance=AcceptanceProbabilities({"default": (0.0,), "greeting": (1.0,)}),
    )
    bodies = [
        {**VLLM_STREAM, "max_tokens": 23, "ignore_eos": True},
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
        async with client.post(CHAT, json={**VLLM_STREAM, "max_tokens": 30_000, "ignore_eos": True}) as response:
            await response.content.readuntil(b"token_ids")
            response.close()
        # The only slot is taken, so this answer arrives after the disconnected request is removed.
        await accepted_response(client, {**HELLO, "max_tokens": 1})
        assert (await samples(client))[aborted] == 1
        first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert first["finish_reason"] == "abort"
    assert first["output_tokens"] == 1 + sum(accepted + 1 for accepted in first["step_accepted"])
    assert second["output_tokens"] == 1


HEAD = "id object created model"
TOTALS = "prompt_tokens total_tokens completion_tokens"
MEDIA = "image_tokens audio_tokens video_tokens"
USAGE = f"usage{{{TOTALS} prompt_tokens_details{{cached_tokens {MEDIA}}} reasoning_tokens completion_tokens_details}}"
CHOICE = "logprobs finish_reason matched_stop"
DETAILS = (
    "spec_accept_rate spec_accept_length spec_cap_length spec_block_accept_length spec_num_correct_drafts "
    "spec_num_proposed_drafts spec_verify_ct spec_correct_drafts_histogram spec_cap_lens_histogram"
)
CHAT_STREAM = [
    f"{HEAD} choices[index delta{{role content}} {CHOICE}]",
    f"{HEAD} choices[index delta{{content}} {CHOICE}] {USAGE}",
    f"{HEAD} choices[index delta {CHOICE}]",
    f"{HEAD} choices usage sglext{{spec_tokens_details{{{DETAILS}}}}}",
    f"{HEAD} choices {USAGE}",
]
COMPLETION_STREAM = [
    f"{HEAD} choices[index text {CHOICE}] {USAGE}",
    f"{HEAD} choices usage sglext{{spec_tokens_details{{{DETAILS}}}}}",
    f"{HEAD} choices usage{{{TOTALS} prompt_tokens_details{{cached_tokens}} reasoning_tokens}}",
]
PROMPT = {"model": "simulated", "temperature": 0, "prompt": "Once upon a time", "max_tokens": 30, "ignore_eos": True}
STREAM_WITH_DETAILS = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_spec_tokens_details": True,
}


def shapes(chunks: list[dict[str, Any]]) -> list[str]:
    """Return the distinct shapes in order of first appearance."""
    return list(dict.fromkeys(key_structure(chunk) for chunk in chunks))


def details_of(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(chunk["sglext"] for chunk in chunks if "sglext" in chunk)["spec_tokens_details"]
    return found


async def test_streamed_chunks_have_sglangs_shape() -> None:
    """Before the usage, the finish reason and the draft details each have their own chunk."""
    async with serve_dialect("sglang", EAGLE) as client:
        chat = await accepted_response(client, {**HELLO, **STREAM_WITH_DETAILS})
        completion = await accepted_response(client, {**PROMPT, **STREAM_WITH_DETAILS}, COMPLETION)
    assert shapes(chat) == CHAT_STREAM
    assert shapes(completion) == COMPLETION_STREAM
    assert {chunk["object"] for chunk in chat} == {"chat.completion.chunk"}
    assert {chunk["object"] for chunk in completion} == {"text_completion"}
    assert chat[-2]["choices"] == chat[-1]["choices"] == []
    assert [chunk["choices"][0]["finish_reason"] for chunk in chat if chunk["choices"]][-2:] == [None, "stop"]
    assert completion[-3]["choices"][0]["finish_reason"] == "length"


async def test_unstreamed_answers_have_sglangs_shape() -> None:
    rest = f"{USAGE} metadata{{weight_version}} sglext{{spec_tokens_details{{{DETAILS}}}}}"
    async with serve_dialect("sglang", EAGLE) as client:
        chat = await accepted_response(client, {**HELLO, "return_spec_tokens_details": True})
        completion = await accepted_response(client, {**PROMPT, "return_spec_tokens_details": True}, COMPLETION)
    message = "message{role content reasoning_content tool_calls}"
    assert key_structure(chat) == f"{HEAD} choices[index {message} {CHOICE}] {rest}"
    assert key_structure(completion) == f"{HEAD} choices[index text {CHOICE}] {rest}"


@pytest.mark.parametrize(
    ("config", "body"),
    [
        (BASELINE, {**HELLO, **STREAM_WITH_DETAILS}),
        (EAGLE, {**HELLO, **STREAM_WITH_DETAILS, "return_spec_tokens_details": False}),
    ],
    ids=["no drafter", "not requested"],
)
async def test_draft_details_are_omitted_without_a_drafter_or_a_request_for_them(
    config: SimulatorConfig, body: dict[str, Any]
) -> None:
    async with serve_dialect("sglang", config) as client:
        chunks = await accepted_response(client, body)
        counted = await samples(client)
    assert not any("sglext" in chunk for chunk in chunks)
    assert any("spec_verify_calls" in name for name in counted) == (config is EAGLE)


async def test_running_usage_does_not_require_final_usage() -> None:
    """This differs from vLLM."""
    body = {**HELLO, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    async with serve_dialect("sglang", BASELINE) as client:
        *chunks, last = await accepted_response(client, body)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks[1:]] == list(range(1, len(chunks)))
    assert "usage" not in last


async def test_correct_drafts_are_counted_before_truncation_and_proposed_by_formula() -> None:
    config = SimulatorConfig(time_scale=0, drafter=make_drafter(SimulatedMethod.SUFFIX, 8, 1.0))
    async with serve_dialect("sglang", config) as client:
        chunks = await accepted_response(client, {**PROMPT, **STREAM_WITH_DETAILS}, COMPLETION)
    details = details_of(chunks)
    histogram = details["spec_correct_drafts_histogram"]
    assert details["spec_num_proposed_drafts"] == 8 * details["spec_verify_ct"], (
        "the formula ignores the actual draft lengths"
    )
    assert sum(histogram) == details["spec_verify_ct"]
    assert sum(drafts * steps for drafts, steps in enumerate(histogram)) == details["spec_num_correct_drafts"]
    assert histogram[-1], "the histogram has no trailing zeros"
    assert details["spec_accept_length"] == pytest.approx(30 / details["spec_verify_ct"])
    assert 1 + details["spec_num_correct_drafts"] + details["spec_verify_ct"] >= 30


async def test_metric_names_and_labels_match_sglang() -> None:
    async with serve_dialect("sglang", EAGLE) as client:
        details = [
            details_of(await accepted_response(client, {**PROMPT, **STREAM_WITH_DETAILS, "seed": seed}, COMPLETION))
            for seed in range(8)
        ]
        counted = await samples(client)
    answers = 'engine_type="unified",{}model_name="simulated"'
    streamed = answers.format('is_streaming="true",')
    assert counted[f"sglang:generation_tokens_total{{{streamed}}}"] == 240
    assert counted[f"sglang:prompt_tokens_total{{{streamed}}}"] == 32
    assert counted[f"sglang:num_requests_total{{{streamed}}}"] == 8
    verified = sum(each["spec_verify_ct"] for each in details)
    assert counted[f"sglang:spec_verify_calls_total{{{answers.format('')}}}"] == verified
    scheduler = 'engine_type="unified",model_name="simulated",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    assert counted[f"sglang:spec_num_draft_tokens{{{scheduler}}}"] == 4, "the count includes the root token"
    assert not any("accepted" in name or name.endswith("_created") for name in counted)


async def test_health_generates_a_token_and_ready_does_not() -> None:
    async def generated(client: Client) -> float:
        return sum(value for name, value in (await samples(client)).items() if "generation_tokens_total" in name)

    async with serve_dialect("sglang", BASELINE) as client:
        await get_page(client, "/ready")
        before = await generated(client)
        await get_page(client, "/health")
        assert (before, await generated(client)) == (0, 1)


async def test_server_info_has_the_arguments() -> None:
    async with serve_dialect("sglang", EAGLE) as client:
        info = await get_page(client, "/server_info")
        async with client.post("/flush_cache") as response:
            assert (response.status, (await response.text()).startswith("Cache flushed.")) == (200, True)
        models, model = await get_page(client, "/v1/models"), await get_page(client, "/model_info")
    assert (info["speculative_algorithm"], info["speculative_num_draft_tokens"]) == ("EAGLE3", 4)
    assert info["internal_states"] == [{}]
    assert (models["data"][0]["id"], model["model_path"]) == ("simulated", "simulated")
    assert info["version"].startswith("simulated-")


async def test_flush_is_rejected_while_a_request_is_running() -> None:
    async with serve_dialect("sglang", SimulatorConfig()) as client:
        body = {**PROMPT, "stream": True, "max_tokens": 30_000}
        async with client.post(COMPLETION, json=body) as running:
            await running.content.readuntil(b"\n\n")
            async with client.get("/flush_cache") as response:
                assert response.status == 400
            running.close()


async def test_any_model_name_and_unknown_fields_are_accepted() -> None:
    async with serve_dialect("sglang", BASELINE) as client:
        assert (await post_request(client, {**HELLO, "model": "gpt-9", "no_such_field": 1}))[0] == 200


TRT_USAGE = "usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details{cached_tokens}}"
AVERAGE = "avg_decoded_tokens_per_iter"
TRT_CHAT = [
    f"{HEAD} choices[index delta{{role tool_calls}}] {TRT_USAGE}",
    f"{HEAD} choices[index delta{{content reasoning_content tool_calls}} {AVERAGE}] {TRT_USAGE}",
    f"{HEAD} choices[index delta{{content reasoning_content tool_calls}} finish_reason {AVERAGE}] {TRT_USAGE}",
    f"{HEAD} choices {TRT_USAGE}",
]
COMPLETION_CHOICE = f"index text token_ids logprobs finish_reason stop_reason {AVERAGE}"
TRT_COMPLETION = [f"{HEAD} choices[{COMPLETION_CHOICE}] {TRT_USAGE}", f"{HEAD} choices {TRT_USAGE}"]
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


async def test_streamed_chunks_have_tensorrt_llms_shape() -> None:
    """The usage chunk of a completion has the object type of a chat."""
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chat = await accepted_response(client, {**HELLO, **STREAM})
        completion = await accepted_response(client, {**PROMPT, **STREAM}, COMPLETION)
    assert shapes(chat) == TRT_CHAT
    assert shapes(completion) == TRT_COMPLETION
    assert [chunk["object"] for chunk in (*completion[:1], completion[-1])] == [
        "text_completion",
        "chat.completion.chunk",
    ]


async def test_first_chunk_of_a_chat_ends_with_a_space() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client, client.post(CHAT, json={**HELLO, **STREAM}) as response:
        first, second, *_ = (await response.text()).split("\n\n")
    assert (first[-2:], second[-1]) == ("} ", "}")


async def test_unstreamed_answers_have_tensorrt_llms_shape() -> None:
    message = "message{role content reasoning_content tool_calls}"
    reasons = "finish_reason stop_reason"
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chat = await accepted_response(client, HELLO)
        completion = await accepted_response(client, PROMPT, COMPLETION)
    assert key_structure(chat) == (
        f"{HEAD} choices[index {message} logprobs {reasons} disaggregated_params {AVERAGE}]"
        f" {TRT_USAGE} prompt_token_ids"
    )
    assert key_structure(completion) == (
        f"{HEAD} choices[{COMPLETION_CHOICE} context_logits disaggregated_params] {TRT_USAGE} prompt_token_ids"
    )
    assert completion["usage"]["completion_tokens"] == 30
    assert completion["choices"][0][AVERAGE] > 1


async def test_each_chunk_has_the_average_tokens_per_iteration_so_far() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        *chunks, _ = await accepted_response(client, {**PROMPT, **STREAM}, COMPLETION)
    for iterations, chunk in enumerate(chunks, start=1):
        tokens = chunk["usage"]["completion_tokens"]
        assert chunk["choices"][0][AVERAGE] == pytest.approx(tokens / iterations, rel=1e-6)
    assert chunks[0]["choices"][0][AVERAGE] == 1


@pytest.mark.parametrize(
    ("options", "running", "last"),
    [
        ({}, True, True),
        ({"continuous_usage_stats": False}, False, True),
        ({"include_usage": False}, False, False),
        (None, False, False),
    ],
)
async def test_given_stream_options_enable_both_usage_options_by_default(
    options: dict[str, bool] | None, running: bool, last: bool
) -> None:
    given = {} if options is None else {"stream_options": options}
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chunks = await accepted_response(client, {**PROMPT, "stream": True, **given}, COMPLETION)
    assert (chunks[0]["usage"] is not None) is running
    assert (chunks[-1]["choices"] == []) is last


TRT, BAD = "tensorrt-llm", "BadRequestError"


@pytest.mark.parametrize(
    ("name", "path", "body", "kind", "word"),
    [
        ("sglang", CHAT, {"model": "simulated"}, "Bad Request", "messages"),
        ("sglang", CHAT, {**HELLO, "max_tokens": 40_000}, BAD, "maximum context length"),
        ("sglang", CHAT, {**HELLO, "return_token_ids": True}, BAD, "return_token_ids=True"),
        (TRT, COMPLETION, {**PROMPT, "detokenize": False}, BAD, "detokenize"),
        ("sglang", COMPLETION, "no object", "Bad Request", "body"),
        (TRT, CHAT, {**HELLO, "return_token_ids": True}, BAD, "('body', 'return_token_ids')"),
        (TRT, CHAT, {**HELLO, "return_spec_tokens_details": True}, BAD, "Extra inputs are not permitted"),
        (TRT, COMPLETION, {**PROMPT, "cache_salt": "s"}, BAD, "('body', 'cache_salt')"),
        (TRT, COMPLETION, {**PROMPT, "messages": []}, BAD, "('body', 'messages')"),
        (TRT, COMPLETION, {**PROMPT, "stream_options": {}}, BAD, "Stream options can only be defined"),
        (TRT, CHAT, {"messages": HELLO["messages"]}, BAD, "('body', 'model')"),
        (TRT, CHAT, {"model": "simulated"}, BAD, "messages"),
        (TRT, CHAT, {**HELLO, "max_tokens": 40_000}, BAD, "maximum context length"),
    ],
)
async def test_bad_requests_get_an_error_object_and_unknown_paths_a_detail(
    name: str, path: str, body: Any, kind: str, word: str
) -> None:
    async with serve_dialect(name, EAGLE) as client:
        async with client.post(path, json=body) as response:
            error = await response.json()
        assert await post_request(client, {}, "/v2/nothing") == (404, {"detail": "Not Found"})
    assert key_structure(error) == "object message type param code"
    assert (response.status, error["object"], error["type"], error["code"]) == (400, "error", kind, 400)
    assert word in error["message"]


async def test_chat_of_tensorrt_llm_accepts_cache_salt() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        assert (await post_request(client, {**HELLO, "cache_salt": "s"}))[0] == 200


async def test_prometheus_page_has_requests_but_no_token_counts() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        await accepted_response(client, PROMPT, COMPLETION)
        found = await samples(client, "/prometheus/metrics")
    labels = 'engine_type="undefined",finished_reason="length",model_name="undefined"'
    assert found[f"request_success_total{{{labels}}}"] == 1
    assert not any("tokens" in name or "spec" in name for name in found)
