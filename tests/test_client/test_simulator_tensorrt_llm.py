"""The simulator's TensorRT-LLM dialect.

Chunk keys, pages and errors, taken from TensorRT-LLM's source, not recorded.
"""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.spec.drafter import Method
from specbench_client.simulator import SimulatorConfig, make_drafter
from specbench_testing.simulator_client import (
    CHAT,
    COMPLETION,
    accepted_response,
    get_page,
    key_structure,
    post_request,
    samples,
    serve_dialect,
)

HEAD = "id object created model"
USAGE = "usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details{cached_tokens}}"
AVERAGE = "avg_decoded_tokens_per_iter"
CHAT_STREAM = [
    f"{HEAD} choices[index delta{{role tool_calls}}] {USAGE}",
    f"{HEAD} choices[index delta{{content reasoning_content tool_calls}} {AVERAGE}] {USAGE}",
    f"{HEAD} choices[index delta{{content reasoning_content tool_calls}} finish_reason {AVERAGE}] {USAGE}",
    f"{HEAD} choices {USAGE}",
]
COMPLETION_CHOICE = f"index text token_ids logprobs finish_reason stop_reason {AVERAGE}"
COMPLETION_STREAM = [f"{HEAD} choices[{COMPLETION_CHOICE}] {USAGE}", f"{HEAD} choices {USAGE}"]
EAGLE = SimulatorConfig(time_scale=0, output_mean_tokens=40, drafter=make_drafter(Method.EAGLE3, 3))
HELLO = {"model": "simulated", "temperature": 0, "messages": [{"role": "user", "content": "Say hello"}]}
PROMPT = {"model": "simulated", "temperature": 0, "prompt": "Once upon a time", "max_tokens": 30, "ignore_eos": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def shapes(chunks: list[dict[str, Any]]) -> list[str]:
    """Return the distinct shapes in order of first appearance."""
    return list(dict.fromkeys(key_structure(chunk) for chunk in chunks))


async def test_streamed_chunks_have_tensorrt_llms_shape() -> None:
    """The usage chunk of a completion has the object type of a chat."""
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chat = await accepted_response(client, {**HELLO, **STREAM})
        completion = await accepted_response(client, {**PROMPT, **STREAM}, COMPLETION)
    assert shapes(chat) == CHAT_STREAM
    assert shapes(completion) == COMPLETION_STREAM
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
        f"{HEAD} choices[index {message} logprobs {reasons} disaggregated_params {AVERAGE}] {USAGE} prompt_token_ids"
    )
    assert key_structure(completion) == (
        f"{HEAD} choices[{COMPLETION_CHOICE} context_logits disaggregated_params] {USAGE} prompt_token_ids"
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


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        (CHAT, {**HELLO, "return_token_ids": True}, "('body', 'return_token_ids')"),
        (CHAT, {**HELLO, "return_spec_tokens_details": True}, "Extra inputs are not permitted"),
        (COMPLETION, {**PROMPT, "cache_salt": "s"}, "('body', 'cache_salt')"),
        (COMPLETION, {**PROMPT, "messages": []}, "('body', 'messages')"),
        (COMPLETION, {**PROMPT, "stream_options": {}}, "Stream options can only be defined"),
        (CHAT, {"messages": HELLO["messages"]}, "('body', 'model')"),
        (CHAT, {"model": "simulated"}, "messages"),
        (CHAT, {**HELLO, "max_tokens": 40_000}, "maximum context length"),
    ],
)
async def test_unknown_field_is_rejected(path: str, body: dict[str, Any], word: str) -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        status, error = await post_request(client, body, path)
    assert key_structure(error) == "object message type param code"
    assert (status, error["object"], error["type"], error["code"]) == (400, "error", "BadRequestError", 400)
    assert word in error["message"]


async def test_chat_accepts_cache_salt_and_an_unknown_path_returns_a_detail() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        assert (await post_request(client, {**HELLO, "cache_salt": "s"}))[0] == 200
        assert await post_request(client, {}, "/v2/nothing") == (404, {"detail": "Not Found"})


async def test_iteration_statistics_are_returned_once() -> None:
    """The first request gets them; their sums are the drafted and accepted tokens."""
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chunks = await accepted_response(client, {**PROMPT, **STREAM}, COMPLETION)
        first, second = await get_page(client, "/metrics"), await get_page(client, "/metrics")
    steps = len(chunks) - 2  # without the prefill's chunk and the usage chunk
    drafting = [one["specDecodingStats"] for one in first if one["specDecodingStats"]["numRequestsWithDraftTokens"]]
    assert [one["iter"] for one in first] == list(range(1, steps + 2))
    assert sum(one["numDraftTokens"] for one in drafting) == 3 * steps
    assert sum(one["numAcceptedTokens"] for one in drafting) == 30 - 1 - steps
    assert {one["inflightBatchingStats"]["avgNumDecodedTokensPerIter"] for one in first} == {0.0}
    assert second == []


async def test_iteration_statistics_keep_the_last_thousand() -> None:
    async with serve_dialect("tensorrt-llm", SimulatorConfig(time_scale=0)) as client:
        await accepted_response(client, {**PROMPT, "max_tokens": 1100}, COMPLETION)
        kept = await get_page(client, "/metrics")
    assert (len(kept), kept[0]["iter"], kept[-1]["iter"]) == (1000, 101, 1100)


async def test_prometheus_page_has_requests_but_no_token_counts() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        await accepted_response(client, PROMPT, COMPLETION)
        found = await samples(client, "/prometheus/metrics")
    labels = 'engine_type="undefined",finished_reason="length",model_name="undefined"'
    assert found[f"request_success_total{{{labels}}}"] == 1
    assert not any("tokens" in name or "spec" in name for name in found)
    assert {name.partition("{")[0] for name in found if "_count" in name} == {
        "e2e_request_latency_seconds_count",
        "time_to_first_token_seconds_count",
        "time_per_output_token_seconds_count",
        "request_queue_time_seconds_count",
    }


async def test_token_ids_replace_text_without_detokenization() -> None:
    async with serve_dialect("tensorrt-llm", EAGLE) as client:
        chunks = await accepted_response(client, {**PROMPT, **STREAM, "detokenize": False}, COMPLETION)
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]
    assert {choice["text"] for choice in choices} == {""}
    assert sum(len(choice["token_ids"]) for choice in choices) == 30
