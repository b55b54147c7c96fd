"""Embeds texts with an OpenAI-compatible endpoint: concurrent batches with retries, cached as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import numpy as np

from specbench_client.dataset.diversity import Vectors, stack_vectors, unit_vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache, Vector
from specbench_client.dataset.prompt_entries import PromptEntry, texts_of
from specbench_client.errors import BadInput, EngineFailed

BATCH = 64
CONCURRENT_BATCHES = 4
TRIES = 6
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
    """Sends POST URL/embeddings with `model` and a list of texts as `input`; cached texts are not sent."""

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
                    for start in range(0, len(texts), BATCH):
                        group.create_task(one(texts[start : start + BATCH]))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _post_with_retries(self, session: aiohttp.ClientSession, batch: list[str]) -> list[Vector]:
        pause = self._pause
        for tried in range(1, TRIES + 1):
            try:
                return await self._post(session, batch)
            except _RetryLater as later:
                if tried == TRIES:
                    raise EngineFailed(
                        f"{self._url}: {later}, {TRIES} times: try again later; finished embeddings are cached",
                        "Embeddings",
                    ) from later
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
