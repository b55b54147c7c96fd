"""TensorRT-LLM dialect: supported request fields, and steps derived from a running average."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import CompletionRequest
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.simulator.requests import OpenAIRoute
from specbench_client.simulator.tensorrt_llm import KNOWN
from specbench_client.sliced_tasks import run_to_completion
from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import parse_events
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, tensorrt_llm

DIALECT = TensorrtLlmDialect(EngineKind.TENSORRT_LLM)
AVERAGE = "avg_decoded_tokens_per_iter"

TRANSCRIPT = """\
data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"role":"assistant","tool_calls":[]}}],"usage":{"prompt_tokens":9,"total_tokens":9,"completion_tokens":0,\
"prompt_tokens_details":{"cached_tokens":4}}}\x20

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":"One","reasoning_content":"","tool_calls":[]},"avg_decoded_tokens_per_iter":1.0}],\
"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}

data: {"id":"chatcmpl-3","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" two three four five","reasoning_content":"","tool_calls":[]},\
"avg_decoded_tokens_per_iter":2.5}],"usage":{"prompt_tokens":9,"total_tokens":14,"completion_tokens":5,\
"prompt_tokens_details":{"cached_tokens":4}}}

data: {"id":"chatcmpl-4","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" six","reasoning_content":"","tool_calls":[]},"avg_decoded_tokens_per_iter":2.0}],\
"usage":{"prompt_tokens":9,"total_tokens":15,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":4}}}

data: {"id":"chatcmpl-5","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" seven","reasoning_content":"","tool_calls":[]},"finish_reason":"length",\
"avg_decoded_tokens_per_iter":1.75}],"usage":{"prompt_tokens":9,"total_tokens":16,"completion_tokens":7,\
"prompt_tokens_details":{"cached_tokens":4}}}

data: {"id":"chatcmpl-6","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{\
"prompt_tokens":9,"total_tokens":16,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

"""
"""Written by hand from the source of the 1.2 release candidates, not recorded.

Steps have 3, 0 and 0 accepted drafts.
"""


def read(chunks: list[dict[str, Any]], *, drafting: bool = True) -> EngineAnswer:
    return run_to_completion(DIALECT.read(as_events(chunks), drafting=drafting))


@st.composite
def decodings(draw: st.DrawFn) -> DecodedAnswer:
    """Draw any sequence of steps with up to 5 accepted drafts; tokens beyond the end are never generated."""
    accepted = draw(st.lists(st.integers(0, 5), max_size=40))
    return DecodedAnswer(tuple(StreamStep(5, each) for each in accepted))


def truth(decoded: DecodedAnswer) -> RequestAcceptance:
    accepted = sum(step.accepted for step in decoded.steps)
    return RequestAcceptance(len(decoded.steps), None, None, accepted, source=AcceptanceSource.PER_REQUEST)


def test_transcript_gives_its_figures() -> None:
    events = run_to_completion(parse_events([ReceivedBytes(0, TRANSCRIPT.encode())]))
    answer = run_to_completion(DIALECT.read(events, drafting=True))
    assert answer.text == "One two three four five six seven"
    assert [chunk.tokens for chunk in answer.content] == [1, 4, 1, 1]
    assert (answer.input_tokens, answer.output_tokens, answer.output_tokens_client) == (9, 7, 7)
    assert (answer.cached_tokens, answer.finish_reason, answer.fingerprint) == (4, "length", None)
    assert answer.acceptance == RequestAcceptance(steps=3, accepted_tokens=3, source=AcceptanceSource.PER_REQUEST)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("kind", "message"),
    [(OpenAIRoute.CHAT, ChatMessage("user", "hi")), (OpenAIRoute.COMPLETION, ChatMessage("user", "", (5, 6)))],
)
def test_only_fields_known_to_the_endpoint_are_sent(kind: OpenAIRoute, message: ChatMessage, stream: bool) -> None:
    """The server rejects a request with an unknown field."""
    body = DIALECT.body(CompletionRequest("m", (message,), Sampling(), Output(stream=stream, ignore_eos=True), 7))
    assert body.keys() <= KNOWN[kind]
    assert ("stream_options" in body) is stream


@given(decodings(), st.integers(0, 1))
def test_steps_are_derived_with_or_without_the_prefill_iteration(decoded: DecodedAnswer, prompts_own: int) -> None:
    answer = read(tensorrt_llm(decoded, prompts_own=prompts_own))
    assert answer.acceptance == truth(decoded)
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens


@given(decodings(), st.integers(0, 1))
def test_precision_of_a_32_bit_float_is_enough(decoded: DecodedAnswer, prompts_own: int) -> None:
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if AVERAGE in choice):
        choice[AVERAGE] = struct.unpack("f", struct.pack("f", choice[AVERAGE]))[0]
    assert read(chunks).acceptance == truth(decoded)


@given(decodings(), st.integers(2, 5), st.integers(0, 1))
def test_merged_chunks_never_give_wrong_steps(decoded: DecodedAnswer, merge: int, prompts_own: int) -> None:
    """Whether the prefill iteration is counted is visible only if the first chunk is not merged."""
    acceptance = read(tensorrt_llm(decoded, merge=merge, prompts_own=prompts_own)).acceptance
    assert acceptance in (RequestAcceptance(), truth(decoded))


@given(decodings(), st.integers(0, 1))
def test_missing_first_average_leaves_steps_missing(decoded: DecodedAnswer, prompts_own: int) -> None:
    """Without it, every other figure may be off by one step."""
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    del chunks[1]["choices"][0][AVERAGE]
    if decoded.steps:
        assert read(chunks).acceptance == RequestAcceptance()


def test_average_with_fewer_iterations_than_chunks_is_ignored() -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0), StreamStep(3, 0))))
    chunks[4]["choices"][0][AVERAGE] = 2.0
    assert read(chunks).acceptance == RequestAcceptance()


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_removed_end_token_is_counted_in_its_average(reason: str) -> None:
    """Three tokens were sent and the fourth ended the text: two iterations after the prefill, one with a draft."""
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0))))
    chunks[3]["choices"][0].update({AVERAGE: 4 / 3, "finish_reason": reason})
    assert read(chunks).acceptance == RequestAcceptance(steps=2, source=AcceptanceSource.PER_REQUEST, accepted_tokens=0)


def test_acceptance_without_an_average_is_inferred_from_chunks_and_marked() -> None:
    decoded = DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0)))
    acceptance = read(tensorrt_llm(decoded, with_average=False)).acceptance
    assert acceptance == RequestAcceptance(steps=2, accepted_tokens=2, source=AcceptanceSource.CHUNKS)


def test_baseline_has_one_token_per_step_and_its_drafting_is_reported() -> None:
    plain = tensorrt_llm(DecodedAnswer((StreamStep(), StreamStep())))
    assert read(plain, drafting=False).acceptance == RequestAcceptance(steps=2)
    assert read(
        tensorrt_llm(DecodedAnswer((StreamStep(), StreamStep())), merge=3), drafting=False
    ).acceptance == RequestAcceptance(steps=2)
    assert read(tensorrt_llm(DecodedAnswer((StreamStep(3, 2),))), drafting=False).acceptance.accepted_tokens == 2


@pytest.mark.parametrize("average", [0.0, 0, -1.0, math.nan, math.inf, "2", True, None, 0.3, 1e300, 10**400])
def test_invalid_average_never_crashes_the_dialect(average: Any) -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0))))
    for chunk in chunks[2:4]:
        chunk["choices"][0][AVERAGE] = average
    acceptance = run_to_completion(DIALECT.read(as_events(chunks), drafting=True)).acceptance
    assert acceptance.steps is None
    assert acceptance.accepted_tokens is None
