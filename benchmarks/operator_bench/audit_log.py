"""The operator's requests to the API server, counted in the API server's own audit log. Pure, except for the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True)
class AuditLog:
    """The audit log of the operator's user: one line per stage of a request."""

    path: Path

    @property
    def size(self) -> int:
        """The current end of the log, in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def requests_between(self, begin: int, end: int) -> Counter[str]:
        """The number of requests by verb and resource, such as `list pods`, that were logged between two sizes."""
        if end <= begin:
            return Counter()
        with self.path.open("rb") as log:
            log.seek(begin)
            return count_requests(orjson.loads(line) for line in log.read(end - begin).splitlines() if line)


def count_requests(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count each request once: a watch when it starts, because it ends minutes later, and others when they end."""
    return Counter(
        f"{event['verb']} {_resource(event.get('objectRef') or {})}"
        for event in events
        if (event["stage"] == "ResponseStarted") == (event["verb"] == "watch")
    )


def _resource(reference: dict[str, Any]) -> str:
    parts = (reference.get("resource", "none"), reference.get("subresource", ""))
    return "/".join(part for part in parts if part)
