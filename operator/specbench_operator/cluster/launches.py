"""The launches that a run's results tell of: what is known of them when status is lost and their pods are gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from pydantic import ValidationError

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Launched
from specbench_operator.cluster.bucket import Bucket
from specbench_operator.state.stored import LaunchStored

_NAME = re.compile(r"(\d+)-(\d+)-[0-9a-f]+\.json")
"""GROUP-LAUNCH-PROCESS; launches on somebody's own machine have no number."""


def last_numbers(keys: Iterable[str]) -> dict[int, int]:
    """By group: the number of the last launch among these documents of launches."""
    found: dict[int, int] = {}
    for match in (_NAME.fullmatch(key.rpartition("/")[2]) for key in keys):
        if match:
            group, launch = int(match[1]), int(match[2])
            found[group] = max(launch, found.get(group, launch))
    return found


def last_stored(bucket: Bucket, stored: Mapping[str, datetime]) -> LaunchStored | None:
    """The one that was stored last among these documents of launches, each with the time at which it was.

    None where there is none, or where it names no node. Raises StoreError.
    """
    if not stored:
        return None
    newest = max(stored, key=lambda key: (stored[key], key))
    try:
        launched = Launched.from_json(bucket.get(newest) or b"")
        node, asked = launched.value(FactName.NODE), datetime.fromisoformat(launched.asked)
    except (ValidationError, ValueError):
        return None  # written by another version: it draws nobody anywhere
    return LaunchStored(node, asked) if isinstance(node, str) and node and asked.tzinfo else None
