"""Reads manifests, which mark the points that are results, and builds errors for damaged points. Reads no records.

A manifest that exists but cannot be read is an error: its point is then neither a result nor missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import ValidationError

from specbench_api.outcome.layout import manifest_key, measured_among, point_root
from specbench_api.outcome.manifest import Manifest
from specbench_client.errors import NotDurable
from specbench_client.store.store import Store, StoreErrorReason

_READERS = 8
_VERSION = ("schemaVersion",)


def read_manifests(store: Store, points: Sequence[str]) -> dict[str, Manifest]:
    """Return the manifests of those points that have one, in the order of `points`. Raises NotDurable(Damaged)."""
    measured = measured_among(store.keys("points/"), points)
    ordered = [point for point in points if point in measured]
    with ThreadPoolExecutor(_READERS, "manifests") as readers:
        manifests = list(readers.map(lambda point: read_manifest(store, point), ordered))
    return {point: manifest for point, manifest in zip(ordered, manifests, strict=True) if manifest is not None}


def read_manifest(store: Store, point: str) -> Manifest | None:
    """Return the point's manifest, or None if it is not measured. Raises NotDurable(Damaged)."""
    key = manifest_key(point)
    data = read_point_file(store, point, key)
    if data is None:
        return None
    try:
        manifest = Manifest.from_json(data)
    except ValidationError as error:
        raise invalid_document_error(store, point, key, error) from error
    if manifest.hash != point:
        raise damaged_point_error(store, point, key, f"it belongs to the point {manifest.hash}")
    return manifest


def read_point_file(store: Store, point: str, key: str) -> bytes | None:
    """Like `Store.get`, but damage that the store detects is raised with the remedy for a point."""
    try:
        return store.get(key)
    except NotDurable as refused:
        if refused.reason != StoreErrorReason.DAMAGED:
            raise
        raise damaged_point_error(
            store, point, key, "it does not match the checksum that was stored with it"
        ) from refused


def invalid_document_error(store: Store, point: str, key: str, error: ValidationError) -> NotDurable:
    """Return the error for a document that cannot be parsed.

    A document of another version is not damaged, so the remedy is not to remove it.
    """
    first, count = error.errors(include_url=False)[0], error.error_count()
    if first["loc"] == _VERSION:
        what = f"it is a {first['input']!r}, which this version of specbench does not read"
        return NotDurable(f"{store.uri(key)}: {what}: use the version that wrote it", StoreErrorReason.DAMAGED)
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {count - 1} more)" if count > 1 else ""
    return damaged_point_error(store, point, key, f"it cannot be read: {where and f'{where}: '}{first['msg']}{more}")


def damaged_point_error(store: Store, point: str, key: str, what: str) -> NotDurable:
    """Return the error for a damaged file of a point.

    The remedy removes all of the point: if only the file were removed, the manifest would still mark it as measured.
    """
    remedy = f"remove {store.uri(point_root(point))} with everything below it to measure the point again"
    return NotDurable(f"{store.uri(key)}: {what}; {remedy}", StoreErrorReason.DAMAGED)
