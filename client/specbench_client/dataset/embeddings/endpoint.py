"""Embeddings from an OpenAI-compatible endpoint: in batches, a few at a time, tried again, and kept as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import numpy as np

from specbench_client.dataset.diversity.vectors import Vectors, unit_vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache, Vector
from specbench_client.dataset.embeddings.stacked import stacked
from specbench_client.dataset.entries import Entry, texts_of
from specbench_client.errors import BadInput, EngineFailed

BATCH = 64
AT_A_TIME = 4
TRIES = 6
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
TIMEOUT_SECONDS = 120.0
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
"""Statuses that may pass: the server is busy, starting, or behind a proxy that lost it."""


class _Later(Exception):
    """This try failed, and another may not. `pause`: seconds that the server asked for."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class Endpoint:
    """POST URL/embeddings with `model` and a list of texts as `input`; texts already in the cache are not sent."""

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
        """Model and endpoint."""
        return f"{self._model} at {self._url}"

    def embed(self, entries: Sequence[Entry], told: Callable[[int, int], None]) -> Vectors:
        """One unit vector a prompt. Raises BadInput where a text is refused, EngineFailed where nobody answers."""
        texts = texts_of(entries)
        distinct = list(dict.fromkeys(texts))
        found = self._cache.known(self._model, distinct)
        asyncio.run(self._ask([text for text in distinct if text not in found], found, len(distinct), told))
        return unit_vectors(stacked([found[text] for text in texts], self.name), [entry.id for entry in entries])

    async def _ask(
        self, texts: list[str], found: dict[str, Vector], all_of_them: int, told: Callable[[int, int], None]
    ) -> None:
        slots = asyncio.Semaphore(AT_A_TIME)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        told(len(found), all_of_them)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:

            async def one(batch: list[str]) -> None:
                async with slots:
                    vectors = dict(zip(batch, await self._patiently(session, batch), strict=True))
                await asyncio.to_thread(self._cache.keep, self._model, vectors)
                found.update(vectors)
                told(len(found), all_of_them)

            try:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(texts), BATCH):
                        group.create_task(one(texts[start : start + BATCH]))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _patiently(self, session: aiohttp.ClientSession, batch: list[str]) -> list[Vector]:
        pause = self._pause
        for tried in range(1, TRIES + 1):
            try:
                return await self._once(session, batch)
            except _Later as later:
                if tried == TRIES:
                    raise EngineFailed(
                        f"{self._url}: {later}, {TRIES} times: what was embedded is kept", "Embeddings"
                    ) from later
                await asyncio.sleep(min(later.pause or pause, LONGEST_PAUSE_SECONDS))
                pause *= 2
        raise AssertionError  # the last try returns or raises

    async def _once(self, session: aiohttp.ClientSession, batch: list[str]) -> list[Vector]:
        body = {"model": self._model, "input": batch, "encoding_format": "float"}
        try:
            async with session.post(self._url, json=body) as answer:
                if answer.status in AGAIN:
                    raise _Later(f"HTTP {answer.status}", _seconds(answer.headers.get("Retry-After")))
                if answer.status != 200:
                    raise BadInput(_refused(self._url, answer.status, await answer.text(), batch))
                return _vectors(await answer.json(content_type=None), len(batch), self._url)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _Later(str(error) or type(error).__name__) from error


def _refused(url: str, status: int, said: str, batch: list[str]) -> str:
    """What the endpoint said; most often a text is too long for the model, so the longest is shown."""
    longest = max(batch, key=len)
    where = f"the longest of its {len(batch)} texts has {len(longest):,} characters and begins {longest[:60]!r}"
    return f"{url}: HTTP {status}: {said[:500]}: {where}"


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is not worth a clock."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None


def _vectors(answer: Any, count: int, url: str) -> list[Vector]:
    """The vectors in the order of `index`: the order of the list is not promised."""
    try:
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(count)):
            raise BadInput(f"{url}: answered {len(rows)} embeddings for {count} texts")
        return [np.asarray(row["embedding"], dtype=np.float32) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{url}: its answer is not OpenAI's form of embeddings: {error!r}: is this the right URL?"
        ) from error
