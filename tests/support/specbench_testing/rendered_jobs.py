"""The Jobs of a run that have specbench's own image: client, report and gate."""

from __future__ import annotations

from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import expand
from specbench_api.spec.gate import BaselineRef, Gate, GateRequest
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.client_jobs import client_job, gate_job, report_job
from specbench_operator.render.shared_fields import Manifest
from specbench_operator.settings import OperatorSettings
from specbench_testing.operator_builders import SETTINGS


def own_jobs(run: SpecBenchRun, settings: OperatorSettings = SETTINGS) -> dict[str, Manifest]:
    """The Jobs by role. The client is that of the first group."""
    plan = expand(run)
    request = GateRequest(gate_digest="0" * 64, gate=Gate(baseline_ref=BaselineRef(run="main")), baseline="s3://b/r")
    return {
        "client": client_job(run, plan, plan.groups[0], 1, settings, engine=HostFacts(), engine_pod="pod"),
        "report": report_job(run, settings),
        "gate": gate_job(run, request, settings),
    }
