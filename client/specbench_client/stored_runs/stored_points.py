"""Reads the stored records of a run's points, and what was observed of the launches that served them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specbench_api.outcome.layout import launch_key
from specbench_api.outcome.manifest import Manifest
from specbench_api.outcome.provenance import LaunchRecord
from specbench_client.metrics.tidy_frame import COLUMNS, RecordColumns
from specbench_client.store.points import PointStore
from specbench_client.store.store import Store


class StoredRecords(Mapping[str, Iterator[RecordColumns]]):
    """The records of each point, read and verified file by file on access, and not cached."""

    def __init__(self, points: PointStore, manifests: Mapping[str, Manifest]) -> None:
        self._points = points
        self._manifests = manifests
        self._unread = dict.fromkeys(manifests)

    def __getitem__(self, point: str) -> Iterator[RecordColumns]:
        self._unread.pop(point, None)
        return self._points.read_columns(self._manifests[point], COLUMNS)

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifests)

    def __len__(self) -> int:
        return len(self._manifests)

    def verify_unread(self) -> None:
        """Read and verify the records of the points that were not accessed. Raises NotDurable(Damaged)."""
        for point in list(self._unread):
            self._points.verify_records(self._manifests[point])


@dataclass(frozen=True)
class StoredLaunches:
    """The launches that served the points with a manifest. `unseen`: launches that cannot be read → the reason."""

    seen: tuple[LaunchRecord, ...]
    unseen: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the launches by name."""
        records = {launch.launch: launch.to_dict() for launch in self.seen}
        return dict(sorted({**records, **{name: {"reason": reason} for name, reason in self.unseen.items()}}.items()))


def read_launches(store: Store, manifests: Iterable[Manifest]) -> StoredLaunches:
    """Read the launch records of these manifests. Blocks. Raises NotDurable if the store does.

    A record that cannot be read is reported with the reason and is no error: no figure depends on it.
    """
    seen, unseen = list[LaunchRecord](), dict[str, str]()
    for name in dict.fromkeys(manifest.observed.launch for manifest in manifests):
        key = launch_key(name)
        data = store.get(key)
        if data is None:
            unseen[name] = f"there is no {key}"
            continue
        try:
            seen.append(LaunchRecord.from_json(data))
        except ValidationError as error:
            unseen[name] = f"{key} cannot be read: it was written by another version of specbench, or damaged: {error}"
    return StoredLaunches(tuple(seen), unseen)
