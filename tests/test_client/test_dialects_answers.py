"""What dialects ask for, and how they read answers that are whole, odd or broken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.engine import SIMULATED_DIALECTS, DialectName, Engine, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative import CHUNKS_PER_SLICE, run_to_completion
from specbench_client.dialects.dialect import AnswerChunk, BadAnswer, CompletionRequest, Dialect, EngineIdentity
from specbench_client.dialects.registry import DIALECTS, DIALECTS_BY_NAME, dialect_of
from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.sse import SseEvent
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, llama, sglang, tensorrt_llm, vllm

VLLM = DIALECTS[EngineKind.SIMULATOR]
LLAMA = DIALECTS[EngineKind.LLAMA_CPP]
SGLANG = DIALECTS[EngineKind.SGLANG]
TENSORRT_LLM = DIALECTS[EngineKind.TENSORRT_LLM]
ALL = pytest.mark.parametrize(
    "dialect", [VLLM, LLAMA, SGLANG, TENSORRT_LLM], ids=["vllm", "llama.cpp", "sglang", "tensorrt-llm"]
)
ASK = CompletionRequest(
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


def test_every_engine_kind_has_a_dialect_of_its_kind() -> None:
    assert {kind: dialect.kind for kind, dialect in DIALECTS.items()} == {kind: kind for kind in EngineKind}


@pytest.mark.parametrize("name", list(DialectName))
def test_an_endpoint_speaks_what_it_is_said_to_speak(name: DialectName) -> None:
    engine = Engine(kind=EngineKind.EXTERNAL, endpoint="http://127.0.0.1:1", dialect=name)
    own = {DialectName.OPENAI: EngineKind.EXTERNAL}.get(name) or EngineKind(str(name))
    assert type(dialect_of(engine)) is type(DIALECTS[own])
    assert dialect_of(engine).kind is EngineKind.EXTERNAL


@pytest.mark.parametrize("name", SIMULATED_DIALECTS)
def test_the_simulator_speaks_whose_answers_it_imitates(name: DialectName) -> None:
    dialect = dialect_of(Engine(kind=EngineKind.SIMULATOR, dialect=name))
    assert type(dialect) is type(DIALECTS[EngineKind(str(name))])
    assert dialect.kind is EngineKind.SIMULATOR
    assert type(dialect_of(Engine(kind=EngineKind.SIMULATOR))) is type(VLLM)


def test_a_research_runtime_speaks_vllms_wire() -> None:
    assert type(DIALECTS[EngineKind.TRANSFORMERS]) is type(VLLM)


@ALL
def test_a_body_asks_for_a_stream_with_usage_and_leaves_no_sampling_to_the_engine(dialect: Dialect) -> None:
    body = dialect.body(ASK)
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert body.items() >= {"model": "m", "seed": 99, "temperature": 0.5, "top_p": 0.9, "max_tokens": 32}.items()
    assert body["ignore_eos"] is True
    assert body["stream"] is True
    assert body["stream_options"]["include_usage"] is True
    assert "top_k" in body
    json.dumps(body)


@ALL
def test_a_whole_answer_is_asked_for_without_anything_that_belongs_to_a_stream(dialect: Dialect) -> None:
    body = dialect.body(replace(ASK, output=Output(max_tokens=32, stream=False)))
    assert body["stream"] is False
    assert not {"stream_options", "timings_per_token"} & set(body)


@pytest.mark.parametrize("dialect", [VLLM, LLAMA, SGLANG, TENSORRT_LLM, DIALECTS_BY_NAME[DialectName.OPENAI]])
def test_token_ids_are_sent_as_they_are_past_the_chat_template(dialect: Dialect) -> None:
    body = dialect.body(replace(ASK, messages=(ChatMessage("user", "", (5, 6, 7)),)))
    assert body["prompt"] == [5, 6, 7]
    assert "messages" not in body
    assert dialect.tokens_path == "/v1/completions"


IDS = (ChatMessage("system", "be brief"), ChatMessage("user", "hi", (5, 6, 7)))


@pytest.mark.parametrize("dialect", [VLLM, LLAMA, SGLANG, TENSORRT_LLM, DIALECTS_BY_NAME[DialectName.OPENAI]])
def test_what_the_client_rendered_is_sent_as_token_ids(dialect: Dialect) -> None:
    body = dialect.body(replace(ASK, messages=IDS))
    assert body["prompt"] == [5, 6, 7]
    assert "messages" not in body
    assert not {"skip_special_tokens", "preserved_tokens"} & set(body)


def test_an_engine_is_asked_to_keep_the_markers_of_thought_where_it_knows_how() -> None:
    ask = replace(ASK, messages=IDS, markers=("<|channel|>",))
    for dialect in (VLLM, SGLANG, TENSORRT_LLM):
        assert dialect.body(ask)["skip_special_tokens"] is False
        assert dialect.keeps_special_tokens
    assert LLAMA.body(ask)["preserved_tokens"] == ["<|channel|>"]
    for dialect in (DIALECTS_BY_NAME[DialectName.OPENAI], DIALECTS[EngineKind.TRANSFORMERS]):
        assert (dialect.body(ask), dialect.keeps_special_tokens) == (dialect.body(replace(ask, markers=())), False)


def test_chunks_of_a_completion_carry_their_text_beside_the_reason() -> None:
    chunks = vllm(THREE)
    for chunk in chunks[:-1]:
        chunk["choices"] = [{"index": 0, "text": chunk["choices"][0]["delta"]["content"], "finish_reason": "stop"}]
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).text == "word " * 4


def test_each_dialect_asks_for_what_tells_tokens_chunk_by_chunk() -> None:
    for dialect in (VLLM, SGLANG, TENSORRT_LLM):
        assert dialect.body(ASK)["stream_options"]["continuous_usage_stats"] is True
    assert LLAMA.body(ASK)["timings_per_token"] is True


def test_llama_is_told_not_to_keep_prompts() -> None:
    assert LLAMA.body(ASK)["cache_prompt"] is False


@ALL
def test_text_times_usage_and_reason_are_read(dialect: Dialect) -> None:
    answer = run_to_completion(dialect.read(as_events(chunks_of(dialect)), drafting=True))
    assert answer.text == "word " * 4
    assert (answer.input_tokens, answer.output_tokens) == (7, 4)
    assert answer.cached_tokens == {SGLANG: None}.get(dialect, 0), "SGLang tells of hits alone"
    assert answer.finish_reason == "length"
    assert answer.fingerprint == {VLLM: "vllm-test", LLAMA: "b0-test"}.get(dialect)
    times = [chunk.ns for chunk in answer.content]
    assert times == list(range(1, len(times) + 1)), "the role's chunk is no content"


def test_tokens_without_text_are_content_when_the_engine_counts_them() -> None:
    chunks = vllm(DecodedAnswer((StreamStep(), StreamStep())))
    chunks[3]["choices"][0]["delta"]["content"] = ""
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=False)).content == (
        AnswerChunk(1, 1),
        AnswerChunk(2, 1),
        AnswerChunk(3, 1),
    )


def test_tokens_of_a_chunk_are_missing_where_the_engine_does_not_count_them() -> None:
    answer = run_to_completion(VLLM.read(as_events(vllm(THREE, continuous=False)), drafting=True))
    assert {chunk.tokens for chunk in answer.content} == {None}
    assert answer.output_tokens_client is None
    assert answer.output_tokens == 4


def test_a_llama_token_that_ends_the_text_is_counted_on_the_chunk_that_says_so() -> None:
    answer = run_to_completion(
        LLAMA.read(as_events(llama(DecodedAnswer((StreamStep(), StreamStep())), ends_itself=True)), drafting=False)
    )
    assert answer.content == (AnswerChunk(1, 1), AnswerChunk(2, 1), AnswerChunk(3, 1))
    assert answer.finish_reason == "stop"


def test_llama_tokens_that_never_came_are_not_made_up() -> None:
    chunks = llama(DecodedAnswer(tuple(StreamStep() for _ in range(9))))
    del chunks[2:8]
    chunks[-1]["usage"]["completion_tokens"] = 15
    answer = run_to_completion(LLAMA.read(as_events(chunks), drafting=False))
    assert (answer.output_tokens, answer.output_tokens_client) == (15, 10)


def test_llama_without_running_totals_is_one_token_a_chunk() -> None:
    chunks = [{name: value for name, value in chunk.items() if name != "timings"} for chunk in llama(THREE)]
    answer = run_to_completion(LLAMA.read(as_events(chunks), drafting=True))
    assert answer.output_tokens_client == 4
    assert answer.acceptance.steps is None


@ALL
def test_reasoning_is_content_and_not_the_reply(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    chunks[1]["choices"][0]["delta"] = {"reasoning_content": "hm"}
    answer = run_to_completion(dialect.read(as_events(chunks), drafting=True))
    assert answer.reasoning == "hm"
    assert answer.content[0].ns == 1
    assert "hm" not in answer.text


@ALL
def test_thoughts_before_the_answer_are_counted_and_calls_of_tools_are_none(dialect: Dialect) -> None:
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
    assert thoughts({"content": "Yes"}, {"reasoning_content": "hm"}) == 0, "what comes after the answer began is answer"
    assert thoughts({"tool_calls": [{"function": {"name": "f"}}]}) == 0


def test_thoughts_are_not_counted_where_chunks_tell_no_tokens() -> None:
    chunks = vllm(THREE, continuous=False)
    chunks[1]["choices"][0]["delta"] = {"reasoning_content": "hm"}
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).reasoning_tokens is None


@ALL
def test_a_character_that_was_cut_in_two_is_made_whole(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    chunks[1]["choices"][0]["delta"]["content"] = "\ud83d"
    chunks[2]["choices"][0]["delta"]["content"] = "\ude00"
    assert run_to_completion(dialect.read(as_events(chunks), drafting=True)).text.startswith("😀")


@ALL
def test_a_stream_without_its_end_is_truncated(dialect: Dialect) -> None:
    assert refusal(dialect, chunks_of(dialect), done=False)[0] is ErrorClass.TRUNCATED_STREAM
    assert refusal(dialect, [], done=False)[0] is ErrorClass.TRUNCATED_STREAM


@ALL
def test_a_stream_without_usage_is_truncated(dialect: Dialect) -> None:
    chunks = [{name: value for name, value in chunk.items() if name != "usage"} for chunk in chunks_of(dialect)]
    assert refusal(dialect, chunks)[0] is ErrorClass.TRUNCATED_STREAM


@ALL
def test_a_stream_without_a_finish_reason_is_truncated(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        choice["finish_reason"] = None
    assert refusal(dialect, chunks)[0] is ErrorClass.TRUNCATED_STREAM


@ALL
@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ({"message": "EngineCore died", "code": 500}, ErrorClass.HTTP_5XX),
        ({"message": "EngineCore died"}, ErrorClass.HTTP_5XX),
        ({"message": "EngineCore died", "code": 400}, ErrorClass.HTTP_4XX),
        ("EngineCore died", ErrorClass.HTTP_5XX),
    ],
)
def test_an_error_in_mid_stream_is_told_in_the_engines_words(dialect: Dialect, error: Any, wanted: ErrorClass) -> None:
    assert refusal(dialect, [*chunks_of(dialect)[:2], {"error": error}]) == (wanted, "in mid-stream: EngineCore died")


@ALL
@pytest.mark.parametrize(
    "data",
    [
        *("{", "[]", "3", '{"choices": 3}', '{"choices": [3]}', '{"choices": [{"delta": 3}]}', '{"choices": [{}, {}]}'),
        *('{"choices": [{"delta": {"content": 3}}]}', "[" * 100_000),
    ],
)
def test_a_chunk_that_is_no_chunk_is_malformed(dialect: Dialect, data: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        run_to_completion(dialect.read([SseEvent(0, data), SseEvent(1, "[DONE]")], drafting=True))
    assert caught.value.error_class is ErrorClass.MALFORMED


@ALL
def test_counts_that_go_backwards_are_malformed(dialect: Dialect) -> None:
    chunks = chunks_of(dialect)
    chunks[2], chunks[3] = chunks[3], chunks[2]
    assert refusal(dialect, chunks)[0] is ErrorClass.MALFORMED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["choices", "usage", "metrics", "timings", "sglext", "error", "system_fingerprint"]
CHUNKS = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=5)


@ALL
@given(strange=CHUNKS, place=st.integers(0, 6), drafting=st.booleans())
def test_no_json_makes_a_dialect_stumble(
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
def test_no_counts_make_a_dialect_stumble_or_tell_less_than_nothing(dialect: Dialect, block: dict[str, Any]) -> None:
    chunks = chunks_of(dialect)
    chunks[-1]["metrics"] = {"speculative_decoding": block}
    chunks[-1]["timings"] = block
    acceptance = run_to_completion(dialect.read(as_events(chunks), drafting=True)).acceptance
    told = (acceptance.steps, acceptance.draft_steps, acceptance.drafted_tokens, acceptance.accepted_tokens)
    assert all(count is None or count >= 0 for count in (*told, *(acceptance.step_accepted or ())))


def test_identity_is_what_the_engine_says_and_missing_where_it_says_nothing() -> None:
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


def whole(dialect: Dialect) -> dict[str, Any]:
    """The answer that the engine would give without streaming: the last chunk's figures, and all of the text."""
    *_, before, last = chunks_of(dialect)
    told = {"avg_decoded_tokens_per_iter": 4 / 3} if dialect is TENSORRT_LLM else {}
    message = {"role": "assistant", "content": "word " * THREE.output_tokens}
    choice = {"index": 0, "message": message, "finish_reason": "length", **told}
    return {**last, "choices": [choice], **({"sglext": before["sglext"]} if dialect is SGLANG else {})}


@ALL
def test_a_whole_answer_tells_its_tokens_and_acceptance_but_no_chunks(dialect: Dialect) -> None:
    answer = dialect.read_whole(whole(dialect), drafting=True)
    assert (answer.text, answer.finish_reason) == ("word " * 4, "length")
    assert (answer.input_tokens, answer.output_tokens, answer.output_tokens_client) == (7, 4, None)
    assert answer.content == ()
    wanted = (None, None) if dialect is TENSORRT_LLM else (2, 1)  # without chunks nothing shows what it counts
    assert (answer.acceptance.steps, answer.acceptance.accepted_tokens) == wanted


@ALL
@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"usage": None}, ErrorClass.TRUNCATED_STREAM),
        ({"choices": []}, ErrorClass.MALFORMED),
        ({"choices": [{}, {}]}, ErrorClass.MALFORMED),
        ({"choices": [{"message": "x"}]}, ErrorClass.MALFORMED),
        ({"error": {"message": "out of memory", "code": 500}}, ErrorClass.HTTP_5XX),
    ],
)
def test_a_whole_answer_that_cannot_be_counted_has_its_class(
    dialect: Dialect, change: dict[str, Any], wanted: ErrorClass
) -> None:
    with pytest.raises(BadAnswer) as caught:
        dialect.read_whole({**whole(dialect), **change}, drafting=True)
    assert caught.value.error_class is wanted


def test_a_long_answer_is_read_in_slices() -> None:
    long = DecodedAnswer(tuple(StreamStep() for _ in range(10 * CHUNKS_PER_SLICE)))
    slices = sum(1 for _ in VLLM.read(as_events(vllm(long)), drafting=False))
    assert slices >= 10
