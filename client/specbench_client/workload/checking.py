"""Rows → prompts: each is converted by its source and checked; what is wrong with all of them is told at once.

Three things can become of a row that the filters ask for. It is a prompt. Or it has no text that could be sent (a
placeholder, a log line with tools): then all of them are refused together, by count and by name, unless they may be
left out. Or it is broken: then the file is refused, with the first few lines told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from specbench_api.spec.dataset import Selection, Source
from specbench_client.errors import BadInput
from specbench_client.workload.reading import BadRow, Placeholder, Prompt, read_prompt
from specbench_client.workload.rows import Row
from specbench_client.workload.shapes import shape_hint
from specbench_client.workload.sources.openai_logs import Logged
from specbench_client.workload.sources.source import Columns, LeftOut, Loader, NoText

_SHOWN_PROBLEMS = 5
TOOLS = "tools: only chatTemplate.appliedBy: Client sends them, since each engine's chat route renders them its own way"
PLACEHOLDER = "placeholder: its licence does not let the text be passed on"


@dataclass(frozen=True)
class Fault:
    """A row that cannot be used, and why. `missing`: it has no text; else its source's rule leaves it out."""

    row: Row
    category: str | None
    reason: str
    missing: bool


@dataclass(frozen=True)
class Converted:
    """Rows in our columns, those that the source's own rule leaves out, and the rows that are broken."""

    rows: list[Row] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Checked:
    """Prompts in the file's order, and the rows without a text."""

    prompts: list[Prompt]
    faults: list[Fault]
    logged: dict[str, Logged]
    """What a request log says of each, by id."""


def convert(rows: Sequence[Row], selection: Selection, loader: Loader) -> Converted:
    """Every row in our columns."""
    done = Converted()
    for row in rows:
        try:
            done.rows.extend([Row(row.place, loader.convert(part, selection)) for part in parts_of(row, loader)])
        except (LeftOut, NoText) as reason:
            done.faults.append(Fault(row, _category(row.columns), str(reason), isinstance(reason, NoText)))
        except BadRow as error:
            done.problems.append(f"{row.place}: {error}")
    return done


def parts_of(row: Row, loader: Loader) -> list[Row]:
    """The row, or what its source makes of it where it holds several prompts. Raises BadRow."""
    return loader.split(row) if loader.split else [row]


def check(converted: Converted, rows: Sequence[Row], selection: Selection, *, with_tools: bool) -> Checked:
    """The prompts of the `rows` that the filters keep. Raises BadInput with everything that is wrong.

    `with_tools`: whether tools and calls of them can be sent.
    """
    prompts: list[Prompt] = []
    logged: dict[str, Logged] = {}
    problems, faults = list(converted.problems), [fault for fault in converted.faults if fault.missing]
    places: dict[str, str] = {}
    for row in rows:
        try:
            prompt = read_prompt(row, Source.JSONL)
        except Placeholder:
            faults.append(Fault(row, _category(row.columns), PLACEHOLDER, missing=True))
            continue
        except BadRow as error:
            problems.append(f"{row.place}: {error}")
            continue
        if prompt.with_tools and not with_tools:
            faults.append(Fault(row, prompt.category, TOOLS, missing=True))
            continue
        if prompt.id in places:
            problems.append(
                f"{row.place}: the id {prompt.id!r} is that of {places[prompt.id]} too: records are told by it"
            )
            continue
        places[prompt.id] = row.place
        prompts.append(prompt)
        if isinstance(row.columns.get("logged"), Logged):
            logged[prompt.id] = row.columns["logged"]
    _refuse_broken(problems, len(rows) + len(converted.problems), selection, rows)
    if faults and not selection.allow_missing:
        raise BadInput(_named(faults, len(rows) + len(converted.faults), selection))
    return Checked(prompts, faults, logged)


def _refuse_broken(problems: Sequence[str], count: int, selection: Selection, rows: Sequence[Row]) -> None:
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = [f"{selection.where}, {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        lines = [*shown, *([f"and {more} more of {count} rows"] if more > 0 else [])]
        hint = shape_hint(selection.source, rows[0].columns) if rows else ""
        raise BadInput("\n".join([*lines, *([hint] if hint else [])]))


def _named(faults: Sequence[Fault], rows: int, selection: Selection) -> str:
    """By count, by name, by category and by origin, and what to do."""
    more = len(faults) - _SHOWN_PROBLEMS
    shown = ", ".join(_name(fault) for fault in faults[:_SHOWN_PROBLEMS]) + (f" and {more} more" if more > 0 else "")
    lines = [f"{selection.where}: {len(faults)} of {rows} rows have no text that could be sent: {shown}"]
    lines += [f"  {count} x {reason}" for reason, count in Counter(fault.reason for fault in faults).most_common()]
    for word, values in (
        ("by category", [fault.category for fault in faults]),
        ("by source", [fault.row.columns.get("origin") for fault in faults]),
    ):
        told = Counter(str(value) for value in values if value is not None).most_common(_SHOWN_PROBLEMS)
        lines += [f"  {word}: " + ", ".join(f"{value} {count}" for value, count in told)] if told else []
    return "\n".join([*lines, f"  {_remedy(faults, selection)}"])


def _remedy(faults: Sequence[Fault], selection: Selection) -> str:
    leave = "set dataset.allowMissing: true to leave them out: every result then tells which"
    if all(fault.reason != PLACEHOLDER for fault in faults):
        tools = any(fault.reason == TOOLS for fault in faults)
        return f"set chatTemplate.appliedBy: Client to send those with tools; or {leave}" if tools else leave
    config = f" --config {selection.form}" if selection.source is Source.SPEED_BENCH else ""
    return f"`specbench dataset prepare speed-bench{config}` fetches them from their sources; or {leave}"


def _name(fault: Fault) -> str:
    key = fault.row.columns.get("id", fault.row.columns.get("question_id"))
    named = None if key == fault.row.place.replace(" ", "-") else key
    told = [str(value) for value in (named, fault.category) if value is not None]
    return f"{fault.row.place} ({', '.join(told)})" if told else fault.row.place


def _category(columns: Columns) -> str | None:
    value = columns.get("category")
    return None if value is None else str(value)
