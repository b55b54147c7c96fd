"""Embedders: an HTTP endpoint with temporary failures, files, and words; and the cache between runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from specbench_client.chat import ChatMessage
from specbench_client.dataset.embeddings import (
    ENDPOINT_BATCH,
    ENDPOINT_TRIES,
    EmbeddingCache,
    EmbeddingOptions,
    EndpointEmbedder,
    FileEmbedder,
    LexicalEmbedder,
    choose_embedder,
)
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
            return web.Response(status=self.always or self.failures.pop(), text="not now", headers={"Retry-After": "0"})
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


def endpoint(server: Server, folder: Path, key: str | None = None) -> EndpointEmbedder:
    return EndpointEmbedder(server.url, "m", key, EmbeddingCache(folder), pause=0.001)


def test_each_distinct_text_is_sent_once_and_vectors_match_their_prompts(server: Server, tmp_path: Path) -> None:
    entries = [entry(f"p{number}", "a" * (number % 100 + 1)) for number in range(300)]
    vectors = endpoint(server, tmp_path, "secret").embed(entries, check_progress)
    sent = [text for batch in server.inputs for text in batch]
    assert sorted(sent) == sorted({one.text for one in entries})
    assert max(map(len, server.inputs)) <= ENDPOINT_BATCH
    expected = np.array([direction(one.text) for one in entries])
    assert vectors == pytest.approx(expected / np.linalg.norm(expected, axis=1, keepdims=True), abs=1e-6)
    assert set(server.keys) == {"Bearer secret"}


def test_cached_texts_are_not_sent_again(server: Server, tmp_path: Path) -> None:
    endpoint(server, tmp_path).embed([entry("p", "one"), entry("q", "two")], check_progress)
    endpoint(server, tmp_path).embed([entry("p", "one"), entry("r", "three")], check_progress)
    assert server.inputs == [["one", "two"], ["three"]]


def test_busy_server_is_retried(server: Server, tmp_path: Path) -> None:
    server.failures = [429, 503, 500]
    endpoint(server, tmp_path).embed([entry("p", "one")], check_progress)
    assert server.inputs == [["one"]]


def test_server_that_stays_busy_fails_after_the_maximum_of_tries(server: Server, tmp_path: Path) -> None:
    server.always = 503
    with pytest.raises(EngineFailed, match=f"HTTP 503, {ENDPOINT_TRIES} times"):
        endpoint(server, tmp_path).embed([entry("p", "one")], check_progress)
    assert len(server.keys) == ENDPOINT_TRIES


def test_rejected_text_is_not_retried(server: Server, tmp_path: Path) -> None:
    server.always = 400
    with pytest.raises(
        BadInput, match="HTTP 400: not now: the longest of the 1 texts has 3 characters and begins with 'one'"
    ):
        endpoint(server, tmp_path).embed([entry("p", "one")], check_progress)
    assert len(server.keys) == 1


def test_unreachable_endpoint_fails(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"127\.0\.0\.1"):
        EndpointEmbedder("http://127.0.0.1:9/v1", "m", None, EmbeddingCache(tmp_path), pause=0.001).embed(
            [entry("p", "x")], check_progress
        )


def test_invalid_cache_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "embeddings.sqlite").write_text(
        "something else entirely, and long enough to be a header of no database"
    )
    with pytest.raises(BadInput, match=r"embeddings\.sqlite: the embedding cache cannot be used.*--cache"):
        EmbeddingCache(tmp_path).known("m", ["x"])


def test_vectors_of_different_sizes_under_one_model_name_are_rejected(server: Server, tmp_path: Path) -> None:
    EmbeddingCache(tmp_path).store("m", {"one": np.ones(7, dtype=np.float32)})
    with pytest.raises(BadInput, match="two models"):
        endpoint(server, tmp_path).embed([entry("p", "one"), entry("q", "two")], check_progress)


ENTRIES = [entry("p", "x"), entry("q", "y")]
MATRIX = np.array([[3, 4], [0, 2]], dtype=np.float32)


def write_vectors(file: Path) -> Path:
    if file.suffix == ".npy":
        np.save(file, MATRIX)
    elif file.suffix == ".npz":
        np.savez(file, ids=np.array(["other", "q", "p"]), vectors=np.concatenate([[[1, 1]], MATRIX[::-1]]))
    else:
        rows = {"id": ["q", "p", "other"], "embedding": [[0.0, 2.0], [3.0, 4.0], [1.0, 1.0]]}
        pq.write_table(pa.table(rows), file)
    return file


@pytest.mark.parametrize("name", ["v.npy", "v.npz", "v.parquet"])
def test_vectors_from_a_file_match_their_prompts(name: str, tmp_path: Path) -> None:
    vectors = FileEmbedder(write_vectors(tmp_path / name)).embed(ENTRIES, check_progress)
    assert vectors == pytest.approx(np.array([[0.6, 0.8], [0, 1]]))


@pytest.mark.parametrize(
    ("name", "entries", "word"),
    [
        ("v.npy", ENTRIES[:1], r"\(2, 2\) for 1 prompts"),
        ("v.npz", [*ENTRIES, entry("z", "z")], r"no embedding of 1 prompts \(z\)"),
        ("v.parquet", [*ENTRIES, entry("z", "z")], r"no embedding of 1 prompts \(z\)"),
    ],
)
def test_file_without_every_prompt_is_rejected(
    name: str, entries: list[PromptEntry], word: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=word):
        FileEmbedder(write_vectors(tmp_path / name)).embed(entries, check_progress)


@pytest.mark.parametrize("name", ["v.npy", "v.npz", "v.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_unreadable_file_is_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"{name}: cannot be read as embeddings"):
        FileEmbedder(tmp_path / name).embed(ENTRIES, check_progress)


def test_prompts_that_share_words_have_similar_vectors() -> None:
    texts = [
        "translate German to English: der Hund",
        "translate German to English: die Katze",
        "prove that pi is no ratio",
    ]
    first, second, third = LexicalEmbedder().embed([entry(text, text) for text in texts], check_progress)
    assert first @ second > 0.3
    assert first @ third < 0.1


def test_token_ids_cannot_be_embedded_by_words() -> None:
    without_text = PromptEntry(Prompt("t", None, ((ChatMessage("user", "", (1, 2)),),)), {})
    with pytest.raises(BadInput, match=r"'t' .*token ids"):
        LexicalEmbedder().embed([without_text], check_progress)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (EmbeddingOptions("http://x/v1"), "requires --model"),
        (EmbeddingOptions("local"), "requires --model"),
        (EmbeddingOptions("vectors.csv"), "give http://"),
        (EmbeddingOptions("http://x/v1", "m", "SPECBENCH_NO_SUCH_VARIABLE"), "is not set"),
    ],
)
def test_invalid_embedder_options_are_rejected_with_a_remedy(options: EmbeddingOptions, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        choose_embedder(options)


def test_missing_library_is_reported_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(BadInput, match=r"specbench\[embeddings\]"):
        choose_embedder(EmbeddingOptions("local", "some-model", cache=tmp_path)).embed(ENTRIES, check_progress)


def test_embedding_file_with_pickles_is_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="cannot be read as embeddings"):
        FileEmbedder(tmp_path / "v.npy").embed(ENTRIES[:1], check_progress)
