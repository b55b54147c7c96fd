"""The Job that turns point summaries into the answer. It needs S3 alone: no engine is left when it runs."""

from __future__ import annotations

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.names import ROLE_REPORT, report_name
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.slo import SLO_VARIABLE
from specbench_operator.render.child import Manifest, labels, metadata
from specbench_operator.render.client_job import IGNORE_DISRUPTION, fail_on
from specbench_operator.render.client_pod import PLAN_DIR, RETRIES, client_pod, results_root
from specbench_operator.settings import Settings
from specbench_operator.state.child import Place

DEADLINE_S = 3600
"""Bootstraps over thousands of requests take minutes; an hour means that it hangs."""


def report_job(run: SpecBenchRun, settings: Settings) -> Manifest:
    """`specbench-client report`, with the targets as they stand now: no plan holds them, because they may change."""
    place = Place(ROLE_REPORT)
    slo = run.spec.slo
    args = ("report", "--plan", f"{PLAN_DIR}/{PLAN}", "--results", results_root(run))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run, report_name(run.metadata.name), place),
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": DEADLINE_S,
            "podFailurePolicy": {"rules": [IGNORE_DISRUPTION, fail_on(Exit.BAD_INPUT)]},
            "template": {
                "metadata": {"labels": labels(run, place)},
                "spec": client_pod(run, args, settings, {SLO_VARIABLE: slo.to_line()} if slo else {}),
            },
        },
    }
