"""Reads the request logs of `specbench analyze drift`: the records of a stored run, or a JSONL file from production."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.stored_result import CellKey, StoredResult
from specbench_client.analysis.drift.request_log import COLUMNS, RequestLog, request_log
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.numpy_columns import RowIndices
from specbench_client.stored_runs.run import Run

MAX_PROBLEMS = 20
_COUNTS = ("accepted_tokens", "drafted_tokens", "steps")
_MAX_COUNT = 2**53
"""From here on floats cannot represent every whole number."""
_NAMES = ("category", "prompt_id")
_YEAR_2200_S = 7.3e9
"""A later time is in milliseconds and was given as seconds."""


def requests_from_run(run: Run, arm: str | None, workload: str | None, load: str | None) -> RequestLog:
    """Return the steady requests of the drafted cell that matches, shuffled within each repeat; None matches all.

    Raises BadInput if not exactly one cell matches, NotDurable.
    """
    drafted = [key for key in run.require_summary().cells_by_key if key[0] != BASELINE_NAME]
    wanted = (arm, workload, load)
    chosen = [key for key in drafted if all(want in (None, has) for want, has in zip(wanted, key, strict=True))]
    if len(chosen) != 1:
        shown = "; ".join(
            f"--arm {arm} --workload {workload} --load {load}" for arm, workload, load in chosen or drafted
        )
        what = "several cells match" if chosen else "no cell with a drafter matches"
        reason = "SeveralCells" if chosen else "NoSuchCell"
        raise BadInput(f"{run.uri}: {what}: choose one of: {shown or 'none was measured'}", reason)
    return requests_of_cell(run, chosen[0])


def requests_of_cell(result: StoredResult, cell: CellKey) -> RequestLog:
    """Return the steady requests of one cell, shuffled within each repeat. Raises BadInput, NotDurable."""
    points = result.points_of(cell)
    if not points:
        message = "the records of this cell are gone, and drift needs every request: measure the cell again"
        raise BadInput(f"{result.uri}: {message}", "NoRecords")
    rows = steady_rows(result.rows_of(points))
    order = hash_order(rows)
    texts = {name: rows.codes(name) for name in _NAMES}
    table = pd.DataFrame(
        {name: numbers(rows, name)[order] for name in _COUNTS}
        | {
            name: pd.Categorical.from_codes(each.codes[order], pd.Index(each.texts, dtype=object))
            for name, each in texts.items()
        }
    )
    return request_log(f"{result.uri} {'/'.join(cell)}", table)


def hash_order(rows: Table) -> RowIndices:
    """Return the row indices repeat by repeat, each repeat in the order of the SHA-256 of repeat, prompt and turn.

    A run sends prompts in the order of its file, where similar prompts are often next to each other. Charts treat the
    order as time, so they would alarm at the first category that is accepted better than the rest.
    """
    prompts = rows.codes("prompt_id")
    (repeats, repeat_of), (turns, turn_of) = (
        np.unique(numbers(rows, name), return_inverse=True) for name in ("repeat", "turn")
    )
    request_of = (repeat_of * len(prompts.texts) + prompts.codes) * turns.size + turn_of
    found, request_of = np.unique(request_of, return_inverse=True)
    places = zip(*np.unravel_index(found, (repeats.size, len(prompts.texts), turns.size)), strict=True)
    keys = [(repeat, _digest(repeats[repeat], prompts.texts[prompt], turns[turn])) for repeat, prompt, turn in places]
    rank_of = np.empty(len(keys), dtype=np.int32)
    rank_of[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys), dtype=np.int32)
    return np.argsort(rank_of[request_of], kind="stable").astype(np.int32)


def _digest(repeat: float, prompt: str, turn: float) -> bytes:
    return sha256(f"{float(repeat)}\0{prompt}\0{float(turn)}".encode()).digest()


def requests_from_log(path: Path) -> RequestLog:
    """Read a JSONL file with one request per line. Raises InvalidSpec with up to MAX_PROBLEMS bad lines, BadInput."""
    problems: list[Problem] = []
    rows = list(_parse_lines(path, problems))
    if problems:
        raise InvalidSpec(problems[:MAX_PROBLEMS])
    return request_log(str(path), pd.DataFrame(rows, columns=list(COLUMNS), dtype=object))


def _parse_lines(path: Path, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield from _parse_line(f"{path}, line {number}", line, problems)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def _parse_line(where: str, line: str, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    try:
        request = parse_json(line)
    except ValueError as error:
        problems.append(Problem(where, f"is not valid JSON: {error}", "give one request per line"))
        return
    if not isinstance(request, dict):
        problems.append(Problem(where, "is not an object", '{"steps": 41, "accepted_tokens": 63}'))
        return
    found = [_count_problem(where, name, request.get(name)) for name in _COUNTS]
    found += [_contradiction_problem(where, request)]
    found += [_name_problem(where, name, request.get(name)) for name in _NAMES]
    wrong = [problem for problem in found if problem is not None]
    try:
        when = _seconds(request.get("time"))
    except (ValueError, OverflowError):
        what = f"{request['time']!r} is not a time"
        wrong.append(Problem(f"{where}, time", what, "give RFC 3339 with a time zone, or seconds since 1970"))
    if wrong:
        problems += wrong
        return
    names = {name: None if request.get(name) is None else str(request[name]) for name in _NAMES}
    yield {**{name: request.get(name) for name in COLUMNS}, **names, "time": when}


def _count_problem(where: str, name: str, value: Any) -> Problem | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT):
        return None
    return Problem(f"{where}, {name}", f"{value!r} is not a count", "give a whole number from 0, or null if unknown")


def _name_problem(where: str, name: str, value: Any) -> Problem | None:
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return None
    return Problem(f"{where}, {name}", f"{value!r} is not a name", "give a string, or null if there is none")


def _contradiction_problem(where: str, request: dict[str, Any]) -> Problem | None:
    accepted, drafted = request.get("accepted_tokens"), request.get("drafted_tokens")
    if isinstance(accepted, int) and isinstance(drafted, int) and accepted > drafted:
        what = f"{accepted} accepted of {drafted} drafted"
        return Problem(f"{where}, accepted_tokens", what, "give at most as many as drafted_tokens")
    return None


def _seconds(value: Any) -> float:
    """Convert a time to seconds since 1970; NaN for None. Raises ValueError."""
    if value is None:
        return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < _YEAR_2200_S:
            raise ValueError("not a time since 1970 in seconds")
        return float(value)
    moment = datetime.fromisoformat(str(value))
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return moment.timestamp()
