"""The last launch that a run's results tell of: what is known of it when status is lost and its pods are gone."""

from __future__ import annotations

from datetime import datetime

from pydantic import ValidationError

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Launched
from specbench_api.outcome.layout import LAUNCHES
from specbench_operator.cluster.bucket import Bucket
from specbench_operator.state.stored import LaunchStored


def last_stored(bucket: Bucket, root: str) -> LaunchStored | None:
    """The one that was stored last; None where there is none, or where it names no node. Raises StoreError."""
    stored = bucket.listing(f"{root}/{LAUNCHES}/").modified
    if not stored:
        return None
    newest = max(stored, key=lambda key: (stored[key], key))
    try:
        launched = Launched.from_json(bucket.get(newest) or b"")
        node, asked = launched.value(FactName.NODE), datetime.fromisoformat(launched.asked)
    except (ValidationError, ValueError):
        return None  # written by another version: it draws nobody anywhere
    return LaunchStored(node, asked) if isinstance(node, str) and node and asked.tzinfo else None
