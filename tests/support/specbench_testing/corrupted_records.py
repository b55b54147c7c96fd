"""Lies of a single point: what is put into honest records, and what the checks say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.record import RecordPhase
from specbench_api.outcome.summary import CounterDeltas
from specbench_api.plan.plan import Point
from specbench_testing.synthetic_records import TURNAROUND_NS, Corruptions, SyntheticRun, point_of

WORLD = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, turns=1)
"""A closed loop of single questions."""
TALKS = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, turns=2)
"""A closed loop of conversations."""
OPEN = SyntheticRun(prompts=60, rate=(10,), repeats=1)
"""An open loop."""


def findings_of(lies: Corruptions, arm: str = "ngram", world: SyntheticRun = WORLD) -> list[Finding]:
    """What is found of the arm's first point."""
    point = next(each for each in world.plan.points if each.arm == arm)
    return point_of(world, point, lies)[0].findings


def check_names(findings: list[Finding]) -> list[tuple[str, Severity]]:
    """Checks and severities."""
    return [(finding.check, finding.severity) for finding in findings]


def replace_columns(**values: Any) -> Corruptions:
    """Each value is a constant, or a function of the row's number and the row."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame.copy()
        for name, value in values.items():
            told = [value(index, row) if callable(value) else value for index, (_, row) in enumerate(frame.iterrows())]
            rows[name] = pd.Series(told, index=rows.index, dtype=object)
        return rows

    return Corruptions(records=edit)


def close_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Of one stream whose answers were made shorter: each request begins again as soon as the one before has ended."""
    rows = frame.sort_values("intended_ns", kind="stable").copy()
    measured = (rows["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)
    taken = (rows["last_token_ns"] - rows["intended_ns"]).to_numpy()[measured] + TURNAROUND_NS
    shifts = np.zeros(len(rows), dtype=np.int64)
    shifts[measured] = np.cumsum([0, *taken[:-1]]) - rows["intended_ns"].to_numpy()[measured]
    for name in ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"):
        rows[name] = rows[name] + shifts
    chunks = [[at + by for at in each] for each, by in zip(rows["chunk_ns"], shifts.tolist(), strict=True)]
    rows["chunk_ns"] = pd.Series(chunks, index=rows.index, dtype=object)
    return rows.sort_index()


def replace_counters(**values: Any) -> Corruptions:
    """The engine's counters with other values."""
    return Corruptions(counters=lambda _, honest: honest.model_copy(update=values))


def replace_watch(**values: Any) -> Corruptions:
    """The client's watch over itself with other values."""
    return Corruptions(watch=lambda _, honest: honest.model_copy(update=values))


def without_counters(_: Point, __: CounterDeltas) -> None:
    """An engine without counters."""
