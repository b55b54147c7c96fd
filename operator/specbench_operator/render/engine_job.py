"""The engine as a Job: it never restarts behind the measurement's back, and Kubernetes itself ends it in time.

`backoffLimit: 0` and `restartPolicy: Never`: a second start under the same name would answer with cold caches and be
taken for the first. `activeDeadlineSeconds` frees the GPUs when nobody else does.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.plan.names import ROLE_ENGINE, engine_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import STAY_PUT, Manifest, labels, metadata
from specbench_operator.render.engine_pod import engine_launch, engine_pod
from specbench_operator.render.queue import queue_labels
from specbench_operator.settings import Settings
from specbench_operator.state.child import Place

SAY_DISRUPTION = {
    "action": "FailJob",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""The Job fails either way; so it says why, also when the pod is gone with its node."""


def engine_job(  # noqa: PLR0917 -- the rule is five, and each is one of the launch's own
    run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int, settings: Settings, near: Sequence[str] = ()
) -> Manifest:
    """One launch of one group's engine. Where a queue is named, that one starts it.

    `near`: nodes on which the run's last engine served.
    """
    place = Place(ROLE_ENGINE, group.index, attempt)
    meta = metadata(run, engine_name(run.metadata.name, group.index, attempt), place, group.arm)
    queue = queue_labels(run)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": {**meta["labels"], **queue}},
        "spec": {
            **({"suspend": True} if queue else {}),
            "backoffLimit": 0,
            "activeDeadlineSeconds": run.spec.active_deadline_seconds,
            "podFailurePolicy": {"rules": [SAY_DISRUPTION]},
            "template": {
                "metadata": {"labels": labels(run, place, group.arm), "annotations": dict(STAY_PUT)},
                "spec": engine_pod(run, engine_launch(plan, group.arm), group.arm, settings, near),
            },
        },
    }
