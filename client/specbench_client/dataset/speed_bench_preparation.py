"""Prepares a config of SPEED-Bench: fills in every placeholder that it can, and reports the rest. Does I/O."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self, TextIO

from specbench_api.api_model import ApiModel
from specbench_api.spec.workload import Source
from specbench_client.bounded_json import parse_json
from specbench_client.dataset.prompt_entries import replace_when_complete
from specbench_client.dataset.speed_bench_texts import (
    RESOLVERS,
    ConfigRows,
    SpeedBenchRow,
    Unresolved,
    UpstreamTables,
    parse_row,
    resolve_row,
    source_name,
)
from specbench_client.errors import BadInput
from specbench_client.workload.locations import load_split
from specbench_client.workload.prompt_files import read_rows
from specbench_client.workload.sources.loader import HubDataset


class PreparationJournal:
    """Stores each resolved row as one line, to continue after an interruption. An incomplete line is dropped."""

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
            raise BadInput(f"{self._file}: {error.strerror}: give a writable folder") from error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._out is not None
        self._out.close()

    def stored(self, row: SpeedBenchRow) -> list[str] | None:
        """Return the stored turns of the same row with the same placeholder; None if there are none."""
        return self._known.get(_journal_key(row))

    def store(self, row: SpeedBenchRow, turns: list[str]) -> None:
        """Store the turns of a row and flush them to the file."""
        assert self._out is not None
        self._out.write(json.dumps({"key": _journal_key(row), "turns": turns}, ensure_ascii=False) + "\n")
        self._out.flush()

    def _read(self) -> None:
        if not self._file.exists():
            return
        data = self._file.read_bytes()
        complete, _, partial = data.rpartition(b"\n")
        if partial:
            self._file.write_bytes(complete + b"\n" if complete else b"")
        for line in complete.decode("utf-8").split("\n") if complete else ():
            entry = parse_json(line)
            self._known[entry["key"]] = entry["turns"]


def _journal_key(row: SpeedBenchRow) -> str:
    """Return a hash of total that determines the text, so that another version of the dataset is resolved again."""
    parts = json.dumps([row.question_id, row.source, row.src_id, *row.turns])
    return hashlib.sha256(parts.encode()).hexdigest()


CONFIGS = (
    "qualitative", "throughput_1k", "throughput_2k", "throughput_8k", "throughput_16k", "throughput_32k",
)  # fmt: skip
HUB_NAME = "nvidia/SPEED-Bench"


class PreparedCategory(ApiModel):
    """Counts of one category: rows in the dataset, and rows that have their text now."""

    category: str
    rows: int
    usable: int


class UnresolvedRows(ApiModel):
    """Rows of one source that were not resolved for the same reason. `first`: the first ids."""

    source: str
    rows: int
    why: str
    first: list[str]


class PreparationReport(ApiModel):
    """The result of a preparation. rows = whole + resolved + kept + the rows of all gaps."""

    schema_version: Literal["specbench.io/preparation/v1"] = "specbench.io/preparation/v1"
    config: str
    file: str
    rows: int
    whole: int
    """Rows that already had their text."""
    resolved: int
    """Rows filled in by this call."""
    kept: int
    """Rows filled in by an earlier call."""
    coverage: list[PreparedCategory]
    gaps: list[UnresolvedRows]
    revisions: dict[str, str]
    """Pinned revisions of the sources used, or the reason why a source has none."""
    fingerprint: str
    """SHA-256 over the ids and turns of all rows, in order."""

    @property
    def complete(self) -> bool:
        """Whether every row has its text."""
        return not self.gaps


def prepare_config(
    rows: Sequence[SpeedBenchRow],
    config: str,
    folder: Path,
    origins: UpstreamTables,
    progress: Callable[[int, int], None],
) -> PreparationReport:
    """Fill in the placeholders and write FOLDER/CONFIG/test.parquet with every row and all columns.

    Rows that cannot be filled in keep their placeholder, which is detected when the file is read. Resolved rows are
    also stored in a journal next to the file and are not downloaded again.
    """
    done: list[tuple[SpeedBenchRow, list[str]]] = []
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    counted: Counter[str] = Counter()
    config_rows = ConfigRows(config, rows, origins)
    with PreparationJournal(folder / config / "resolved.jsonl") as journal:
        for number, row in enumerate(rows, start=1):
            try:
                turns, how = _turns(row, config_rows, journal)
            except Unresolved as error:
                faults[source_name(row), str(error)].append(row.question_id)
                turns, how = list(row.turns), "gap"
            counted[how] += 1
            done.append((row, turns))
            progress(number, len(rows))
    file = folder / config / "test.parquet"
    _write(file, done)
    return _report(config, file, done, counted, faults)


def read_speed_bench(config: str, where: Path | None, revision: str | None) -> list[SpeedBenchRow]:
    """Read the config's rows from a file or folder, or from the hub if `where` is None. Raises BadInput."""
    if where is None:
        hub = HubDataset(HUB_NAME, "test", config)
        rows = load_split(hub, revision, instead="or download it on another machine, and give --from")
        return [parse_row(row.columns, f"{HUB_NAME}, {row.place}") for row in rows]
    files = [where] if where.is_file() else sorted(where.glob(f"**/{config}/**/*.parquet"))
    files = files or sorted(where.glob(f"**/{config}*.parquet"))
    if not files:
        raise BadInput(
            f"--from {where}: contains no {config}/*.parquet: give the folder into which {HUB_NAME} was downloaded"
        )
    return [parse_row(row.columns, f"{file}, {row.place}") for file in files for row in read_rows(file, Source.PARQUET)]


def _turns(row: SpeedBenchRow, config_rows: ConfigRows, journal: PreparationJournal) -> tuple[list[str], str]:
    if row.whole:
        return list(row.turns), "whole"
    before = journal.stored(row)
    if before is not None:
        return before, "kept"
    turns = resolve_row(row, config_rows)
    journal.store(row, turns)
    return turns, "resolved"


def _write(file: Path, done: Sequence[tuple[SpeedBenchRow, list[str]]]) -> None:
    import pyarrow as pa  # noqa: PLC0415  only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    with replace_when_complete(file) as part:
        pq.write_table(pa.Table.from_pylist([dict(row.columns) | {"turns": turns} for row, turns in done]), part)


def _report(
    config: str,
    file: Path,
    done: Sequence[tuple[SpeedBenchRow, list[str]]],
    counted: Counter[str],
    faults: dict[tuple[str, str], list[str]],
) -> PreparationReport:
    lost = {name for names in faults.values() for name in names}
    total = Counter(row.category for row, _ in done)
    usable = Counter(row.category for row, _ in done if row.question_id not in lost)
    sources = {source_name(row) for row, _ in done if not row.whole and row.question_id not in lost}
    pins = {one.name: one.revision or one.note for one in RESOLVERS if one.name in sources}
    digest = hashlib.sha256()
    for row, turns in done:
        digest.update(json.dumps([row.question_id, turns], ensure_ascii=True).encode() + b"\n")
    return PreparationReport(
        config=config,
        file=str(file),
        rows=len(done),
        whole=counted["whole"],
        resolved=counted["resolved"],
        kept=counted["kept"],
        coverage=[PreparedCategory(category=name, rows=total[name], usable=usable[name]) for name in sorted(total)],
        gaps=[
            UnresolvedRows(source=key[0], rows=len(ids), why=key[1], first=ids[:5])
            for key, ids in sorted(faults.items())
        ],
        revisions=pins,
        fingerprint=digest.hexdigest(),
    )
