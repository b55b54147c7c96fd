"""A stored run of any size: repeats the records of a small world with distinct prompts and times.

The files have the layout of `specbench run`: records in row groups of two thousand, summaries, manifests. Only the
plan's number of prompts differs from the records; no code reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from specbench_api.outcome.layout import PLAN, records_key
from specbench_api.plan.plan import Plan, Point
from specbench_client import __version__
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.documents.manifest import PointProvenance, StoredFile
from specbench_client.documents.record import Record
from specbench_client.documents.summary import ClientHealth
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import FILE_SCHEMA, records_table
from specbench_client.store.store import Store
from virtual_time.world import World
from virtual_time.world_run import Interference, run_of

GROUP_ROWS = 2000
WORLD_PROMPTS = GROUP_ROWS // 4
ATTEMPT = "a1"
UID = "made"
WALL = "2026-01-01T00:00:00Z"
TIMES = ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "ended_ns")
SUMMARISED = 10
"""Row groups of a point from which its own summary is computed, to save time."""
WATCH = ClientHealth(workers=1, loop_lag_p99_ms=0.3, cpu_share=0.2, kernel_clock_share=1.0)


def store_run(folder: Path, records: int, prompts: int) -> int:
    """Store a run of two arms and five repeats with about `records` records in total; return their number."""
    world = World(methods=("eagle3",), load={"concurrency": [8], "warmupRequests": 8}, repeats=5, prompts=WORLD_PROMPTS)
    kept = _measured(world)
    root = FolderStore(folder / f"runs/{world.plan.namespace}/{world.plan.name}/{world.plan.uid or UID}")
    root.put(PLAN, world.plan.to_json().encode())
    size = (records // len(world.plan.points), prompts)
    return sum(_store_point(root, world.plan, point, kept[point.hash], size) for point in world.plan.points)


def _measured(world: World) -> dict[str, pa.Table]:
    """Return the steady-phase records of each point."""
    found: dict[str, pa.Table] = {}

    def keep(point: Point, records: list[Record]) -> list[Record]:
        steady = [record for record in records if record.phase == "steady"]
        found[point.hash] = _tiled(records_table(point, steady))
        return records

    run_of(world, Interference(records=keep))
    return found


def _tiled(table: pa.Table) -> pa.Table:
    """Repeat the records, each time later, until a row group is nearly full."""
    longest_ns = int(np.asarray(table.column("last_token_ns"), dtype=np.int64).max()) + 1
    laps = range(max(GROUP_ROWS // table.num_rows, 1))
    return pa.concat_tables([_shifted(table, lap * longest_ns) for lap in laps]).combine_chunks()


def _shifted(table: pa.Table, by_ns: int) -> pa.Table:
    for name in TIMES:
        table = _replaced(table, name, _later(table.column(name).combine_chunks(), by_ns))
    chunks = table.column("chunk_ns").combine_chunks()
    later = pa.ListArray.from_arrays(chunks.offsets, _later(chunks.values, by_ns))
    return _replaced(table, "chunk_ns", later)


def _store_point(root: Store, plan: Plan, point: Point, template: pa.Table, size: tuple[int, int]) -> int:
    """Store one point. `size`: its number of records, and of distinct prompts."""
    key, laps = records_key(point.hash, ATTEMPT), list[pa.Table]()
    file = Path(root.uri(key))
    file.parent.mkdir(parents=True)
    with pq.ParquetWriter(file, FILE_SCHEMA, compression="zstd") as writer:
        for lap in _laps(template, *size):
            writer.write_table(lap)
            if len(laps) < SUMMARISED:
                laps.append(lap)
    summary = summarise_point(plan, point, tidy(laps, point.hash), WATCH, None, simulated=True)
    with file.open("rb") as stored:
        sha256 = hashlib.file_digest(stored, "sha256").hexdigest()
    listed = StoredFile(key=key, size=file.stat().st_size, sha256=sha256, rows=size[0])
    seen = PointProvenance(dataset_fingerprint="made", prompts=size[1], client_version=__version__, launch="made")
    PointStore(root).commit(summary, ATTEMPT, [listed], MeasurementSpan(0, WALL, WALL), seen)
    return size[0]


def _laps(template: pa.Table, records: int, prompts: int) -> Iterator[pa.Table]:
    """Yield the template repeatedly, each time with later times and the next prompts."""
    lasts = np.asarray(template.column("last_token_ns"), dtype=np.int64)
    longest_ns = int(lasts.max()) + 1
    own = np.array([int(name.removeprefix("p")) for name in template.column("prompt_id").to_pylist()])
    copy_of = pd.Series(own).groupby(own).cumcount().to_numpy()
    copies, sets = int(copy_of.max()) + 1, max(prompts // WORLD_PROMPTS, 1)
    for lap, begun in enumerate(range(0, records, template.num_rows)):
        table = template.slice(0, min(template.num_rows, records - begun))
        times = (lap * copies + copy_of)[: table.num_rows]
        asked = own[: table.num_rows] + WORLD_PROMPTS * (times % sets)  # Of the same kind in every arm and repeat.
        names = {
            "request_id": [f"made-{number}" for number in range(begun, begun + table.num_rows)],
            "prompt_id": [f"p{prompt}" for prompt in asked],
            "conversation_id": [f"p{prompt}#{time // sets}" for prompt, time in zip(asked, times, strict=True)],
            "output_sha256": [f"{prompt:064x}" for prompt in asked],
        }
        for name, values in names.items():
            table = _replaced(table, name, pa.array(values))
        yield _shifted(table, lap * longest_ns)


def _later(times: pa.Array, by_ns: int) -> pa.Array:
    return pa.compute.add(times, by_ns)


def _replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)
