"""Hostile HTTP answers from a seeded generator over real sockets: each ends in a typed error or a usable value.

A seed always gives the same answer.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Point
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Output
from specbench_client.dialects.dialect import Dialect, EngineIdentity
from specbench_client.dialects.registry import DIALECTS
from specbench_client.drive.engine_connection import EngineConnection, identify_engine, observe_launch
from specbench_client.errors import EngineFailed
from specbench_client.store.records import records_table
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import Transport
from specbench_client.transport.http_transport import KernelTransport
from specbench_testing.conversation_turns import context, turn
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, llama, sglang, tensorrt_llm, vllm
from specbench_testing.fuzzing import shifted
from specbench_testing.long_cases import long_after
from specbench_testing.resources import run_of
from specbench_testing.scripted_server import Script, ScriptAction, serve_scripts

HUGE = (10**400, -(10**400), 2**53, 2**63, 2**64, -1, -(2**63), 1e308, float("nan"), float("inf"), 0)
ODD_VALUES: tuple[Any, ...] = (*HUGE, None, True, "", "9" * 5000, "\ud800", "\x00\x1b[2J", [], {}, [None], "x" * 70_000)
MAX_WRITES = 12


def hostile_answer(seed: int, *, streamed: bool) -> Script:
    """Return the script of a seed's answer: a stream for a completion, or a page for a control request."""
    random = Random(seed)
    body = _stream(random) if streamed else _page(random)
    for _ in range(random.choice((0, 0, 1, 1, 3))):
        body = _mutated_bytes(random, body)
    wire = _framed(random, body)
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        wire = _mutated_bytes(random, wire)
    return (*_writes(random, wire), *random.choice(((), (), (ScriptAction.RESET,), (wire[:100],))))


# Bodies.


def _stream(random: Random) -> bytes:
    steps = tuple(StreamStep(5, random.randint(0, 5)) for _ in range(random.randint(0, 6)))
    build: Callable[[DecodedAnswer], list[dict[str, Any]]] = random.choice((vllm, sglang, llama, tensorrt_llm))
    chunks: list[Any] = build(DecodedAnswer(steps))
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(chunks))
        chunks[at] = _mutated_json(random, chunks[at])
    end = random.choice(("\n\n", "\n\n", "\n\n", "\r\n\r\n", "\r\r", "\n", ""))
    texts = [f"data: {_as_json(random, chunk)}{end}" for chunk in chunks]
    texts.append(random.choice(("data: [DONE]\n\n", "data: [DONE]\n\n", "data: [DONE]", "", "[DONE]")))
    noise = (
        "error: boom\n",
        "data:\n\n",
        ": ping\n\n",
        "id: 1\nevent: x\n",
        "<html>\n",
        "data: [DONE]\n\n",
        "\n" * 500,
    )
    for _ in range(random.choice((0, 0, 1, 3))):
        texts.insert(random.randrange(len(texts) + 1), random.choice(noise))
    body = "".join(texts).encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        return _as_json(
            random, _mutated_json(random, {"choices": [{"message": {"content": "x"}}], "usage": {}})
        ).encode("utf-8", "surrogatepass")
    return body


_PAGES: tuple[Any, ...] = (
    {"data": [{"id": "m", "root": "org/m", "max_model_len": 4096, "meta": {"size": 1}}]},
    {"version": "0.33.0"},
    {
        "version": "0.5.23",
        "model_path": "m",
        "dtype": "auto",
        "speculative_algorithm": None,
        "max_total_num_tokens": 5,
        "internal_states": [{"memory_usage": {"weight": 1.5, "kvcache": 2.5, "token_capacity": 7}}],
    },
    {"build_info": "b1-x", "total_slots": 4, "default_generation_settings": {"n_ctx": 4096}},
    [{"id": 0, "speculative": True}],
)
_METRICS = (
    "vllm:generation_tokens_total",
    "vllm:spec_decode_num_drafts_total",
    "sglang:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
    "process_start_time_seconds",
)
_METRIC_VALUES = ("1", "1e308", "NaN", "+Inf", "-5", "9" * 400, "9" * 5000, "x", "", "1 2 3", "0x1", "1_0")


def _page(random: Random) -> bytes:
    if random.random() < 0.5:
        page = random.choice(_PAGES)
        for _ in range(random.choice((0, 1, 2, 4))):
            page = _mutated_json(random, page)
        return _as_json(random, page).encode("utf-8", "surrogatepass")
    lines = [_metric_line(random) for _ in range(random.randint(0, 40))]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _metric_line(random: Random) -> str:
    name = random.choice((*_METRICS, "vllm:cache_config_info", "", "# TYPE x", "é"))
    label = random.choice(("1", "9" * 5000, "\\" * 3001, '\\"' * 2000, "a" * 20_000, "None", "\u202e"))
    labels = random.choice(
        (
            "",
            "",
            f'{{engine="{label}"}}',
            f'{{num_gpu_blocks="{label}",block_size="{label}"}}',
            "{",
            '{a="',
            '{a="b",,}',
        )
    )
    return f"{name}{labels} {random.choice(_METRIC_VALUES)}"


def _as_json(random: Random, value: Any) -> str:
    """Return the value as JSON; Python's writer also writes NaN, infinity and lone surrogates."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.7)
    if random.random() < 0.1:
        depth = random.choice((70, 300, 1100, 50_000))
        opening, closing = random.choice((("[", "]"), ('{"error":', "}"), ('{"a":', "}")))
        deep = opening * depth + "1" + closing * random.choice((0, depth))
        text = random.choice((deep, text.replace('"content": ', f'"tool_calls": {deep}, "content": ', 1)))
    return text


def _mutated_json(random: Random, value: Any) -> Any:
    """Return the value with one of its members replaced, removed, renamed or repeated."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return random.choice(ODD_VALUES)
    if isinstance(value, list):
        copy = list(value)
        at = random.randrange(len(copy))
        if random.random() < 0.2:
            return [*copy, *copy]
        copy[at] = _mutated_json(random, copy[at])
        return copy
    changed = dict(value)
    key = random.choice(sorted(changed))
    action = random.random()
    if action < 0.15:
        del changed[key]
    elif action < 0.3:
        changed[random.choice(("error", "choices", "usage", "delta", "tool_calls", "x" * 300))] = changed.pop(key)
    else:
        changed[key] = _mutated_json(random, changed[key])
    return changed


# HTTP framing.

_STATUS_LINES = (
    *(b"HTTP/1.1 200 OK",) * 12,
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/latest",
    b"HTTP/1.1 404 Not Found",
    b"HTTP/1.1 500 " + b"x" * 3000,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
    b"HTTP/1.1 103 Early Hints\r\n\r\n" * 400 + b"HTTP/1.1 200 OK",
    b"HTTP/1.1 999 ?",
    b"HTTP/1.1 -1",
    b"HTTP/9.9 200 OK",
    b"SSH-2.0-x",
    b"",
)
_HEADERS = (
    b"Set-Cookie: " + b"a" * 9000,
    b"X: " + b"y" * 70_000,
    b"X: y\r\n" * 3000 + b"Z: z",
    b"Content-Encoding: gzip",
    b"Content-Encoding: br, gzip",
    b"Content-Length: 99999999999999999999999",
    b"Content-Length: " + b"9" * 5000,
    b"Content-Length: -1",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    b"Content-Type: text/html; charset=" + b"x" * 200,
    b"\x00: \xff",
    b" folded: \r\n line",
    b"Connection: keep-alive",
)


def _framed(random: Random, body: bytes) -> bytes:
    if random.random() < 0.05:
        body = gzip.compress(bytes(random.choice((1000, 3_000_000))))
    head = [random.choice(_STATUS_LINES), b"Content-Type: text/event-stream"]
    head += random.sample(_HEADERS, random.choice((0, 0, 0, 0, 1, 2)))
    framing = random.random()
    if framing < 0.5:
        return b"\r\n".join([*head, b"Transfer-Encoding: chunked", b"", b""]) + _chunked(random, body)
    if framing < 0.75:
        length = len(body) + random.choice((0, 0, 0, 1, -1, 100))
        return b"\r\n".join([*head, b"Content-Length: %d" % max(length, 0), b"", b""]) + body
    return b"\r\n".join([*head, b"", b""]) + body


def _chunked(random: Random, body: bytes) -> bytes:
    size = random.choice((1, 7, 500, 500, 10**6))
    if size == 1:
        body = body[:5000]
    extension = random.choice((b"", b"", b"", b"", b";a=b", b";" + b"x" * 100_000))
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    wire = b"".join(b"%x%s\r\n%s\r\n" % (len(one), extension if at == 0 else b"", one) for at, one in enumerate(pieces))
    return wire + random.choice(_LAST_CHUNKS)


_LAST_CHUNKS = (
    *(b"0\r\n\r\n",) * 6,
    b"",
    b"ffffffffffffffffff\r\n",
    b"f" * 70_000,
    b"-1\r\n\r\n",
    b"0\r\nX: " + b"t" * 100_000 + b"\r\n\r\n",
    b"0\r\n" + b"A: b\r\n" * 20_000,
    b"0\r\n\r\n" * 500,
)


def _mutated_bytes(random: Random, data: bytes) -> bytes:
    """Return the bytes with a part of them flipped, removed, repeated or inserted."""
    if not data:
        return random.randbytes(20)
    at = random.randrange(len(data))
    length = random.choice((1, 1, 4, 100))
    part = data[at : at + length]
    inserted = random.choice(
        (b"", random.randbytes(len(part)), part * 3, b"\xff\xfe", b"\r\n\r\n", b"\n\n", b"0\r\n\r\n")
    )
    return data[:at] + inserted + data[at + length :]


def _writes(random: Random, wire: bytes) -> list[bytes]:
    cuts = sorted(random.randrange(len(wire) + 1) for _ in range(random.randrange(MAX_WRITES)))
    return [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True) if end > start]


ONE_POINT = Point(hash="a" * 64, arm="none", workload="chat", level=Level(concurrency=1), repeat=0)
ANSWERS_PER_BLOCK = 100
IDLE_TIMEOUT_S = 0.2
ANSWER_DEADLINE_S = 120.0
"""An answer that takes longer fails the test: the client must give up long before."""
MEMORY_GROWTH_MAX_KIB = 400 * 1024
STREAMED_BLOCKS, CONTROL_BLOCKS = shifted(range(12)), shifted(range(100, 108))
"""Each block is a seed: together 2,000 answers."""

KINDS = tuple(DIALECTS)


class EscapedErrors(list[str]):
    """Collects the errors that reach the event loop."""

    def handle(self, _loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        self.append(f"{found.get('message')}: {found.get('exception')!r}")


@pytest.mark.draws
@pytest.mark.parametrize("block", long_after(1, STREAMED_BLOCKS))
async def test_hostile_completion_becomes_a_record(block: int, server_tls: ssl.SSLContext | None) -> None:
    count = ANSWERS_PER_BLOCK // 2
    first = block * ANSWERS_PER_BLOCK + (count if server_tls else 0)
    seeds = range(first, first + count)
    escaped, before_kib = EscapedErrors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.get_running_loop().set_exception_handler(escaped.handle)
    scripts = [hostile_answer(seed, streamed=True) for seed in seeds]
    async with (
        serve_scripts(*scripts, tls=server_tls) as (url, _),
        KernelTransport(idle_timeout_s=IDLE_TIMEOUT_S) as transport,
    ):
        for seed in seeds:
            await complete(transport, url, seed)
            assert not escaped, f"seed {seed}: {escaped}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_GROWTH_MAX_KIB


async def complete(transport: Transport, url: str, seed: int) -> None:
    """Take one turn; fail with the seed unless its record can be stored."""
    client = context(transport, url, KINDS[seed % len(KINDS)], keep_text=True)
    if seed % 5 == 0:
        client = replace(client, request_config=replace(client.request_config, output=Output(stream=False)))
    try:
        record = (await asyncio.wait_for(client.take_turn(turn()), ANSWER_DEADLINE_S)).record
        records_table(ONE_POINT, [record])
    except Exception as error:
        raise AssertionError(f"seed {seed}: an exception escaped: {error!r}") from error
    assert record.error_class is None or record.error_class in set(ErrorClass), f"seed {seed}: {record}"
    assert (record.error is None) == (record.error_class is None), f"seed {seed}: {record}"
    counts = (record.input_tokens, record.output_tokens, record.steps, record.draft_steps, record.accepted_tokens)
    assert all(one is None or one >= 0 for one in counts), f"seed {seed}: {record}"


@pytest.mark.draws
@pytest.mark.parametrize("block", long_after(1, CONTROL_BLOCKS))
async def test_hostile_control_answer_becomes_a_value_or_an_engine_failure(block: int) -> None:
    seeds = range(block * ANSWERS_PER_BLOCK, (block + 1) * ANSWERS_PER_BLOCK)
    escaped, before_kib = EscapedErrors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.get_running_loop().set_exception_handler(escaped.handle)
    for seed in seeds:
        async with (
            serve_scripts(hostile_answer(seed, streamed=False)) as (url, _),
            ControlClient(url, timeout_s=IDLE_TIMEOUT_S) as control,
        ):
            await query_all_pages(control, DIALECTS[KINDS[seed % len(KINDS)]], url, seed)
        assert not escaped, f"seed {seed}: {escaped}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_GROWTH_MAX_KIB


async def query_all_pages(control: ControlClient, dialect: Dialect, url: str, seed: int) -> None:
    """Make every control request of a launch, each of which gets the same answer."""
    plan = lay_out(run_of({"spec.engine": {"kind": EngineKind.SIMULATOR}}))
    engine = EngineConnection(plan, plan.arms[0], url, "m", dialect, control, EngineIdentity())

    async def query() -> None:
        with suppress(EngineFailed):
            await control.wait_healthy(dialect.health_path, 0)
        await identify_engine(control, dialect)
        await engine.counters()
        launch = await observe_launch(engine, plan.groups[0], "0-a", HostFacts(), "2030-01-02T03:04:05Z")
        assert type(launch).from_json(launch.to_json()) == launch

    try:
        await asyncio.wait_for(query(), ANSWER_DEADLINE_S)
    except Exception as error:
        raise AssertionError(f"seed {seed}: an exception escaped: {error!r}") from error
