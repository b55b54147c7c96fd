"""Reads stored results to compare two of them or evaluate a gate. Writes only gate.json."""

from __future__ import annotations

from specbench_api.outcome.comparison import Comparison
from specbench_api.outcome.gate_report import GateReport, GateRequest
from specbench_api.outcome.layout import GATE, PLAN, SUMMARY, measured_among
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import GateWait
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.drive.options import SystemClock
from specbench_client.errors import BadInput
from specbench_client.report.text.findings import measuring_command, points_are
from specbench_client.store.points import PointStore
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.store.scratch import arrays_on_disk
from specbench_client.store.store import Store
from specbench_client.stored_runs.stored_documents import read_plan, read_summary
from specbench_client.stored_runs.stored_points import StoredRecords, read_launches

RUN_MISSING = "RunMissing"
"""Reason if there is no run at the given root."""
RUN_UNFINISHED = "RunNotFinished"
"""Reason if the run has no summary yet."""
_BASELINE_REASONS = {RUN_MISSING: str(GateWait.BASELINE_MISSING), RUN_UNFINISHED: str(GateWait.BASELINE_NOT_FINISHED)}
"""The reasons as a gate reports them about its baseline."""


def read_plan_and_summary(store: Store) -> tuple[Plan, RunSummary]:
    """Read the plan and the summary of the result whose root the store is.

    Raises BadInput if there is no run or no summary yet, NotDurable(Damaged) if one cannot be read.
    """
    if store.get(PLAN) is None:
        raise BadInput(
            f"{store.uri()}: there is no run here (no {PLAN}): give the root of a run's results", RUN_MISSING
        )
    plan = read_plan(store)
    if store.get(SUMMARY) is None:
        raise BadInput(f"{store.uri()}: {_unfinished(plan, store)}", RUN_UNFINISHED)
    remedy = f"compute it again from the records: specbench report {store.uri()} --recompute"
    return plan, read_summary(store, plan, remedy)


def _unfinished(plan: Plan, store: Store) -> str:
    """Return how far a run without a summary is, and what to do."""
    measured = len(measured_among(store.keys("points/"), (point.hash for point in plan.points)))
    remedy = "wait until the run is finished"
    if uid_created_ms(plan.uid) and not plan.engine.is_imported:
        how = f"if it was interrupted, run the same {measuring_command(plan)} command again to finish it"
        remedy = f"{remedy}; {how}; `specbench report` shows what exists"
    return f"{points_are(plan, measured)} measured, and there is no summary yet: {remedy}"


def read_result(store: Store) -> StoredResult:
    """Read the result whose root the store is, with its records loaded lazily. Raises as `read_plan_and_summary`."""
    plan, summary = read_plan_and_summary(store)
    points = PointStore(store)
    manifests = points.manifests([point.hash for point in plan.points])
    return StoredResult(
        uri=store.uri(),
        plan=plan,
        summary=summary,
        points={point: points.read_summary(manifest) for point, manifest in manifests.items()},
        observed={point: manifest.observed for point, manifest in manifests.items()},
        records=StoredRecords(points, manifests),
        launches=read_launches(store, manifests.values()).seen,
        array_store=arrays_on_disk,
    )


def compare_stores(before: Store, after: Store) -> Comparison:
    """Compare two stored results. Blocks. Raises BadInput, NotDurable."""
    return comparison(read_result(before), read_result(after), SystemClock().wall_text())


def gate_stores(request: GateRequest, before: Store, after: Store) -> GateReport:
    """Evaluate a gate over two stored results. Blocks. Raises BadInput, NotDurable."""
    try:
        baseline = read_result(before)
    except BadInput as error:
        raise BadInput(str(error), _BASELINE_REASONS.get(error.reason, error.reason)) from error
    return judge_gate(request, baseline, read_result(after), SystemClock().wall_text())


def write_gate_report(report: GateReport, after: Store) -> None:
    """Write gate.json next to the run's summary, and replace an earlier one. Raises NotDurable."""
    after.replace(GATE, report.to_json().encode())
