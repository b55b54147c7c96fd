"""CSV: rows of prompts files that are tables, and what tells a JSON array from JSON Lines.

A cell of a CSV is a text and stays one, letter by letter: no library guesses dates, numbers or missing values. The
columns that hold lists (turns, messages, token_ids) are JSON.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specbench_client.errors import BadInput
from specbench_client.workload.files import LINE_BYTES_MAX, numbered_lines, opened, text_of

_LISTS = ("turns", "messages", "token_ids")
_NOT_A_VALUE = ("nan", "none", "null", "<na>")
"""How tables write a missing value, in small letters."""
_CONTENT = ("prompt", *_LISTS)
Placed = tuple[str, dict[str, Any]]
"""`line 3`, and the columns of that row."""


def csv_rows(path: Path, most: int = LINE_BYTES_MAX) -> Iterator[Placed]:
    """Rows of a CSV with a header; an empty cell is a missing value. Raises BadInput."""
    csv.field_size_limit(most)
    lines = (text_of(line, f"{path}, line {number}") for number, line in numbered_lines(path, most))
    reader = csv.reader(lines, strict=True)
    try:
        header = _header(next(reader, []), path)
        begins = reader.line_num + 1
        for cells in reader:
            place, begins = f"line {begins}", reader.line_num + 1
            if not cells:
                continue
            if len(cells) != len(header):
                remedy = "quote cells that hold commas"
                raise BadInput(f"{path}, {place}: has {len(cells)} cells for {len(header)} columns: {remedy}")
            named = zip(header, cells, strict=True)
            yield place, {name: _cell(name, cell, f"{path}, {place}") for name, cell in named}
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: not CSV: {error}: mend the quotes of this line") from error


def is_array(path: Path) -> bool:
    """Whether the file's first character says so."""
    with opened(path) as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _header(cells: list[str], path: Path) -> list[str]:
    header = [cell.strip() for cell in cells]
    twins = [name for index, name in enumerate(header) if name in header[:index]]
    if twins:
        raise BadInput(f"{path}, line 1: the column {twins[0]!r} is there twice: name each once")
    return header


def _cell(name: str, cell: str, where: str) -> Any:
    if cell == "":
        return None
    if name in _CONTENT and cell.strip().lower() in _NOT_A_VALUE:
        remedy = "leave the row out, or the cell empty"
        raise BadInput(f"{where}: {name} is {cell!r}, which is how tables write a missing value: {remedy}")
    if name not in _LISTS:
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError) as error:
        remedy = 'such a cell is a JSON list, such as "[""first"", ""second""]"'
        raise BadInput(f"{where}: {name} is no JSON: {error}: {remedy}") from error
