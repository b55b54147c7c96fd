"""Answers of a hostile engine: each limit of the client, with an answer that exceeds it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from pathlib import Path

import pytest

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.engine import EngineKind
from specbench_client import bounded_json
from specbench_client.dialects import metrics_page, openai_stream
from specbench_client.dialects.engine_answer import BadAnswer
from specbench_client.dialects.engine_facts import info_labels, read_facts
from specbench_client.dialects.metrics_page import MAX_LINE_CHARS, totals_by_model
from specbench_client.dialects.registry import DIALECTS
from specbench_client.load.machine_limits import MIN_HELD_BYTES, held_bytes_of_worker, memory_limit
from specbench_client.transport import sse
from specbench_client.transport.control_client import MAX_CONTROL_BYTES, ControlClient, ControlError
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpExchange, HttpRequest, ReceivedBytes
from specbench_client.transport.http_connection import HttpConnection, ResponseParser
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.kernel_timestamps import PollPass
from specbench_client.transport.limits import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, READ_OVERHEAD_BYTES
from specbench_client.transport.sse import MalformedStream, parse_events
from specbench_testing.conversation_turns import CannedTransport, context, turn
from specbench_testing.scripted_server import HEAD, Script, ScriptAction, response, serve_scripts

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIP = gzip.compress(bytes(8 * 1024 * 1024))
MIB = 1024 * 1024
Tls = ssl.SSLContext | None


# Control requests.


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", GZIP],
            "Content-Encoding gzip, although",
        ),
        ([HEAD, bytes(MAX_CONTROL_BYTES + 1), ScriptAction.STALL], f"longer than {MAX_CONTROL_BYTES:,} bytes"),
        ([HEAD, *[b"x", ScriptAction.WAIT] * 100], "[Tt]imeout"),
    ],
    ids=["compressed", "long", "dripping"],
)
async def test_control_answer_is_bounded(script: list[bytes | ScriptAction], message: str) -> None:
    async with serve_scripts(script) as (url, _), ControlClient(url, timeout_s=0.5) as control:
        with pytest.raises(ControlError, match=message):
            await control.text("/metrics")


@pytest.mark.parametrize(
    "page", ["[" * 65 + "]" * 65, "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000, '"\\ud800"', "NaN", "1e999x"]
)
async def test_document_that_is_not_plain_json_is_unavailable(page: str) -> None:
    async with serve_scripts([response(200, page.encode())]) as (url, _), ControlClient(url) as control:
        assert await control.documents(["/a"]) == {"/a": None}


@pytest.mark.parametrize("value", ["1e308\nvllm:generation_tokens_total 1e308", "9" * 400, "-1", "NaN", "1e17"])
def test_invalid_counter_is_missing(value: str) -> None:
    counters = DIALECTS[EngineKind.VLLM].counters(f"vllm:generation_tokens_total {value}\nvllm:prompt_tokens_total 5\n")
    assert (counters.output_tokens, counters.prompt_tokens) == (None, 5)


def test_implausibly_long_metrics_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    long = 'a_total{x="' + "\\" * MAX_LINE_CHARS + '"} 1'
    assert totals_by_model(f"{long}\nb_total 2\n") == {None: {"b_total": 2.0}}
    monkeypatch.setattr(metrics_page, "MAX_SAMPLES", 3)
    assert totals_by_model("# HELP a b\n\na_total 1\n" * 3) == {None: {"a_total": 3.0}}
    assert totals_by_model("# HELP a b\n\na_total 1\n" * 4) == {}, "the sum over some workers is no total"


@pytest.mark.parametrize(
    ("kind", "page", "answer", "fact"),
    [
        (
            EngineKind.VLLM,
            "/metrics",
            info_labels('vllm:cache_config_info{{num_gpu_blocks="{0}",block_size="{0}"}} 1'.format("9" * 5000)),
            FactName.KV_CACHE_TOKENS,
        ),
        (EngineKind.VLLM, "/version", {"version": "x" * 5000}, FactName.ENGINE_VERSION),
        (
            EngineKind.SGLANG,
            "/server_info",
            {"internal_states": [{"memory_usage": {"weight": 1e308}}]},
            FactName.WEIGHTS_BYTES,
        ),
        (
            EngineKind.SGLANG,
            "/server_info",
            {"internal_states": [{"memory_usage": {"kvcache": 10**400, "token_capacity": 3}}]},
            FactName.KV_BYTES_PER_TOKEN,
        ),
        (EngineKind.SGLANG, "/server_info", {"x": "y" * 100_000}, FactName.ARGUMENTS),
        (
            EngineKind.LLAMA_CPP,
            "/props",
            {"default_generation_settings": {"n_ctx": 2**50}, "total_slots": 2**50},
            FactName.KV_CACHE_TOKENS,
        ),
    ],
)
def test_implausible_fact_is_unknown(kind: EngineKind, page: str, answer: object, fact: FactName) -> None:
    readings = DIALECTS[kind].readings
    assert read_facts(readings, {page: answer})[fact].value is None


# Chunks.


def deep(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(
    "chunk",
    [
        '{"choices":[{"delta":{"tool_calls":%s}}]}' % deep(300),  # noqa: UP031 -- braces
        '{"choices":[{"delta":{"tool_calls":%s}}]}' % deep(1000),  # noqa: UP031
        '{"choices":[{"delta":{"content":%s}}]}' % deep(1000),  # noqa: UP031
        '{"choices":[{"delta":{"tool_calls":["\\ud800"]}}]}',
        deep(900, '{"error":', "}"),
        '{"error":{"code":[%s]}}' % deep(1000),  # noqa: UP031
        deep(100_000),
    ],
)
async def test_deeply_nested_chunk_becomes_a_record_with_an_error(chunk: str) -> None:
    body = f"data: {chunk}\n\ndata: [DONE]\n\n".encode()
    exchange = HttpExchange(1, (ReceivedBytes(2, body),), 200, {}, 9)
    record = (await context(CannedTransport(exchange)).take_turn(turn())).record
    assert record.error_class in {ErrorClass.MALFORMED, ErrorClass.HTTP_5XX, ErrorClass.TRUNCATED_STREAM}
    assert 0 < len(record.error or "") <= 500


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_stream_of_too_many_lines_is_malformed(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINES", 100)
    with pytest.raises(MalformedStream, match="more than 100 lines"):
        parse_events([ReceivedBytes(1, f"data: x{end}".encode() * 101)])


def test_chunk_of_too_many_values_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of one chunk: a long answer with log probabilities has more values in all."""
    for module in (bounded_json, openai_stream):
        monkeypatch.setattr(module, "LARGE_JSON_BYTES", 1000)
    monkeypatch.setattr(bounded_json, "MAX_LARGE_JSON_VALUES", 900)
    usage = '"usage": {"completion_tokens": 1}'
    large = f'{{"choices": [], "x": [{"[]," * 500}1], {usage}}}'
    small = f'{{"choices": [], "logprobs": [{"[]," * 100}1], {usage}}}'
    with pytest.raises(BadAnswer, match="more than 900 values"):
        openai_stream._parse_delta(1, large, coalesced=False)
    stream = b"".join(b"data: %s\n\n" % small.encode() for _ in range(50))
    events = parse_events([ReceivedBytes(1, stream)])
    assert len([openai_stream._parse_delta(*event) for event in events]) == 50


# HTTP framing.


async def exchange_of(*script: bytes | ScriptAction) -> HttpExchange:
    transport = KernelTransport(connect_timeout_s=1.0, idle_timeout_s=1.0, held_bytes_max=64 * MIB)
    async with serve_scripts(script) as (url, _), transport:
        return (await transport.exchange(HttpRequest(f"{url}/v1", b"{}"))).read()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([b"HTTP/1.1 200 OK\r\nX: " + b"a" * (2 * MAX_HEAD_BYTES), ScriptAction.STALL], "the response head has"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, ScriptAction.STALL], "the response head has"),
        ([CHUNKED, b"1\r\nx\r\n0\r\nX: " + b"a" * 10 * MAX_HEAD_BYTES], "that are not content"),
        ([CHUNKED, b"1\r\nx\r\n1;" + b"a" * 10 * MAX_HEAD_BYTES], "that are not content"),
    ],
    ids=["head", "interim-responses", "trailer", "chunk-extension"],
)
async def test_framing_without_content_is_bounded(script: list[bytes | ScriptAction], message: str) -> None:
    exchange = await exchange_of(*script)
    assert exchange.error_class is ErrorClass.MALFORMED
    assert message in (exchange.error or "")


async def test_content_length_of_thousands_of_digits_is_an_error_of_the_request() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"
    assert (await exchange_of(head)).error_class is ErrorClass.MALFORMED


def test_each_byte_is_parsed_once_to_detect_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read ends with the bytes of a last chunk, which are content."""
    fed: list[int] = []
    feed = ResponseParser.feed

    def counted(self: ResponseParser, data: bytes) -> None:
        fed.append(len(data))
        feed(self, data)

    monkeypatch.setattr(ResponseParser, "feed", counted)
    content = b"5\r\n0\r\n\r\n"
    reads = [CHUNKED, content, *[b"\r\n" + content] * 200, b"\r\n0\r\n\r\n"]
    loop = asyncio.new_event_loop()
    with socket.socket() as sock:
        under_test = HttpConnection(sock, b"", loop.create_future(), 0)
        ended = []
        for data in reads:
            under_test.datas.append(data)
            under_test.stamps.append(b"")
            under_test.poll_passes.append(PollPass(0, None))
            under_test.held_bytes += len(data) + READ_OVERHEAD_BYTES
            ended.append(under_test.is_complete(data))
    loop.close()
    assert ended == [False] * 202 + [True]
    assert sum(fed) == sum(map(len, reads))


# The budget of a process.


async def test_answers_of_a_process_share_a_budget(server_tls: Tls) -> None:
    """Neither answer is too long by itself. A request after them is not affected."""
    large: Script = [HEAD, bytes(MIB), ScriptAction.STALL]
    scripts = [large, large, [response(200, b"x")]]
    async with (
        serve_scripts(*scripts, tls=server_tls) as (url, _),
        KernelTransport(idle_timeout_s=20.0, held_bytes_max=3 * MIB // 2) as transport,
    ):
        first, second = (asyncio.create_task(transport.exchange(HttpRequest(url, b""))) for _ in range(2))
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        given_up = first if first.done() else second
        exchange = given_up.result().read()
        assert exchange.error_class is ErrorClass.MALFORMED
        assert f"take more than {3 * MIB // 2:,} bytes in this client process" in (exchange.error or "")
        assert sum(len(one.data) for one in exchange.arrivals) < MIB
        after = (await transport.exchange(HttpRequest(url, b""))).read()
        assert (after.status, after.error_class) == (200, None)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


async def test_parsed_answers_leave_the_budget(server_tls: Tls) -> None:
    script = [HEAD, bytes(MIB)]
    async with (
        serve_scripts(script, tls=server_tls) as (url, _),
        KernelTransport(held_bytes_max=3 * MIB // 2) as transport,
    ):
        for _ in range(4):
            exchange = (await transport.exchange(HttpRequest(url, b""))).read()
            assert exchange.error_class is None


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "4294967296"}, 4 * 1024**3),
        ("0::/\n", {"memory.max": "max"}, None),
        ("0::/a/b\n", {"a/memory.max": "100", "a/b/memory.max": "200"}, 100),
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "300"}, 300),
        ("4:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "300"}, None),
    ],
)
def test_memory_limit_is_the_smallest_of_the_cgroup_and_its_parents(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text + "\n")
    assert memory_limit(tmp_path / "fs", tmp_path / "cgroup") == expected


def test_workers_share_half_of_the_memory() -> None:
    assert held_bytes_of_worker(1) // 2 == pytest.approx(held_bytes_of_worker(2), abs=1)
    assert held_bytes_of_worker(10**9) == MIN_HELD_BYTES


@pytest.mark.parametrize("size", [4, 4096, 9000])
def test_all_chunks_of_a_read_have_its_time(size: int) -> None:
    chunks = b"".join(b"4\r\n%04d\r\n" % number for number in range(3000))
    reads = [CHUNKED, *(chunks[at : at + size] for at in range(0, len(chunks), size)), b"0\r\n\r\n"]
    found = ResponseParser()
    for read in reads:
        found.feed(read)
    assert (found.complete, found.broken) == (True, None)
    assert b"".join(content for _, content in found.contents) == b"".join(b"%04d" % number for number in range(3000))
    lengths = {number: len(content) for number, content in found.contents}
    assert [lengths.get(at, 0) for at in range(len(reads))] == _content_bytes_of_each(reads)


def _content_bytes_of_each(reads: list[bytes]) -> list[int]:
    """Content of chunks of nine bytes (`4 CRLF dddd CRLF`) in each read."""
    offsets, at = [], -len(reads[0])
    for read in reads:
        offsets.append(sum(3 <= (at + byte) % 9 < 7 for byte in range(len(read))) if at >= 0 else 0)
        at += len(read)
    return [*offsets[:-1], 0]


@pytest.mark.draws
def test_limits_admit_the_largest_answer_that_can_be_requested() -> None:
    """131,072 tokens (output.maxTokens), each in an event with a usage and twenty log probabilities."""
    top = [{"token": "x", "logprob": -1, "bytes": [120]}] * 20
    choice = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"top_logprobs": top}]}}
    event = b"data: " + json.dumps({"choices": [choice], "usage": {"completion_tokens": 1}}).encode() + b"\n\n"
    repeats = 1024
    reads = [ReceivedBytes(number, event * repeats) for number in range(131_072 // repeats)]
    assert sum(len(one.data) for one in reads) < MAX_ANSWER_BYTES
    assert sum(1 for _ in parse_events(reads)) == 131_072
