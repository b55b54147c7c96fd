"""A config of SPEED-Bench prepared: every placeholder that can be filled in is, and the rest is named. Act."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from specbench_api.model import ApiModel
from specbench_api.spec.workload import Source
from specbench_client.dataset.entries import replaced
from specbench_client.dataset.speed_bench.journal import Journal
from specbench_client.dataset.speed_bench.origins import Origins
from specbench_client.dataset.speed_bench.resolvers import RESOLVERS, Set, resolve, source_of
from specbench_client.dataset.speed_bench.row import SpeedBenchRow, Unresolved, speed_bench_row
from specbench_client.errors import BadInput
from specbench_client.workload.rows import read_rows

CONFIGS = (
    "qualitative", "throughput_1k", "throughput_2k", "throughput_8k", "throughput_16k", "throughput_32k",
)  # fmt: skip
HUB = "nvidia/SPEED-Bench"


class Coverage(ApiModel):
    """Of one category: rows in the data set, and rows that hold their text now."""

    category: str
    rows: int
    usable: int


class Gap(ApiModel):
    """Rows of one source that were not resolved for one reason. `first`: the first ids of them."""

    source: str
    rows: int
    why: str
    first: list[str]


class PreparationReport(ApiModel):
    """What was prepared. rows = whole + resolved + kept + the rows of all gaps."""

    schema_version: Literal["specbench.io/preparation/v1"] = "specbench.io/preparation/v1"
    config: str
    file: str
    rows: int
    whole: int
    """Rows that held their text from the beginning."""
    resolved: int
    """Rows filled in now."""
    kept: int
    """Rows filled in by an earlier call."""
    coverage: list[Coverage]
    gaps: list[Gap]
    revisions: dict[str, str]
    """Source → pinned revision, or why there is none; of the sources that rows were filled in from."""
    fingerprint: str
    """SHA-256 over ids and turns of all rows, in order."""

    @property
    def complete(self) -> bool:
        """Whether every row holds its text."""
        return not self.gaps


def prepare(
    rows: Sequence[SpeedBenchRow], config: str, folder: Path, origins: Origins, told: Callable[[int, int], None]
) -> PreparationReport:
    """Fill in what can be filled in, and write FOLDER/CONFIG/test.parquet with every row and its columns.

    Rows that cannot be filled in keep their placeholder there: whoever reads the file refuses or counts them. What is
    resolved is kept beside it, row by row, and not fetched again.
    """
    done: list[tuple[SpeedBenchRow, list[str]]] = []
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    counted: Counter[str] = Counter()
    of = Set(config, rows, origins)
    with Journal(folder / config / "resolved.jsonl") as journal:
        for number, row in enumerate(rows, start=1):
            try:
                turns, how = _turns(row, of, journal)
            except Unresolved as error:
                faults[source_of(row), str(error)].append(row.question_id)
                turns, how = list(row.turns), "gap"
            counted[how] += 1
            done.append((row, turns))
            told(number, len(rows))
    file = folder / config / "test.parquet"
    _write(file, done)
    return _report(config, file, done, counted, faults)


def read_speed_bench(config: str, where: Path | None, revision: str | None) -> list[SpeedBenchRow]:
    """The config's rows: of a file or a folder, or of the hub where none is given. Raises BadInput."""
    if where is None:
        columns = _from_hub(config, revision)
        return [speed_bench_row(row, f"{HUB}, row {number}") for number, row in enumerate(columns, start=1)]
    files = [where] if where.is_file() else sorted(where.glob(f"**/{config}/**/*.parquet"))
    files = files or sorted(where.glob(f"**/{config}*.parquet"))
    if not files:
        raise BadInput(f"--from {where}: holds no {config}/*.parquet: give the folder into which {HUB} was downloaded")
    return [
        speed_bench_row(row.columns, f"{file}, {row.place}")
        for file in files
        for row in read_rows(file, Source.PARQUET)
    ]


def _from_hub(config: str, revision: str | None) -> list[dict[str, Any]]:
    import datasets  # noqa: PLC0415  two seconds, which `--help` need not pay

    try:
        return list(datasets.load_dataset(HUB, config, split="test", revision=revision))
    except Exception as error:  # see origins: of whichever HTTP library the hub's client stands on
        said = str(error).strip().split("\n")[0][:300]
        raise BadInput(
            f"{HUB}: cannot be loaded ({said}): download it where it can be reached, and give --from"
        ) from error


def _turns(row: SpeedBenchRow, of: Set, journal: Journal) -> tuple[list[str], str]:
    if row.whole:
        return list(row.turns), "whole"
    before = journal.kept(row)
    if before is not None:
        return before, "kept"
    turns = resolve(row, of)
    journal.keep(row, turns)
    return turns, "resolved"


def _write(file: Path, done: Sequence[tuple[SpeedBenchRow, list[str]]]) -> None:
    import pyarrow as pa  # noqa: PLC0415  as is datasets
    import pyarrow.parquet as pq  # noqa: PLC0415

    with replaced(file) as part:
        pq.write_table(pa.Table.from_pylist([dict(row.columns) | {"turns": turns} for row, turns in done]), part)


def _report(
    config: str,
    file: Path,
    done: Sequence[tuple[SpeedBenchRow, list[str]]],
    counted: Counter[str],
    faults: dict[tuple[str, str], list[str]],
) -> PreparationReport:
    lost = {name for names in faults.values() for name in names}
    everything = Counter(row.category for row, _ in done)
    usable = Counter(row.category for row, _ in done if row.question_id not in lost)
    sources = {source_of(row) for row, _ in done if not row.whole and row.question_id not in lost}
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
        coverage=[Coverage(category=name, rows=everything[name], usable=usable[name]) for name in sorted(everything)],
        gaps=[Gap(source=key[0], rows=len(ids), why=key[1], first=ids[:5]) for key, ids in sorted(faults.items())],
        revisions=pins,
        fingerprint=digest.hexdigest(),
    )
