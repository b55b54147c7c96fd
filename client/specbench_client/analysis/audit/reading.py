"""CSV, Markdown or JSON text → a document. What stands above a Markdown table is its name.

JSON is `{"source": …, "facts": {…}, "tables": [{"name": …, "facts": {…}, "rows": [{…}]}]}`, a list of rows, or rows by
any one name. Facts hold for all rows that do not say otherwise: what a paper says in its text and not in its table.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.analysis.audit.cells import Notes, Raw, Table, rows_of
from specbench_client.analysis.audit.document import Document, labelled

_RULE = re.compile(r"^\|?[\s:|-]+\|?$")


def read_document(text: str, name: str, facts: Raw) -> Document:
    """Read a document. `name`: of the file, whose end says what is in it. Raises InvalidSpec with every bad cell."""
    notes = Notes()
    source, tables = _tables(text, name, notes)
    told = [replace(table, facts={**facts, **table.facts}) for table in tables]
    found = {table.name: labelled(rows_of(table, notes)) for table in told}
    if not any(found.values()):
        notes.problems.append(Problem(name, "holds no table", "give CSV, JSON or a Markdown table with a heading line"))
    if notes.problems:
        raise InvalidSpec(notes.problems)
    return Document(source, found, tuple(notes.settings), tuple(notes.doubled.items()), tuple(notes.unread))


def _tables(text: str, name: str, notes: Notes) -> tuple[str, list[Table]]:
    if name.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        return _of_json(text, name)
    if re.search(r"^\s*\|.*\|\s*$", text, re.MULTILINE):
        return name, _of_markdown(text, notes)
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    return name, [Table(name, _under(lines[0], lines[1:], name, notes))] if lines else []


def _under(head: Sequence[str], lines: Sequence[Sequence[str]], name: str, notes: Notes) -> list[Raw]:
    """Cells by their headings. A row with more cells than headings is named: one of them would be left out."""
    titles = [title.strip() for title in head]
    twice = sorted({title for title in titles if title and titles.count(title) > 1})
    notes.problems += [
        Problem(f"{name}, {title}", "two columns have this heading", "tell them apart") for title in twice
    ]
    for number, cells in enumerate(lines, start=1):
        if any(cell.strip() for cell in cells[len(titles) :]):
            what = f"has {len(cells)} cells under {len(titles)} headings"
            notes.problems.append(Problem(f"{name}, row {number}", what, "quote a comma, write a bar as \\|"))
    return [{title: cell for title, cell in zip(titles, cells, strict=False) if title} for cells in lines]


def _of_markdown(text: str, notes: Notes) -> list[Table]:
    tables: list[Table] = []
    title, head, rows = "table", list[str](), list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", _between_bars(line))]
            if not head:
                head = cells
            elif not _RULE.match(line.strip()):
                rows.append(cells)
            continue
        if rows:
            name = _unused(title, tables)
            tables.append(Table(name, _under(head, rows, name, notes)))
        head, rows = [], []
        title = line.lstrip("# ").strip() or title
    return tables


def _between_bars(line: str) -> str:
    """Without the bars at its ends; a cell may be empty, and a bar at its end escaped."""
    return re.sub(r"(?<!\\)\|$", "", line.strip().removeprefix("|"))


def _unused(title: str, tables: Sequence[Table]) -> str:
    """A name that no earlier table has."""
    taken = sum(table.name == title or table.name.startswith(f"{title} (") for table in tables)
    return f"{title} ({taken + 1})" if taken else title


def _of_json(text: str, name: str) -> tuple[str, list[Table]]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidSpec([Problem(name, f"is no JSON: {error}")]) from error
    if isinstance(data, list):
        data = {"tables": [{"name": name, "rows": data}]}
    if not isinstance(data, dict) or not isinstance(data.get("tables"), list):
        raise InvalidSpec([Problem(name, "has no list `tables`", '{"tables": [{"name": "…", "rows": [{…}]}]}')])
    shared = _facts(data, name)
    tables: list[Table] = []
    for index, each in enumerate(data["tables"]):
        table = _json_table(f"{name}: tables[{index}]", each, shared)
        tables.append(replace(table, name=_unused(table.name, tables)))
    return str(data.get("source", name)), tables


def _json_table(path: str, table: Any, shared: Raw) -> Table:
    rows = table.get("rows") if isinstance(table, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidSpec([Problem(path, "has no list `rows` of objects")])
    facts = {**shared, **_facts(table, path)}
    return Table(str(table.get("name", path)), [_texts(row) for row in rows], facts)


def _facts(told: Mapping[str, Any], path: str) -> dict[str, str]:
    facts = told.get("facts", {})
    if not isinstance(facts, dict):
        raise InvalidSpec([Problem(f"{path}: facts", "is no object", '"facts": {"engine": "vLLM 0.11.1"}')])
    return _texts(facts)


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in row.items()}
