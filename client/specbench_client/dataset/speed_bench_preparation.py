"""Prepares a config of SPEED-Bench: fills in every placeholder that it can, and reports the rest. Does I/O."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.workload import Source
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
    """The result of a preparation. rows = whole + resolved + the rows of all gaps."""

    schema_version: Literal["specbench.io/preparation/v2"] = "specbench.io/preparation/v2"
    config: str
    file: str
    rows: int
    whole: int
    """Rows that already had their text."""
    resolved: int
    """Rows that were filled in."""
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

    Rows that cannot be filled in keep their placeholder, which is detected when the file is read.
    """
    done: list[tuple[SpeedBenchRow, list[str]]] = []
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    config_rows = ConfigRows(config, rows, origins)
    file = folder / config / "test.parquet"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{file.parent}: {error.strerror}: give a writable folder") from error
    for number, row in enumerate(rows, start=1):
        turns = list(row.turns)
        if not row.whole:
            try:
                turns = resolve_row(row, config_rows)
            except Unresolved as error:
                faults[source_name(row), str(error)].append(row.question_id)
        done.append((row, turns))
        progress(number, len(rows))
    _write(file, done)
    return _report(config, file, done, faults)


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


def _write(file: Path, done: Sequence[tuple[SpeedBenchRow, list[str]]]) -> None:
    import pyarrow as pa  # noqa: PLC0415  only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    with replace_when_complete(file) as part:
        pq.write_table(pa.Table.from_pylist([dict(row.columns) | {"turns": turns} for row, turns in done]), part)


def _report(
    config: str,
    file: Path,
    done: Sequence[tuple[SpeedBenchRow, list[str]]],
    faults: dict[tuple[str, str], list[str]],
) -> PreparationReport:
    lost = {name for names in faults.values() for name in names}
    whole = sum(row.whole for row, _ in done)
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
        whole=whole,
        resolved=len(done) - whole - sum(map(len, faults.values())),
        coverage=[PreparedCategory(category=name, rows=total[name], usable=usable[name]) for name in sorted(total)],
        gaps=[
            UnresolvedRows(source=key[0], rows=len(ids), why=key[1], first=ids[:5])
            for key, ids in sorted(faults.items())
        ],
        revisions=pins,
        fingerprint=digest.hexdigest(),
    )
