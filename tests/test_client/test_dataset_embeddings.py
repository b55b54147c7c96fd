"""Embeddings: an HTTP endpoint with temporary failures, a stand-in for sentence-transformers, and files."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from specbench_client.chat import ChatMessage
from specbench_client.dataset import embeddings
from specbench_client.dataset.diversity import Vectors
from specbench_client.dataset.embeddings import BATCH, embed_prompts
from specbench_client.dataset.prompt_entries import PromptEntry
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.closing_servers import ClosingTestServer


def entry(name: str, text: str) -> PromptEntry:
    return PromptEntry(Prompt(name, None, ((ChatMessage("user", text),),)), {})


def check_progress(done: int, total: int) -> None:
    assert done <= total


def direction(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(text.count("a"))]


@dataclass
class Server:
    """An embedding endpoint that returns rows in reverse order, after the status codes in `failures`."""

    failures: list[int] = field(default_factory=list)
    always: int | None = None
    inputs: list[list[str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.keys.append(request.headers.get("Authorization"))
        if self.always or self.failures:
            return web.Response(status=self.always or self.failures.pop(), text="not now")
        assert body["model"] == "m"
        self.inputs.append(body["input"])
        rows = [{"index": index, "embedding": direction(text)} for index, text in enumerate(body["input"])]
        return web.json_response({"data": rows[::-1]})


@pytest.fixture
def server() -> Iterator[Server]:
    """A real server on its own thread."""
    found, loop, ready = Server(), asyncio.new_event_loop(), threading.Event()

    async def start() -> ClosingTestServer:
        app = web.Application()
        app.router.add_post("/v1/embeddings", found.answer)
        server = ClosingTestServer(app)
        await server.start_server()
        found.url = f"http://127.0.0.1:{server.port}/v1"
        ready.set()
        return server

    def serve() -> None:
        server = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(server.close())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(60)
    yield found
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "PAUSES_S", (0.0,) * len(embeddings.PAUSES_S))


def embed(source: str, *entries: PromptEntry, **further: Any) -> Vectors:
    return embed_prompts(source, entries, check_progress, model="m", **further)[1]


def unit(*rows: list[float]) -> Any:
    raw = np.array(rows)
    return pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)


def test_each_distinct_text_is_sent_once_and_vectors_match_their_prompts(server: Server) -> None:
    entries = [entry(f"p{number}", "a" * (number % 100 + 1)) for number in range(300)]
    vectors = embed(server.url, *entries, headers={"Authorization": "Bearer secret"})
    assert sorted(text for batch in server.inputs for text in batch) == sorted({one.text for one in entries})
    assert max(map(len, server.inputs)) <= BATCH
    assert vectors == unit(*(direction(one.text) for one in entries))
    assert set(server.keys) == {"Bearer secret"}


def test_busy_server_is_retried(server: Server) -> None:
    server.failures = [429, 503, 500]
    assert embed(server.url, entry("p", "one")) == unit(direction("one"))


def test_server_that_stays_busy_or_is_not_there_fails_after_the_maximum_of_tries(server: Server) -> None:
    server.always = 503
    with pytest.raises(EngineFailed, match="HTTP 503"):
        embed(server.url, entry("p", "one"))
    assert len(server.keys) == len(embeddings.PAUSES_S) + 1
    with pytest.raises(EngineFailed, match=r"127\.0\.0\.1"):
        embed("http://127.0.0.1:9/v1", entry("p", "x"))


@pytest.mark.parametrize("status", [307, 400, 401])
def test_rejected_text_is_not_retried(status: int, server: Server) -> None:
    server.always = status
    with pytest.raises(BadInput, match=f"HTTP {status}: not now: the longest of the 1 texts has 3 characters"):
        embed(server.url, entry("p", "one"))
    assert len(server.keys) == 1


def test_local_model_encodes_distinct_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("sentence_transformers")
    encode = lambda texts, show_progress_bar: [direction(text) for text in texts]  # noqa: E731
    library.SentenceTransformer = lambda _: SimpleNamespace(encode=encode)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    assert embed("local", entry("p", "one"), entry("q", "a"), entry("r", "one")) == unit(
        *map(direction, ("one", "a", "one"))
    )


ENTRIES = [entry("p", "x"), entry("q", "y")]


def write_vectors(file: Path) -> str:
    if file.suffix == ".npy":
        np.save(file, np.array([[3, 4], [0, 2]], dtype=np.float32))
    else:
        rows = {"id": ["q", "p", "other"], "embedding": [[0.0, 2.0], [3.0, 4.0], [1.0, 1.0]]}
        pq.write_table(pa.table(rows), file)
    return str(file)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_vectors_from_a_file_match_their_prompts(name: str, tmp_path: Path) -> None:
    assert embed(write_vectors(tmp_path / name), *ENTRIES) == unit([3, 4], [0, 2])


@pytest.mark.parametrize(
    ("name", "word"), [("v.npy", r"shape \(2, 2\) for 3 prompts"), ("v.parquet", "no embedding of the prompt 'z'")]
)
def test_file_without_every_prompt_is_rejected(name: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=word):
        embed(write_vectors(tmp_path / name), *ENTRIES, entry("z", "z"))


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_unreadable_file_is_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"{name}: cannot be read as embeddings"):
        embed(str(tmp_path / name), *ENTRIES)


def test_token_ids_cannot_be_embedded(server: Server) -> None:
    with pytest.raises(BadInput, match=r"'t' .*token ids"):
        embed(server.url, PromptEntry(Prompt("t", None, ((ChatMessage("user", "", (1, 2)),),)), {}))


@pytest.mark.parametrize(
    ("source", "model", "word"),
    [("http://x/v1", None, "requires --model"), ("local", None, "requires --model"), ("vectors.csv", "m", "give http")],
)
def test_invalid_sources_are_rejected_with_a_remedy(source: str, model: str | None, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        embed_prompts(source, ENTRIES, check_progress, model=model)
