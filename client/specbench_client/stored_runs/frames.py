"""A stored run as data frames: its cells, points, findings and requests; and all of its records as a Parquet file.

Column names end with units as figures do (`ttft_ms_p95`, `output_tps`); a missing value is NaN. Nothing is computed
here: cells have the columns of results.csv, points those of their stored summaries, and requests the per-request
figures of `metrics.catalog`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.estimates.point_rows import timing_fault_of
from specbench_client.documents.finding import Finding
from specbench_client.documents.manifest import Manifest
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import PointSummary, RunSummary
from specbench_client.metrics.catalog import MEASURES
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.report.results_csv import cell_row
from specbench_client.report.text.findings import remedy_of
from specbench_client.store.records import FILE_SCHEMA, POINT_COLUMNS, RECORD_SCHEMA
from specbench_client.stored_runs.run import Run

SPEEDUP_COLUMNS = ("arm", "workload", "load", "speedup", "speedup_low", "speedup_high", "claim", "valid")
"""Columns of `speedups_frame`, which `cells_frame` has too."""
TIDY_COLUMNS = ("tokens", "steady")
"""Columns of tidy rows that a frame of requests has, besides the record's own and the figures."""


def cells_frame(summary: RunSummary) -> pd.DataFrame:
    """Return one row per arm, workload and load, with the columns of results.csv."""
    return frame_of([cell_row(summary, cell) for cell in summary.cells])


def speedups_frame(summary: RunSummary) -> pd.DataFrame:
    """Return the speed-up over the paired baseline of each cell of another arm, with its 95 % interval.

    `valid` is None where no check invalidated the cell, but nothing was compared: an unfinished run may lack the
    baseline's points.
    """
    rows = [
        cell_row(summary, cell) | ({"valid": None} if cell.valid and cell.why_not_compared(summary.findings) else {})
        for cell in summary.cells
        if cell.arm != BASELINE_NAME
    ]
    return frame_of([{name: row[name] for name in SPEEDUP_COLUMNS} for row in rows], SPEEDUP_COLUMNS)


def findings_frame(plan: Plan, findings: Sequence[Finding]) -> pd.DataFrame:
    """Return one row per finding, with the remedy of its check."""
    rows = [
        {**finding.model_dump(mode="json"), "remedy": remedy_of(plan, finding.check) or None} for finding in findings
    ]
    return frame_of(rows, [*Finding.model_fields, "remedy"])


def points_frame(run: Run) -> pd.DataFrame:
    """Return one row per measured point, in the plan's order. Blocks. Raises NotDurable."""
    return frame_of([_point_row(point, run.manifests[name]) for name, point in run.point_summaries.items()])


def _point_row(point: PointSummary, manifest: Manifest) -> dict[str, object]:
    return {
        "point": point.hash,
        "arm": point.arm,
        "workload": point.workload,
        "load": point.level.label,
        "concurrency": point.level.concurrency,
        "rate": point.level.rate,
        "repeat": point.repeat,
        "started": pd.Timestamp(manifest.started_wall),
        "ended": pd.Timestamp(manifest.ended_wall),
        **point.counts.model_dump(),
        **point.client_health.model_dump(),
        **{name: figure.value for name, figure in point.figures.items()},
    }


def requests_frame(run: Run) -> pd.DataFrame:
    """Return one row per measured request without the warm-up, point by point in the plan's order.

    The columns are arm, workload, load and repeat, the columns of a record that are no lists, the figures of a request,
    the number of output tokens, and whether figures use the request (`steady`). TTFT and TPOT are missing where chunks
    of the point were coalesced. Blocks. Raises NotDurable.
    """
    parts = [
        _request_rows(table, run.point_summaries[point.hash]).assign(
            arm=point.arm, workload=point.workload, load=point.level.label
        )
        for point in run.plan.points
        if point.hash in run.manifests
        for table in run.records.columns(point.hash)
    ]
    leading = (*POINT_COLUMNS, "repeat")
    names = [*leading, *(name for name in _scalars() if name not in leading)]
    names += [*(measure.name for measure in MEASURES), *TIDY_COLUMNS]
    return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)


def _request_rows(table: pa.Table, point: PointSummary) -> pd.DataFrame:
    records: pd.DataFrame = table.to_pandas(use_threads=False)
    tidied = tidy([table], point.hash)
    rows = tidied.assign(timing_fault=np.full(len(tidied), timing_fault_of(point, tidied), dtype=np.int8))
    measured = records[(records["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)]
    added = {measure.name: pd.Series(measure.values(rows)) for measure in MEASURES}
    added |= {name: pd.Series(rows.array(name)) for name in TIDY_COLUMNS}
    return measured[list(_scalars())].reset_index(drop=True).assign(**added)


def _scalars() -> Iterator[str]:
    return (field.name for field in fields(Record) if not pa.types.is_list(RECORD_SCHEMA.field(field.name).type))


def records_parquet(run: Run) -> bytes:
    """Return all records of measured points as one Parquet file, in the plan's order. Blocks. Raises NotDurable."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, FILE_SCHEMA, compression="zstd") as writer:
        for point in run.records:
            for records in run.records.columns(point, FILE_SCHEMA.names):
                writer.write_table(records)
    return sink.getvalue()


def frame_of(rows: Sequence[Mapping[str, object]], columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Return a data frame of rows in which missing values are None; a column without any value has type float."""
    frame = pd.DataFrame([dict(row) for row in rows], columns=None if columns is None else list(columns))
    missing = [name for name in frame if len(frame) and frame[name].isna().all()]
    return frame.astype(dict.fromkeys(missing, float))
