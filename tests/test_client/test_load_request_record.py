"""One turn always gives a record, with times relative to the point's start."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.spec.workload import Output
from specbench_client.chat import ChatMessage
from specbench_client.documents.record import Record
from specbench_client.load.conversations import request_seed
from specbench_client.load.turns import skipped_after
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import ADDRESS_REMEDY
from specbench_client.transport.exchange import HttpExchange, ReceivedBytes
from specbench_testing.conversation_turns import CannedTransport, context, taken, turn
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, sse, vllm
from specbench_testing.present import present
from specbench_testing.scripted_server import HEAD, Script, ScriptAction, response, serve_scripts

DECODED = DecodedAnswer((StreamStep(3, 2), StreamStep()))
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = sse(vllm(DECODED))


def exchange(body: bytes = ANSWER, **kept: object) -> HttpExchange:
    """Return an exchange connected at 95 ns and sent at 100; each event is a separate read, the n-th at 200 + n."""
    pieces = [piece + b"\n\n" for piece in body.split(b"\n\n") if piece]
    reads = tuple(ReceivedBytes(200 + number, piece) for number, piece in enumerate(pieces))
    whole = HttpExchange(100, reads, 200, {}, ended_ns=999, connect_ns=95, first_byte_ns=150, timestamp_source="kernel")
    return replace(whole, **kept)  # type: ignore[arg-type]


async def test_record_contains_the_answer_with_times_from_the_points_start() -> None:
    given_context = context(CannedTransport(exchange()), started_ns=50)
    result = await given_context.take_turn(replace(turn(), intended_ns=90))
    text = "word " * 5
    assert result.reply_text == text
    assert result.ended_ns == 999
    assert result.record == Record(
        request_id="p-000003-0", prompt_id="a", category="cat", conversation_id="a#0", turn=0, repeat=1,
        phase="steady", stream_index=2, intended_ns=40, connect_ns=45, sent_ns=50, first_byte_ns=100,
        first_token_ns=151, last_token_ns=153, chunk_ns=[151, 152, 153], chunk_tokens=[1, 3, 1],
        chunk_coalesced=[False, False, False], timestamp_source="kernel", input_tokens=7, output_tokens=5,
        output_tokens_client=5, steps=2, draft_steps=1, drafted_tokens=3, accepted_tokens=2, step_accepted=[2],
        step_drafted=[3], acceptance_source="per_step", cached_tokens=0, finish_reason="length", error_class=None,
        error=None, output_sha256=hashlib.sha256(text.encode()).hexdigest(), reasoning_tokens=0, cut_tokens=0,
        judged=True, ended_ns=949,
    )  # fmt: skip


async def test_last_token_is_the_last_text_and_not_the_finish_chunk() -> None:
    first, chunk, *end = vllm(DecodedAnswer((StreamStep(), StreamStep(), StreamStep())))
    chunk["choices"][0]["finish_reason"] = None
    for late in end[:-1]:
        late["choices"][0]["delta"] = {}
    record = (
        await context(CannedTransport(exchange(sse([first, chunk, *end]))), started_ns=50).take_turn(turn())
    ).record
    assert (record.first_token_ns, record.last_token_ns, record.ended_ns) == (151, 151, 949)
    assert (record.chunk_tokens, record.output_tokens) == (
        [1] * len(present(record.chunk_ns)),
        record.output_tokens_client,
    )


async def test_answer_without_text_has_tokens_but_no_token_times() -> None:
    chunks = vllm(DecodedAnswer((StreamStep(), StreamStep())))
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        choice["delta"] = {}
    record = (await context(CannedTransport(exchange(sse(chunks)))).take_turn(turn())).record
    assert (record.error_class, record.output_tokens, record.flaw) == (None, 3, "Empty")
    assert (record.first_token_ns, record.last_token_ns) == (None, None)


async def test_drafts_that_the_engine_does_not_count_are_not_recorded() -> None:
    record = (await context(CannedTransport(exchange()), counts_drafts=False).take_turn(turn())).record
    assert (record.drafted_tokens, record.draft_steps, record.accepted_tokens) == (None, 1, 2)
    assert (record.step_drafted, record.step_accepted) == (None, [2])


@pytest.mark.parametrize(("pieces_per_read", "coalesced"), [(1, False), (2, True), (3, True)])
async def test_last_chunk_read_together_with_the_end_is_marked_coalesced(pieces_per_read: int, coalesced: bool) -> None:
    """The last pieces are the last chunk with content, the usage, and [DONE]."""
    pieces = [piece + b"\n\n" for piece in ANSWER.split(b"\n\n") if piece]
    *before, last = range(len(pieces) - 2)
    reads = [ReceivedBytes(200 + number, pieces[number]) for number in before]
    reads.append(ReceivedBytes(300, b"".join(pieces[last : last + pieces_per_read])))
    reads += [ReceivedBytes(400, piece) for piece in pieces[last + pieces_per_read :]]
    record = (await context(CannedTransport(exchange(arrivals=tuple(reads)))).take_turn(turn())).record
    assert record.chunk_coalesced == [False, False, coalesced]
    assert record.last_token_ns == 300 - context(CannedTransport()).request_config.started_ns, (
        "the timestamp is not corrected"
    )


async def test_output_text_is_kept_only_if_requested() -> None:
    turn_context = context(CannedTransport(exchange()), keep_text=True)
    assert (await turn_context.take_turn(turn())).record.output_text == "word " * 5


async def test_answers_are_judged_and_failed_requests_are_not() -> None:
    looping = DecodedAnswer(tuple(StreamStep() for _ in range(100)))
    record = (await context(CannedTransport(exchange(sse(vllm(looping))))).take_turn(turn())).record
    assert (record.judged, record.flaw) == (True, "Loop")
    assert type(record.flaw) is str
    failed = exchange(error_class=ErrorClass.RESET, error="gone", arrivals=())
    record = (await context(CannedTransport(failed)).take_turn(turn())).record
    assert (record.judged, record.flaw) == (False, None)


@pytest.mark.parametrize(
    ("text", "finish", "flaw"),
    [
        ("<think>Two and two.</think>Four.", "stop", None),
        ("<think>Two and two.</think>\n", "stop", "Empty"),
        ("<think>Two and", "stop", "Empty"),
        ("<think>Two and", "length", None),
    ],
)
async def test_reasoning_that_the_engine_does_not_separate_is_no_answer(text: str, finish: str, flaw: Any) -> None:
    first, chunk, *end = vllm(DecodedAnswer())
    chunk["choices"][0] |= {"delta": {"content": text}, "finish_reason": finish}
    record = (await context(CannedTransport(exchange(sse([first, chunk, *end])))).take_turn(turn())).record
    assert (record.output_tokens, record.flaw) == (1, flaw)


async def test_request_has_its_id_seed_headers_and_messages() -> None:
    wire = CannedTransport(exchange())
    await context(wire, headers={"Authorization": "Bearer x"}).take_turn(turn(ChatMessage("user", "hi ☃")))
    request = wire.requests[0]
    assert request.url == "http://127.0.0.1:9/v1/chat/completions"
    assert request.headers == {"X-Request-Id": "p-000003-0", "Authorization": "Bearer x"}
    body = json.loads(request.body)
    assert body["messages"] == [{"role": "user", "content": "hi ☃"}]
    assert body["seed"] == request_seed(0, 1, "a#0", 0)


async def test_failed_exchange_gives_a_record_with_its_error() -> None:
    failed = exchange(error_class=ErrorClass.RESET, error="gone", arrivals=())
    result = await context(CannedTransport(failed)).take_turn(turn())
    record = result.record
    assert result.reply_text is None
    assert (record.error_class, record.error, record.sent_ns, record.first_byte_ns) == ("reset", "gone", 100, 150)
    assert record.ended_ns == 999
    assert record.output_tokens is None
    assert record.chunk_ns is None


async def test_answer_that_is_no_event_stream_is_reported_with_its_type_and_first_bytes() -> None:
    page = replace(exchange(b"<html>\x1b[31m"), headers={"content-type": "text/html"})
    record = (await context(CannedTransport(page)).take_turn(turn())).record
    assert record.error_class == "malformed"
    assert record.error == (
        r"the answer is not an event stream (Content-Type: text/html): it begins with b'<html>\x1b[31m\n\n': "
        + ADDRESS_REMEDY
    )


JSON_ANSWER = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}


@pytest.mark.parametrize(
    ("body", "header", "error_class", "words"),
    [
        (json.dumps(JSON_ANSWER, indent=1), {"content-type": "application/json"}, "malformed", "output.stream"),
        (
            '{"error": {"message": "too long", "code": 400}}',
            {"content-type": "application/json"},
            "http_4xx",
            "too long",
        ),
        ("\x1f", {"content-encoding": "br"}, "malformed", "Content-Encoding br"),
        ("\x1f", {"transfer-encoding": "gzip, chunked"}, "malformed", "Transfer-Encoding gzip, chunked"),
        (ANSWER.decode(), {"x-cache": "HIT"}, "malformed", "a cache answered instead of the engine (x-cache: HIT)"),
        *(
            (ANSWER.decode(), {name: value}, "malformed", f"({name}: {value})")
            for name, value in (
                ("age", "37"),
                ("cache-status", "edge; fwd=miss, gateway; hit; ttl=300"),
                ("x-cache", "Hit from cloudfront"),
                ("x-cache", "HIT, MISS"),
                ("x-cache-status", "TCP_HIT"),
                ("cf-aig-cache-status", "HIT"),
                ("x-portkey-cache-status", "SEMANTIC HIT"),
                ("helicone-cache", "HIT"),
                ("age", "01"),
                ("x-cache", "MISS,HIT"),
                ("x-cache", "RefreshHit from cloudfront"),
                ("cf-cache-status", "STALE"),
                ("x-litellm-cache-hit", "True"),
                ("x-cache-hits", "1"),
            )
        ),
        *(
            (ANSWER.decode(), {name: value}, None, "")
            for name, value in (
                ("age", "0"),
                ("cache-status", "gateway; fwd=miss; stored"),
                ("x-cache", "MISS"),
                ("x-cache", "Miss from hit-1.example"),
                ("x-cache", "NO_HIT"),
                ("x-cache", "hit=false"),
                ("cf-cache-status", "DYNAMIC"),
                ("cache-status", "lb; hit=?0; fwd=miss"),
                ("x-radix-cache", "hit 128"),
                ("x-session-cache", "hit"),
                ("x-litellm-cache-hit", "False"),
                ("x-cache-hits", "0"),
                ("cache-control", "no-cache"),
                ("x-prompt-cache-status", "hit"),
                ("x-kv-cache", "HIT"),
                ("x-cached-tokens", "hit"),
                ("x-rate-limit-cache", "white"),
            )
        ),
        (ANSWER.decode(), {"content-encoding": "identity"}, None, ""),
        (ANSWER.decode(), {"transfer-encoding": "identity, Chunked"}, None, ""),
        (ANSWER.decode(), {"content-encoding": "none"}, None, ""),
        (ANSWER.decode(), {"content-encoding": "UTF-8"}, None, ""),
    ],
)
async def test_answer_in_a_form_that_was_not_requested_is_refused(
    body: str, header: dict[str, str], error_class: str | None, words: str
) -> None:
    sent = replace(exchange(body.encode()), headers=header)
    record = (await context(CannedTransport(sent)).take_turn(turn())).record
    assert record.error_class == error_class
    assert words in (record.error or "")


async def test_skipped_turn_is_recorded_as_not_sent_with_the_reason() -> None:
    failed = await context(CannedTransport(exchange(error_class=ErrorClass.TIMEOUT, error="x"))).take_turn(turn())
    record = skipped_after(failed, 2)
    assert (record.request_id, record.turn, record.sent_ns, record.ended_ns) == ("p-000003-2", 2, None, None)
    assert (record.error_class, record.error) == ("skipped_after_error", "turn 0 failed: timeout")


@pytest.mark.parametrize(
    ("script", "expected_class"),
    [
        ([HEAD, ANSWER], None),
        ([HEAD, ANSWER[:-14]], None),
        ([HEAD, ANSWER[: ANSWER.index(b'"finish_reason": "')]], "truncated_stream"),
        ([HEAD], "truncated_stream"),
        ([HEAD, ANSWER[:60], ScriptAction.RESET], "reset"),
        ([CHUNKED, b"%x\r\n%s\r\n" % (len(ANSWER), ANSWER), ScriptAction.RESET], "reset"),
        ([HEAD, b"data: {\n\n", ANSWER], "malformed"),
        ([HEAD, b"data: \n\ndata:\n\nid: 1\nx-y: z\n\n", ANSWER], None),
        ([HEAD, b"<html></html>\n"], "malformed"),
        ([HEAD, b"<html></html>"], "malformed"),
        ([HEAD, b'data: {"error": {"message": "out of memory", "code": 500}}\n\ndata: [DONE]\n\n'], "http_5xx"),
        ([response(500, b"boom")], "http_5xx"),
        ([response(422, b"no")], "http_4xx"),
        ([response(408, b"slow")], "http_5xx"),
        ([response(425, b"early")], "http_5xx"),
        ([HEAD, ANSWER[:60], ScriptAction.STALL], "timeout"),
        ([ScriptAction.RESET], "reset"),
    ],
)
async def test_each_end_of_an_exchange_has_its_error_class(script: Script, expected_class: str | None) -> None:
    async with serve_scripts(script) as (url, _):
        record = await taken(url, idle_timeout_s=0.1 if ScriptAction.STALL in script else 20)
    assert record.error_class == expected_class
    assert bool(record.error) == bool(expected_class)


async def test_unstreamed_answer_has_an_end_and_no_first_token() -> None:
    message = {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [message], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()
    turn_context = context(CannedTransport(exchange(body)), output=Output(stream=False), started_ns=50, drafting=False)
    record = (await turn_context.take_turn(turn())).record
    assert (record.error_class, record.first_token_ns, record.chunk_ns, record.chunk_tokens) == (None, None, None, None)
    assert (record.last_token_ns, record.output_tokens, record.output_tokens_client, record.steps) == (949, 2, None, 1)


async def test_extra_body_fields_are_sent_and_override_others() -> None:
    wire = CannedTransport(exchange())
    await context(wire, extra_body={"top_k": 5, "stop": ["."]}).take_turn(turn())
    body = json.loads(wire.requests[0].body)
    assert (body["top_k"], body["stop"]) == (5, ["."])


async def test_unstreamed_answer_that_is_not_json_is_malformed() -> None:
    turn_context = context(CannedTransport(exchange(b"<html>")), output=Output(stream=False))
    assert (await turn_context.take_turn(turn())).record.error_class == "malformed"


@pytest.mark.parametrize("begin", ["data: {}", "\r\ndata:{}", "event: message\ndata: {}", ": OPENROUTER PROCESSING"])
async def test_stream_that_was_not_requested_is_named_with_the_remedy_and_its_words(begin: str) -> None:
    turn_context = context(CannedTransport(exchange(begin.encode() + b"\n\n")), output=Output(stream=False))
    record = (await turn_context.take_turn(turn())).record
    assert record.error_class == "malformed"
    assert "measure this server with streams" in (record.error or "")
    assert (record.error or "").endswith(begin.strip())


@pytest.mark.parametrize(
    ("fields", "conflict"),
    [
        ({}, "AboveMaxTokens"),
        ({"max_tokens": None}, None),
        ({"max_tokens": None, "max_completion_tokens": 3}, "AboveMaxTokens"),
        ({"top_k": 5}, "AboveMaxTokens"),
    ],
    ids=str,
)
async def test_answer_above_its_limit_is_marked_unless_no_limit_is_sent(
    fields: dict[str, Any], conflict: str | None
) -> None:
    wire = CannedTransport(exchange())
    record = (await context(wire, output=Output(max_tokens=3), extra_body=fields).take_turn(turn())).record
    assert (record.token_conflict, record.error_class) == (conflict, None)
    assert (record.output_tokens is None) == (conflict is not None), "three chunks do not confirm five tokens"


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"prediction": {"type": "content", "content": "word word"}}, 3),
        ({"prediction": None}, 5),
        ({"top_k": 5}, 5),
        ({}, 5),
    ],
    ids=str,
)
async def test_rejected_tokens_are_subtracted_if_the_request_has_a_prediction(
    fields: dict[str, Any], tokens: int
) -> None:
    documents = vllm(DECODED)
    documents[-1]["usage"]["completion_tokens_details"] = {"rejected_prediction_tokens": 2}
    wire = CannedTransport(exchange(sse(documents)))
    assert (await context(wire, extra_body=fields).take_turn(turn())).record.output_tokens == tokens


async def test_limit_of_a_prompt_comes_before_that_of_its_workload() -> None:
    longer = turn()
    prompt = replace(longer.conversation.prompt, output_tokens=5)
    longer = replace(longer, conversation=replace(longer.conversation, prompt=prompt))
    record = (await context(CannedTransport(exchange()), output=Output(max_tokens=3)).take_turn(longer)).record
    assert (record.token_conflict, record.output_tokens) == (None, 5)
