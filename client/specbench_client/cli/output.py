"""Output of commands: tables on a terminal, Markdown, JSON and files."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from specbench_api.api_model import ApiModel
from specbench_client.cli.streams import echo, echo_document, echo_json
from specbench_client.errors import BadInput
from specbench_client.optional_dependencies import as_started
from specbench_client.report.table_renderers import markdown_report, rich_table
from specbench_client.report.text.text_table import Report, TextTable
from specbench_client.visible_text import visible

PIPED_WIDTH = 160
"""Characters of a table's line where stdout is not a terminal and COLUMNS is not set."""


class VisibleConsole(Console):
    """A console that shows control characters and other invisible characters in what it prints as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class ResultConsole(VisibleConsole):
    """The console for results. A broken pipe raises BrokenPipeError; rich alone would exit with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print_table(self, table: TextTable) -> None:
        """Print a table as wide as the console; on a narrow terminal without its least important columns."""
        table = _visible_table(table)  # before the widths of columns are computed
        if (self.is_terminal or _requested_width()) and not table.optional:
            table = replace(table, optional=_least_important(table))
        self.print(rich_table(table, self.width))

    def print_line(self, line: str) -> None:
        """Print a line; it is wrapped on a terminal and left whole in a pipe."""
        self.print(as_started(line), soft_wrap=not self.is_terminal)

    def print_tables(self, tables: Sequence[TextTable], lines: Sequence[str] = ()) -> None:
        """Print tables with lines below them."""
        for table in tables:
            self.print_table(table)
        for line in lines:
            self.print_line(line)


def _visible_table(table: TextTable) -> TextTable:
    return replace(
        table,
        title=visible(table.title),
        caption=visible(table.caption),
        columns=[visible(name) for name in table.columns],
        words=[visible(name) for name in table.words],
        optional=[visible(name) for name in table.optional],
        rows=[[visible(cell) for cell in row] for row in table.rows],
    )


def _requested_width() -> int | None:
    """Return the width that the environment variable COLUMNS requests; None without one."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) or None if columns.isdecimal() else None


NUMBERS_MIN = 2
"""Columns of numbers that are shown on a terminal of any width."""


def _least_important(table: TextTable) -> list[str]:
    """Return the columns that a narrow terminal may leave out, the least important first.

    Tables have their most important figures on the left. Columns of words stay: they name or judge the row, and they
    can be wrapped.
    """
    numbers = [name for name in table.columns if name not in table.words]
    return list(reversed(numbers[NUMBERS_MIN:]))


class ProgressConsole(VisibleConsole):
    """The console for progress, on stderr. It falls silent when its reader is gone: progress is not a result.

    In a notebook it prints lines, as to a pipe: a kernel's stderr reports that it is a terminal, but has no cursor.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        notebook = Console().is_jupyter
        super().__init__(file=file, stderr=True, force_jupyter=False, force_terminal=False if notebook else None)

    def on_broken_pipe(self) -> None:
        self.quiet = True


def result_console() -> ResultConsole:
    """Return a console on stdout, as wide as the terminal; without one, as COLUMNS or wide enough for a table.

    Markup and number highlighting are off, because names and messages of engines may contain anything.
    """
    console = ResultConsole(highlight=False, markup=False)
    if console.is_terminal:
        return console
    return ResultConsole(width=_requested_width() or PIPED_WIDTH, highlight=False, markup=False)


def print_output(
    output: str,
    document: ApiModel | Mapping[str, Any],
    *,
    text: Callable[[ResultConsole], None],
    **formats: Callable[[], str],
) -> None:
    """Print a result as --output asks for it: json, text, or one of the other formats by name."""
    if output == "json":
        echo_json(document.to_json() if isinstance(document, ApiModel) else json.dumps(document, indent=2))
    elif output == "text":
        text(result_console())
    else:
        echo_document(formats[output]())


def print_report(
    output: str, document: ApiModel | Mapping[str, Any], report: Report, **formats: Callable[[], str]
) -> None:
    """Print a report as --output asks for it: its document as json, its topics as text or Markdown."""

    def text(console: ResultConsole) -> None:
        if report.answer:
            console.print_line(report.answer)
        for topic in report.topics:
            console.print_tables(topic.tables, topic.lines)

    print_output(output, document, text=text, markdown=lambda: markdown_report(report), **formats)


# Files that the user named. A file is replaced only after the new content is complete, so a full disk leaves the old
# content. Pipes, devices, links, single-file mounts and files in read-only folders are written in place, because
# nothing can be renamed over them.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIXED = (errno.EACCES, errno.EPERM, errno.EBUSY)
_NEW_FILE = 0o666


def write_output_file(option: str, file: Path, data: bytes) -> None:
    """Write the data and report the path on stderr. `option`: the flag that named the file. Raises BadInput."""
    try:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            file.write_bytes(data)
        else:
            _write_file(file, data)
    except OSError as error:
        full = error.errno in _NO_ROOM
        remedy = "make room, or give a file elsewhere" if full else "give a file in a folder that exists"
        raise BadInput(f"{option} {file}: {error.strerror}: {remedy}") from error
    echo(f"written: {file}", err=True)


def _write_file(file: Path, data: bytes) -> None:
    try:
        _replace_file(file, data)
    except OSError as error:
        if error.errno not in _FIXED or not file.exists():
            raise
        file.write_bytes(data)


def _replace_file(file: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".incoming-", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        temporary.chmod(file.stat().st_mode & 0o777 if file.exists() else _NEW_FILE & ~_umask())
        temporary.replace(file)
    except OSError:
        temporary.unlink()
        raise


def _umask() -> int:
    """Return the process's umask; the only way to read it is to set it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
