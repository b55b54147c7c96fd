"""Corruptions of a single point: edits of honest records, and the findings of the checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.engine import DialectName
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.record import RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas
from specbench_testing.resources import external_engine
from specbench_testing.synthetic_records import TURNAROUND_NS, Corruptions, SyntheticRun, point_of

WORLD = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, turns=1)
"""A closed loop of single-turn prompts."""
TALKS = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, turns=2)
"""A closed loop of conversations."""
OPEN = SyntheticRun(prompts=60, rate=(10,), repeats=1)
"""An open loop."""


def findings_of(corruptions: Corruptions, arm: str = "ngram", world: SyntheticRun = WORLD) -> list[Finding]:
    """The findings of the arm's first point."""
    point = next(each for each in world.plan.points if each.arm == arm)
    return point_of(world, point, corruptions)[0].findings


def check_names(findings: list[Finding]) -> list[tuple[str, Severity]]:
    """Names and severities of the findings' checks."""
    return [(finding.check, finding.severity) for finding in findings]


def replace_columns(**values: Any) -> Corruptions:
    """Replaces columns; each value is a constant, or a function of the row's number and the row."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame.copy()
        for name, value in values.items():
            column = [
                value(index, row) if callable(value) else value for index, (_, row) in enumerate(frame.iterrows())
            ]
            rows[name] = pd.Series(column, index=rows.index, dtype=object)
        return rows

    return Corruptions(records=edit)


def close_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Shift the requests of one stream with shortened answers, so that each starts when the one before has ended."""
    rows = frame.sort_values("intended_ns", kind="stable").copy()
    measured = (rows["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)
    taken = (rows["last_token_ns"] - rows["intended_ns"]).to_numpy()[measured] + TURNAROUND_NS
    shifts = np.zeros(len(rows), dtype=np.int64)
    shifts[measured] = np.cumsum([0, *taken[:-1]]) - rows["intended_ns"].to_numpy()[measured]
    for name in ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"):
        rows[name] = rows[name] + shifts
    chunks = [[at + by for at in each] for each, by in zip(rows["chunk_ns"], shifts.tolist(), strict=True)]
    rows["chunk_ns"] = pd.Series(chunks, index=rows.index, dtype=object)
    return rows.sort_index()


def replace_counters(**values: Any) -> Corruptions:
    """Replaces values of the engine's counters."""
    return Corruptions(counters=lambda _, honest: honest.model_copy(update=values))


def replace_watch(**values: Any) -> Corruptions:
    """Replaces values of the client's own health record."""
    return Corruptions(watch=lambda _, honest: honest.model_copy(update=values))


def without_counters(_: Point, __: CounterDeltas) -> None:
    """Removes the engine's counters."""


def combine(*edits: Corruptions) -> Corruptions:
    """Applies the edits of records, counters and health one after the other; counters that are removed stay so."""

    def records(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        for each in edits:
            frame = each.records(point, frame)
        return frame

    def counters(point: Point, honest: CounterDeltas) -> CounterDeltas | None:
        counted: CounterDeltas | None = honest
        for each in edits:
            counted = counted and each.counters(point, counted)
        return counted

    def watch(point: Point, seen: ClientHealth) -> ClientHealth:
        for each in edits:
            seen = each.watch(point, seen)
        return seen

    return Corruptions(records=records, counters=counters, watch=watch)


WITHOUT_COUNTERS = Corruptions(counters=without_counters)


def undeclared_drafter(world: SyntheticRun, dialect: DialectName) -> tuple[Plan, Point]:
    """The world's plan with a running endpoint whose drafter is not declared, and that arm's first point."""
    arm = world.plan.arm("ngram").model_copy(update={"drafter": None})
    changes = {"engine": external_engine(dialect), "arms": [world.plan.arm("none"), arm]}
    plan = world.plan.model_copy(update=changes)
    return plan, next(each for each in plan.points if each.arm == "ngram")


def failing(frame: pd.DataFrame) -> pd.DataFrame:
    """The records with a quarter of the requests failed."""
    failed = np.arange(len(frame)) % 4 == 3
    times = ["first_token_ns", "last_token_ns", "chunk_ns", "chunk_tokens", "output_tokens", "output_sha256"]
    edited = {
        name: pd.Series([None if bad else value for bad, value in zip(failed, frame[name], strict=True)], dtype=object)
        for name in times
    }
    return frame.assign(**edited, error_class=pd.Series(["reset" if bad else None for bad in failed], dtype=object))
