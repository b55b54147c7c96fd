"""Which cells join which curve: those that are alike in everything but the axis; the newest where two are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.curves import LeftOut
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.curves.against import Against
from specbench_client.analysis.curves.identity import Cell, identity

LONGEST = 160
"""Characters of one value in a message."""


@dataclass(frozen=True)
class Group:
    """Cells of one curve, and what is alike in all of them by name."""

    same: Mapping[str, str]
    cells: Sequence[Cell]


def grouped(against: Against, results: Sequence[Result]) -> tuple[list[Group], list[LeftOut]]:
    """The cells of each curve, and those of none with the reason."""
    left_out: list[LeftOut] = []
    found: dict[tuple[tuple[str, str], ...], dict[object, Cell]] = {}
    newest_first = sorted(results, key=lambda result: result.summary.created, reverse=True)
    for cell in (cell for result in newest_first for cell in _compared(result)):
        told = identity(cell)
        same = tuple((name, value) for name, value in told.items() if name not in against.free)
        place = tuple(told.items()) if against.place is None else against.place(cell.arm, cell.workload, cell.level)
        why = _unusable(cell) or ("" if place is not None else f"it has no {against.axis.words()}")
        taken = found.get(same, {}).get(place)
        if not why and taken is not None:
            why = f"measured again by {taken.arm.name} of {taken.result.uri}, which is newer or stands first"
        if why:
            left_out.append(LeftOut(what=f"{cell.result.uri}: {cell.words}", reason=why))
        else:
            found.setdefault(same, {})[place] = cell
    return [Group(dict(same), list(cells.values())) for same, cells in found.items()], left_out


def differences(first: Group, other: Group) -> list[str]:
    """In what the other's cells are not the first's. What the title says is left out: the load, and arms of one run."""
    told = dict.fromkeys([*first.same, *other.same])
    unequal = [name for name in told if name != "load" and first.same.get(name) != other.same.get(name)]
    runs = [{cell.result.uri for cell in group.cells} for group in (first, other)]
    if runs[0] & runs[1]:
        unequal = [name for name in unequal if not name.startswith(("drafter.", "draft tokens"))]
    return [f"{name}: {_short(first.same.get(name, '–'))} → {_short(other.same.get(name, '–'))}" for name in unequal]


def _compared(result: Result) -> list[Cell]:
    """The cells of the result's arms, in the summary's order."""
    plan = result.plan
    return [
        Cell(result, plan.arm(cell.arm), plan.workload(cell.workload), cell.level)
        for cell in result.summary.cells
        if cell.arm != BASELINE_NAME
    ]


def _unusable(cell: Cell) -> str:
    """Why a cell is no part of a curve; empty where it is."""
    told = cell.result.cells[cell.key]
    if not told.valid:
        return f"invalid ({', '.join(told.findings)})"
    if told.speedup is None or told.speedup.value is None:
        return "not compared with a baseline"
    keys = (cell.key, (BASELINE_NAME, *cell.key[1:]))
    return "" if all(cell.result.points_of(key) for key in keys) else "its records are gone"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
