"""The first act: a completion that is read to its end, or the engine's own words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specbench_client.chat import Message
from specbench_client.errors import EngineFailed
from specbench_client.load.first_act import first_completion
from specbench_client.transport.exchange import ErrorClass, Exchange
from specbench_testing.turns import Canned, context
from specbench_testing.wires import Decoded, Step, arrivals, sse, vllm

HI = [Message("user", "hi")]
WHOLE = Exchange(1, arrivals(sse(vllm(Decoded((Step(),))))), 200, {}, 9)


async def test_a_short_completion_is_asked_for_and_its_text_is_told() -> None:
    wire = Canned(WHOLE)
    result = await first_completion(context(wire), HI)
    assert result.record.output_text == "word word "
    assert (result.record.phase, result.record.prompt_id) == ("warmup", "first-completion")
    body = json.loads(wire.requests[0].body)
    assert body["max_tokens"] == 8
    assert wire.requests[0].headers["X-Request-Id"].startswith("p-first-")


async def test_a_refusal_ends_the_launch_with_the_engines_words() -> None:
    refused = replace(WHOLE, status=404, error_class=ErrorClass.HTTP_4XX, error="HTTP 404: no model named simulated")
    with pytest.raises(EngineFailed, match=r"\(http_4xx\): HTTP 404: no model named simulated") as caught:
        await first_completion(context(Canned(refused)), HI)
    assert caught.value.reason == "CompletionRefused"


async def test_an_answer_without_a_token_is_a_refusal() -> None:
    chunks = vllm(Decoded())
    for chunk in chunks:
        chunk.pop("usage", None)
        for choice in chunk["choices"]:
            choice["delta"]["content"] = ""
    chunks[-1]["usage"] = {"completion_tokens": 0}
    with pytest.raises(EngineFailed, match="without a single token"):
        await first_completion(context(Canned(replace(WHOLE, arrivals=arrivals(sse(chunks))))), HI)
