"""The first completion of a launch: it is read to its end, or fails with the engine's message."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specbench_api.plan.expansion import expand, lay_out
from specbench_api.spec.engine import EngineKind
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import Dialect, EngineIdentity
from specbench_client.dialects.registry import DIALECTS
from specbench_client.drive.engine_connection import (
    FIRST_COMPLETION_PAUSE_S,
    EngineConnection,
    first_completion,
    other_models_hint,
)
from specbench_client.errors import EngineFailed
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.exchange import ErrorClass, HttpExchange, HttpRequest
from specbench_testing.conversation_turns import CannedTransport, context
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, arrivals, sse, vllm
from specbench_testing.resources import MISSING, external_engine, run_of

HI = [ChatMessage("user", "hi")]
WHOLE = HttpExchange(1, arrivals(sse(vllm(DecodedAnswer((StreamStep(),))))), 200, {}, 9)


async def test_first_completion_requests_8_tokens_and_returns_their_text() -> None:
    wire = CannedTransport(WHOLE)
    result = await first_completion(context(wire), HI)
    assert result.record.output_text == "word word "
    assert (result.record.phase, result.record.prompt_id) == ("warmup", "first-completion")
    body = json.loads(wire.requests[0].body)
    assert body["max_tokens"] == 8
    assert wire.requests[0].headers["X-Request-Id"].startswith("p-first-")


async def test_rejected_first_completion_fails_with_the_engines_message() -> None:
    rejection = replace(WHOLE, status=404, error_class=ErrorClass.HTTP_4XX, error="HTTP 404: no model named simulated")
    wire = CannedTransport(rejection)
    with pytest.raises(EngineFailed, match=r"\(http_4xx\): HTTP 404: no model named simulated") as caught:
        await first_completion(context(wire), HI)
    assert caught.value.reason == "FirstRequestFailed"
    assert len(wire.requests) == 1


TRANSIENT = [ErrorClass.HTTP_5XX, ErrorClass.RESET, ErrorClass.REFUSED]


class FailingTransport(CannedTransport):
    """Fails a number of times with one error class, then answers."""

    def __init__(self, error_class: ErrorClass, times: int) -> None:
        super().__init__(WHOLE)
        self.failures = [replace(WHOLE, status=None, error_class=error_class, error="not yet")] * times

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        answer = await super().exchange(request)
        return self.failures.pop() if self.failures else answer


class Pauses(list[float]):
    """Records pauses between attempts without waiting."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.mark.parametrize("error_class", TRANSIENT)
async def test_transient_failure_is_retried_after_a_pause(error_class: ErrorClass) -> None:
    wire, pauses = FailingTransport(error_class, times=2), Pauses()
    result = await first_completion(context(wire), HI, pause=pauses)
    assert result.record.output_text == "word word "
    assert len({request.headers["X-Request-Id"] for request in wire.requests}) == 3
    assert pauses == [FIRST_COMPLETION_PAUSE_S, FIRST_COMPLETION_PAUSE_S]


@pytest.mark.parametrize("error_class", TRANSIENT)
async def test_persistent_failure_is_reported_with_the_number_of_attempts(error_class: ErrorClass) -> None:
    wire = FailingTransport(error_class, times=9)
    with pytest.raises(EngineFailed, match=rf"\({error_class}, 3 times\): not yet"):
        await first_completion(context(wire), HI, pause=Pauses())
    assert len(wire.requests) == 3


@pytest.mark.parametrize("error_class", [one for one in ErrorClass if one not in TRANSIENT])
async def test_permanent_failure_is_not_retried(error_class: ErrorClass) -> None:
    wire, pauses = FailingTransport(error_class, times=1), Pauses()
    with pytest.raises(EngineFailed):
        await first_completion(context(wire), HI, pause=pauses)
    assert (len(wire.requests), pauses) == (1, [])


async def test_answer_without_a_token_is_a_failure() -> None:
    chunks = vllm(DecodedAnswer())
    for chunk in chunks:
        chunk.pop("usage", None)
        for choice in chunk["choices"]:
            choice["delta"]["content"] = ""
    chunks[-1]["usage"] = {"completion_tokens": 0}
    with pytest.raises(EngineFailed, match="returned no tokens"):
        await first_completion(context(CannedTransport(replace(WHOLE, arrivals=arrivals(sse(chunks))))), HI)


@pytest.mark.parametrize(
    ("served", "hint"),
    [
        (["a", "b"], ": http://h:1 serves a, b, but not m: correct --model"),
        (list("abcdefg"), ": http://h:1 serves a, b, c, d, e and 2 more, but not m: correct --model"),
        (["a", "m"], ""),
        ([], ""),
    ],
    ids=str,
)
async def test_failure_names_the_models_that_the_endpoint_serves(served: list[str], hint: str) -> None:
    plan = lay_out(run_of({"spec.engine": external_engine(url="http://h:1").to_dict(), "spec.drafters": MISSING}))
    async with ControlClient("http://h:1") as control:
        dialect = Dialect(EngineKind.EXTERNAL)
        engine = EngineConnection(plan, plan.arms[0], "http://h:1", "m", dialect, control, EngineIdentity())
        assert other_models_hint(engine, served).startswith(hint)
        assert bool(other_models_hint(engine, served)) == bool(hint)


@pytest.mark.parametrize("adaptive", [True, False])
async def test_drafts_that_were_never_verified_are_not_counted(adaptive: bool) -> None:
    config = {"enable_adaptive_verification": adaptive}
    drafter = {"name": "arm", "method": "dspark", "model": "acme/head", "speculativeConfig": config}
    plan = expand(run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters": [drafter]}))
    point, dialect = plan.groups[0].points[0], DIALECTS[EngineKind.VLLM]
    async with ControlClient("http://h:1") as control:
        for arm in plan.arms:
            engine = EngineConnection(plan, arm, "http://h:1", "m", dialect, control, EngineIdentity())
            assert engine.request_config(point, 0, "p").counts_drafts is (arm.is_baseline or not adaptive)
            uncounted = replace(engine, identity=EngineIdentity(counts_drafts=False))
            assert not uncounted.request_config(point, 0, "p").counts_drafts
