"""Requests that dialects build, and how they parse complete, odd and broken answers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.engine import SIMULATED_DIALECTS, DialectName, Engine, EngineKind
from specbench_api.spec.workload import RESERVED_BODY_FIELDS, Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import CHUNKS_PER_SLICE, run_to_completion
from specbench_client.dialects.dialect import CompletionRequest, Dialect, EngineIdentity, with_extra_fields
from specbench_client.dialects.engine_answer import AnswerChunk, BadAnswer, EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.dialects.registry import DIALECTS, DIALECTS_BY_NAME, dialect_of
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.sse import SseEvent
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, llama, sglang, tensorrt_llm, vllm
from specbench_testing.resources import external_engine

VLLM = DIALECTS[EngineKind.SIMULATOR]
LLAMA = DIALECTS[EngineKind.LLAMA_CPP]
SGLANG = DIALECTS[EngineKind.SGLANG]
TENSORRT_LLM = DIALECTS[EngineKind.TENSORRT_LLM]
ALL = pytest.mark.parametrize(
    "dialect", [VLLM, LLAMA, SGLANG, TENSORRT_LLM], ids=["vllm", "llama.cpp", "sglang", "tensorrt-llm"]
)
REQUEST = CompletionRequest(
    model="m",
    messages=(ChatMessage("system", "be brief"), ChatMessage("user", "hi")),
    sampling=Sampling(temperature=0.5, top_p=0.9, seed=1),
    output=Output(max_tokens=32, ignore_eos=True),
    seed=99,
)
THREE = DecodedAnswer((StreamStep(), StreamStep(2, 1)))


def refusal(dialect: Dialect, chunks: list[dict[str, Any]], *, done: bool = True) -> tuple[ErrorClass, str]:
    with pytest.raises(BadAnswer) as caught:
        run_to_completion(dialect.read(as_events(chunks, done=done), drafting=True))
    return caught.value.error_class, str(caught.value)


def chunks_of(dialect: Dialect) -> list[dict[str, Any]]:
    return {VLLM: vllm(THREE), LLAMA: llama(THREE), SGLANG: sglang(THREE), TENSORRT_LLM: tensorrt_llm(THREE)}[dialect]


def test_every_engine_kind_and_every_name_has_a_dialect() -> None:
    assert (set(DIALECTS), set(DIALECTS_BY_NAME)) == (set(EngineKind), set(DialectName))
    assert isinstance(DIALECTS[EngineKind.TRANSFORMERS], type(VLLM))


@pytest.mark.parametrize("name", list(DialectName))
def test_external_endpoint_uses_its_configured_dialect(name: DialectName) -> None:
    engine = external_engine(name)
    own = {DialectName.OPENAI: EngineKind.EXTERNAL}.get(name) or EngineKind(str(name))
    assert dialect_of(engine) is DIALECTS[own]


@pytest.mark.parametrize("name", SIMULATED_DIALECTS)
def test_simulator_uses_the_dialect_it_imitates(name: DialectName) -> None:
    assert dialect_of(Engine(kind=EngineKind.SIMULATOR, dialect=name)) is DIALECTS[EngineKind(str(name))]
    assert dialect_of(Engine(kind=EngineKind.SIMULATOR)) is VLLM


@ALL
def test_request_body_streams_with_usage_and_sets_all_sampling(dialect: Dialect) -> None:
    body = dialect.body(REQUEST)
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert body.items() >= {"model": "m", "seed": 99, "temperature": 0.5, "top_p": 0.9, "max_tokens": 32}.items()
    assert body["ignore_eos"] is True
    assert body["stream"] is True
    assert body["stream_options"]["include_usage"] is True
    assert "top_k" in body
    json.dumps(body)


@ALL
def test_unstreamed_request_body_has_no_stream_options(dialect: Dialect) -> None:
    body = dialect.body(replace(REQUEST, output=Output(max_tokens=32, stream=False)))
    assert body["stream"] is False
    assert not {"stream_options", "timings_per_token"} & set(body)


IDS = (ChatMessage("system", "be brief"), ChatMessage("user", "hi", (5, 6, 7)))


@pytest.mark.parametrize("messages", [IDS, (ChatMessage("user", "", (5, 6, 7)),)], ids=["rendered", "raw"])
@pytest.mark.parametrize("dialect", [VLLM, LLAMA, SGLANG, TENSORRT_LLM, DIALECTS_BY_NAME[DialectName.OPENAI]])
def test_token_ids_are_sent_unchanged_past_the_chat_template(
    dialect: Dialect, messages: tuple[ChatMessage, ...]
) -> None:
    body = dialect.body(replace(REQUEST, messages=messages))
    assert body["prompt"] == [5, 6, 7]
    assert not {"messages", "skip_special_tokens", "preserved_tokens"} & set(body)
    assert dialect.tokens_path == "/v1/completions"


def test_engines_that_support_it_are_requested_to_keep_reasoning_markers() -> None:
    request = replace(REQUEST, messages=IDS, markers=("<|channel|>",))
    for dialect in (VLLM, SGLANG, TENSORRT_LLM):
        assert dialect.body(request)["skip_special_tokens"] is False
        assert dialect.keeps_special_tokens
    assert LLAMA.body(request)["preserved_tokens"] == ["<|channel|>"]
    for dialect in (DIALECTS_BY_NAME[DialectName.OPENAI], DIALECTS[EngineKind.TRANSFORMERS]):
        assert (dialect.body(request), dialect.keeps_special_tokens) == (
            dialect.body(replace(request, markers=())),
            False,
        )


def test_completion_chunk_with_text_and_finish_reason_is_read() -> None:
    chunks = vllm(THREE)
    for chunk in chunks[:-1]:
        chunk["choices"] = [{"index": 0, "text": chunk["choices"][0]["delta"]["content"], "finish_reason": "stop"}]
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).text == "word " * 4


COUNTED = {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (VLLM, {"stream_options": COUNTED}),
        (SGLANG, {"stream_options": COUNTED, "return_spec_tokens_details": True, "return_token_ids": None}),
        (TENSORRT_LLM, {"stream_options": COUNTED}),
        (LLAMA, {"timings_per_token": True, "cache_prompt": False}),
    ],
    ids=["vllm", "sglang", "tensorrt-llm", "llama.cpp"],
)
def test_each_dialect_requests_token_counts_per_chunk(dialect: Dialect, fields: dict[str, Any]) -> None:
    """SGLang rejects a request for token ids; llama.cpp's prompt cache is off unless a prompt may be reused."""
    body = dialect.body(REQUEST)
    assert {name: body.get(name) for name in fields} == fields


def test_health_path_of_sglang_does_not_generate_a_token() -> None:
    assert SGLANG.health_path == "/ready"


@ALL
def test_text_times_usage_and_finish_reason_are_read(dialect: Dialect) -> None:
    answer = run_to_completion(dialect.read(as_events(chunks_of(dialect)), drafting=True))
    assert answer.text == "word " * 4
    assert (answer.input_tokens, answer.output_tokens) == (7, 4)
    assert answer.cached_tokens == 0
    assert answer.finish_reason == "length"
    times = [chunk.ns for chunk in answer.content]
    assert times == list(range(1, len(times) + 1)), "the role chunk is not content"


def test_chunk_without_text_is_content_when_tokens_are_counted() -> None:
    chunks = vllm(DecodedAnswer((StreamStep(), StreamStep())))
    chunks[3]["choices"][0]["delta"]["content"] = ""
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=False)).content == (
        AnswerChunk(1, 1),
        AnswerChunk(2, 1),
        AnswerChunk(3, 1),
    )


def test_chunk_tokens_are_missing_when_the_engine_does_not_count_them() -> None:
    answer = run_to_completion(VLLM.read(as_events(vllm(THREE, continuous=False)), drafting=True))
    assert {chunk.tokens for chunk in answer.content} == {None}
    assert answer.output_tokens_client is None
    assert answer.output_tokens == 4


def test_llama_cpp_final_token_counts_on_the_finish_chunk() -> None:
    answer = run_to_completion(
        LLAMA.read(as_events(llama(DecodedAnswer((StreamStep(), StreamStep())), ends_itself=True)), drafting=False)
    )
    assert answer.content == (AnswerChunk(1, 1), AnswerChunk(2, 1), AnswerChunk(3, 1))
    assert answer.finish_reason == "stop"


def test_llama_cpp_missing_tokens_are_not_invented() -> None:
    chunks = llama(DecodedAnswer(tuple(StreamStep() for _ in range(9))))
    del chunks[2:8]
    chunks[-1]["usage"]["completion_tokens"] = 15
    answer = run_to_completion(LLAMA.read(as_events(chunks), drafting=False))
    assert (answer.output_tokens, answer.output_tokens_client) == (15, 10)


def test_llama_cpp_without_running_totals_counts_one_token_per_chunk() -> None:
    chunks = [{name: value for name, value in chunk.items() if name != "timings"} for chunk in llama(THREE)]
    answer = run_to_completion(LLAMA.read(as_events(chunks), drafting=True))
    assert answer.output_tokens_client == 4
    assert answer.acceptance.steps is None


@ALL
def test_reasoning_is_content_but_not_part_of_the_text(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    chunks[1]["choices"][0]["delta"] = {"reasoning_content": "hm"}
    answer = run_to_completion(dialect.read(as_events(chunks), drafting=True))
    assert answer.reasoning == "hm"
    assert answer.content[0].ns == 1
    assert "hm" not in answer.text


@ALL
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_of_an_answer_that_is_not_streamed_is_no_part_of_its_text(dialect: Dialect, field: str) -> None:
    message = {"role": "assistant", "content": "Four.", field: "Two and two."}
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = dialect.read_whole({"object": "chat.completion", "choices": [choice], "usage": usage}, drafting=False)
    assert (answer.reasoning, answer.text, answer.output_tokens) == ("Two and two.", "Four.", 9)


@ALL
def test_reasoning_tokens_count_before_the_answer_and_exclude_tool_calls(dialect: Dialect) -> None:
    def thoughts(*deltas: dict[str, Any]) -> int | None:
        chunks = chunks_of(dialect)
        for chunk, delta in zip(chunks[1:], deltas, strict=False):
            chunk["choices"][0]["delta"] = delta
        return run_to_completion(dialect.read(as_events(chunks), drafting=True)).reasoning_tokens

    def sizes(count: int) -> int:
        """Tokens of the first chunks with text."""
        return sum(
            chunk.tokens or 0
            for chunk in run_to_completion(dialect.read(as_events(chunks_of(dialect)), drafting=True)).content[:count]
        )

    assert thoughts() == 0
    assert thoughts({"reasoning_content": "hm"}) == sizes(1)
    assert thoughts({"reasoning": "hm"}, {"reasoning": "so"}) == sizes(2)
    assert thoughts({"content": "Yes"}, {"reasoning_content": "hm"}) == 0, (
        "reasoning after the answer started counts as answer"
    )
    assert thoughts({"tool_calls": [{"function": {"name": "f"}}]}) == 0


@pytest.mark.parametrize("index", [{}, {"index": 0}])
@pytest.mark.parametrize("one_id", [True, False])
def test_tool_calls_without_an_index_of_their_own_are_separated_by_their_id(index: Any, one_id: bool) -> None:
    def part(arguments: Any, call: str | None = None, name: str | None = None) -> dict[str, Any]:
        return {"tool_calls": [{**index, "id": call, "function": {"name": name, "arguments": arguments}}]}

    chunks = vllm(DecodedAnswer((StreamStep(),) * 8))
    deltas = [part({}, "a", "f"), part('{"x":', "a" if one_id else "z"), part("1}"), part("", "b", "g"), part("{}")]
    for chunk, delta in zip(chunks[1:], deltas, strict=False):
        chunk["choices"][0]["delta"] = delta
    answer = run_to_completion(VLLM.read(as_events(chunks), drafting=True))
    assert answer.tool_calls == (ToolCall("f", '{"x":1}'), ToolCall("g", "{}"))


def test_reasoning_tokens_are_unknown_without_tokens_per_chunk() -> None:
    chunks = vllm(THREE, continuous=False)
    chunks[1]["choices"][0]["delta"] = {"reasoning_content": "hm"}
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).reasoning_tokens is None
    at_end = [chunk("a"), STOP, chunk(usage=counted(1))]
    assert run_to_completion(VLLM.read(as_events(at_end), drafting=True)).reasoning_tokens is None


@ALL
def test_split_surrogate_pair_is_joined(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    chunks[1]["choices"][0]["delta"]["content"] = "\ud83d"
    chunks[2]["choices"][0]["delta"]["content"] = "\ude00"
    assert run_to_completion(dialect.read(as_events(chunks), drafting=True)).text.startswith("😀")


@ALL
def test_stream_needs_a_usage_and_either_a_finish_reason_or_done(dialect: Dialect) -> None:
    whole_stream, unfinished = chunks_of(dialect), chunks_of(dialect)
    for choice in (choice for chunk in unfinished for choice in chunk["choices"]):
        choice["finish_reason"] = None
    without_usage = [{name: value for name, value in chunk.items() if name != "usage"} for chunk in whole_stream]
    for chunks, done in (([], False), ([], True), (without_usage, True), (unfinished, False)):
        assert refusal(dialect, chunks, done=done)[0] is ErrorClass.TRUNCATED_STREAM
    for chunks, done, finish in ((whole_stream, False, "length"), (unfinished, True, None)):
        answer = run_to_completion(dialect.read(as_events(chunks, done=done), drafting=True))
        assert (answer.output_tokens, answer.finish_reason) == (4, finish)


@ALL
@pytest.mark.parametrize(
    ("error", "expected_class"),
    [
        ({"message": "EngineCore died", "code": 500}, ErrorClass.HTTP_5XX),
        ({"message": "EngineCore died"}, ErrorClass.HTTP_5XX),
        ({"message": "EngineCore died", "code": 400}, ErrorClass.HTTP_4XX),
        ("EngineCore died", ErrorClass.HTTP_5XX),
    ],
)
def test_mid_stream_error_contains_the_engines_message(
    dialect: Dialect, error: Any, expected_class: ErrorClass
) -> None:
    assert refusal(dialect, [*chunks_of(dialect)[:2], {"error": error}]) == (
        expected_class,
        "in mid-stream: EngineCore died",
    )


@ALL
@pytest.mark.parametrize(
    "data",
    [
        *("{", '{"choices": 3}', '{"choices": [3]}', '{"choices": [{"delta": 3}]}', '{"choices": [{}, {}]}'),
        *('{"choices": [{"delta": {"content": true}}]}', '{"choices": [{"delta": {}, "finish_reason": 3}]}'),
        '{"choices": [{"delta": {"content": ' + "[" * 900 + "]" * 900 + "}}]}",
    ],
)
def test_invalid_chunk_is_malformed(dialect: Dialect, data: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        run_to_completion(dialect.read([SseEvent(0, data), SseEvent(1, "[DONE]")], drafting=True))
    assert caught.value.error_class is ErrorClass.MALFORMED


PLAIN = dialect_of(external_engine(DialectName.OPENAI))
USAGE = {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def said(text: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text, **more}, "finish_reason": finish}]}


def plain_answer(*chunks: Any, done: bool = True) -> EngineAnswer:
    """The answer of these documents or data, which arrive at the times 0, 1, …"""
    datas = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks] + ["[DONE]"] * done
    events = [SseEvent(at, data) for at, data in enumerate(datas)]
    return run_to_completion(PLAIN.read(events, drafting=False))


@pytest.mark.parametrize("word", ["[]", "3", "ping", '"[DONE]"', "[done]", "<html>502</html>", "[" * 100_000])
def test_events_that_are_no_object_matter_only_if_the_answer_is_incomplete(word: str) -> None:
    assert plain_answer(word, said("a"), word, STOP, USAGE, done=False).text == "a"
    with pytest.raises(BadAnswer) as caught:
        plain_answer(said("a"), word, done=False)
    assert caught.value.error_class is ErrorClass.TRUNCATED_STREAM
    assert word[:80] in str(caught.value)


@pytest.mark.parametrize(
    ("usages", "tokens"),
    [
        ([{"prompt_tokens": 9.0, "completion_tokens": 2.0}], (9, 2)),
        ([{"prompt_tokens": "9", "completion_tokens": "2"}], (9, 2)),
        ([{"input_tokens": 9, "output_tokens": 2}], (9, 2)),
        ([USAGE["usage"], {}], (9, 2)),
        ([USAGE["usage"], None], (9, 2)),
        ([USAGE["usage"], {"prompt_tokens": 0, "completion_tokens": 0}], (9, 2)),
        ([{"prompt_tokens": 9, "completion_tokens": 0}, {"prompt_tokens": 0, "completion_tokens": 2}], (9, 2)),
        ([{"prompt_tokens": 9, "completion_tokens": 1}, USAGE["usage"]], (9, 2)),
        ([{"completion_tokens": 2}], (None, 2)),
    ],
)
@pytest.mark.parametrize("after_done", [False, True])
def test_usage_is_the_last_one_that_counts(usages: list[Any], tokens: tuple[int | None, int], after_done: bool) -> None:
    documents = [{"choices": [], "usage": usage} for usage in usages]
    end = ["[DONE]", *documents] if after_done else [*documents, "[DONE]"]
    answer = plain_answer(said("a"), STOP, *end, done=False)
    assert (answer.input_tokens, answer.output_tokens) == tokens


@pytest.mark.parametrize(("index", "is_read"), [("0", True), (0.0, True), ("1", False), (1, False), ("x", False)])
def test_only_the_requested_choice_is_read(index: Any, is_read: bool) -> None:
    with nullcontext() if is_read else pytest.raises(BadAnswer, match="another was returned"):
        assert plain_answer({"choices": [{"index": index, "delta": {"content": "a"}}]}, STOP, USAGE).text == "a"


@pytest.mark.parametrize("end", [{"x_groq": USAGE}, {"choices": [{"finish_reason": "stop", **USAGE}]}])
def test_usage_in_a_choice_or_an_extension_is_read(end: dict[str, Any]) -> None:
    answer = plain_answer(said("a"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **end})
    assert (answer.input_tokens, answer.output_tokens) == (9, 2)


@pytest.mark.parametrize("count", [2.5, "2.0", "two", "²", True, [2], "9" * 17, float("inf"), -1])
def test_what_is_no_count_is_no_usage(count: Any) -> None:
    with pytest.raises(BadAnswer) as caught:
        plain_answer(said("a"), STOP, {"usage": {"completion_tokens": count}})
    assert caught.value.error_class in (ErrorClass.TRUNCATED_STREAM, ErrorClass.MALFORMED)


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": [{"type": "text", "text": "a"}, "b"]}, "ab", ""),
        ({"content": [{"type": "text", "text": {"value": "a"}}]}, "a", ""),
        ({"content": [THOUGHT, {"type": "text", "text": "a"}]}, "a", "hm"),
        ({"content": "a", "reasoning": {"text": "hm"}}, "a", "hm"),
        ({"content": "a", "reasoning_content": []}, "a", ""),
        ({"content": "a", "thinking": "hm"}, "a", "hm"),
        ({"content": "a", "reasoning_text": "hm"}, "a", "hm"),
        ({"tool_calls": [{"type": "custom", "custom": {"name": "f", "input": "x"}}]}, "", "fx"),
        ({"content": "", "reasoning": "hm", "reasoning_details": [{"text": "hm"}]}, "", "hm"),
        ({"content": "a", "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}, "a", "hm"),
        ({"content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, "a", ""),
        ({"content": None, "refusal": "no"}, "", "no"),
    ],
)
def test_text_and_reasoning_are_found_in_each_form(message: dict[str, Any], text: str, reasoning: str) -> None:
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], **USAGE}
    forms = (
        plain_answer({"choices": [{"delta": message}]}, STOP, USAGE),
        plain_answer({"choices": [{"message": message}]}, STOP, USAGE),
        PLAIN.read_whole(whole, drafting=False),
    )
    assert [(answer.text, answer.reasoning) for answer in forms] == [(text, reasoning)] * 3


def test_events_that_are_framed_twice_are_read() -> None:
    framed = [f"data: {json.dumps(one)}" for one in (said("a"), said("b", "stop"), USAGE)]
    assert plain_answer(*framed).text == "ab"


def test_words_beside_empty_choices_are_in_the_message() -> None:
    refused = {"choices": None, "base_resp": {"status_msg": "no balance"}}
    with pytest.raises(BadAnswer, match="no balance"):
        plain_answer(refused, done=False)
    with pytest.raises(BadAnswer, match="no balance"):
        PLAIN.read_whole(refused, drafting=False)


@pytest.mark.parametrize(("prompt", "cached", "expected"), [(9, 9, 9), (3, 48, 51), (None, 48, None)])
def test_cached_tokens_that_the_prompt_lacks_are_part_of_it(prompt: Any, cached: int, expected: int | None) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    answer = plain_answer(said("a", "stop"), {"usage": usage})
    assert (answer.input_tokens, answer.cached_tokens) == (expected, cached)


@pytest.mark.parametrize(
    "counted",
    [
        {"prompt_tokens_details": {"cached_tokens": 48}},
        {"input_tokens_details": {"cached_tokens": 48}},
        {"prompt_cache_hit_tokens": 48, "prompt_cache_miss_tokens": 16},
        {"cached_tokens": 48},
        {"cache_read_input_tokens": 48, "cache_creation_input_tokens": 0},
        {"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 48},
        {"prompt_tokens_details": {"cached_tokens": None}, "cached_tokens": "48"},
    ],
)
def test_cached_tokens_are_found_under_the_names_of_other_services(counted: Any) -> None:
    usage = {"prompt_tokens": 64, "completion_tokens": 1, **counted}
    answer = plain_answer(said("a", "stop"), {"usage": usage})
    assert (answer.input_tokens, answer.cached_tokens) == (64, 48)


def completion(text: str, **others: Any) -> dict[str, Any]:
    """Return a whole completion, with which MiniMax ends its streams."""
    message = {"content": text, **others}
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]}


BESIDE = {"choices": [{"delta": {}, "message": {"content": "ab"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("chunks", "text", "reasoning"),
    [
        ([said("a"), said("b"), BESIDE], "ab", ""),
        ([said("a"), said("b"), completion("ab")], "ab", ""),
        ([said("a"), said("b"), completion("<think></think> AB\n")], "ab", ""),
        ([completion("a"), completion("b")], "ab", ""),
        ([said("ha"), said("ha"), said("haha", "stop")], "hahahaha", ""),
        ([said("ab"), completion("ab")], "ab", ""),
        (
            [
                said(None, reasoning_content="h"),
                said(None, reasoning_content="m"),
                said("a"),
                completion("a", reasoning_content="hm"),
            ],
            "a",
            "hm",
        ),
        (
            [
                said(None, reasoning_content="h"),
                said(None, reasoning_content="m"),
                completion("", reasoning_content="hm"),
            ],
            "",
            "hm",
        ),
        (
            [
                said(None, reasoning_content="h"),
                said(None, reasoning_content="m"),
                completion("a", reasoning_content="hm"),
            ],
            "a",
            "hm",
        ),
        ([said(None, reasoning_content="a"), said("a", "stop")], "a", "a"),
        ([said("5"), said("5", "stop")], "55", ""),
        ([said("a"), said("b"), said("b", "stop")], "abb", ""),
        ([said("a"), said(" "), said("\n"), said(" ", "stop")], "a \n ", ""),
        ([said(" "), said(" "), said(" ", "stop")], "   ", ""),
        ([said("ab", "stop")], "ab", ""),
    ],
)
def test_last_chunk_that_repeats_the_answer_is_not_counted_twice(
    chunks: list[dict[str, Any]], text: str, reasoning: str
) -> None:
    answer = plain_answer(*chunks, USAGE)
    assert (answer.text, answer.reasoning) == (text, reasoning)


def test_tool_call_that_is_repeated_at_the_end_is_one_call_and_no_later_chunk() -> None:
    answer = plain_answer({"choices": [{"delta": CALL}]}, completion("", **CALL), USAGE)
    assert (answer.tool_calls, len(answer.content)) == ((ToolCall("f", "{}"),), 1)
    assert answer.last_text_ns == answer.content[0].ns


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        *((name, "stop") for name in ("stop", "eos_token", "eos", "STOP", "end_turn", "stop_sequence", "COMPLETE")),
        *((name, "tool_calls") for name in ("tool-calls", "TOOL_USE")),
        *((name, "length") for name in ("max_new_tokens", "model_context_window_exceeded", "max-tokens")),
        *(
            (name, "stop")
            for name in ("repetition", "FINISH_REASON_STOP", "FinishReason.STOP", "REASON_STOP", "eos_found")
        ),
        *(
            (name, "length")
            for name in ("length", "FINISH_REASON_MAX_TOKENS", "max_tokens", "MAX_TOKENS", "model_length", "max_length")
        ),
        ({"type": "length", "length": 8}, "length"),
        *((name, "tool_calls") for name in ("tool_calls", "tool_use", "function_call")),
        *((name, None) for name in ("", "null", None)),
    ],
)
def test_finish_reasons_have_one_spelling(finish: Any, expected: str | None) -> None:
    whole = {"choices": [{"message": {"content": "a"}, "finish_reason": finish}], **USAGE}
    assert plain_answer(said("a", finish), said("b", finish), USAGE).finish_reason == expected
    assert PLAIN.read_whole(whole, drafting=False).finish_reason == expected


FAILED = [
    ({"finish_reason": "error"}, ErrorClass.HTTP_5XX, "error"),
    ({"finish_reason": "abort"}, ErrorClass.HTTP_5XX, "abort"),
    ({"finish_reason": "stop", "native_finish_reason": "network_error"}, ErrorClass.HTTP_5XX, "network_error"),
    ({"finish_reason": "FinishReason.SAFETY"}, ErrorClass.HTTP_5XX, "SAFETY"),
    ({"finish_reason": "content_filter"}, ErrorClass.HTTP_5XX, "content_filter"),
    ({"finish_reason": "insufficient_system_resource"}, ErrorClass.HTTP_5XX, "insufficient_system_resource"),
    ({"finish_reason": "error", "error": {"message": "lost", "code": 502}}, ErrorClass.HTTP_5XX, "lost"),
    ({"error": {"message": "too long", "code": "400"}}, ErrorClass.HTTP_4XX, "too long"),
    ({"error": {"message": "too many", "code": 429}}, ErrorClass.RATE_LIMITED, "too many"),
]


@pytest.mark.parametrize(("choice", "error_class", "words"), FAILED)
@pytest.mark.parametrize("streamed", [True, False])
def test_end_that_no_complete_answer_has_is_a_failure(
    choice: dict[str, Any], error_class: ErrorClass, words: str, streamed: bool
) -> None:
    chunks = said("a"), {"choices": [{"delta": {}, **choice}]}, STOP, USAGE
    whole = {"choices": [{"message": {"content": "a"}, **choice}], **USAGE}
    with pytest.raises(BadAnswer) as caught:
        _ = plain_answer(*chunks) if streamed else PLAIN.read_whole(whole, drafting=False)
    assert caught.value.error_class is error_class
    assert words in str(caught.value)


def test_error_without_choices_of_older_servers_is_reported() -> None:
    with pytest.raises(BadAnswer, match="too long") as caught:
        plain_answer({"object": "error", "message": "too long", "code": 400})
    assert caught.value.error_class is ErrorClass.HTTP_4XX
    with pytest.raises(BadAnswer, match="worker died"):
        plain_answer(said("a"), {"message": "worker died", "code": 500}, STOP, USAGE)
    assert plain_answer(said("a"), STOP, {"code": 0, "message": "Success"}, {"code": 200, "message": "ok", **USAGE})


@pytest.mark.parametrize(
    ("chunks", "times", "last"),
    [
        ([said("a"), said("b"), STOP, STOP], [0, 1], 1),
        ([said("a"), said("b", "stop"), STOP], [0, 1], 1),
        ([said("a"), said("", reasoning="hm"), said("")], [0, 1], 1),
        ([said("a"), said(None, tool_calls=[{"function": {"name": "f"}}]), STOP], [0, 1], 1),
        ([said(""), STOP], [], None),
    ],
)
def test_last_token_is_the_last_text(chunks: list[Any], times: list[int], last: int | None) -> None:
    answer = plain_answer(*chunks, USAGE)
    assert ([chunk.ns for chunk in answer.content], answer.last_text_ns) == (times, last)


@ALL
def test_token_of_the_finish_chunk_is_counted_but_is_not_the_last_text(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    text = [at for at, chunk in enumerate(chunks) if chunk["choices"] and chunk["choices"][0]["delta"].get("content")]
    events = [event._replace(ns=at) for at, event in enumerate(as_events(chunks))]
    answer = run_to_completion(dialect.read(events, drafting=True))
    assert answer.last_text_ns == text[-1]


def test_decreasing_totals_of_llama_cpp_are_malformed() -> None:
    chunks = llama(THREE)
    chunks[2], chunks[3] = chunks[3], chunks[2]
    assert refusal(LLAMA, chunks)[0] is ErrorClass.MALFORMED


OPENAI = DIALECTS_BY_NAME[DialectName.OPENAI]
Usage = dict[str, Any]


def chunk(text: str | None = None, finish: str | None = None, usage: Usage | None = None, **delta: Any) -> Usage:
    """Return a chunk; without text, finish reason and other fields it is one that has only a usage."""
    content = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": {**content, **delta}, "finish_reason": finish}]
    return {"choices": choices if text is not None or finish or delta else [], "usage": usage}


def in_choice(tokens: int, text: str = "") -> Usage:
    """Return a chunk with its usage where Moonshot sends it."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "usage": counted(tokens)}]}


def counted(tokens: int, reasoning: int | None = None, **others: Any) -> Usage:
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return {"prompt_tokens": 9, "completion_tokens": tokens, **details, **others}


def rejected(tokens: int, unsent: int) -> Usage:
    return counted(tokens, completion_tokens_details={"rejected_prediction_tokens": unsent})


FOUR = [chunk("word ")] * 4
STOP = chunk(finish="stop")
CALL: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}
CONFLICTS: dict[str, tuple[list[Usage], int | None, str | None]] = {
    "one usage": ([*FOUR, STOP, chunk(usage=counted(4))], 4, None),
    "the same usage twice": ([*FOUR, chunk(finish="stop", usage=counted(4)), chunk(usage=counted(4))], 4, None),
    "the second usage has the end token": (
        [*FOUR, chunk(finish="stop", usage=counted(4)), chunk(usage=counted(5))],
        5,
        None,
    ),
    "a last usage that is too low": (
        [*FOUR, chunk(finish="stop", usage=counted(4)), chunk(usage=counted(1))],
        None,
        "UnequalUsages",
    ),
    "a first usage that is too low": (
        [*FOUR, chunk(finish="stop", usage=counted(1)), chunk(usage=counted(4))],
        None,
        "UnequalUsages",
    ),
    "a running usage that falls": (
        [chunk("a", usage=counted(9)), *FOUR, STOP, chunk(usage=counted(5))],
        None,
        "UnequalUsages",
    ),
    "a running usage": (
        [chunk("a ", usage=counted(one)) for one in (1, 2, 3)] + [STOP, chunk(usage=counted(3))],
        3,
        None,
    ),
    "a usage in the first chunk": ([chunk("", usage=counted(1)), *FOUR, STOP, chunk(usage=counted(4))], 4, None),
    "a usage of 0 after another": ([*FOUR, chunk(finish="stop", usage=counted(4)), chunk(usage=counted(0))], 4, None),
    "an empty usage after another": ([*FOUR, chunk(finish="stop", usage=counted(4)), chunk(usage={})], 4, None),
    "the finish reason on each chunk": (
        [chunk("a ", "stop", usage=counted(one)) for one in (1, 3, 5)] + [chunk(usage=counted(5))],
        5,
        None,
    ),
    "a usage in the choice that is too low": ([*FOUR, in_choice(4), chunk(usage=counted(1))], None, "UnequalUsages"),
    "a usage in an extension that is too low": (
        [*FOUR, {**STOP, "x_groq": {"usage": counted(4)}}, {"x_groq": {"usage": counted(1)}}],
        None,
        "UnequalUsages",
    ),
    "a running usage in the choice": (
        [in_choice(one, "a ") for one in (1, 2, 3)] + [STOP, chunk(usage=counted(3))],
        3,
        None,
    ),
    "two usages with other names": (
        [*FOUR, {**STOP, "usage": {"output_tokens": 4}}, {"usage": {"input_tokens": 9, "output_tokens": 8}}],
        None,
        "UnequalUsages",
    ),
    "a tag before the first token": (
        [chunk("<think>\n"), *FOUR, STOP, chunk(usage=counted(4))],
        4,
        "UncountedStart",
    ),
    "a tag before the first token of a drafter": (
        [chunk("<think>\n"), chunk("word " * 3), chunk("word "), STOP, chunk(usage=counted(4))],
        4,
        "UncountedStart",
    ),
    "a tag and more chunks than tokens": (
        [chunk("<think>\n"), *FOUR, chunk("word"), STOP, chunk(usage=counted(4))],
        None,
        "MoreChunksThanTokens",
    ),
    "a line end after the last token": (
        [*FOUR, chunk("\n"), STOP, chunk(usage=counted(4))],
        None,
        "MoreChunksThanTokens",
    ),
    "a tag and no token": ([chunk("<think>"), STOP, chunk(usage=counted(0))], None, "MoreChunksThanTokens"),
    "text without tokens": ([*FOUR, STOP, chunk(usage=counted(0))], None, "MoreChunksThanTokens"),
    "the whole text again": (
        [*FOUR, chunk("word " * 4, "stop"), chunk(usage=counted(4))],
        None,
        "MoreChunksThanTokens",
    ),
    "text letter by letter": ([chunk("w")] * 9 + [STOP, chunk(usage=counted(3))], None, "MoreChunksThanTokens"),
    "reasoning letter by letter": (
        [chunk(reasoning="w")] * 9 + [STOP, chunk(usage=counted(3))],
        None,
        "MoreChunksThanTokens",
    ),
    "a tool call in many parts": ([chunk(**CALL)] * 9 + [STOP, chunk(usage=counted(3))], 3, None),
    "the limit and the end token": ([*[chunk("word ")] * 8, STOP, chunk(usage=counted(9))], 9, None),
    "more than the limit, as sent": ([*[chunk("word ")] * 12, STOP, chunk(usage=counted(12))], 12, "AboveMaxTokens"),
    "more than the limit, in as many chunks": (
        [*[chunk("word ")] * 8, STOP, chunk(usage=counted(12))],
        None,
        "AboveMaxTokens",
    ),
    "more than the limit, in few chunks": ([*FOUR, STOP, chunk(usage=counted(12))], None, "AboveMaxTokens"),
    "hidden reasoning": ([*FOUR, STOP, chunk(usage=counted(304, 300))], 4, "UnsentTokens"),
    "hidden reasoning beside the counts": (
        [*FOUR, STOP, chunk(usage=counted(8, reasoning_tokens=4))],
        4,
        "UnsentTokens",
    ),
    "nothing but hidden reasoning": ([STOP, chunk(usage=counted(8, 8))], 0, "UnsentTokens"),
    "hidden reasoning and a tool call": ([chunk(**CALL), STOP, chunk(usage=counted(304, 300))], 4, "UnsentTokens"),
    "text under an unknown key": (
        [*[chunk(analysis="hm ")] * 4, *FOUR, STOP, chunk(usage=counted(8))],
        None,
        "UnsentTokens",
    ),
    "one chunk of an unknown kind": ([chunk(status="busy"), *FOUR, STOP, chunk(usage=counted(5))], 5, None),
    "text that the usage leaves out": ([*[chunk(analysis="hm ")] * 4, *FOUR, STOP, chunk(usage=counted(7))], 7, None),
    "roles in every chunk": ([*[chunk(role="assistant")] * 4, *FOUR, STOP, chunk(usage=counted(8))], 8, None),
    "reasoning that the usage leaves out": (
        [*FOUR, STOP, chunk(usage=counted(4, 381, total_tokens=9 + 4 + 381))],
        4,
        None,
    ),
    "reasoning that was sent, beside the usage's tokens": (
        [*[chunk(reasoning="hm ")] * 4, *FOUR, STOP, chunk(usage=counted(4, 4, total_tokens=9 + 4 + 4))],
        8,
        None,
    ),
    "reasoning that was sent, in the usage's tokens": (
        [*[chunk(reasoning="hm ")] * 4, *FOUR, STOP, chunk(usage=counted(8, 4, total_tokens=9 + 8))],
        8,
        None,
    ),
    "more reasoning than tokens": ([*FOUR, STOP, chunk(usage=counted(4, 381))], 4, None),
    "reasoning that was sent": ([chunk(reasoning="hm "), *FOUR, STOP, chunk(usage=counted(5, 1))], 5, None),
    "reasoning in the text": ([chunk("a "), chunk("</think>b"), STOP, chunk(usage=counted(6, 4))], 6, None),
    "reasoning in as many chunks": ([*FOUR, STOP, chunk(usage=counted(5, 3))], 5, None),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_tokens_are_counted_by_the_usage_unless_the_stream_contradicts_it(case: str) -> None:
    chunks, tokens, conflict = CONFLICTS[case]
    answer = run_to_completion(OPENAI.read(as_events(chunks), drafting=True, max_tokens=8))
    assert (answer.output_tokens, answer.token_conflict) == (tokens, conflict)


@pytest.mark.parametrize(
    ("words", "conflict"),
    [
        ((12, 1, 1, 1), "LargeStart"),
        ((8, 1, 1, 1, 1, 1, 1, 1), None),  # a step's drafts
        ((9, *[1] * 171), None),  # five percent
        ((10, *[1] * 171), "LargeStart"),
        ((12,), None),
    ],
)
def test_the_tokens_of_a_large_first_chunk_are_unknown_unless_they_are_counted(
    words: tuple[int, ...], conflict: str | None
) -> None:
    chunks = [chunk("word " * one) for one in words]
    answer = run_to_completion(OPENAI.read(as_events([*chunks, STOP, chunk(usage=counted(sum(words)))]), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (sum(words), conflict)
    so_far = accumulate(words)
    running = [chunk("word " * one, usage=counted(total)) for one, total in zip(words, so_far, strict=True)]
    assert run_to_completion(VLLM.read(as_events([*running, STOP]), drafting=True)).token_conflict is None


@pytest.mark.parametrize(
    ("counts", "predicted", "found"),
    [
        ((24, 20), True, (4, "UnsentTokens")),
        ((24, 4), True, (20, "UnsentTokens")),
        ((5, 2), True, (5, None)),
        ((8, 0), True, (8, None)),
        ((8, 4), False, (8, None)),
        ((8, 3), False, (8, None)),
        ((6, 60), False, (6, None)),
    ],
)
def test_rejected_tokens_are_subtracted_only_from_answers_to_a_prediction(
    counts: tuple[int, int], predicted: bool, found: tuple[int, str | None]
) -> None:
    events = as_events([*FOUR, STOP, chunk(usage=rejected(*counts))])
    answer = run_to_completion(OPENAI.read(events, drafting=True, predicted=predicted))
    assert (answer.output_tokens, answer.token_conflict) == found


@pytest.mark.parametrize(
    ("names", "served_by"),
    [
        ({"model": "m", "system_fingerprint": "fp_1"}, "m, fp_1"),
        ({"model": "m", "system_fingerprint": None}, "m"),
        ({"system_fingerprint": "fp_1"}, "fp_1"),
        ({"model": 5, "system_fingerprint": ""}, None),
        ({}, None),
    ],
    ids=str,
)
def test_answer_names_its_server_by_model_and_fingerprint(names: dict[str, Any], served_by: str | None) -> None:
    events = as_events([*FOUR, STOP, {**chunk(usage=counted(4)), **names}])
    assert run_to_completion(OPENAI.read(events, drafting=True)).served_by == served_by


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        *(
            (text, "UncountedStart")
            for text in (" \n", "\u200b", "\ufeff", "\u2060", "\u200d\u200c", "\xad", "\u200e\n")
        ),
        *((text, "UncountedStart") for text in ("\ufe0f", "\U000e0020", "\u3164", "\u200b<think>\n", "<think>\ufeff")),
        *((text, None) for text in ("a\u200b", "\ufeff#", "\u4f60", "\ud83d", "\u270c\ufe0f", "\ufffd", "-")),
    ],
    ids=ascii,
)
def test_text_that_shows_nothing_may_have_been_written_before_the_first_token(text: str, conflict: str | None) -> None:
    answer = run_to_completion(
        OPENAI.read(as_events([chunk(text), *FOUR, STOP, chunk(usage=counted(5))]), drafting=True)
    )
    assert (answer.output_tokens, answer.token_conflict) == (5, conflict)


@pytest.mark.parametrize(
    ("dialect", "chunks", "times", "tokens"),
    [
        (OPENAI, FOUR, [0, 1, 2, 3], [None] * 4),
        (VLLM, [chunk("<think>", usage=counted(0)), chunk("a ", usage=counted(3)), chunk("b", usage=counted(4))],
         [1, 2], [3, 1]),
        (VLLM, [chunk("\u200b", usage=counted(0)), chunk("a ", usage=counted(3)), chunk("b", usage=counted(4))],
         [1, 2], [3, 1]),
        (VLLM, [chunk("<think>", usage=counted(1)), chunk("a ", usage=counted(3)), chunk("b", usage=counted(4))],
         [0, 1, 2], [1, 2, 1]),
        (VLLM, [chunk("a ", usage=counted(0)), chunk("b ", usage=counted(3)), chunk("c", usage=counted(4))],
         [0, 1, 2], [0, 3, 1]),
        (VLLM, [in_choice(1, "a "), in_choice(3, "b "), in_choice(4, "c")], [0, 1, 2], [1, 2, 1]),
    ],
    ids=["not counted", "counted as none", "blank, counted as none", "counted", "text", "in choices"],
)  # fmt: skip
def test_chunks_begin_after_white_space_and_tags_that_are_no_tokens(
    dialect: Dialect, chunks: list[Usage], times: list[int], tokens: list[int | None]
) -> None:
    timed = [
        event._replace(ns=index) for index, event in enumerate(as_events([*chunks, STOP, chunk(usage=counted(4))]))
    ]
    answer = run_to_completion(dialect.read(timed, drafting=True))
    assert answer.token_conflict is None
    assert [(one.ns, one.tokens) for one in answer.content] == list(zip(times, tokens, strict=True))


@pytest.mark.parametrize(
    ("chunks", "conflict"),
    [
        ([chunk("word ")] * 3, "UnsentTokens"),
        ([chunk("word " * 4)] * 10, None),
        ([chunk(reasoning="hm ")] * 3 + [chunk("word " * 20)], None),
        ([chunk(**CALL)], None),
    ],
    ids=["too little text", "enough text", "with reasoning", "markup of a tool call"],
)
def test_more_tokens_than_bytes_of_text_were_not_sent(chunks: list[Usage], conflict: str | None) -> None:
    answer = run_to_completion(OPENAI.read(as_events([*chunks, STOP, chunk(usage=counted(40))]), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (None if conflict else 40, conflict)


def test_chunks_that_count_their_tokens_need_no_text() -> None:
    chunks = [chunk("a", usage=counted(1)), *[chunk("", usage=counted(one)) for one in range(2, 41)]]
    answer = run_to_completion(VLLM.read(as_events([*chunks, STOP, chunk(usage=counted(40))]), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (40, None)


def test_tokens_that_the_first_chunk_counts_without_text_were_not_sent() -> None:
    """vLLM with `include_reasoning: false` sends nothing before the answer, whose first chunk counts all of it."""
    chunks = [chunk("word ", usage=counted(one)) for one in range(31, 41)]
    answer = run_to_completion(VLLM.read(as_events([*chunks, STOP, chunk(usage=counted(40))]), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (None, "UnsentTokens")


@pytest.mark.parametrize("dialect", [OPENAI, VLLM])
def test_half_characters_of_reasoning_are_counted(dialect: Dialect) -> None:
    chunks = [chunk(reasoning="\ud83d"), chunk(reasoning="\ude00"), chunk("a"), STOP, chunk(usage=counted(3, 2))]
    answer = run_to_completion(dialect.read(as_events(chunks), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (3, None)


def test_summary_instead_of_reasoning_contradicts_its_tokens() -> None:
    chunks = [chunk(reasoning="I thought."), chunk("word " * 80), STOP, chunk(usage=counted(120, 80))]
    answer = run_to_completion(OPENAI.read(as_events(chunks), drafting=True))
    assert (answer.output_tokens, answer.token_conflict) == (None, "UnsentTokens")


@pytest.mark.parametrize(("tokens", "left"), [(1, (None, "UnequalUsages")), (3, (4, None))])
def test_contradicted_count_leaves_no_count_of_chunks_and_no_acceptance(
    tokens: int, left: tuple[int | None, str | None]
) -> None:
    chunks = vllm(THREE)
    chunks[-1] = {**chunks[-1], "usage": {**chunks[-1]["usage"], "completion_tokens": tokens}}
    answer = run_to_completion(VLLM.read(as_events(chunks), drafting=True))
    if left[1] is None:
        assert (answer.output_tokens, answer.output_tokens_client, answer.token_conflict) == (tokens, 4, None)
        return
    assert (answer.output_tokens, answer.token_conflict) == left
    assert (answer.output_tokens_client, answer.acceptance) == (None, RequestAcceptance())
    assert {one.tokens for one in answer.content} == {None}


@ALL
def test_answer_that_was_not_streamed_has_no_chunks_to_contradict_its_count(dialect: Dialect) -> None:
    def read(usage: Usage) -> tuple[int | None, str | None]:
        choice = {"index": 0, "message": {"content": "word"}, "finish_reason": "stop"}
        answer = dialect.read_whole({"choices": [choice], "usage": usage}, drafting=False, max_tokens=8)
        return answer.output_tokens, answer.token_conflict

    assert read(counted(9, 5)) == (9, None)
    assert read(counted(12)) == (12, "AboveMaxTokens")
    assert read(counted(0)) == (None, "MoreChunksThanTokens")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["choices", "usage", "metrics", "timings", "sglext", "error", "system_fingerprint"]
CHUNKS = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=5)


@pytest.mark.draws
@ALL
@given(strange=CHUNKS, place=st.integers(0, 6), drafting=st.booleans())
def test_arbitrary_json_never_crashes_a_dialect(
    dialect: Dialect, strange: list[dict[str, Any]], place: int, drafting: bool
) -> None:
    chunks = chunks_of(dialect)
    chunks[place:place] = strange
    try:
        answer = run_to_completion(dialect.read(as_events(chunks), drafting=drafting))
    except BadAnswer:
        return
    answer.text.encode()
    assert answer.output_tokens is None or 0 <= answer.output_tokens <= 2**53


@ALL
@given(block=st.dictionaries(st.sampled_from(
    ["num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "per_step_accepted", "predicted_n", "draft_n",
     "draft_n_accepted", "cache_n"]), st.integers(-3, 9) | st.lists(st.integers(-1, 5), max_size=4) | st.none(),
))  # fmt: skip
def test_arbitrary_counts_never_crash_a_dialect_or_become_negative(dialect: Dialect, block: dict[str, Any]) -> None:
    chunks = chunks_of(dialect)
    chunks[-1]["metrics"] = {"speculative_decoding": block}
    chunks[-1]["timings"] = block
    acceptance = run_to_completion(dialect.read(as_events(chunks), drafting=True)).acceptance
    totals = (acceptance.steps, acceptance.draft_steps, acceptance.drafted_tokens, acceptance.accepted_tokens)
    assert all(count is None or count >= 0 for count in (*totals, *(acceptance.step_accepted or ())))


def test_identity_is_read_from_the_engine_and_missing_without_an_answer() -> None:
    models = {"data": [{"id": "smol"}]}
    assert VLLM.identity({"/v1/models": models, "/version": {"version": "0.33.0"}}) == EngineIdentity("smol", "0.33.0")
    assert LLAMA.identity({"/v1/models": models, "/props": {"build_info": "b1"}}) == EngineIdentity("smol", "b1")
    assert SGLANG.identity({"/v1/models": models, "/server_info": {"version": "0.5.23"}}) == EngineIdentity(
        "smol", "0.5.23"
    )
    assert SGLANG.identity({"/model_info": {"model_path": "/m"}}) == EngineIdentity("/m")
    assert TENSORRT_LLM.identity({"/v1/models": models, "/version": {"version": "1.2.1"}}) == EngineIdentity(
        "smol", "1.2.1"
    )
    for dialect in (VLLM, LLAMA, SGLANG, TENSORRT_LLM):
        strange: list[Any] = [None, [], {}, {"data": []}, {"data": [3]}, {"data": [{"id": 3}]}, 3]
        for nothing in strange:
            assert dialect.identity(dict.fromkeys(dialect.identity_paths, nothing)) == EngineIdentity()
        assert dialect.identity({}) == EngineIdentity()


@pytest.mark.parametrize(("adaptive", "counts"), [(True, False), (False, True), (None, True)])
def test_sglang_with_adaptive_draft_lengths_does_not_count_drafts(adaptive: bool | None, counts: bool) -> None:
    """It reports the verifications times the length that it was started with."""
    info = {"version": "0.5.23", "speculative_adaptive": adaptive}
    assert SGLANG.identity({"/server_info": info}).counts_drafts is counts


def whole(dialect: Dialect) -> dict[str, Any]:
    """Return the same answer unstreamed: the last chunk's figures and the whole text."""
    *_, before, last = chunks_of(dialect)
    extra = {"avg_decoded_tokens_per_iter": 4 / 3} if dialect is TENSORRT_LLM else {}
    message = {"role": "assistant", "content": "word " * THREE.output_tokens}
    choice = {"index": 0, "message": message, "finish_reason": "length", **extra}
    return {**last, "choices": [choice], **({"sglext": before["sglext"]} if dialect is SGLANG else {})}


@ALL
def test_unstreamed_answer_has_tokens_and_acceptance_but_no_chunks(dialect: Dialect) -> None:
    answer = dialect.read_whole(whole(dialect), drafting=True)
    assert (answer.text, answer.finish_reason) == ("word " * 4, "length")
    assert (answer.input_tokens, answer.output_tokens, answer.output_tokens_client) == (7, 4, None)
    assert answer.content == ()
    expected = (None, None) if dialect is TENSORRT_LLM else (2, 1)  # without chunks the client cannot derive steps
    assert (answer.acceptance.steps, answer.acceptance.accepted_tokens) == expected


@ALL
@pytest.mark.parametrize(
    ("change", "expected_class"),
    [
        ({"usage": None}, ErrorClass.TRUNCATED_STREAM),
        ({"choices": []}, ErrorClass.MALFORMED),
        ({"choices": [{}, {}]}, ErrorClass.MALFORMED),
        ({"choices": [{"message": "x"}]}, ErrorClass.MALFORMED),
        ({"error": {"message": "out of memory", "code": 500}}, ErrorClass.HTTP_5XX),
    ],
)
def test_unstreamed_answer_that_cannot_be_counted_has_an_error_class(
    dialect: Dialect, change: dict[str, Any], expected_class: ErrorClass
) -> None:
    with pytest.raises(BadAnswer) as caught:
        dialect.read_whole({**whole(dialect), **change}, drafting=True)
    assert caught.value.error_class is expected_class


def test_long_answer_is_read_in_slices() -> None:
    long = DecodedAnswer(tuple(StreamStep() for _ in range(10 * CHUNKS_PER_SLICE)))
    slices = sum(1 for _ in VLLM.read(as_events(vllm(long)), drafting=False))
    assert slices >= 10


NEUTRAL = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
"""Samplers that the spec does not have: disabled by default, and users may enable them."""
REQUESTS = [
    CompletionRequest("m", (ChatMessage("user", "hi"),), Sampling(), Output(stream=stream, ignore_eos=True), 7)
    for stream in (True, False)
]


@pytest.mark.parametrize("completion_request", REQUESTS, ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "dialect", [*DIALECTS.values(), *DIALECTS_BY_NAME.values()], ids=lambda dialect: type(dialect).__name__
)
def test_every_field_set_by_a_dialect_is_reserved_or_overridable(
    dialect: Dialect, completion_request: CompletionRequest
) -> None:
    assert set(dialect.body(completion_request)) - NEUTRAL <= RESERVED_BODY_FIELDS.keys()
    assert not NEUTRAL & RESERVED_BODY_FIELDS.keys()


def test_null_removes_a_field_and_a_renamed_limit_has_the_number_of_the_request() -> None:
    body = {"model": "m", "seed": 7, "max_tokens": 8, "top_k": 1}
    assert with_extra_fields(body, {"seed": None, "stop": None, "top_k": 5}) == {
        "model": "m",
        "max_tokens": 8,
        "top_k": 5,
    }
    extra = {"max_tokens": None, "max_completion_tokens": 64, "x": {"y": None}}
    assert with_extra_fields(body, extra) == {
        "model": "m",
        "seed": 7,
        "top_k": 1,
        "max_completion_tokens": 8,
        "x": {"y": None},
    }
    assert with_extra_fields(body, {"max_completion_tokens": None}) == body
