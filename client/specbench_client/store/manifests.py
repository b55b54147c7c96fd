"""Manifests: which points are results, and what damage to a point is called. Light: no records are read here.

A manifest counts once it was read and understood: half of one would make its point neither a result nor missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import ValidationError

from specbench_api.outcome.layout import manifest_key, measured_among, point_root
from specbench_api.outcome.manifest import Manifest
from specbench_client.errors import NotDurable
from specbench_client.store.store import Refusal, Store

_READERS = 8
_VERSION = ("schemaVersion",)


def read_manifests(store: Store, wanted: Sequence[str]) -> dict[str, Manifest]:
    """The manifests of those points that have one, in the order asked for. Raises NotDurable(Damaged)."""
    found = measured_among(store.keys("points/"), wanted)
    ordered = [point for point in wanted if point in found]
    with ThreadPoolExecutor(_READERS, "manifests") as readers:
        read = list(readers.map(lambda point: read_manifest(store, point), ordered))
    return {point: manifest for point, manifest in zip(ordered, read, strict=True) if manifest is not None}


def read_manifest(store: Store, point: str) -> Manifest | None:
    """The point's manifest, or None where it is no result. Raises NotDurable(Damaged)."""
    key = manifest_key(point)
    data = get_of_point(store, point, key)
    if data is None:
        return None
    try:
        manifest = Manifest.from_json(data)
    except ValidationError as error:
        raise unreadable(store, point, key, error) from error
    if manifest.hash != point:
        raise damaged(store, point, key, f"it belongs to the point {manifest.hash}")
    return manifest


def get_of_point(store: Store, point: str, key: str) -> bytes | None:
    """As the store's `get`; damage that the store itself finds is told with the point's remedy."""
    try:
        return store.get(key)
    except NotDurable as refused:
        if refused.reason != Refusal.DAMAGED:
            raise
        raise damaged(store, point, key, "it does not match the checksum that was stored with it") from refused


def unreadable(store: Store, point: str, key: str, error: ValidationError) -> NotDurable:
    """The error of a document that is none of ours; one of another version is whole, and nothing of it is to go."""
    first, count = error.errors(include_url=False)[0], error.error_count()
    if first["loc"] == _VERSION:
        what = f"it is a {first['input']!r}, which this version of specbench does not read"
        return NotDurable(f"{store.uri(key)}: {what}: use the version that wrote it", Refusal.DAMAGED)
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {count - 1} more)" if count > 1 else ""
    return damaged(store, point, key, f"it cannot be read: {where and f'{where}: '}{first['msg']}{more}")


def damaged(store: Store, point: str, key: str, what: str) -> NotDurable:
    """The error of a point's damaged file. All of the point goes: without the manifest alone, it would stay one."""
    remedy = f"remove {store.uri(point_root(point))} with everything below it to have the point measured again"
    return NotDurable(f"{store.uri(key)}: {what}; {remedy}", Refusal.DAMAGED)
