"""Two stored results read, compared, and a gate evaluated over them. Reads everything, writes nothing but gate.json."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.comparison import Comparison
from specbench_api.outcome.gate import AskedGate, GateReport
from specbench_api.outcome.layout import GATE, PLAN, SUMMARY
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.analysis.compare.result import Result
from specbench_client.drive.conclude import Kept
from specbench_client.drive.options import Clock
from specbench_client.drive.provenance import read_launches
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.point import PointStore
from specbench_client.store.store import Refusal, Store

MISSING = "BaselineMissing"
"""Reason where nothing lies at a result's place."""
UNFINISHED = "BaselineNotFinished"
"""Reason where a run lies there, and no answer yet."""


def read_answer(store: Store) -> tuple[Plan, RunSummary]:
    """Plan and summary of the result whose root the store is; nothing else of it is read.

    Raises BadInput where there is none or it has no answer yet, NotDurable(Damaged) where it cannot be read.
    """
    plan_text, summary_text = store.get(PLAN), store.get(SUMMARY)
    if plan_text is None:
        raise BadInput(f"{store.uri()}: no run lies here (no {PLAN}): give the root of a run's results", MISSING)
    if summary_text is None:
        remedy = "wait until it is finished, or make its answer with `specbench report`"
        raise BadInput(f"{store.uri()}: this run has no answer yet (no {SUMMARY}): {remedy}", UNFINISHED)
    try:
        plan = Plan.from_json(plan_text)
    except ValidationError as error:
        raise _unreadable(store, PLAN, "read it with that version, or measure again") from error
    try:
        return plan, RunSummary.from_json(summary_text)
    except ValidationError as error:
        remedy = f"make it anew from the records: specbench report {store.uri()} --recompute"
        raise _unreadable(store, SUMMARY, remedy) from error


def _unreadable(store: Store, key: str, remedy: str) -> NotDurable:
    what = "cannot be read: it was written by another version of specbench, or damaged"
    return NotDurable(f"{store.uri(key)}: {what}: {remedy}", Refusal.DAMAGED)


def read_result(store: Store) -> Result:
    """The result whose root the store is; records are read when asked for. Raises as `read_answer` does."""
    plan, summary = read_answer(store)
    points = PointStore(store, Path())
    manifests = points.manifests([point.hash for point in plan.points])
    return Result(
        uri=store.uri(),
        plan=plan,
        summary=summary,
        points={point: points.read_summary(manifest) for point, manifest in manifests.items()},
        observed={point: manifest.observed for point, manifest in manifests.items()},
        records=Kept(points, manifests),
        launches=read_launches(store, manifests.values()).seen,
    )


def compare_stores(before: Store, after: Store, clock: Clock | None = None) -> Comparison:
    """Compare two results by their roots. Blocks. Raises BadInput, NotDurable."""
    return comparison(read_result(before), read_result(after), (clock or Clock()).wall_text())


def gate_stores(asked: AskedGate, before: Store, after: Store, clock: Clock | None = None) -> GateReport:
    """Evaluate a gate over two results by their roots. Blocks. Raises BadInput, NotDurable."""
    return judge_gate(asked, read_result(before), read_result(after), (clock or Clock()).wall_text())


def keep_gate(report: GateReport, after: Store) -> None:
    """Write gate.json beside the run's summary. It is derived, so it is replaced. Raises NotDurable."""
    after.replace(GATE, report.to_json().encode())
