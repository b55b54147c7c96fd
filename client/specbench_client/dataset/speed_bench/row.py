"""One row of SPEED-Bench, and whether it holds its text or a placeholder. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_client.errors import BadInput

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
COLUMNS = ("question_id", "category", "turns", "source", "src_id")


class Unresolved(SpecbenchError):
    """This row cannot be filled in; says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class SpeedBenchRow:
    """`columns` are the row as it lies in the file; the rest is what resolving needs of it."""

    columns: Mapping[str, Any]
    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    source: str
    src_id: str

    @property
    def whole(self) -> bool:
        """Whether every turn is a text already."""
        return not any(turn.startswith(PLACEHOLDER) for turn in self.turns)

    def template(self) -> str:
        """What the first turn's placeholder is followed by. Raises Unresolved where it is nothing."""
        found = self.turns[0].removeprefix(PLACEHOLDER).removeprefix("\n\n")
        if not found.strip():
            raise Unresolved("its placeholder has no template: the file is of a version that this one does not know")
        return found


def speed_bench_row(columns: Mapping[str, Any], place: str) -> SpeedBenchRow:
    """The row. Raises BadInput where it is none of SPEED-Bench's."""
    missing = [name for name in COLUMNS if columns.get(name) is None]
    turns = columns.get("turns")
    if missing or not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        what = f"has no {missing[0]}" if missing else "has turns that are no list of texts"
        raise BadInput(
            f"{place} {what}: give SPEED-Bench's own files (nvidia/SPEED-Bench, split test), not prepared ones"
        )
    return SpeedBenchRow(
        columns=columns,
        question_id=str(columns["question_id"]),
        category=str(columns["category"]),
        sub_category=str(columns.get("sub_category") or ""),
        turns=tuple(turns),
        source=str(columns["source"]),
        src_id=str(columns["src_id"]),
    )


def filled(template: str, fields: Mapping[str, Any]) -> str:
    """The template with its fields. Raises Unresolved where it asks for another."""
    try:
        return template.format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        has = ", ".join(sorted(fields))
        raise Unresolved(f"its template asks for {error}, and the source gives {has}") from error
