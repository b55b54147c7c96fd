"""Logs of requests read for `specbench drift`: a stored run's records, or a JSONL file of somebody's production."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.result import CellKey
from specbench_client.analysis.drift.requests import COLUMNS, Requests, requests_of
from specbench_client.analysis.estimates.rows import rows_of
from specbench_client.drive.compared import read_result
from specbench_client.errors import BadInput
from specbench_client.metrics.frame import steady
from specbench_client.store.store import Store

PROBLEMS_MOST = 20
_COUNTS = ("accepted_tokens", "drafted_tokens", "steps")
_COUNT_MOST = 2**53
"""From there on a float no longer tells one count from the next."""
_NAMES = ("category", "prompt_id")
_YEAR_2200_S = 7.3e9
"""A time behind it is one in milliseconds that was taken for seconds."""


@dataclass(frozen=True)
class Choice:
    """Which cell of a run is meant; what is None is not asked for."""

    arm: str | None = None
    workload: str | None = None
    load: str | None = None

    def takes(self, key: CellKey) -> bool:
        """Whether a cell is as asked for."""
        return all(
            wanted in (None, told) for wanted, told in zip((self.arm, self.workload, self.load), key, strict=True)
        )


def requests_of_run(store: Store, choice: Choice) -> Requests:
    """The steady requests of one drafted cell, repeat after repeat, each `in_no_order`. Raises BadInput, NotDurable."""
    result = read_result(store)
    drafted = [key for key in result.cells if key[0] != BASELINE_NAME]
    chosen = [key for key in drafted if choice.takes(key)]
    if len(chosen) != 1:
        shown = "; ".join(
            f"--arm {arm} --workload {workload} --load {load}" for arm, workload, load in chosen or drafted
        )
        what = "several cells are as asked for" if chosen else "no drafted cell is as asked for"
        raise BadInput(f"{store.uri()}: {what}: choose one of: {shown or 'none was measured'}", "WhichCell")
    points = result.points_of(chosen[0])
    if not points:
        raise BadInput(f"{store.uri()}: the records of this cell are gone: drift needs every request", "NoRecords")
    rows = in_no_order(steady(rows_of(result.plan, points, result.records)))
    table = rows[["accepted_tokens", "drafted_tokens", "steps", "category", "prompt_id"]].assign(time=float("nan"))
    return requests_of(f"{store.uri()} {'/'.join(chosen[0])}", table)


def in_no_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Repeat after repeat, each in an order that the SHA-256 of repeat, prompt and turn gives.

    A run asks in the order of its file, in which alike prompts most often stand together. Charts take an order for
    time: they would alarm at the first category that is accepted better than the rest.
    """
    told = zip(rows["repeat"], rows["prompt_id"], rows["turn"], strict=True)
    drawn = [sha256(f"{repeat}\0{prompt}\0{turn}".encode()).hexdigest() for repeat, prompt, turn in told]
    return rows.assign(drawn=drawn).sort_values(["repeat", "drawn"], kind="stable").drop(columns="drawn")


def requests_of_log(path: Path) -> Requests:
    """A JSONL file with one request a line. Raises InvalidSpec with every bad line, up to some, BadInput."""
    problems: list[Problem] = []
    rows = list(_rows(path, problems))
    if problems:
        raise InvalidSpec(problems[:PROBLEMS_MOST])
    return requests_of(str(path), pd.DataFrame(rows, columns=list(COLUMNS), dtype=object))


def _rows(path: Path, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield from _row(f"{path}, line {number}", line, problems)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def _row(where: str, line: str, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    try:
        told = json.loads(line)
    except ValueError as error:
        problems.append(Problem(where, f"is no JSON: {error}", "one request a line"))
        return
    if not isinstance(told, dict):
        problems.append(Problem(where, "is no object", '{"steps": 41, "accepted_tokens": 63}'))
        return
    found = [_problem(where, name, told.get(name)) for name in _COUNTS] + [_contradiction(where, told)]
    found += [_no_name(where, name, told.get(name)) for name in _NAMES]
    wrong = [problem for problem in found if problem is not None]
    try:
        when = _seconds(told.get("time"))
    except (ValueError, OverflowError):
        wrong.append(Problem(f"{where}, time", f"{told['time']!r} is no time", "RFC 3339, or seconds since 1970"))
    if wrong:
        problems += wrong
        return
    names = {name: None if told.get(name) is None else str(told[name]) for name in _NAMES}
    yield {**{name: told.get(name) for name in COLUMNS}, **names, "time": when}


def _problem(where: str, name: str, value: Any) -> Problem | None:
    if value is None and name in ("drafted_tokens", "accepted_tokens", "steps"):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_MOST:
        return None
    return Problem(f"{where}, {name}", f"{value!r} is no count", "a whole number from 0, or null where not known")


def _no_name(where: str, name: str, value: Any) -> Problem | None:
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return None
    return Problem(f"{where}, {name}", f"{value!r} is no name", "a text, or null where there is none")


def _contradiction(where: str, told: dict[str, Any]) -> Problem | None:
    accepted, drafted = told.get("accepted_tokens"), told.get("drafted_tokens")
    if isinstance(accepted, int) and isinstance(drafted, int) and accepted > drafted:
        return Problem(f"{where}, accepted_tokens", f"{accepted} accepted of {drafted} drafted", "at most as many")
    return None


def _seconds(value: Any) -> float:
    """Raises ValueError."""
    if value is None:
        return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < _YEAR_2200_S:
            raise ValueError("no time since 1970 in seconds")
        return float(value)
    moment = datetime.fromisoformat(str(value))
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return moment.timestamp()
