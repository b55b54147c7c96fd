"""The first act: a completion that is read to its end, or the engine's own words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.drive.engine_connection import FIRST_COMPLETION_PAUSE_S, first_completion
from specbench_client.errors import EngineFailed
from specbench_client.transport.exchange import ErrorClass, HttpExchange, HttpRequest
from specbench_testing.conversation_turns import CannedTransport, context
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, arrivals, sse, vllm

HI = [ChatMessage("user", "hi")]
WHOLE = HttpExchange(1, arrivals(sse(vllm(DecodedAnswer((StreamStep(),))))), 200, {}, 9)


async def test_a_short_completion_is_asked_for_and_its_text_is_told() -> None:
    wire = CannedTransport(WHOLE)
    result = await first_completion(context(wire), HI)
    assert result.record.output_text == "word word "
    assert (result.record.phase, result.record.prompt_id) == ("warmup", "first-completion")
    body = json.loads(wire.requests[0].body)
    assert body["max_tokens"] == 8
    assert wire.requests[0].headers["X-Request-Id"].startswith("p-first-")


async def test_a_refusal_ends_the_launch_with_the_engines_words() -> None:
    refused = replace(WHOLE, status=404, error_class=ErrorClass.HTTP_4XX, error="HTTP 404: no model named simulated")
    wire = CannedTransport(refused)
    with pytest.raises(EngineFailed, match=r"\(http_4xx\): HTTP 404: no model named simulated") as caught:
        await first_completion(context(wire), HI)
    assert caught.value.reason == "FirstRequestFailed"
    assert len(wire.requests) == 1


MAY_PASS = [ErrorClass.HTTP_5XX, ErrorClass.RESET, ErrorClass.REFUSED]


class Failing(CannedTransport):
    """Fails so often with one class, and answers from then on."""

    def __init__(self, error_class: ErrorClass, times: int) -> None:
        super().__init__(WHOLE)
        self.failures = [replace(WHOLE, status=None, error_class=error_class, error="not yet")] * times

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        answer = await super().exchange(request)
        return self.failures.pop() if self.failures else answer


class Pauses(list[float]):
    """How long it was waited between tries; nobody waits."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.mark.parametrize("error_class", MAY_PASS)
async def test_a_failure_that_passes_is_asked_again_after_a_pause(error_class: ErrorClass) -> None:
    wire, pauses = Failing(error_class, times=2), Pauses()
    result = await first_completion(context(wire), HI, pause=pauses)
    assert result.record.output_text == "word word "
    assert len({request.headers["X-Request-Id"] for request in wire.requests}) == 3
    assert pauses == [FIRST_COMPLETION_PAUSE_S, FIRST_COMPLETION_PAUSE_S]


@pytest.mark.parametrize("error_class", MAY_PASS)
async def test_a_failure_that_stays_is_told_with_how_often_it_was_tried(error_class: ErrorClass) -> None:
    wire = Failing(error_class, times=9)
    with pytest.raises(EngineFailed, match=rf"\({error_class}, 3 times\): not yet"):
        await first_completion(context(wire), HI, pause=Pauses())
    assert len(wire.requests) == 3


@pytest.mark.parametrize("error_class", [one for one in ErrorClass if one not in MAY_PASS])
async def test_a_failure_that_would_stay_is_not_asked_again(error_class: ErrorClass) -> None:
    wire, pauses = Failing(error_class, times=1), Pauses()
    with pytest.raises(EngineFailed):
        await first_completion(context(wire), HI, pause=pauses)
    assert (len(wire.requests), pauses) == (1, [])


async def test_an_answer_without_a_token_is_a_refusal() -> None:
    chunks = vllm(DecodedAnswer())
    for chunk in chunks:
        chunk.pop("usage", None)
        for choice in chunk["choices"]:
            choice["delta"]["content"] = ""
    chunks[-1]["usage"] = {"completion_tokens": 0}
    with pytest.raises(EngineFailed, match="returned no tokens"):
        await first_completion(context(CannedTransport(replace(WHOLE, arrivals=arrivals(sse(chunks))))), HI)
