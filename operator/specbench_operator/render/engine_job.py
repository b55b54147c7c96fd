"""The engine as a Job: it never restarts behind the measurement's back, and Kubernetes itself ends it in time.

`backoffLimit: 0` and `restartPolicy: Never`: a second start under the same name would answer with cold caches and be
taken for the first. `activeDeadlineSeconds` frees the GPUs when nobody else does.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specbench_api.launch.launch import CONFIG_FOLDER, Launch
from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.names import ROLE_ENGINE, engine_name, plan_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import (
    OURS,
    STAY_PUT,
    THEIRS,
    Manifest,
    empty_dir,
    labels,
    limits,
    metadata,
    same_for_all,
)
from specbench_operator.render.probe import probe_container
from specbench_operator.render.queue import queue_labels
from specbench_operator.settings import Settings
from specbench_operator.state import Place

CONTAINER = "engine"
PROBE_PERIOD_S = 2
STARTUP_MARGIN_S = 60
"""The operator judges startupDeadlineSeconds; the kubelet's own limit lies behind it, for when the operator is dead."""
GRACE_S = 5
"""An engine has nothing to save."""
SAY_DISRUPTION = {
    "action": "FailJob",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""The Job fails either way; so it says why, also when the pod is gone with its node."""


def engine_launch(plan: Plan, arm: str) -> Launch:
    """How the engine of an arm is started."""
    launch = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, plan.arm(arm)))
    return replace(launch, args=tuple(str(argument) for argument in launch.args))  # enums become plain text


def config_key(arm: str, name: str) -> str:
    """Where an arm's configuration file lies in the plan's ConfigMap."""
    return f"{arm}.{name}"


def engine_job(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int, settings: Settings) -> Manifest:
    """One launch of one group's engine. Where a queue is named, that one starts it."""
    place = Place(ROLE_ENGINE, group.index, attempt)
    launch = engine_launch(plan, group.arm)
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
                "spec": _pod(run, launch, group.arm, settings),
            },
        },
    }


def _pod(run: SpecBenchRun, launch: Launch, arm: str, settings: Settings) -> Manifest:
    placement, pvc = run.spec.placement, run.spec.model.pvc
    ours = not launch.image
    tolerations = [toleration.to_dict() for toleration in placement.tolerations]
    volumes = [empty_dir("shm", "Memory"), empty_dir("tmp")]
    if pvc:
        volumes.append(
            {"name": "models", "persistentVolumeClaim": {"claimName": pvc.claim_name, "readOnly": True}},
        )
    if launch.configs:
        volumes.append(_configs(run, launch, arm))
    container = _container(run, launch, settings)
    return {
        **same_for_all(run, ours=ours, grace_s=GRACE_S),
        **({"nodeSelector": placement.node_selector} if placement.node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"priorityClassName": placement.priority_class_name} if placement.priority_class_name else {}),
        "volumes": volumes,
        **({"initContainers": [probe_container(container)]} if settings.probe_engines else {}),
        "containers": [container],
    }


def _configs(run: SpecBenchRun, launch: Launch, arm: str) -> Manifest:
    """The arm's own files of the plan's ConfigMap, each under the name that the engine asks for."""
    items = [{"key": config_key(arm, name), "path": name} for name in launch.configs]
    return {"name": "config", "configMap": {"name": plan_name(run.metadata.name), "items": items}}


def _container(run: SpecBenchRun, launch: Launch, settings: Settings) -> Manifest:
    placement = run.spec.placement
    gpus = {placement.gpu_resource_name: str(placement.gpus)} if placement.gpus else {}
    mounts: list[Manifest] = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a mount, not a file
    if run.spec.model.pvc:
        mounts.append({"name": "models", "mountPath": "/models", "readOnly": True})
    if launch.configs:
        mounts.append({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True})
    program = launch.command or launch.image_program
    return {
        "name": CONTAINER,
        "image": launch.image or settings.client_image,
        "imagePullPolicy": settings.image_pull_policy,
        **({"command": list(program)} if program else {}),
        "args": [*launch.args, launch.host_flag, "0.0.0.0", launch.port_flag, str(launch.port)],  # noqa: S104 - in its own pod
        **_environment(launch),
        "ports": [{"name": "http", "containerPort": launch.port}],
        **limits(placement.engine_resources, gpus),
        "startupProbe": _probe(launch, _startup_failures(run.spec.startup_deadline_seconds)),
        "readinessProbe": _probe(launch, 3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": dict(THEIRS if launch.image else OURS),
        "volumeMounts": mounts,
    }


def _environment(launch: Launch) -> Manifest:
    ours = {} if launch.image else {"HOME": "/tmp"}  # noqa: S108 - the only writable place in our own image
    rows = [{"name": name, "value": value} for name, value in (ours | dict(launch.env)).items()]
    return {"env": rows} if rows else {}


def _probe(launch: Launch, failures: int) -> Manifest:
    return {
        "httpGet": {"path": launch.health_path, "port": "http"},
        "periodSeconds": PROBE_PERIOD_S,
        "timeoutSeconds": PROBE_PERIOD_S,
        "failureThreshold": failures,
    }


def _startup_failures(deadline_s: int) -> int:
    return math.ceil((deadline_s + STARTUP_MARGIN_S) / PROBE_PERIOD_S)
