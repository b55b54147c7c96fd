"""What was resolved already, row by row, so that a preparation that was stopped goes on where it was. Act."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Self, TextIO

from specbench_client.dataset.speed_bench.row import SpeedBenchRow
from specbench_client.errors import BadInput


class Journal:
    """One line a row, written as it is resolved; a line cut short by a kill is left out and resolved again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[str]] = {}
        self._out: TextIO | None = None

    def __enter__(self) -> Self:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._read()
            self._out = self._file.open("a", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{self._file}: {error.strerror}: give a folder that can be written") from error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._out is not None
        self._out.close()

    def kept(self, row: SpeedBenchRow) -> list[str] | None:
        """The turns of the same row with the same placeholder, if it was resolved before."""
        return self._known.get(_key(row))

    def keep(self, row: SpeedBenchRow, turns: list[str]) -> None:
        """Write them down at once."""
        assert self._out is not None
        self._out.write(json.dumps({"key": _key(row), "turns": turns}, ensure_ascii=False) + "\n")
        self._out.flush()

    def _read(self) -> None:
        if not self._file.exists():
            return
        data = self._file.read_bytes()
        whole, _, cut = data.rpartition(b"\n")
        if cut:
            self._file.write_bytes(whole + b"\n" if whole else b"")
        for line in whole.decode("utf-8").split("\n") if whole else ():
            held = json.loads(line)
            self._known[held["key"]] = held["turns"]


def _key(row: SpeedBenchRow) -> str:
    """Of all that decides the text: another version of the data set is resolved anew."""
    parts = json.dumps([row.question_id, row.source, row.src_id, *row.turns])
    return hashlib.sha256(parts.encode()).hexdigest()
