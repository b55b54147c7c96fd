"""The Job that evaluates a gate. It reads two results in S3 and writes gate.json; it needs no plan and no engine."""

from __future__ import annotations

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.gate import GATE_VARIABLE, AskedGate
from specbench_api.plan.names import ROLE_GATE, gate_name
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, labels, metadata
from specbench_operator.render.client_job import IGNORE_DISRUPTION, fail_on
from specbench_operator.render.client_pod import RETRIES, client_pod, results_uri
from specbench_operator.settings import Settings
from specbench_operator.state.child import Place

DEADLINE_S = 3600
"""As of the report: minutes at most; an hour means that it hangs."""


def gate_job(run: SpecBenchRun, asked: AskedGate, settings: Settings) -> Manifest:
    """`specbench-client gate`. Its name tells the gate, so that another gate is another Job."""
    place = Place(ROLE_GATE)
    args = ("gate", "--results", results_uri(run))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run, gate_name(run.metadata.name, asked.asked), place),
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": DEADLINE_S,
            "podFailurePolicy": {"rules": [IGNORE_DISRUPTION, fail_on(Exit.BAD_INPUT)]},
            "template": {
                "metadata": {"labels": labels(run, place)},
                "spec": client_pod(run, args, settings, {GATE_VARIABLE: asked.to_line()}, plan=False),
            },
        },
    }
