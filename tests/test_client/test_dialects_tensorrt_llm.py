"""TensorRT-LLM's wire: fields that it knows, and steps found again from nothing but a running average."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative import run_to_completion
from specbench_client.dialects.dialect import CompletionRequest, EngineAnswer, RequestAcceptance
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.simulator.requests import OpenAIRoute
from specbench_client.simulator.tensorrt_llm import KNOWN
from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import parse_events
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, tensorrt_llm

DIALECT = TensorrtLlmDialect()
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
"""Written by hand after sources of the 1.2 release candidates, not recorded. Steps of 3, 0 and 0 accepted drafts."""


def read(chunks: list[dict[str, Any]], *, drafting: bool = True) -> EngineAnswer:
    return run_to_completion(DIALECT.read(as_events(chunks), drafting=drafting))


@st.composite
def decodings(draw: st.DrawFn) -> DecodedAnswer:
    """Any run of steps, of up to 5 accepted drafts; what is beyond the end was never made."""
    accepted = draw(st.lists(st.integers(0, 5), max_size=40))
    return DecodedAnswer(tuple(StreamStep(5, each) for each in accepted))


def truth(decoded: DecodedAnswer) -> RequestAcceptance:
    accepted = sum(step.accepted for step in decoded.steps)
    return RequestAcceptance(len(decoded.steps), None, None, accepted, None, AcceptanceSource.PER_REQUEST)


def test_a_transcript_gives_its_figures() -> None:
    answer = run_to_completion(DIALECT.read(parse_events([ReceivedBytes(0, TRANSCRIPT.encode())]), drafting=True))
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
def test_only_fields_that_the_route_knows_are_sent(kind: OpenAIRoute, message: ChatMessage, stream: bool) -> None:
    """One that it does not know, and the request is refused."""
    body = DIALECT.body(CompletionRequest("m", (message,), Sampling(), Output(stream=stream, ignore_eos=True), 7))
    assert body.keys() <= KNOWN[kind]
    assert ("stream_options" in body) is stream


@given(decodings(), st.integers(0, 1))
def test_steps_are_found_whether_the_prompts_iteration_is_counted_or_not(
    decoded: DecodedAnswer, prompts_own: int
) -> None:
    answer = read(tensorrt_llm(decoded, prompts_own=prompts_own))
    assert answer.acceptance == truth(decoded)
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens


@given(decodings(), st.integers(0, 1))
def test_the_digits_of_a_32_bit_float_are_enough(decoded: DecodedAnswer, prompts_own: int) -> None:
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if AVERAGE in choice):
        choice[AVERAGE] = struct.unpack("f", struct.pack("f", choice[AVERAGE]))[0]
    assert read(chunks).acceptance == truth(decoded)


@given(decodings(), st.integers(2, 5), st.integers(0, 1))
def test_chunks_that_were_merged_never_give_wrong_steps(decoded: DecodedAnswer, merge: int, prompts_own: int) -> None:
    """Nothing shows any more whether the prompt's iteration is counted, save where the first chunk is alone."""
    acceptance = read(tensorrt_llm(decoded, merge=merge, prompts_own=prompts_own)).acceptance
    assert acceptance in (RequestAcceptance(), truth(decoded))


@given(decodings(), st.integers(0, 1))
def test_a_first_chunk_that_shows_nothing_leaves_steps_missing(decoded: DecodedAnswer, prompts_own: int) -> None:
    """Of the rest every figure may be one of two, a step apart."""
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    del chunks[1]["choices"][0][AVERAGE]
    if decoded.steps:
        assert read(chunks).acceptance == RequestAcceptance()


def test_more_chunks_than_iterations_are_not_believed() -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0), StreamStep(3, 0))))
    chunks[4]["choices"][0][AVERAGE] = 2.0
    assert read(chunks).acceptance == RequestAcceptance()


def test_a_token_that_ends_the_answer_and_is_taken_out_is_in_its_average() -> None:
    """Three came, the fourth ended the text: two iterations after the prompt's, one of them with a draft."""
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0))))
    chunks[3]["choices"][0].update({AVERAGE: 4 / 3, "finish_reason": "stop"})
    assert read(chunks).acceptance == RequestAcceptance(steps=2, source=AcceptanceSource.PER_REQUEST, accepted_tokens=0)


def test_without_an_average_the_chunks_tell_and_say_so() -> None:
    decoded = DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0)))
    acceptance = read(tensorrt_llm(decoded, with_average=False)).acceptance
    assert acceptance == RequestAcceptance(steps=2, accepted_tokens=2, source=AcceptanceSource.CHUNKS)


def test_a_baseline_makes_one_token_a_step_and_drafting_in_it_is_not_hidden() -> None:
    plain = tensorrt_llm(DecodedAnswer((StreamStep(), StreamStep())))
    assert read(plain, drafting=False).acceptance == RequestAcceptance(steps=2)
    assert read(
        tensorrt_llm(DecodedAnswer((StreamStep(), StreamStep())), merge=3), drafting=False
    ).acceptance == RequestAcceptance(steps=2)
    assert read(tensorrt_llm(DecodedAnswer((StreamStep(3, 2),))), drafting=False).acceptance.accepted_tokens == 2


@pytest.mark.parametrize("average", [0.0, 0, -1.0, math.nan, math.inf, "2", True, None, 0.3, 1e300, 10**400])
def test_no_average_makes_it_stumble_or_tell_what_cannot_be(average: Any) -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0))))
    for chunk in chunks[2:4]:
        chunk["choices"][0][AVERAGE] = average
    acceptance = run_to_completion(DIALECT.read(as_events(chunks), drafting=True)).acceptance
    assert acceptance.steps is None
    assert acceptance.accepted_tokens is None
