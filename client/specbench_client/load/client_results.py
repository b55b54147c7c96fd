"""What each client observed of a load besides its records, and how client 0 combines it for the point's summary."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from specbench_client.documents.manifest import StoredFile
from specbench_client.load.client_link import ClockOffset
from specbench_client.load.client_monitor import RecordTally, WarmupResult
from specbench_client.load.in_flight import LoadTimestamps
from specbench_client.load.worker_messages import WorkerDone

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class ClientResult:
    """The result of one client. Times are on its own monotonic clock, or after `from_message` on client 0's."""

    ended: Sequence[WorkerDone]
    tally: RecordTally
    warm_up: WarmupResult | None
    begins_ns: int
    """When the load, or its schedule, began."""
    offset: ClockOffset
    """The offset of this client's clocks, with the maximum error over the point."""
    file: StoredFile
    """The file of its records."""

    def to_message(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "ended": [self._worker(one) for one in self.ended],
            "tally": [_encoded(self.tally.lateness_ms), *self.tally.counts],
            "warmUp": None if self.warm_up is None else astuple(self.warm_up),
            "beginsNs": self.begins_ns + self.offset.monotonic_ns,
            "offset": astuple(self.offset),
            "file": self.file.to_dict(),
        }

    def _worker(self, done: WorkerDone) -> list[Any]:
        logs = (done.log.opened, done.log.ended, done.log.began)
        health = (done.lag_p99_ms, done.lag_max_ms, done.cpu_share)
        return [*(_encoded(log, self.offset.monotonic_ns) for log in logs), *health]

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> ClientResult:
        """Parse what `to_message` of another client returned."""
        lateness, *counts = message["tally"]
        return cls(
            [
                WorkerDone(LoadTimestamps(*(_decoded("q", log) for log in logs)), lag_p99_ms, lag_max_ms, cpu_share)
                for *logs, lag_p99_ms, lag_max_ms, cpu_share in message["ended"]
            ],
            RecordTally(_decoded("d", lateness), *counts),
            None if message["warmUp"] is None else WarmupResult(*message["warmUp"]),
            message["beginsNs"],
            ClockOffset(*message["offset"]),
            StoredFile.model_validate(message["file"]),
        )


def combined_warm_up(results: Sequence[ClientResult]) -> WarmupResult | None:
    """Return all requests of the warm-up, and whether it was steady at every client that took part."""
    known = [result.warm_up for result in results if result.warm_up is not None]
    if not known:
        return None
    return WarmupResult(sum(each.requests for each in known), all(each.steady for each in known if each.requests))


def clock_error_ms(results: Sequence[ClientResult]) -> float:
    """Return how far times of two clients may be apart that count as one: by their clocks, and by their begins."""
    begins = [result.begins_ns for result in results]
    return (max(result.offset.error_ns for result in results) + max(begins) - min(begins)) / _NS_PER_MS


def clock_skew_ms(results: Sequence[ClientResult]) -> float:
    """Return the largest difference between the wall clocks of two clients."""
    offsets = [result.offset.wall_ns for result in results]
    return (max(offsets) - min(offsets)) / _NS_PER_MS


def _encoded(values: array[Any], added: int = 0) -> str:
    """Encode an array, with `added` added to each value."""
    numbers = np.frombuffer(values, values.typecode) if values else np.array([], values.typecode)
    return base64.b64encode((numbers + added).astype(f"<{values.typecode}").tobytes()).decode()


def _decoded(typecode: str, text: str) -> array[Any]:
    return array(typecode, np.frombuffer(base64.b64decode(text), f"<{typecode}").tolist())
