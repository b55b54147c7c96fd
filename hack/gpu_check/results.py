"""Reads the results of one run of specbench into plain rows for the page: by load, by drafter, and findings."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]
MEMORY_COLUMN = "memory.used [MiB]"
GPU_QUERY = "timestamp,uuid,memory.used,utilization.gpu,clocks.sm,temperature.gpu"
_NVIDIA = "%Y/%m/%d %H:%M:%S.%f"
LEDGER = {"output": "output_tokens", "drafted": "drafted_tokens", "accepted": "accepted_tokens"}
"""Token counts of the page, and their columns in the records."""


def run_root(results: Path, name: str) -> Path | None:
    """Return the folder of the newest run of this name, or None."""
    return max((results / "runs" / "local" / name).glob("*"), default=None, key=lambda one: one.stat().st_mtime_ns)


def read_run(root: Path, samples: str) -> Json:
    """Return verdict, rows by cell, rows by arm, and findings of a run with a summary.

    `samples`: nvidia-smi's CSV, as for `memory_samples`; empty without any.
    """
    summary = json.loads((root / "summary.json").read_text())
    points = list(stored_points(root))
    memory = list(memory_samples(samples))
    return {
        "headline": summary["headline"],
        "trustworthy": summary["trustworthy"],
        "points": f"{summary['pointsMeasured']} of {summary['pointsTotal']}",
        "cells": [cell_row(cell) for cell in summary["cells"]],
        "arms": [
            arm_row(one, [point for point in points if point["summary"]["arm"] == one["arm"]], memory)
            for one in summary.get("armEnvironments", [])
        ],
        "findings": [
            {name: finding.get(name) for name in ("check", "severity", "arm", "load", "message")}
            for finding in summary["findings"]
        ],
    }


def cell_row(cell: Json) -> Json:
    """Return the figures of an arm at one load; None for missing ones."""
    figures = {name: figure.get("value") for name, figure in cell["figures"].items()}
    speedup, interval = cell.get("speedup") or {}, (cell.get("speedup") or {}).get("interval") or {}
    lossless = cell.get("lossless") or {}
    return {
        "arm": cell["arm"],
        "load": str(cell["level"].get("concurrency")),
        "requests": cell["counts"].get("requests", 0),
        "failed": cell["counts"].get("failedRequests", 0),
        "valid": cell.get("valid", True),
        "speedup": [speedup.get("value"), interval.get("low"), interval.get("high")],
        "conclusion": (cell.get("claims") or {}).get("overall"),
        "acceptance_length": figures.get("acceptance_length_emitted_pooled"),
        "acceptance_rate": figures.get("acceptance_rate"),
        "step_ms": figures.get("step_ms_p50"),
        "tpot_ms": figures.get("tpot_ms_p50"),
        "ttft_ms": figures.get("ttft_ms_p50"),
        "output_tps": figures.get("output_tps"),
        "differing_answers": (lossless.get("divergence") or {}).get("value"),
    }


def arm_row(environment: Json, points: Iterable[Json], memory: Iterable[tuple[float, float]]) -> Json:
    """Return an arm's memory, its engine's counters, and the health of the client while it was measured."""
    facts = {name: fact.get("value") for name, fact in environment["facts"].items()}
    samples, points = list(memory), list(points)
    used = [mib for point in points for at_s, mib in samples if point["began_s"] <= at_s <= point["ended_s"]]
    counters = [point["summary"].get("counters") or {} for point in points]
    health = [point["summary"].get("clientHealth") or {} for point in points]
    engine = {name: _total(one.get(f"{name}Tokens") for one in counters) for name in LEDGER}
    return {
        "arm": environment["arm"],
        "weights_bytes": facts.get("weights_bytes"),
        "drafter_weights_bytes": facts.get("drafter_weights_bytes"),
        "kv_bytes_per_token": facts.get("kv_bytes_per_token"),
        "torch_bytes": facts.get("gpu_memory_used_bytes"),
        "peak_mib": max(used, default=None),
        "engine": engine,
        "client": _sums_of_records([file for point in points for file in point["records"]]),
        "loop_lag_p99_ms": _most(one.get("loopLagP99Ms") for one in health),
        "coalesced_share": _most(one.get("coalescedChunkShare") for one in health),
    }


def memory_samples(text: str) -> Iterator[tuple[float, float]]:
    """Yield time in seconds since 1970 and MiB in use, from nvidia-smi's CSV with times in UTC."""
    for row in csv.DictReader(text.splitlines(), skipinitialspace=True):
        used = (row.get(MEMORY_COLUMN) or "").removesuffix("MiB").strip()
        if used.isdecimal():
            yield datetime.strptime(row["timestamp"], _NVIDIA).replace(tzinfo=UTC).timestamp(), float(used)


def complete_lines(text: str) -> str:
    """Return the samples without a last line that is still being written."""
    return text[: text.rfind("\n") + 1]


def stored_points(root: Path) -> Iterator[Json]:
    """Yield the committed points of a run: summary, times in seconds since 1970, and files of records."""
    for file in sorted(root.glob("points/*/manifest.json")):
        manifest = json.loads(file.read_text())
        yield {
            "summary": json.loads(file.with_name("summary.json").read_text()),
            "began_s": _seconds(manifest["startedWall"]),
            "ended_s": _seconds(manifest["endedWall"]),
            "records": [root / each["key"] for each in manifest["files"] if each["key"].endswith(".parquet")],
        }


def _sums_of_records(files: Sequence[Path]) -> Json:
    """Return the client's sums over all requests but the warm-up, which the engine's counters do not contain either."""
    import pandas as pd  # noqa: PLC0415 -- may come from the wheels, which are unpacked after the start

    if not files:
        return dict.fromkeys(LEDGER)
    records = pd.concat([pd.read_parquet(file, columns=["phase", *LEDGER.values()]) for file in files])
    measured = records[records["phase"] != "warmup"]
    return {name: _total(measured[column].dropna()) for name, column in LEDGER.items()}


def _total(values: Iterable[Any]) -> int | None:
    known = [int(value) for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
