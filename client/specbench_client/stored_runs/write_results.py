"""Writes the results of a run from everything stored: provenance, table, report, summary.json and status.json.

All five are derived, so they may be replaced. Nothing is written before every file that a manifest lists was read and
verified, because results from damaged records would look like any others. The summary names points without a
manifest, and the other points are summarised without them.

Other clients may commit points meanwhile and write results that include them. So manifests are counted again before the
results are written, and once more afterwards, since newer results may just have been replaced. If there are more points
than before, everything is done again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import specbench_client
from specbench_api.launch.launcher import is_pinned
from specbench_api.outcome.layout import PROVENANCE, REPORT, STATUS, SUMMARY
from specbench_api.outcome.provenance import FactName, LaunchRecord
from specbench_api.plan.expansion import with_another_round
from specbench_api.plan.plan import REPEATS_TO_DECIDE, Plan, PlanCell
from specbench_api.spec.slo import Slo
from specbench_client.analysis.estimates.point_rows import cells_to_repeat, why_no_rounds_are_added
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.analysis.summary.run import evaluate_cells, summarise_cells
from specbench_client.analysis.summary.search import cells_of_next_round
from specbench_client.analysis.summary.stop_rule import decided_after, ended_repeats, may_be_decided
from specbench_client.analysis.summary.trends import with_divided_rounds
from specbench_client.documents.figure import TOO_WIDE, Figure
from specbench_client.documents.finding import Finding
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.drive.options import SystemClock
from specbench_client.drive.resume import claim_store
from specbench_client.errors import NotDurable
from specbench_client.report.html import render_html
from specbench_client.report.results_csv import csv
from specbench_client.store.retrying import STORE_PATIENCE_S, RetryingStore, RetryPolicy
from specbench_client.store.store import Store
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.status_builder import status_document
from specbench_client.trust.checks.engine import arm_environments_differ

TABLE = "results.csv"
ROWS_OF_ESTIMATE_MAX = 200_000
"""Records up to which the speed-ups so far are computed after a repeat: ten seconds, in which an engine is idle."""
MAX_ROUNDS = 3
"""After this many rounds the results are written although points were added: the run continues and concludes later."""


def conclude(
    plan: Plan,
    store: Store,
    clock: SystemClock | None = None,
    patience_s: float = STORE_PATIENCE_S,
    *,
    slo: Slo | None = None,
    failures: Mapping[str, str] | None = None,
) -> RunSummary:
    """Write summary, report, table and provenance of the stored points; return the summary.

    `store`: the run's root. `failures`: why engines failed, by arm; None: use those of the stored summary. Blocks.
    Raises BadInput, NotDurable.
    """
    clock = clock or SystemClock()
    retrying = RetryingStore(store, RetryPolicy(deadline_s=patience_s))
    claim_store(plan, retrying)
    run = Run(retrying, plan)
    causes = _stored_failures(run) if failures is None else failures
    rounds = 0
    while True:
        rounds += 1
        report = _build_report(run.reopened(), clock, slo, failures=causes)
        if report.is_current(run, rounds):
            for key, text in report.files.items():
                retrying.replace(key, text.encode())
            if report.is_current(run, rounds):
                return report.summary


def summarize_stored(run: Run, slo: Slo | None) -> RunSummary:
    """Return a summary with other targets, without storing it. Raises NotDurable."""
    return _build_report(run, SystemClock(), slo, failures=_stored_failures(run)).summary


def report_speedups_so_far(run: Run, report: Callable[[str], None]) -> bool:
    """Report the speed-ups so far, from three complete repeats on; return True instead if the run may end by now.

    Only a run with a stop rule may. `report`: gets the line. Blocks. Raises NotDurable.
    """
    run = run.reopened()
    complete = ended_repeats(run.plan, run.manifests)
    if complete < MIN_REPEATS_TO_COMPARE or not run.plan.has_baseline:
        return False
    rows = sum(file.rows or 0 for manifest in run.manifests.values() for file in manifest.files)
    may_end = may_be_decided(run.plan, complete)
    if not may_end and rows > ROWS_OF_ESTIMATE_MAX:
        return False
    try:
        judged = _evaluated(run)
    except NotDurable as error:
        if may_end:
            raise
        report(f"no speed-ups so far, after {complete} repeats: {error}")
        return False
    if may_end and decided_after(run.plan, run.manifests, judged) is not None:
        return True
    points = with_divided_rounds(run.plan, list(run.point_summaries.values()), _spans(run))
    findings = [*(one for each in points for one in each.findings), *(one for each in judged for one in each.findings)]
    compared = [(each.cell, each.cell.speedup) for each in judged if each.cell.speedup]
    so_far = [_so_far(cell, each, findings, complete) for cell, each in compared]
    report(
        f"so far, after {complete} repeats"
        f"{f' of at least {REPEATS_TO_DECIDE}' if run.plan.stop and complete < REPEATS_TO_DECIDE else ''}"
        f": {'; '.join(so_far) or 'nothing is compared'}"
    )
    return False


def _so_far(cell: Cell, speedup: Figure, findings: Sequence[Finding], complete: int) -> str:
    """Return the speed-up so far, with the number of repeats that it is of, where some are left out; or why not."""
    if why := cell.why_not_compared(findings):
        return f"{cell.arm} {why} at {cell.level.words}"
    of_repeats = f" (of {cell.compared_repeats} of them)" if (cell.compared_repeats or 0) < complete else ""
    known, more = (f"{speedup.value:.2f}x", TOO_WIDE) if speedup.is_too_wide else (speedup.factor, speedup.excluded)
    return f"{cell.arm} {known} at {cell.level.words}{of_repeats}, {more}".rstrip(", ")


def with_next_round(run: Run) -> Plan | None:
    """Return the run's plan with the round that it still needs; None if it needs none. Blocks. Raises NotDurable."""
    run = run.reopened()
    cells = _next_round(run, _evaluated(run) if run.plan.search else ())
    return with_another_round(run.plan, cells) if cells else None


def _next_round(run: Run, judged: Sequence[EvaluatedCell]) -> set[PlanCell]:
    """Return the cells of the round that a run still needs: that of its search, or one in place of an invalid one."""
    if run.plan.search:
        return cells_of_next_round(run.plan, judged)
    if why_no_rounds_are_added(run.plan):
        return set()
    points = with_divided_rounds(run.plan, list(run.point_summaries.values()), _spans(run))
    observed = {each.workload: run.manifests[each.hash].observed.prompts for each in points}
    return cells_to_repeat(run.plan, points, observed)


def _evaluated(run: Run, slo: Slo | None = None) -> list[EvaluatedCell]:
    return evaluate_cells(run.plan, list(run.point_summaries.values()), run.records, slo, _spans(run))


def _spans(run: Run) -> dict[str, tuple[datetime, datetime]]:
    """Return start and end of each measured point by its hash."""
    return {
        point: (datetime.fromisoformat(each.started_wall), datetime.fromisoformat(each.ended_wall))
        for point, each in run.manifests.items()
    }


def _stored_failures(run: Run) -> Mapping[str, str]:
    """Return why engines failed, according to the stored summary; empty if there is none or it is damaged."""
    kept = run.summary_of_any_version()
    return {} if kept is None else kept.failures


@dataclass(frozen=True)
class _Report:
    """`files`: in the order of writing; summary and status are last, because they mark the run as concluded."""

    summary: RunSummary
    measured: int
    files: Mapping[str, str]

    def is_current(self, run: Run, rounds: int) -> bool:
        """Return whether it includes all measured points, or the limit of rounds is reached."""
        now = run.count_measured()
        return now <= self.measured or (rounds >= MAX_ROUNDS and now < len(run.plan.points))


def _build_report(
    run: Run,
    clock: SystemClock,
    slo: Slo | None,
    *,
    failures: Mapping[str, str],
) -> _Report:
    """Build the results of the points that have a manifest now."""
    plan, summaries = run.plan, list(run.point_summaries.values())
    judged = _evaluated(run, slo)
    summary = summarise_cells(
        plan,
        summaries,
        judged,
        clock.wall_text(),
        run.launches,
        coverage=_coverage(plan, run.manifests),
        slo=slo,
        failures=failures,
        spans=_spans(run),
    )
    run.records.verify_unread()
    files = {
        PROVENANCE: _provenance_json(run, summary),
        TABLE: csv(summary),
        REPORT: render_html(plan, summary),
        SUMMARY: summary.to_json(),
        STATUS: status_document(summary, plan, _next_round(run, judged)).to_json(),
    }
    return _Report(summary, len(run.manifests), files)


def _coverage(plan: Plan, manifests: Mapping[str, Manifest]) -> dict[str, PromptCoverage]:
    """Return the coverage by workload. All points of a workload had the same prompts, which `resume` checks."""
    points = [
        (point.workload, manifests[point.hash].observed.coverage) for point in plan.points if point.hash in manifests
    ]
    return {workload: coverage for workload, coverage in points if coverage is not None}


# provenance.json: the software, engines, hardware and prompts that the results come from. Declared values of the plan
# and observed values of the launches are separate entries; neither replaces the other.

SCHEMA = "specbench.io/provenance/v2"


def _provenance_json(run: Run, summary: RunSummary) -> str:
    """Return the content of provenance.json."""
    manifests = list(run.manifests.values())
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA,
        "created": summary.created,
        "reportedBy": {"client": specbench_client.__version__, "python": platform.python_version()},
        "target": run.plan.target.to_dict(),
        "engine": run.plan.engine.to_dict(),
        **_distinct_observed([manifest.observed for manifest in manifests]),
        "movingImages": _moving_images(run.launches),
        "arms": [arm.to_dict() for arm in summary.arm_environments],
        "differences": [
            finding.message for finding in summary.findings if finding.check == arm_environments_differ.name
        ],
        "launches": {
            name: {"reason": found} if isinstance(found, str) else found.to_dict()
            for name, found in sorted(run.launch_records.items())
        },
        "points": {
            each.hash: {
                "attempt": each.attempt,
                "launch": each.observed.launch,
                "started": each.started_wall,
                "ended": each.ended_wall,
            }
            for each in manifests
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _moving_images(launches: Sequence[LaunchRecord]) -> list[str]:
    """Return the images that were requested by a tag, which may name another image later; imageDigests were running."""
    images = {launch.value(FactName.IMAGE) for launch in launches}
    return sorted(image for image in images if isinstance(image, str) and image and not is_pinned(image))


def _distinct_observed(seen: Sequence[PointProvenance]) -> dict[str, list[str]]:
    """Return the distinct observed values of all manifests: one each if nothing changed during the run."""
    return {
        "engineVersions": sorted({one.engine_version for one in seen if one.engine_version}),
        "engineModels": sorted({one.engine_model for one in seen if one.engine_model}),
        "imageDigests": sorted({one.image_digest for one in seen if one.image_digest}),
        "clientVersions": sorted({one.client_version for one in seen}),
        "datasetFingerprints": sorted({one.dataset_fingerprint for one in seen}),
        "chatTemplates": sorted({one.chat_template_sha256 for one in seen if one.chat_template_sha256}),
        "tokenizers": sorted({one.tokenizer_sha256 for one in seen if one.tokenizer_sha256}),
    }
