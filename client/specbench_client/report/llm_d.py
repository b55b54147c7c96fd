"""A run as llm-d benchmark reports, version 0.2.1: one YAML document for each cell.

The schema is that of the package `llmd-benchmark-report`. It has no fields for drafts, speed-ups and intervals: the
drafter and what was found about it are in `scenario.stack[].native` and in `run.description`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

import specbench_client
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan

VERSION = "0.2.1"
_STATISTICS = ("mean", "p50", "p95", "p99")
_ACCEPTANCE = ("acceptance_length_emitted_pooled", "acceptance_rate")


def llm_d_reports(plan: Plan, summary: RunSummary) -> str:
    """Return the documents of all valid cells; cells that a check invalidated are left out."""
    documents = [_document(plan, summary, cell) for cell in summary.cells if cell.valid]
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def _document(plan: Plan, summary: RunSummary, cell: Cell) -> dict[str, Any]:
    where = f"{cell.arm}, {cell.workload}, {cell.level.words}"
    name = hashlib.sha256(f"{summary.uid}/{where}".encode()).hexdigest()[:32]
    return {
        "version": VERSION,
        "run": {
            "uid": name,
            "eid": summary.uid,
            "description": f"specbench run {summary.name}: {where}. {summary.headline}",
            "keywords": ["specbench", cell.arm, cell.workload],
        },
        "scenario": {"stack": [_engine(plan, cell, name)], "load": _load(plan, cell)},
        "results": {"request_performance": {"aggregate": _aggregate(cell)}},
    }


def _engine(plan: Plan, cell: Cell, name: str) -> dict[str, Any]:
    drafter = plan.arm(cell.arm).drafter
    found = {figure: _value(cell, figure) for figure in _ACCEPTANCE}
    speedup = cell.speedup.value if cell.speedup else None
    return {
        "metadata": {"label": f"{plan.engine.kind}-{cell.arm}", "cfg_id": name},
        "standardized": {
            "kind": "generic",
            "tool": str(plan.engine.kind),
            "tool_version": plan.engine.version or "unknown",
            "model": {"name": plan.target.title},
        },
        "native": {
            "config": {
                "drafter": drafter.to_dict() if drafter else None,
                "specbench": {**found, "speedup": speedup, "findings": cell.findings},
            }
        },
    }


def _load(plan: Plan, cell: Cell) -> dict[str, Any]:
    lengths = {
        field: {"distribution": "other", "value": value}
        for field, figure in (("input_seq_len", "input_tokens_mean"), ("output_seq_len", "output_tokens_mean"))
        if (value := _value(cell, figure)) is not None
    }
    level = {
        "concurrency": cell.level.concurrency,
        "rate_qps": cell.level.rate,
    }
    return {
        "metadata": {"cfg_id": cell.points[0][:32] if cell.points else "none"},
        "standardized": {
            "tool": "specbench",
            "tool_version": specbench_client.__version__,
            "source": "unknown",
            "input_seq_len": {"distribution": "other", "value": 0},
            **lengths,
            **{field: value for field, value in level.items() if value is not None},
        },
        "native": {"config": {"workload": plan.workload(cell.workload).to_dict(), "arrivals": cell.arrivals.words}},
    }


def _aggregate(cell: Cell) -> dict[str, Any]:
    """Return the statistics that the schema has; those without a mean are left out, because it requires one."""
    latency = {
        "time_to_first_token": _distribution(cell, "ttft_ms", "ms"),
        "time_per_output_token": _distribution(cell, "tpot_ms", "ms/token"),
        "request_latency": _distribution(cell, "e2e_ms", "ms"),
    }
    rate = _value(cell, "output_tps")
    requests: dict[str, Any] = {"total": cell.counts.steady_requests + cell.counts.failed_requests}
    requests["failures"] = cell.counts.failed_requests
    for field, figure in (("input_length", "input_tokens_mean"), ("output_length", "output_tokens_mean")):
        if (value := _value(cell, figure)) is not None:
            requests[field] = {"units": "count", "mean": value}
    return {
        "requests": requests,
        "latency": {field: found for field, found in latency.items() if found is not None},
        "throughput": {} if rate is None else {"output_token_rate": {"units": "tokens/s", "mean": rate}},
    }


def _distribution(cell: Cell, name: str, units: str) -> dict[str, Any] | None:
    known = {statistic: _value(cell, f"{name}_{statistic}") for statistic in _STATISTICS}
    found = {statistic: value for statistic, value in known.items() if value is not None}
    return {"units": units, **found} if "mean" in found else None


def _value(cell: Cell, name: str) -> float | None:
    figure = cell.figures.get(name)
    return figure.value if figure else None
