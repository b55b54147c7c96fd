"""Points in a store: records while they come, the summary, and at the very end the manifest that makes them a result.

A manifest is created, never replaced, and names every file with its size and SHA-256; what it does not name is no
result, so what a killed attempt left needs no cleaning up. Nothing of a point is ever replaced: an attempt that finds
the summary's name taken writes beside it, because whoever took it may be about to commit it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from specbench_api.outcome.layout import manifest_key, measured_among, point_root, schedule_key, summary_key
from specbench_api.outcome.manifest import Manifest, Observed, StoredFile
from specbench_api.outcome.summary import PointSummary
from specbench_client.errors import NotDurable
from specbench_client.store.columns import schedule_parquet, to_frame
from specbench_client.store.manifests import damaged, get_of_point, read_manifest, read_manifests, unreadable
from specbench_client.store.parts import PartLimits, PartsWriter
from specbench_client.store.store import Refusal, Store


@dataclass(frozen=True)
class Span:
    """When a point was measured: its start on both clocks, its end on the wall clock (RFC 3339)."""

    started_monotonic_ns: int
    started_wall: str
    ended_wall: str
    load_started_ns: int | None = None
    """From the point's start."""


@dataclass(frozen=True)
class PointStore:
    """The points of one run. `store` is the run's root; `spool` a folder on this machine's disk."""

    store: Store
    spool: Path
    limits: PartLimits = field(default_factory=PartLimits)

    def measured(self, wanted: Iterable[str]) -> set[str]:
        """Which of these points have a manifest; whether it can be read is seen by `manifests` alone."""
        return measured_among(self.store.keys("points/"), wanted)

    def manifest(self, point: str) -> Manifest | None:
        """The point's manifest, or None where it is no result. Raises NotDurable(Damaged)."""
        return read_manifest(self.store, point)

    def manifests(self, wanted: Sequence[str]) -> dict[str, Manifest]:
        """The manifests of those points that have one, in the order asked for. Raises NotDurable(Damaged)."""
        return read_manifests(self.store, wanted)

    def open(self, point: str, attempt: str) -> PartsWriter:
        """A writer for a new attempt at a point. The attempt must be one that never wrote here."""
        return PartsWriter(self.store, self.spool, point, attempt, self.limits)

    def put_schedule(self, point: str, attempt: str, intended_ns: Sequence[int], workers: int) -> StoredFile:
        """Keep when conversations will begin; conversation i is worker i mod `workers`'s."""
        key, data = schedule_key(point, attempt), schedule_parquet(intended_ns, workers)
        self.store.put(key, data)
        return _described(key, data, rows=len(intended_ns))

    def commit(
        self, summary: PointSummary, attempt: str, parts: list[StoredFile], span: Span, observed: Observed
    ) -> Manifest:
        """Summary, then manifest. Raises NotDurable(Conflict) where another client committed the point meanwhile."""
        described = self._put_summary(summary.hash, attempt, summary.to_json().encode())
        manifest = Manifest(
            hash=summary.hash,
            attempt=attempt,
            started_monotonic_ns=span.started_monotonic_ns,
            started_wall=span.started_wall,
            load_started_ns=span.load_started_ns,
            ended_wall=span.ended_wall,
            files=[*parts, described],
            observed=observed,
        )
        self.store.put(manifest_key(summary.hash), manifest.to_json().encode())
        return manifest

    def read_summary(self, manifest: Manifest) -> PointSummary:
        """The point's summary, verified against its manifest. Raises NotDurable(Damaged)."""
        names = (summary_key(manifest.hash), summary_key(manifest.hash, manifest.attempt))
        file = next((file for file in manifest.files if file.key in names), None)
        if file is None:
            raise self._damaged(manifest.hash, manifest_key(manifest.hash), "it names no summary")
        try:
            return PointSummary.from_json(self._verified(manifest.hash, file))
        except ValidationError as error:
            raise unreadable(self.store, manifest.hash, file.key, error) from error

    def read_frames(self, manifest: Manifest, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The point's records part by part, as `to_frame` gives them. Raises NotDurable(Damaged) on the way."""
        return (to_frame(part, columns) for part in self.read_parts(manifest))

    def read_parts(self, manifest: Manifest) -> Iterator[bytes]:
        """As stored: only the parts that the manifest names, each verified. Raises NotDurable(Damaged) on the way."""
        point, records = manifest.hash, f"{point_root(manifest.hash)}/records/"
        return (self._verified(point, file) for file in manifest.files if file.key.startswith(records))

    def _put_summary(self, point: str, attempt: str, data: bytes) -> StoredFile:
        key = summary_key(point)
        try:
            self.store.put(key, data)
        except NotDurable as refused:
            if refused.reason not in (Refusal.CONFLICT, Refusal.DAMAGED):
                raise
            key = summary_key(point, attempt)
            self.store.put(key, data)
        return _described(key, data)

    def _verified(self, point: str, file: StoredFile) -> bytes:
        data = get_of_point(self.store, point, file.key)
        if data is None:
            raise self._damaged(point, file.key, "the manifest names it and it is not there")
        found = _described(file.key, data)
        if (found.size, found.sha256) != (file.size, file.sha256):
            said, seen = (f"{one.size} bytes with SHA-256 {one.sha256}" for one in (file, found))
            raise self._damaged(point, file.key, f"the manifest says {said}, found {seen}")
        return data

    def _damaged(self, point: str, key: str, what: str) -> NotDurable:
        return damaged(self.store, point, key, what)


def _described(key: str, data: bytes, rows: int | None = None) -> StoredFile:
    return StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)
