"""Evaluates a gate over two stored runs, and stores the report beside the run."""

from __future__ import annotations

from specbench_api.spec.conditions import GateWait
from specbench_api.spec.gate import GateRequest
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.documents.comparison import GateReport
from specbench_client.drive.options import SystemClock
from specbench_client.errors import BadInput
from specbench_client.stored_runs.run import RUN_MISSING, RUN_UNFINISHED, Run

_BASELINE_REASONS = {RUN_MISSING: str(GateWait.BASELINE_MISSING), RUN_UNFINISHED: str(GateWait.BASELINE_NOT_FINISHED)}
"""The reasons as a gate reports them about its baseline."""


def gate_runs(request: GateRequest, before: Run, after: Run) -> GateReport:
    """Evaluate a gate over two stored runs. Blocks. Raises BadInput, NotDurable."""
    try:
        before.require_summary()
    except BadInput as error:
        raise BadInput(str(error), _BASELINE_REASONS.get(error.reason, error.reason)) from error
    return judge_gate(request, before, after.require_summary(), SystemClock().wall_text())
