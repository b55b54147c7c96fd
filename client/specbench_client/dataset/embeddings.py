"""Embeds prompts: with vectors of a file, a sentence-transformers model, or an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import aiohttp
import numpy as np
import numpy.typing as npt

from specbench_client.bounded_json import parse_json
from specbench_client.dataset.diversity import Vectors, unit_vectors
from specbench_client.dataset.prompt_entries import PromptEntry, texts_of
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.optional_dependencies import install_hint
from specbench_client.transport.error_messages import engine_error_message, rejects_key

Matrix = npt.NDArray[np.floating]
"""One row per text."""
TextEncoder = Callable[[list[str]], Matrix]
SUFFIXES = (".npy", ".parquet")
BATCH = 64
TIMEOUT_S = 120.0
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before another try. A request is tried once more than there are pauses."""
RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
"""Temporary failures: the server is busy or starting, or a proxy has lost it."""


def embed_prompts(
    source: str,
    entries: Sequence[PromptEntry],
    progress: Callable[[int, int], None],
    *,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[str, Vectors]:
    """Return the name of the embeddings for reports, and one unit vector per prompt.

    `source`: URL, `local` or a file. `progress`: called with the number of distinct texts that are embedded, and with
    their total. `headers`: of requests to the URL. Raises BadInput, or EngineFailed if an endpoint does not answer.
    """
    ids = [entry.id for entry in entries]
    if source.endswith(SUFFIXES):
        return source, unit_vectors(read_vectors(Path(source), ids), ids)
    if source != "local" and not source.startswith(("http://", "https://")):
        raise BadInput(
            f"--embeddings {source}: give http://HOST:PORT/v1 (an OpenAI-compatible endpoint), local (a"
            f" sentence-transformers model), or a file ({', '.join(SUFFIXES)})"
        )
    if not model:
        raise BadInput(f"--embeddings {source} requires --model: the name at the endpoint, or the model's folder")
    encode = local_model(model) if source == "local" else endpoint(source, model, headers or {})
    texts, found = texts_of(entries), dict[str, npt.NDArray[np.floating]]()
    distinct = list(dict.fromkeys(texts))
    for start in range(0, len(distinct), BATCH):
        batch = distinct[start : start + BATCH]
        found.update(zip(batch, encode(batch), strict=True))
        progress(len(found), len(distinct))
    name = f"{model} ({'sentence-transformers' if source == 'local' else source})"
    return name, unit_vectors(np.array([found[text] for text in texts]), ids)


def read_vectors(file: Path, ids: Sequence[str]) -> Matrix:
    """Return the vectors of these prompts: .npy (row i is prompt i), or Parquet with the columns `id` and `embedding`.

    Raises BadInput if one is missing or the file is invalid.
    """
    try:
        if file.suffix == ".npy":
            vectors: Matrix = np.load(file, allow_pickle=False)
        else:
            import pyarrow.parquet  # noqa: PLC0415  only for Parquet

            table = pyarrow.parquet.read_table(file, columns=["id", "embedding"])
            by_id = dict(zip(map(str, table["id"].to_pylist()), table["embedding"].to_pylist(), strict=True))
            vectors = np.array([by_id[each] for each in ids], dtype=np.float32)
    except KeyError as error:
        raise BadInput(f"{file}: has no embedding of the prompt {error}: add it to the file") from error
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{file}: cannot be read as embeddings: {error}") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or len(vectors) != len(ids):
        raise BadInput(
            f"{file}: has {vectors.dtype} of shape {vectors.shape} for {len(ids)} prompts: give one vector of floats"
            " per prompt, as a matrix (.npy) or in the columns id and embedding (.parquet)"
        )
    return vectors


def local_model(model: str) -> TextEncoder:
    """Load a sentence-transformers model (extra `embeddings`) by its folder, or its name in the hub's cache."""
    try:
        library = importlib.import_module("sentence_transformers")
        loaded = library.SentenceTransformer(model)
    except (ImportError, OSError, ValueError) as error:
        raise BadInput(
            f"--model {model}: cannot be loaded: {error}: give the model's folder, and {install_hint('embeddings')}"
        ) from error
    return lambda texts: np.asarray(loaded.encode(texts, show_progress_bar=False))


def endpoint(base: str, model: str, headers: Mapping[str, str]) -> TextEncoder:
    """Return an encoder that sends POST BASE/embeddings with `model` and the texts as `input`.

    It tries again after temporary failures.
    """
    url = f"{base.rstrip('/').removesuffix('/embeddings')}/embeddings"

    async def post(texts: list[str]) -> tuple[int, bytes]:
        body = {"model": model, "input": texts, "encoding_format": "float"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.post(url, json=body, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.read()

    def encode(texts: list[str]) -> Matrix:
        for pause_s in (*PAUSES_S, None):
            try:
                status, answer = asyncio.run(post(texts))
                failure = f"HTTP {status}: {engine_error_message(answer)}"
            except (aiohttp.ClientError, TimeoutError) as error:
                status, failure = RETRIED_STATUSES[0], str(error) or type(error).__name__
            if status == 200:
                return _vectors(answer, len(texts), url)
            if status not in RETRIED_STATUSES:
                raise BadInput(f"{url}: {failure}: {_remedy(status, texts)}")
            if pause_s is not None:
                time.sleep(pause_s)
        raise EngineFailed(f"{url}: {failure}, {len(PAUSES_S) + 1} times: {_ADDRESS}, or try again later", "Embeddings")

    return encode


_ADDRESS = "check --embeddings, usually http://HOST:PORT/v1, and that this server serves an embedding model"


def _remedy(status: int, texts: Sequence[str]) -> str:
    """Return what to do if the server rejects a request."""
    if rejects_key(status):
        return "set OPENAI_API_KEY, or name the variable with the key by --api-key-env"
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY):
        most = max(map(len, texts))
        return f"the longest of the {len(texts)} texts has {most:,} characters; remove too long ones, or check --model"
    return _ADDRESS


def _vectors(answer: bytes, count: int, url: str) -> Matrix:
    """Return the vectors in the order of `index`, because the order of the list is not guaranteed."""
    try:
        rows = sorted(parse_json(answer)["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(count)):
            raise BadInput(f"{url}: returned {len(rows)} embeddings for {count} texts")
        return np.array([row["embedding"] for row in rows], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{url}: the answer does not have OpenAI's format of embeddings: {error!r}: check the URL"
        ) from error
