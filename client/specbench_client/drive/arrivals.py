"""An open loop's arrivals for a plan: the trace read once, a schedule for each point.

A schedule depends on the load and the repeat alone, never on the arm: what is compared was asked at the same moments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.load import Arrival, Load
from specbench_client.load.schedule import Around, Extent, Offsets, Times, arrivals_around, intended_times
from specbench_client.load.trace import load_trace


@dataclass(frozen=True)
class Arrivals:
    """`trace`: the recording's time stamps, where there is one."""

    load: Load
    trace: Offsets | None

    @property
    def trace_fingerprint(self) -> str | None:
        """SHA-256 over the trace's time stamps."""
        return None if self.trace is None else hashlib.sha256(self.trace.astype("<f8").tobytes()).hexdigest()

    def times(self, point: Point, prompts: int) -> Times | None:
        """When the point's conversations begin, from the load's start; None in a closed loop. Raises BadInput."""
        if point.level.concurrency is not None:
            return None
        duration_s = self.load.duration_seconds
        extent = Extent(count=self.load.requests or prompts) if duration_s is None else Extent(duration_s=duration_s)
        return intended_times(self.load.arrival or Arrival(), point.level.rate, extent, point.repeat, trace=self.trace)

    def around(self, point: Point, times: Times) -> Around | None:
        """When fillers may begin before and after them."""
        return arrivals_around(self.load.arrival or Arrival(), point.level.rate, point.repeat, times)


def load_arrivals(plan: Plan, base_dir: Path, fetch: Callable[[str], bytes]) -> Arrivals:
    """Read the trace, if there is one. Raises BadInput."""
    arrival = plan.load.arrival
    if arrival is None or arrival.uri is None:
        return Arrivals(plan.load, None)
    return Arrivals(plan.load, load_trace(arrival.uri, arrival.column, base_dir, fetch))
