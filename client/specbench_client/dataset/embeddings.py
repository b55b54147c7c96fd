"""Embeds prompts: by their words, from a file, with a local model, or at an endpoint.

Embeddings of a model are cached on disk by model and text, so that no text is embedded (and paid for) twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import re
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity import Vectors, stack_vectors, unit_vectors
from specbench_client.dataset.prompt_entries import PromptEntry, texts_of
from specbench_client.errors import BadInput, EngineFailed

EmbeddingProgress = Callable[[int, int], None]
"""Called with the number of texts embedded and the total."""

SUFFIXES = (".npy", ".npz", ".parquet")


class Embedder(Protocol):
    """Computes a unit vector for each prompt."""

    @property
    def name(self) -> str:
        """The embedder's name in reports."""
        ...

    def embed(self, entries: Sequence[PromptEntry], progress: EmbeddingProgress) -> Vectors:
        """Return one unit vector per prompt, in order. Raises BadInput, or EngineFailed if an endpoint fails."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """Options of the command line. `key_variable`: the environment variable with the endpoint's API key."""

    embeddings: str
    model: str | None = None
    key_variable: str | None = None
    cache: Path | None = None


def choose_embedder(options: EmbeddingOptions) -> Embedder:
    """Return the embedder for the options. Raises BadInput with the allowed values."""
    embeddings = options.embeddings
    if embeddings == "lexical":
        return LexicalEmbedder()
    if embeddings.startswith(("http://", "https://")):
        model = _model(options, "the name that the endpoint serves")
        return EndpointEmbedder(
            embeddings, model, _api_key(options.key_variable), EmbeddingCache(options.cache or cache_folder())
        )
    if embeddings == "local":
        model = _model(options, "a folder with a sentence-transformers model, or its name where it is cached")
        return LocalModelEmbedder(model, EmbeddingCache(options.cache or cache_folder()))
    if embeddings.endswith(SUFFIXES):
        return FileEmbedder(Path(embeddings))
    raise BadInput(
        f"--embeddings {embeddings}: give http://HOST:PORT/v1 (an OpenAI-compatible endpoint), local (a "
        f"sentence-transformers model), a file ({', '.join(SUFFIXES)}), or lexical (shared words; no model)"
    )


def cache_folder() -> Path:
    """Return the cache folder: $XDG_CACHE_HOME/specbench/embeddings, by default in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specbench" / "embeddings"


def _model(options: EmbeddingOptions, description: str) -> str:
    if not options.model:
        raise BadInput(f"--embeddings {options.embeddings} requires --model: {description}")
    return options.model


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise BadInput(f"--api-key-env {variable}: this environment variable is not set: export it, or omit the option")
    return key


_WORD = re.compile(r"\w+|[^\w\s]")


DIMENSIONS = 2048


class LexicalEmbedder:
    """Hashed words and word pairs, weighted by their rarity among the prompts; needs no model and is deterministic.

    Two prompts are similar to the extent that they share words. That detects templates and repetitions but no
    paraphrases. Reports name these embeddings `lexical`; the figures are not comparable with those of a neural model.

    Weight of a term: (1 + ln count) × (ln((1 + prompts) / (1 + prompts with it)) + 1), the usual smoothed tf-idf; terms
    go to 2,048 dimensions by BLAKE2b, with a sign from the same hash so that collisions cancel in the mean (Weinberger
    2009).
    """

    @property
    def name(self) -> str:
        """The embedder's name in reports."""
        return "lexical (shared words; no model)"

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if a prompt has no text."""
        counted = [Counter(_terms(text)) for text in texts_of(entries)]
        frequencies = Counter(term for terms in counted for term in terms)
        vectors = np.zeros((len(counted), DIMENSIONS), dtype=np.float32)
        for row, terms in enumerate(counted):
            for term, count in terms.items():
                place, sign = _dimension_of(term)
                rarity = np.log((1 + len(counted)) / (1 + frequencies[term])) + 1
                vectors[row, place] += sign * (1 + np.log(count)) * rarity
        progress(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.casefold())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


@lru_cache(maxsize=1_000_000)
def _dimension_of(term: str) -> tuple[int, int]:
    digest = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest())
    return digest % DIMENSIONS, 1 if digest >> 63 else -1


class FileEmbedder:
    """Precomputed vectors: .npy (row i is prompt i), .npz (`ids`, `vectors`) or Parquet (`id`, `embedding`).

    If the file has ids, prompts are matched by id, and other vectors are ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self._file)

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if one is missing or the file is invalid."""
        try:
            vectors = self._read(entries)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise BadInput(f"{self._file}: cannot be read as embeddings: {error}: {self._expected()}") from error
        progress(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])

    def _read(self, entries: Sequence[PromptEntry]) -> npt.NDArray[np.floating]:
        if self._file.suffix == ".npy":
            vectors = np.load(self._file, allow_pickle=False)
            if vectors.ndim != 2 or len(vectors) != len(entries):
                raise BadInput(
                    f"{self._file}: its shape is {vectors.shape} for {len(entries)} prompts: {self._expected()}"
                )
            return _floats(vectors)
        ids, vectors = self._with_ids()
        places = {str(one): place for place, one in enumerate(ids)}
        missing = [entry.id for entry in entries if entry.id not in places]
        if missing:
            shown = ", ".join(missing[:3])
            raise BadInput(f"{self._file}: has no embedding of {len(missing)} prompts ({shown}): add them to the file")
        return vectors[[places[entry.id] for entry in entries]]

    def _with_ids(self) -> tuple[Sequence[Any], npt.NDArray[np.floating]]:
        if self._file.suffix == ".npz":
            with np.load(self._file, allow_pickle=False) as arrays:
                return list(arrays["ids"]), _floats(arrays["vectors"])
        import pyarrow.parquet  # noqa: PLC0415  only for Parquet

        table = pyarrow.parquet.read_table(self._file, columns=["id", "embedding"])
        rows = [np.asarray(row, dtype=np.float32) for row in table["embedding"].to_pylist()]
        return table["id"].to_pylist(), stack_vectors(rows, str(self._file))

    def _expected(self) -> str:
        shapes = {
            ".npy": "a matrix with a row for each prompt",
            ".npz": "ids and vectors",
            ".parquet": "id and embedding",
        }
        return f"{self._file.suffix} must contain {shapes[self._file.suffix]}"


def _floats(vectors: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(f"found {vectors.ndim} dimensions of {vectors.dtype}, expected two dimensions of float")
    return vectors


LOCAL_BATCH = 256


class LocalModelEmbedder:
    """A local sentence-transformers model (extra `embeddings`), given by its folder or its name in the hub cache.

    It is loaded on first use.
    """

    def __init__(self, model: str, cache: EmbeddingCache) -> None:
        self._model = model
        self._cache = cache

    @property
    def name(self) -> str:
        """The model's name in reports."""
        return f"{self._model} (sentence-transformers)"

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if the library or the model is missing."""
        texts = texts_of(entries)
        distinct = list(dict.fromkeys(texts))
        found = self._cache.known(self._model, distinct)
        missing = [text for text in distinct if text not in found]
        progress(len(found), len(distinct))
        model = _load_model(self._model) if missing else None
        for start in range(0, len(missing), LOCAL_BATCH):
            batch = missing[start : start + LOCAL_BATCH]
            assert model is not None
            encoded = np.asarray(model.encode(batch, show_progress_bar=False), dtype=np.float32)
            vectors = dict(zip(batch, encoded, strict=True))
            self._cache.store(self._model, vectors)
            found.update(vectors)
            progress(len(found), len(distinct))
        return unit_vectors(stack_vectors([found[text] for text in texts], self.name), [entry.id for entry in entries])


def _load_model(model: str) -> Any:
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        remedy = "pip install 'specbench[embeddings]', or give an endpoint, a file, or lexical"
        raise BadInput(f"--embeddings local requires sentence-transformers ({error}): {remedy}") from error
    try:
        return library.SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"--model {model}: cannot be loaded: {error}: give the model's folder") from error


ENDPOINT_BATCH = 64

CONCURRENT_BATCHES = 4

ENDPOINT_TRIES = 6

FIRST_PAUSE_SECONDS = 0.5

MAX_PAUSE_SECONDS = 30.0

TIMEOUT_SECONDS = 120.0

RETRIED_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504)
"""Temporary failures: the server is busy or starting, or a proxy has lost it."""


class _RetryLater(Exception):
    """A temporary failure. `pause`: the seconds that the server requested, if any."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class EndpointEmbedder:
    """An OpenAI-compatible endpoint: concurrent batches with retries, cached as they arrive.

    Sends POST URL/embeddings with `model` and a list of texts as `input`; cached texts are not sent.
    """

    def __init__(
        self, url: str, model: str, key: str | None, cache: EmbeddingCache, pause: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._cache = cache
        self._pause = pause

    @property
    def name(self) -> str:
        """The model and its endpoint."""
        return f"{self._model} at {self._url}"

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if a text is rejected, EngineFailed without an answer."""
        texts = texts_of(entries)
        distinct = list(dict.fromkeys(texts))
        found = self._cache.known(self._model, distinct)
        asyncio.run(
            self._embed_missing([text for text in distinct if text not in found], found, len(distinct), progress)
        )
        return unit_vectors(stack_vectors([found[text] for text in texts], self.name), [entry.id for entry in entries])

    async def _embed_missing(
        self, texts: list[str], found: dict[str, Vector], total: int, progress: Callable[[int, int], None]
    ) -> None:
        slots = asyncio.Semaphore(CONCURRENT_BATCHES)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        progress(len(found), total)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:

            async def one(batch: list[str]) -> None:
                async with slots:
                    vectors = dict(zip(batch, await self._post_with_retries(session, batch), strict=True))
                await asyncio.to_thread(self._cache.store, self._model, vectors)
                found.update(vectors)
                progress(len(found), total)

            try:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(texts), ENDPOINT_BATCH):
                        group.create_task(one(texts[start : start + ENDPOINT_BATCH]))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _post_with_retries(self, session: aiohttp.ClientSession, batch: list[str]) -> list[Vector]:
        pause = self._pause
        for tried in range(1, ENDPOINT_TRIES + 1):
            try:
                return await self._post(session, batch)
            except _RetryLater as later:
                if tried == ENDPOINT_TRIES:
                    remedy = "try again later; finished embeddings are cached"
                    message = f"{self._url}: {later}, {ENDPOINT_TRIES} times: {remedy}"
                    raise EngineFailed(message, "Embeddings") from later
                await asyncio.sleep(min(later.pause or pause, MAX_PAUSE_SECONDS))
                pause *= 2
        raise AssertionError  # the last try returns or raises

    async def _post(self, session: aiohttp.ClientSession, batch: list[str]) -> list[Vector]:
        body = {"model": self._model, "input": batch, "encoding_format": "float"}
        try:
            async with session.post(self._url, json=body) as answer:
                if answer.status in RETRIED_STATUSES:
                    raise _RetryLater(f"HTTP {answer.status}", _seconds(answer.headers.get("Retry-After")))
                if answer.status != 200:
                    raise BadInput(_rejection_message(self._url, answer.status, await answer.text(), batch))
                return _vectors(await answer.json(content_type=None), len(batch), self._url)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _RetryLater(str(error) or type(error).__name__) from error


def _rejection_message(url: str, status: int, text: str, batch: list[str]) -> str:
    """Return the endpoint's error with the longest text, since most often a text is too long for the model."""
    longest = max(batch, key=len)
    detail = f"the longest of the {len(batch)} texts has {len(longest):,} characters and begins with {longest[:60]!r}"
    return f"{url}: HTTP {status}: {text[:500]}: {detail}"


def _seconds(header: str | None) -> float | None:
    """Parse Retry-After in seconds; None for its other form, a date."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None


def _vectors(answer: Any, count: int, url: str) -> list[Vector]:
    """Return the vectors in the order of `index`, because the order of the list is not guaranteed."""
    try:
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(count)):
            raise BadInput(f"{url}: returned {len(rows)} embeddings for {count} texts")
        return [np.asarray(row["embedding"], dtype=np.float32) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{url}: the response does not have OpenAI's format of embeddings: {error!r}: check the URL"
        ) from error


Vector = npt.NDArray[np.float32]

_KEYS_PER_QUERY = 500
"""SQLite allows at least 999 parameters per query."""

_LOCK_TIMEOUT_SECONDS = 60.0


class EmbeddingCache:
    """A cache in the file `embeddings.sqlite` of a folder.

    SQLite survives a killed program, can be shared by two programs, and stores a hundred thousand small values in one
    file. The key is the SHA-256 of model and text; the value is the vector in float32.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "embeddings.sqlite"

    def known(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the cached vectors by text. Raises BadInput if the file cannot be used."""
        by_key = {_cache_key(model, text): text for text in texts}
        keys, found = list(by_key), {}
        with self._opened() as database:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                rows = database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)  # noqa: S608 marks alone
                found.update({by_key[key]: np.frombuffer(value, dtype="<f4") for key, value in rows})
        return found

    def store(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Store vectors by text. Raises BadInput if the file cannot be written."""
        rows = [(_cache_key(model, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._opened() as database, database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file, timeout=_LOCK_TIMEOUT_SECONDS)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL)")
                yield database
        except (OSError, sqlite3.Error) as error:
            remedy = "delete the file, or give another folder with --cache"
            raise BadInput(f"{self._file}: the embedding cache cannot be used: {error}: {remedy}") from error


def _cache_key(model: str, text: str) -> str:
    return hashlib.sha256(f"{model}\0{text}".encode()).hexdigest()
