"""Points in a store: records while they come, the summary, and at the very end the manifest that makes them a result.

A manifest is created, never replaced, and names every file with its size and SHA-256; what it does not name is no
result, so the parts of a killed attempt need no cleaning up. The point's summary has one name for all attempts: one
that a killed attempt left is replaced, which is allowed exactly as long as there is no manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from specbench_api.outcome.layout import manifest_key, measured_among, point_root, summary_key
from specbench_api.outcome.manifest import Manifest, Observed, StoredFile
from specbench_api.outcome.summary import PointSummary
from specbench_client.errors import NotDurable
from specbench_client.store.columns import to_frame
from specbench_client.store.parts import PartLimits, PartsWriter
from specbench_client.store.store import Refusal, Store

_READERS = 8


@dataclass(frozen=True)
class Span:
    """When a point was measured: its start on both clocks, its end on the wall clock (RFC 3339)."""

    started_monotonic_ns: int
    started_wall: str
    ended_wall: str


@dataclass(frozen=True)
class PointStore:
    """The points of one run. `store` is the run's root; `spool` a folder on this machine's disk."""

    store: Store
    spool: Path
    limits: PartLimits = field(default_factory=PartLimits)

    def measured(self, wanted: Iterable[str]) -> set[str]:
        """Which of these points have a manifest."""
        return measured_among(self.store.keys("points/"), wanted)

    def manifest(self, point: str) -> Manifest | None:
        """The point's manifest, or None where it is no result. Raises NotDurable(Damaged)."""
        data = self.store.get(manifest_key(point))
        if data is None:
            return None
        try:
            manifest = Manifest.from_json(data)
        except ValidationError as error:
            raise self._damaged(manifest_key(point), f"it cannot be read: {error}") from error
        if manifest.hash != point:
            raise self._damaged(manifest_key(point), f"it belongs to the point {manifest.hash}")
        return manifest

    def manifests(self, wanted: Sequence[str]) -> dict[str, Manifest]:
        """The manifests of those points that have one, in the order asked for."""
        found = self.measured(wanted)
        ordered = [point for point in wanted if point in found]
        with ThreadPoolExecutor(_READERS, "manifests") as readers:
            read = dict(zip(ordered, readers.map(self.manifest, ordered), strict=True))
        return {point: manifest for point, manifest in read.items() if manifest is not None}

    def open(self, point: str, attempt: str) -> PartsWriter:
        """A writer for a new attempt at a point. The attempt must be one that never wrote here."""
        return PartsWriter(self.store, self.spool, point, attempt, self.limits)

    def commit(
        self, summary: PointSummary, attempt: str, parts: list[StoredFile], span: Span, observed: Observed
    ) -> Manifest:
        """Summary, then manifest. Raises NotDurable(Conflict) where another client committed the point meanwhile."""
        data = summary.to_json().encode()
        self._put_summary(summary.hash, data)
        manifest = Manifest(
            hash=summary.hash,
            attempt=attempt,
            started_monotonic_ns=span.started_monotonic_ns,
            started_wall=span.started_wall,
            ended_wall=span.ended_wall,
            files=[*parts, _described(summary_key(summary.hash), data)],
            observed=observed,
        )
        self.store.put(manifest_key(summary.hash), manifest.to_json().encode())
        return manifest

    def read_summary(self, manifest: Manifest) -> PointSummary:
        """The point's summary, verified against its manifest. Raises NotDurable(Damaged)."""
        key = summary_key(manifest.hash)
        data = self._verified(_named(manifest, key) or StoredFile(key=key, size=0, sha256=""))
        try:
            return PointSummary.from_json(data)
        except ValidationError as error:
            raise self._damaged(key, f"it cannot be read: {error}") from error

    def read_records(self, manifest: Manifest) -> pd.DataFrame:
        """The point's records: only the parts its manifest names, each verified. Raises NotDurable(Damaged)."""
        records = f"{point_root(manifest.hash)}/records/"
        return to_frame([self._verified(file) for file in manifest.files if file.key.startswith(records)])

    def _put_summary(self, point: str, data: bytes) -> None:
        try:
            self.store.put(summary_key(point), data)
        except NotDurable as refused:
            if refused.reason != Refusal.CONFLICT or self.store.get(manifest_key(point)) is not None:
                raise
            self.store.replace(summary_key(point), data)

    def _verified(self, file: StoredFile) -> bytes:
        data = self.store.get(file.key)
        if data is None:
            raise self._damaged(file.key, "the manifest names it and it is not there")
        found = _described(file.key, data)
        if (found.size, found.sha256) != (file.size, file.sha256):
            seen = f"{found.size} bytes with SHA-256 {found.sha256}"
            raise self._damaged(
                file.key, f"the manifest says {file.size} bytes with SHA-256 {file.sha256}, found {seen}"
            )
        return data

    def _damaged(self, key: str, what: str) -> NotDurable:
        remedy = f"remove everything below {self.store.uri(key.rpartition('/')[0])} to have the point measured again"
        return NotDurable(f"{self.store.uri(key)}: {what}; {remedy}", Refusal.DAMAGED)


def _described(key: str, data: bytes) -> StoredFile:
    return StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _named(manifest: Manifest, key: str) -> StoredFile | None:
    return next((file for file in manifest.files if file.key == key), None)
