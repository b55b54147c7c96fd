"""Parses rows of SPEED-Bench, which contain their text or a placeholder for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_client.errors import BadInput
from specbench_client.workload.row_parsing import PLACEHOLDER_TEXT

PLACEHOLDER = f"{PLACEHOLDER_TEXT} USING SPECDEC_BENCH"
SPEED_BENCH_COLUMNS = ("question_id", "category", "turns", "source", "src_id")


class Unresolved(SpecbenchError):
    """The row cannot be filled in; the message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class SpeedBenchRow:
    """One row. `columns` is the unchanged row of the file; the other fields are those needed to resolve it."""

    columns: Mapping[str, Any]
    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    source: str
    src_id: str

    @property
    def whole(self) -> bool:
        """Whether no turn is a placeholder."""
        return not any(turn.startswith(PLACEHOLDER) for turn in self.turns)

    def template(self) -> str:
        """Return the template after the first turn's placeholder. Raises Unresolved if there is none."""
        found = self.turns[0].removeprefix(PLACEHOLDER).removeprefix("\n\n")
        if not found.strip():
            raise Unresolved("its placeholder has no template: this version of SPEED-Bench is not supported")
        return found


def parse_row(columns: Mapping[str, Any], place: str) -> SpeedBenchRow:
    """Parse a row. Raises BadInput if it is not one of SPEED-Bench's."""
    missing = [name for name in SPEED_BENCH_COLUMNS if columns.get(name) is None]
    turns = columns.get("turns")
    if missing or not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        problem = f"has no {missing[0]}" if missing else "has turns that are not a list of strings"
        raise BadInput(
            f"{place} {problem}: give SPEED-Bench's own files (nvidia/SPEED-Bench, split test), not prepared ones"
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


def fill_template(template: str, fields: Mapping[str, Any]) -> str:
    """Fill in a template. Raises Unresolved if it uses a field that is not given."""
    try:
        return template.format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        available = ", ".join(sorted(fields))
        raise Unresolved(f"its template uses {error}, but the source only has {available}") from error
