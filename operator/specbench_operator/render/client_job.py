"""The client as a Job: retried where a retry can help, and only there.

A disrupted pod is not counted. Bad input (2) and an engine's failure (4) are not retried: the next try would meet the
same. Everything else (S3 away, killed, a bug) is tried again, and goes on at the first point without a manifest.
"""

from __future__ import annotations

from specbench_api import GROUP
from specbench_api.outcome.ending import Exit
from specbench_api.outcome.launched import PLACE_VARIABLE, Whereabouts
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.names import ROLE_CLIENT, client_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import STAY_PUT, Manifest, labels, metadata
from specbench_operator.render.client_pod import CONTAINER, PLAN_DIR, RETRIES, SPOOL_DIR, client_pod, results_root
from specbench_operator.render.client_reads import with_what_it_reads
from specbench_operator.render.service import endpoint
from specbench_operator.settings import Settings
from specbench_operator.state.child import Place

ENGINE_POD = f"{GROUP}/engine-pod"
"""Annotation of a client's Job: UID of the engine's pod that it measures. Another pod is another launch."""
IGNORE_DISRUPTION = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def fail_on(*codes: Exit) -> Manifest:
    """A rule of a podFailurePolicy: these exits end the Job at once."""
    values = [int(code) for code in codes]
    return {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": values}}


def client_job(
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    attempt: int,
    settings: Settings,
    *,
    engine: Whereabouts,
    engine_pod: str,
) -> Manifest:
    """The client of one launch.

    `engine`: where that runs; the client keeps it beside what the engine tells. `engine_pod`: UID of its pod.
    """
    place = Place(ROLE_CLIENT, group.index, attempt)
    args = (
        "drive",
        *("--plan", f"{PLAN_DIR}/{PLAN}"),
        *("--group", str(group.index)),
        *("--attempt", str(attempt)),
        *("--endpoint", endpoint(run, plan, group, attempt)),
        *("--results", results_root(run)),
        *("--spool", SPOOL_DIR),
    )
    pod = client_pod(run, args, settings, {PLACE_VARIABLE: engine.to_line()})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **metadata(run, client_name(run.metadata.name, group.index, attempt), place, group.arm),
            "annotations": {ENGINE_POD: engine_pod},
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": run.spec.active_deadline_seconds,
            "podFailurePolicy": {"rules": [IGNORE_DISRUPTION, fail_on(Exit.BAD_INPUT, Exit.ENGINE_FAILED)]},
            "template": {
                "metadata": {"labels": labels(run, place, group.arm), "annotations": dict(STAY_PUT)},
                "spec": with_what_it_reads(pod, run.spec),
            },
        },
    }
