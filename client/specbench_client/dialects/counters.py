"""Differences of an engine's counters over a point."""

from __future__ import annotations

from dataclasses import fields

from specbench_api.outcome.summary import Counters
from specbench_client.dialects.dialect import EngineCounters

_COUNTED = tuple(one.name for one in fields(EngineCounters) if one.name != "started_s")


def difference(before: EngineCounters, after: EngineCounters) -> Counters:
    """What was counted in between; None where either side lacks it.

    `restarted` where a counter went backwards, or where the engine's process is another one: what such a difference
    counts is not the point, and it is given as it is, for the finding's sake.
    """
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in _COUNTED}
    gains = {name: end - start for name, (start, end) in pairs.items() if start is not None and end is not None}
    other_process = None not in (before.started_s, after.started_s) and before.started_s != after.started_s
    return Counters(**gains, restarted=other_process or any(gain < 0 for gain in gains.values()))
