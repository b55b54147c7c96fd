"""Converts rows to prompts and validates them; all problems of a file are reported in one error.

A row that the filters select has one of three outcomes:

- it becomes a prompt;
- it has no text that can be sent (a placeholder, a log line with tools): the file is rejected with the number and names
  of all such rows, unless `dataset.allowMissing` is set;
- it is invalid: the file is rejected, and the error shows the first few invalid rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specbench_api.spec.answers import ExpectedAnswer
from specbench_api.spec.dataset import Selection, Source
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import EXPECTED, BadRow, PlaceholderRow, Prompt, parse_prompt
from specbench_client.workload.source_detection import shape_hint
from specbench_client.workload.sources.loader import Columns, RowExcluded, RowWithoutText, SourceLoader
from specbench_client.workload.sources.openai_logs import LoggedRequest

_SHOWN_PROBLEMS = 5
OWN_ANSWER = "answer"
"""Published column with the expected answer, where neither the workload nor the source names another one."""
TOOLS = "tools: they need chatTemplate.appliedBy: Client, because each engine's chat route renders them differently"
PLACEHOLDER_REASON = "placeholder: the licence does not allow redistribution of the text"


@dataclass(frozen=True)
class RowFault:
    """A row that cannot be used, with the reason. `missing`: it has no text; otherwise its source excludes it."""

    row: PromptRow
    category: str | None
    reason: str
    missing: bool


@dataclass(frozen=True)
class ConvertedRows:
    """Rows converted to our columns, rows that the source excludes, and the problems of invalid rows."""

    rows: list[PromptRow] = field(default_factory=list)
    faults: list[RowFault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CheckedPrompts:
    """Valid prompts in file order, and the rows without text."""

    prompts: list[Prompt]
    faults: list[RowFault]
    logged: dict[str, LoggedRequest]
    """The request parameters and lengths found in a request log, by prompt id."""


def convert_rows(
    rows: Sequence[PromptRow], selection: Selection, loader: SourceLoader, expected: ExpectedAnswer | None = None
) -> ConvertedRows:
    """Convert every row to our columns, with its expected answer if one is declared."""
    done = ConvertedRows()
    for row in rows:
        try:
            parts = [_converted(part, selection, loader, expected) for part in parts_of(row, loader)]
            done.rows.extend([PromptRow(row.place, columns) for columns in parts])
        except (RowExcluded, RowWithoutText) as reason:
            done.faults.append(RowFault(row, _category(row.columns), str(reason), isinstance(reason, RowWithoutText)))
        except BadRow as error:
            done.problems.append(f"{row.place}: {error}")
    return done


def _converted(row: PromptRow, selection: Selection, loader: SourceLoader, expected: ExpectedAnswer | None) -> Columns:
    columns = loader.convert(row, selection)
    if expected is None:
        return columns
    if expected.field is not None:
        return {**columns, EXPECTED: row.columns.get(expected.field)}
    return {EXPECTED: row.columns.get(OWN_ANSWER), **columns}


def parts_of(row: PromptRow, loader: SourceLoader) -> list[PromptRow]:
    """Return the row itself, or one row per prompt if the source stores several in a row. Raises BadRow."""
    return loader.split(row) if loader.split else [row]


def check_prompts(
    converted: ConvertedRows,
    rows: Sequence[PromptRow],
    selection: Selection,
    *,
    with_tools: bool,
    expected: ExpectedAnswer | None = None,
) -> CheckedPrompts:
    """Parse `rows`, those that pass the filters, into prompts. Raises BadInput with all problems.

    `with_tools`: whether tools and tool calls can be sent; `expected`: the expected answers, if they are declared.
    """
    prompts: list[Prompt] = []
    logged: dict[str, LoggedRequest] = {}
    problems, faults = list(converted.problems), [fault for fault in converted.faults if fault.missing]
    places: dict[str, str] = {}
    for row in rows:
        try:
            prompt = parse_prompt(row, expected)
        except PlaceholderRow:
            faults.append(RowFault(row, _category(row.columns), PLACEHOLDER_REASON, missing=True))
            continue
        except BadRow as error:
            problems.append(f"{row.place}: {error}")
            continue
        if prompt.with_tools and not with_tools:
            faults.append(RowFault(row, prompt.category, TOOLS, missing=True))
            continue
        if prompt.id in places:
            problems.append(
                f"{row.place}: the id {prompt.id!r} is already used by {places[prompt.id]}: ids must be unique"
            )
            continue
        places[prompt.id] = row.place
        limit = row.columns["output_length"] if selection.source is Source.MOONCAKE else None
        prompts.append(replace(prompt, output_tokens=limit))
        if isinstance(row.columns.get("logged"), LoggedRequest):
            logged[prompt.id] = row.columns["logged"]
    _raise_if_invalid(problems, len(rows) + len(converted.problems), selection, rows)
    if faults and not selection.allow_missing:
        raise BadInput(_missing_message(faults, len(rows) + len(converted.faults), selection))
    return CheckedPrompts(prompts, faults, logged)


def _raise_if_invalid(problems: Sequence[str], count: int, selection: Selection, rows: Sequence[PromptRow]) -> None:
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = [f"{selection.where}, {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        lines = [*shown, *([f"and {more} more of {count} rows"] if more > 0 else [])]
        hint = shape_hint(selection.source, rows[0].columns) if rows else ""
        raise BadInput("\n".join([*lines, *([hint] if hint else [])]))


def _missing_message(faults: Sequence[RowFault], rows: int, selection: Selection) -> str:
    """Return the error text: number and names of the rows without text, counts by category and source, and a remedy."""
    more = len(faults) - _SHOWN_PROBLEMS
    shown = ", ".join(_name(fault) for fault in faults[:_SHOWN_PROBLEMS]) + (f" and {more} more" if more > 0 else "")
    lines = [f"{selection.where}: {len(faults)} of {rows} rows have no text that can be sent: {shown}"]
    lines += [f"  {count} x {reason}" for reason, count in Counter(fault.reason for fault in faults).most_common()]
    for label, values in (
        ("by category", [fault.category for fault in faults]),
        ("by source", [fault.row.columns.get("origin") for fault in faults]),
    ):
        counts = Counter(str(value) for value in values if value is not None).most_common(_SHOWN_PROBLEMS)
        lines += [f"  {label}: " + ", ".join(f"{value} {count}" for value, count in counts)] if counts else []
    return "\n".join([*lines, f"  {_remedy(faults, selection)}"])


def _remedy(faults: Sequence[RowFault], selection: Selection) -> str:
    skip = "set dataset.allowMissing: true to skip them; results then list what was skipped"
    if all(fault.reason != PLACEHOLDER_REASON for fault in faults):
        tools = any(fault.reason == TOOLS for fault in faults)
        return f"set chatTemplate.appliedBy: Client to send those with tools; or {skip}" if tools else skip
    config = f" --config {selection.form}" if selection.source is Source.SPEED_BENCH else ""
    return f"run `specbench dataset prepare speed-bench{config}` to download the texts; or {skip}"


def _name(fault: RowFault) -> str:
    key = fault.row.columns.get("id", fault.row.columns.get("question_id"))
    named = None if key == fault.row.place.replace(" ", "-") else key
    labels = [str(value) for value in (named, fault.category) if value is not None]
    return f"{fault.row.place} ({', '.join(labels)})" if labels else fault.row.place


def _category(columns: Columns) -> str | None:
    value = columns.get("category")
    return None if value is None else str(value)
