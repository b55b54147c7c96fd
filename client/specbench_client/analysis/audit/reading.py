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
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.analysis.audit.columns import SETTINGS, TEXTS, Column, Name, column
from specbench_client.analysis.audit.document import Document, Row, labelled
from specbench_client.analysis.audit.numbers import read

_VERSION = re.compile(r"(?P<engine>[A-Za-z][\w.-]*?)[ @=v]+(?P<version>\d+(?:\.\d+)+\S*)$")
_RULE = re.compile(r"^\|?[\s:|-]+\|?$")

Raw = Mapping[str, str]


@dataclass(frozen=True)
class _Table:
    name: str
    rows: Sequence[Raw]


def read_document(text: str, name: str, facts: Raw) -> Document:
    """Read a document. `name`: of the file, whose end says what is in it. Raises InvalidSpec with every bad cell."""
    source, tables = _tables(text, name)
    problems: list[Problem] = []
    others: dict[str, None] = {}
    found = {
        table.name: labelled(
            [
                _row(table.name, number, {**facts, **raw}, problems, others)
                for number, raw in enumerate(table.rows, start=1)
            ]
        )
        for table in tables
    }
    if not any(found.values()):
        problems.append(Problem(name, "holds no table", "give CSV, JSON or a Markdown table with a heading line"))
    if problems:
        raise InvalidSpec(problems)
    return Document(source, found, tuple(others))


def _tables(text: str, name: str) -> tuple[str, list[_Table]]:
    if name.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        return _of_json(text, name)
    if re.search(r"^\s*\|.*\|\s*$", text, re.MULTILINE):
        return name, _of_markdown(text)
    rows = [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(io.StringIO(text))]
    return name, [_Table(name, rows)]


def _of_markdown(text: str) -> list[_Table]:
    tables: list[_Table] = []
    title, head, rows = "table", list[str](), list[Raw]()
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if not head:
                head = cells
            elif not _RULE.match(line.strip()):
                rows.append(dict(zip(head, cells, strict=False)))
            continue
        if rows:
            tables.append(_Table(_unused(title, tables), rows))
        head, rows = [], []
        title = line.lstrip("# ").strip() or title
    return tables


def _unused(title: str, tables: Sequence[_Table]) -> str:
    """A name that no earlier table has."""
    taken = sum(table.name == title or table.name.startswith(f"{title} (") for table in tables)
    return f"{title} ({taken + 1})" if taken else title


def _of_json(text: str, name: str) -> tuple[str, list[_Table]]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidSpec([Problem(name, f"is no JSON: {error}")]) from error
    if isinstance(data, list):
        data = {"tables": [{"name": name, "rows": data}]}
    if not isinstance(data, dict) or not isinstance(data.get("tables"), list):
        raise InvalidSpec([Problem(name, "has no list `tables`", '{"tables": [{"name": "…", "rows": [{…}]}]}')])
    shared = data.get("facts", {})
    tables = [_json_table(f"{name}: tables[{index}]", table, shared) for index, table in enumerate(data["tables"])]
    return str(data.get("source", name)), tables


def _json_table(path: str, table: Any, shared: Mapping[str, Any]) -> _Table:
    rows = table.get("rows") if isinstance(table, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidSpec([Problem(path, "has no list `rows` of objects")])
    facts = {**shared, **table.get("facts", {})}
    return _Table(str(table.get("name", path)), [_texts({**facts, **row}) for row in rows])


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in row.items()}


def _row(table: str, number: int, raw: Raw, problems: list[Problem], others: dict[str, None]) -> Row:
    settings: dict[str, str | float] = {}
    values = {}
    for title, text in raw.items():
        kind = column(title)
        if kind.name is None:
            others.setdefault(title)
        if kind.name is None or kind.name in TEXTS:
            settings |= _settings(kind, text)
            continue
        try:
            told = read(text)
        except ValueError as error:
            problems.append(Problem(f"{table}, row {number}, {title}", str(error), "a number, or empty where missing"))
            continue
        if told is not None and kind.name in SETTINGS:
            settings[kind.name] = told.value
        elif told is not None:
            values[kind.name] = told.scaled(kind.factor)
    return Row(table, number, settings, values)


def _settings(kind: Column, text: str) -> dict[str, str | float]:
    """A setting in words. `vLLM 0.7.3` is an engine and its version."""
    stripped = text.strip().strip("*").strip()
    if not stripped:
        return {}
    found = _VERSION.match(stripped) if kind.name is Name.ENGINE else None
    if found:
        return {Name.ENGINE: found["engine"], Name.ENGINE_VERSION: found["version"]}
    return {kind.name or kind.title: stripped}
