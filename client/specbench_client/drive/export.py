"""All records of a run as one Parquet table, for pandas, DuckDB and their kin.

Which arm and which load a record belongs to stands in the plan and not in its parts, where it would be said once a
row; whoever reads all of them at once needs it beside each row.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specbench_api.plan.plan import Plan, Point
from specbench_client.store.columns import SCHEMA, to_table
from specbench_client.store.point import PointStore
from specbench_client.store.store import Store

FRONT = ("arm", "workload", "load", "repeat")
"""Columns before a record's own; `repeat` is one of these already, and stands here only once."""


def records_parquet(plan: Plan, store: Store) -> bytes:
    """Every record of every point with a manifest, in the plan's order. Blocks. Raises NotDurable."""
    points, sink = PointStore(store, Path()), io.BytesIO()
    manifests = points.manifests([point.hash for point in plan.points])
    with pq.ParquetWriter(sink, _schema(), compression="zstd") as writer:
        for point in plan.points:
            if point.hash in manifests:
                for part in points.read_parts(manifests[point.hash]):
                    writer.write_table(_in_place(point, to_table(part)))
    return sink.getvalue()


def _schema() -> pa.Schema:
    told = [pa.field(name, pa.string(), nullable=False) for name in FRONT if name not in SCHEMA.names]
    own = [SCHEMA.field(name) for name in FRONT if name in SCHEMA.names]
    return pa.schema([*told, *own, *(field for field in SCHEMA if field.name not in FRONT)], metadata=SCHEMA.metadata)


def _in_place(point: Point, records: pa.Table) -> pa.Table:
    said = {"arm": point.arm, "workload": point.workload, "load": point.level.label}
    columns = {name: pa.array([text] * records.num_rows, pa.string()) for name, text in said.items()}
    columns |= {name: records.column(name) for name in records.column_names}
    schema = _schema()
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
