"""SGLang and TensorRT-LLM: supported request fields, and steps derived from histograms, chunks or a running average."""

from __future__ import annotations

import math
import struct
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import run_to_completion
from specbench_client.dialects.dialect import CompletionRequest
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance
from specbench_client.dialects.sglang import SglangDialect
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.documents.record import AcceptanceSource
from specbench_client.simulator.tensorrt_llm import KNOWN_FIELDS
from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import parse_events
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, sglang, tensorrt_llm

SGLANG = SglangDialect()

SGLANG_TRANSCRIPT = """\
data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}]}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":"One"},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{"prompt_tokens":9,\
"total_tokens":10,"completion_tokens":1,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" two three four five"},"logprobs":null,"finish_reason":null,"matched_stop":null}],\
"usage":{"prompt_tokens":9,"total_tokens":14,"completion_tokens":5,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" six"},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{"prompt_tokens":9,\
"total_tokens":15,"completion_tokens":6,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,\
"delta":{"content":" seven eight"},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":{\
"prompt_tokens":9,"total_tokens":17,"completion_tokens":8,"prompt_tokens_details":null,"reasoning_tokens":0}}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},\
"logprobs":null,"finish_reason":"length","matched_stop":null}]}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":null,"sglext":{\
"spec_tokens_details":{"spec_accept_rate":0.5555555555555556,"spec_accept_length":2.6666666666666665,\
"spec_cap_length":0.0,"spec_block_accept_length":0.0,"spec_num_correct_drafts":5,"spec_num_proposed_drafts":9,\
"spec_verify_ct":3,"spec_correct_drafts_histogram":[1,0,1,1],"spec_cap_lens_histogram":[]}}}

data: {"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,\
"total_tokens":17,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":4},"reasoning_tokens":0}}

data: [DONE]

"""
"""Written by hand from the source of 0.5.23, not recorded.

The steps have 3, 0 and 2 correct drafts; of the last step one draft is delivered, because the answer ends at 8
tokens.
"""


def read_sglang(decoded: DecodedAnswer, *, merge: int = 1) -> EngineAnswer:
    return run_to_completion(SGLANG.read(as_events(sglang(decoded, merge=merge)), drafting=True))


@st.composite
def verified_answers(draw: st.DrawFn, *, every_step_drafts: bool = True) -> DecodedAnswer:
    """Draw an answer whose steps have up to 5 drafts; the last step may be truncated by its accepted drafts."""
    steps = []
    for _ in range(draw(st.integers(1, 12))):
        drafted = 5 if every_step_drafts else draw(st.sampled_from([0, 5]))
        steps.append(StreamStep(drafted, draw(st.integers(0, drafted))))
    return DecodedAnswer(tuple(steps), draw(st.integers(0, steps[-1].accepted)))


def test_sglang_transcript_gives_its_figures() -> None:
    events = parse_events([ReceivedBytes(0, SGLANG_TRANSCRIPT.encode())])
    answer = run_to_completion(SGLANG.read(events, drafting=True))
    assert answer.text == "One two three four five six seven eight"
    assert [chunk.tokens for chunk in answer.content] == [1, 4, 1, 2]
    assert (answer.input_tokens, answer.output_tokens, answer.output_tokens_client) == (9, 8, 8)
    assert (answer.cached_tokens, answer.finish_reason) == (4, "length")
    assert answer.acceptance == RequestAcceptance(
        steps=3,
        draft_steps=3,
        drafted_tokens=9,
        accepted_tokens=4,
        step_accepted=(3, 0, 1),
        source=AcceptanceSource.PER_REQUEST,
        cut_tokens=1,
    )


@given(verified_answers())
def test_every_step_is_derived_from_single_chunks(decoded: DecodedAnswer) -> None:
    answer = read_sglang(decoded)
    assert answer.acceptance == RequestAcceptance(
        steps=len(decoded.steps),
        draft_steps=len(decoded.steps),
        drafted_tokens=5 * len(decoded.steps),
        accepted_tokens=sum(decoded.delivered),
        step_accepted=decoded.delivered,
        source=AcceptanceSource.PER_REQUEST,
        cut_tokens=decoded.cut,
    )
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens


@given(verified_answers(), st.integers(2, 5))
def test_merged_chunks_lose_the_step_order_but_no_count(decoded: DecodedAnswer, merge: int) -> None:
    acceptance = read_sglang(decoded, merge=merge).acceptance
    assert (acceptance.steps, acceptance.draft_steps) == (len(decoded.steps), len(decoded.steps))
    assert acceptance.accepted_tokens == sum(decoded.delivered)
    assert acceptance.step_accepted in (None, decoded.delivered)


@given(verified_answers(every_step_drafts=False))
def test_steps_without_drafts_are_counted_as_steps(decoded: DecodedAnswer) -> None:
    """With adaptive lengths of 0 there are fewer verifications than steps; which steps had drafts is unknown."""
    acceptance = read_sglang(decoded).acceptance
    if not decoded.drafting:
        assert acceptance.source is AcceptanceSource.CHUNKS
        return
    assert (acceptance.steps, acceptance.draft_steps) == (len(decoded.steps), len(decoded.drafting))
    assert acceptance.accepted_tokens == sum(decoded.delivered)
    if len(decoded.drafting) < len(decoded.steps):
        assert acceptance.step_accepted is None


@given(verified_answers(every_step_drafts=False), st.integers(1, 5))
def test_steps_and_accepted_tokens_add_up_to_the_output(decoded: DecodedAnswer, merge: int) -> None:
    acceptance = read_sglang(decoded, merge=merge).acceptance
    if acceptance.steps is None or acceptance.draft_steps is None:
        return
    assert acceptance.accepted_tokens is not None
    assert decoded.output_tokens - 1 == acceptance.steps + acceptance.accepted_tokens
    assert acceptance.steps >= acceptance.draft_steps


def test_end_token_without_a_chunk_belongs_to_the_last_step() -> None:
    """The finish reason is sent instead of a chunk; usage counts the token."""
    chunks = sglang(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 3), StreamStep(3, 0))))
    del chunks[4]
    answer = run_to_completion(SGLANG.read(as_events(chunks), drafting=True))
    assert (answer.output_tokens, answer.output_tokens_client) == (9, 8)
    assert answer.acceptance.step_accepted == (2, 3, 0)


def test_truncation_of_the_last_step_is_found_among_equal_steps() -> None:
    for steps in permutations((1, 3, 3)):
        decoded = DecodedAnswer(tuple(StreamStep(3, accepted) for accepted in steps), cut=1)
        assert read_sglang(decoded).acceptance.step_accepted == decoded.delivered


def block_of(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    block: dict[str, Any] = chunks[-2]["sglext"]["spec_tokens_details"]
    return block


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 6),
        ({"spec_num_proposed_drafts": 14}, 14),  # a tree: many nodes, of which one path can be accepted
        ({"spec_num_proposed_drafts": 7}, None),  # different numbers in the verifications
        ({"spec_num_proposed_drafts": 2}, None),  # one verification has more correct drafts
        ({"spec_num_proposed_drafts": 0}, None),
        ({"spec_num_proposed_drafts": None}, None),
        ({"spec_cap_lens_histogram": []}, 6),
        ({"spec_cap_lens_histogram": [0, 0, 0, 1, 1]}, None),  # only some of the drafts were verified
    ],
)
def test_contradictory_proposed_draft_counts_are_dropped(change: dict[str, Any], expected: int | None) -> None:
    chunks = sglang(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 1))))
    block_of(chunks).update(change)
    acceptance = run_to_completion(SGLANG.read(as_events(chunks), drafting=True)).acceptance
    assert (acceptance.drafted_tokens, acceptance.accepted_tokens, acceptance.steps) == (expected, 3, 2)


def test_histogram_that_contradicts_the_totals_is_ignored() -> None:
    chunks = sglang(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 1))))
    block_of(chunks)["spec_correct_drafts_histogram"] = [0, 0, 2]
    acceptance = run_to_completion(SGLANG.read(as_events(chunks), drafting=True)).acceptance
    assert acceptance == RequestAcceptance(2, 2, 6, 3, source=AcceptanceSource.PER_REQUEST)


def test_steps_that_do_not_fit_the_tokens_are_missing() -> None:
    chunks = sglang(DecodedAnswer((StreamStep(3, 3),)))
    block_of(chunks).update(spec_verify_ct=9, spec_correct_drafts_histogram=[8, 0, 0, 1])
    assert run_to_completion(SGLANG.read(as_events(chunks), drafting=True)).acceptance.steps is None


@given(
    st.dictionaries(
        st.sampled_from(["spec_verify_ct", "spec_num_correct_drafts", "spec_num_proposed_drafts"]),
        st.integers(-3, 12) | st.none() | st.text(max_size=2),
    ),
    st.lists(st.integers(-1, 4), max_size=5) | st.none() | st.integers(),
    st.integers(1, 3),
)
def test_arbitrary_counts_never_crash_the_dialect_or_become_negative(
    counts: dict[str, Any], histogram: Any, merge: int
) -> None:
    chunks = sglang(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0), StreamStep(3, 1))), merge=merge)
    block_of(chunks).update(counts, spec_correct_drafts_histogram=histogram)
    acceptance = run_to_completion(SGLANG.read(as_events(chunks), drafting=True)).acceptance
    totals = (acceptance.steps, acceptance.draft_steps, acceptance.drafted_tokens, acceptance.accepted_tokens)
    assert all(count is None or count >= 0 for count in (*totals, *(acceptance.step_accepted or ())))


TENSORRT_LLM = TensorrtLlmDialect()
AVERAGE = "avg_decoded_tokens_per_iter"

TRT_TRANSCRIPT = """\
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


def read_trt(chunks: list[dict[str, Any]], *, drafting: bool = True) -> EngineAnswer:
    return run_to_completion(TENSORRT_LLM.read(as_events(chunks), drafting=drafting))


@st.composite
def iterated_answers(draw: st.DrawFn) -> DecodedAnswer:
    """Draw any sequence of steps with up to 5 accepted drafts; tokens beyond the end are never generated."""
    accepted = draw(st.lists(st.integers(0, 5), max_size=40))
    return DecodedAnswer(tuple(StreamStep(5, each) for each in accepted))


def truth(decoded: DecodedAnswer) -> RequestAcceptance:
    accepted = sum(step.accepted for step in decoded.steps)
    return RequestAcceptance(len(decoded.steps), None, None, accepted, source=AcceptanceSource.PER_REQUEST)


def test_tensorrt_llm_transcript_gives_its_figures() -> None:
    events = parse_events([ReceivedBytes(0, TRT_TRANSCRIPT.encode())])
    answer = run_to_completion(TENSORRT_LLM.read(events, drafting=True))
    assert answer.text == "One two three four five six seven"
    assert [chunk.tokens for chunk in answer.content] == [1, 4, 1, 1]
    assert (answer.input_tokens, answer.output_tokens, answer.output_tokens_client) == (9, 7, 7)
    assert (answer.cached_tokens, answer.finish_reason) == (4, "length")
    assert answer.acceptance == RequestAcceptance(steps=3, accepted_tokens=3, source=AcceptanceSource.PER_REQUEST)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("chat", "message"), [(True, ChatMessage("user", "hi")), (False, ChatMessage("user", "", (5, 6)))]
)
def test_only_fields_known_to_the_endpoint_are_sent(chat: bool, message: ChatMessage, stream: bool) -> None:
    """The server rejects a request with an unknown field."""
    body = TENSORRT_LLM.body(CompletionRequest("m", (message,), Sampling(), Output(stream=stream, ignore_eos=True), 7))
    assert body.keys() <= KNOWN_FIELDS[chat]
    assert ("stream_options" in body) is stream


@given(iterated_answers(), st.integers(0, 1))
def test_steps_are_derived_with_or_without_the_prefill_iteration(decoded: DecodedAnswer, prompts_own: int) -> None:
    answer = read_trt(tensorrt_llm(decoded, prompts_own=prompts_own))
    assert answer.acceptance == truth(decoded)
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens


@given(iterated_answers(), st.integers(0, 1))
def test_precision_of_a_32_bit_float_is_enough(decoded: DecodedAnswer, prompts_own: int) -> None:
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if AVERAGE in choice):
        choice[AVERAGE] = struct.unpack("f", struct.pack("f", choice[AVERAGE]))[0]
    assert read_trt(chunks).acceptance == truth(decoded)


@given(iterated_answers(), st.integers(2, 5), st.integers(0, 1))
def test_merged_chunks_never_give_wrong_steps(decoded: DecodedAnswer, merge: int, prompts_own: int) -> None:
    """Whether the prefill iteration is counted is visible only if the first chunk is not merged."""
    acceptance = read_trt(tensorrt_llm(decoded, merge=merge, prompts_own=prompts_own)).acceptance
    assert acceptance in (RequestAcceptance(), truth(decoded))


@given(iterated_answers(), st.integers(0, 1))
def test_missing_first_average_leaves_steps_missing(decoded: DecodedAnswer, prompts_own: int) -> None:
    """Without it, every other figure may be off by one step."""
    chunks = tensorrt_llm(decoded, prompts_own=prompts_own)
    del chunks[1]["choices"][0][AVERAGE]
    if decoded.steps:
        assert read_trt(chunks).acceptance == RequestAcceptance()


def test_average_with_fewer_iterations_than_chunks_is_ignored() -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0), StreamStep(3, 0))))
    chunks[4]["choices"][0][AVERAGE] = 2.0
    assert read_trt(chunks).acceptance == RequestAcceptance()


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_removed_end_token_is_counted_in_its_average(reason: str) -> None:
    """Three tokens were sent and the fourth ended the text: two iterations after the prefill, one with a draft."""
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 0), StreamStep(3, 0))))
    chunks[3]["choices"][0].update({AVERAGE: 4 / 3, "finish_reason": reason})
    assert read_trt(chunks).acceptance == RequestAcceptance(
        steps=2, source=AcceptanceSource.PER_REQUEST, accepted_tokens=0
    )


def test_acceptance_without_an_average_is_inferred_from_chunks_and_marked() -> None:
    decoded = DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0)))
    acceptance = read_trt(tensorrt_llm(decoded, with_average=False)).acceptance
    assert acceptance == RequestAcceptance(steps=2, accepted_tokens=2, source=AcceptanceSource.CHUNKS)


@pytest.mark.parametrize("average", [0.0, 0, -1.0, math.nan, math.inf, "2", True, None, 0.3, 1e300, 10**400])
def test_invalid_average_never_crashes_the_dialect(average: Any) -> None:
    chunks = tensorrt_llm(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0))))
    for chunk in chunks[2:4]:
        chunk["choices"][0][AVERAGE] = average
    acceptance = run_to_completion(TENSORRT_LLM.read(as_events(chunks), drafting=True)).acceptance
    assert acceptance.steps is None
    assert acceptance.accepted_tokens is None
