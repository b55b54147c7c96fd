"""Compares the times that a client reports with the true ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_bench.clients.client import ObservedRequest


@dataclass(frozen=True)
class TrueRequest:
    """One request as the server recorded it: its arrival, and the time of each content chunk's `send()`."""

    number: int
    request_id: str | None
    received_ns: int
    chunk_ns: tuple[int, ...]
    complete: bool

    @property
    def ttft_ns(self) -> int:
        return self.chunk_ns[0] - self.received_ns


@dataclass(frozen=True)
class Spread:
    """Percentiles of absolute errors."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True)
class Judgement:
    """`chunks`: content chunks of the matched requests; all figures are over these requests.

    `miscounted`: requests whose client reports another number of chunks; excluded from `chunk`, included in `ttft`.
    `absolute`: whether `chunk` compares times on one clock; else times since each request's first chunk.
    """

    requests: int
    lost: int
    miscounted: int
    chunks: int
    ttft: Spread | None
    chunk: Spread | None
    absolute: bool
    coalesced_share: float | None
    """Share of chunks with the same time as the next one: one read returned several; only the last time is exact."""
    began_ns: int
    """Arrival of the first request at the server."""
    ended_ns: int
    """Time of the last chunk: its send, or its arrival as the client reports it, whichever is later."""
    step_p50_ms: float | None
    """True median time between two chunks of a stream."""


class NothingFound(Exception):
    """The server has recorded none of the requests that the client reported."""


def read_truth(document: Mapping[str, Any]) -> list[TrueRequest]:
    """Read the server's truth file."""
    return [
        TrueRequest(
            row["number"], row["request_id"], row["received_ns"], tuple(row["chunk_ns"]), complete=row["complete"]
        )
        for row in document["requests"]
    ]


def compare_with_truth(truth: Sequence[TrueRequest], observed: Sequence[ObservedRequest]) -> Judgement:
    """Compare reported with recorded times. Clients do not report requests that they send before the run."""
    pairs = list(_pairs(truth, observed))
    if not pairs:
        raise NothingFound(f"{len(observed)} requests observed, {len(truth)} requests served, none in common")
    ttft_ns = [seen.ttft_ns - true.ttft_ns for true, seen in pairs]
    counted = [(true, seen.chunk_ns) for true, seen in pairs if seen.chunk_ns is not None]
    equal = [(true, chunk_ns) for true, chunk_ns in counted if len(chunk_ns) == len(true.chunk_ns)]
    absolute = all(seen.absolute for _, seen in pairs)
    errors = [_chunk_errors(true.chunk_ns, chunk_ns, absolute=absolute) for true, chunk_ns in equal]
    gaps = [later - earlier for true, _ in pairs for earlier, later in pairwise(true.chunk_ns)]
    return Judgement(
        requests=len(pairs),
        lost=len(observed) - len(pairs),
        miscounted=len(counted) - len(equal),
        chunks=sum(len(true.chunk_ns) for true, _ in pairs),
        ttft=_spread(np.asarray(ttft_ns)),
        chunk=_spread(np.concatenate(errors)) if errors else None,
        absolute=absolute,
        coalesced_share=_coalesced_share([chunk_ns for _, chunk_ns in counted]),
        began_ns=min(true.received_ns for true, _ in pairs),
        ended_ns=max(max(true.chunk_ns[-1], _last_ns(true, seen)) for true, seen in pairs),
        step_p50_ms=float(np.median(gaps)) / 1e6 if gaps else None,
    )


def _pairs(
    truth: Sequence[TrueRequest], observed: Sequence[ObservedRequest]
) -> Iterator[tuple[TrueRequest, ObservedRequest]]:
    whole = [true for true in truth if true.complete]
    by_number = {true.number: true for true in whole}
    by_id = {true.request_id: true for true in whole if true.request_id is not None}
    for seen in observed:
        true = by_number.get(seen.number) if seen.number is not None else by_id.get(seen.request_id or "")
        if true is not None:
            yield true, seen


def _chunk_errors(true_ns: Sequence[int], told_ns: Sequence[int], *, absolute: bool) -> NDArray[np.int64]:
    """Return reported minus true times; without a common clock, relative to the first chunk, which is then excluded."""
    true, observed = np.asarray(true_ns, dtype=np.int64), np.asarray(told_ns, dtype=np.int64)
    return observed - true if absolute else (observed - observed[0])[1:] - (true - true[0])[1:]


def _coalesced_share(observed: Sequence[Sequence[int]]) -> float | None:
    chunks = sum(map(len, observed))
    same = sum(int(np.count_nonzero(np.diff(np.asarray(chunk_ns)) == 0)) for chunk_ns in observed)
    return same / chunks if chunks else None


def _last_ns(true: TrueRequest, seen: ObservedRequest) -> int:
    """Return when the client received its last chunk, or its first token if it reports no chunk times."""
    if not seen.chunk_ns:
        return true.received_ns + seen.ttft_ns
    return seen.chunk_ns[-1] if seen.absolute else true.received_ns + seen.ttft_ns + seen.chunk_ns[-1]


def _spread(errors_ns: NDArray[np.int64]) -> Spread | None:
    if not errors_ns.size:
        return None
    return Spread(*(np.percentile(np.abs(errors_ns), [50, 99, 99.9]) / 1e6).tolist())
