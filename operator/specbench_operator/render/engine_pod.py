"""The pod of an engine: its one container, with what the engine's launcher says and what the run's placement asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specbench_api.launch.launch import Launch
from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.placing import HUB_HOME
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import OURS, THEIRS, Manifest, hub_token, limits, same_for_all
from specbench_operator.render.engine_volumes import CACHE_FOLDER, mounts, volumes
from specbench_operator.render.placing import CLAIM, placing
from specbench_operator.render.probe import probe_container
from specbench_operator.settings import Settings

CONTAINER = "engine"
PROBE_PERIOD_S = 2
STARTUP_MARGIN_S = 60
"""The operator judges startupDeadlineSeconds; the kubelet's own limit lies behind it, for when the operator is dead."""
GRACE_S = 5
"""An engine has nothing to save."""


def engine_launch(plan: Plan, arm: str) -> Launch:
    """How the engine of an arm is started."""
    launch = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, plan.arm(arm)))
    return replace(launch, args=tuple(str(argument) for argument in launch.args))  # enums become plain text


def engine_pod(run: SpecBenchRun, launch: Launch, arm: str, settings: Settings, near: Sequence[str] = ()) -> Manifest:
    """PodSpec of one launch. `near`: nodes on which the run's last engine served."""
    serving = {
        "ports": [{"name": "http", "containerPort": launch.port}],
        "startupProbe": _probe(launch, _startup_failures(run.spec.startup_deadline_seconds)),
        "readinessProbe": _probe(launch, 3),
    }
    return _pod(run, launch, arm, settings, near, _container(run, launch, launch.args, settings, serving))


def worker_pod(run: SpecBenchRun, launch: Launch, arm: str, settings: Settings, near: Sequence[str] = ()) -> Manifest:
    """PodSpec of each further node of an engine on several: nobody asks it anything, so it is never probed."""
    assert launch.worker_args is not None
    return _pod(run, launch, arm, settings, near, _container(run, launch, launch.worker_args, settings, {}))


def _pod(  # noqa: PLR0917 -- the rule is five
    run: SpecBenchRun, launch: Launch, arm: str, settings: Settings, near: Sequence[str], container: Manifest
) -> Manifest:
    return {
        **same_for_all(run, ours=not launch.image, grace_s=GRACE_S),
        **placing(run, near),
        "volumes": volumes(run, launch, arm),
        **({"initContainers": [probe_container(container)]} if settings.probe_engines else {}),
        "containers": [container],
    }


def _container(
    run: SpecBenchRun, launch: Launch, args: Sequence[str], settings: Settings, serving: Manifest
) -> Manifest:
    program = launch.command or launch.image_program
    return {
        "name": CONTAINER,
        "image": launch.image or settings.client_image,
        "imagePullPolicy": settings.image_pull_policy,
        **({"command": list(program)} if program else {}),
        "args": [*args, launch.host_flag, "0.0.0.0", launch.port_flag, str(launch.port)],  # noqa: S104 - in its own pod
        **_environment(run, launch),
        **({"ports": serving["ports"]} if serving else {}),
        **_resources(run),
        **{name: probe for name, probe in serving.items() if name != "ports"},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": dict(THEIRS if launch.image else OURS),
        "volumeMounts": mounts(run, launch),
    }


def _resources(run: SpecBenchRun) -> Manifest:
    placement = run.spec.placement
    gpus = {placement.gpu_resource_name: str(placement.gpus)} if placement.gpus else {}
    asked = limits(placement.engine_resources, gpus)
    if placement.resource_claim_template_name is None:
        return asked
    return {"resources": {**asked.get("resources", {}), "claims": [{"name": CLAIM}]}}


def _environment(run: SpecBenchRun, launch: Launch) -> Manifest:
    """What the launcher and the run say; last a token."""
    ours = {} if launch.image else {"HOME": "/tmp"}  # noqa: S108 - the only writable place in our own image
    cache = _cache(run.spec.engine.kind) if run.spec.placement.model_cache else {}
    rows: list[Manifest] = [{"name": name, "value": value} for name, value in (ours | dict(launch.env) | cache).items()]
    rows += hub_token(run.spec)
    return {"env": rows} if rows else {}


def _cache(kind: EngineKind) -> dict[str, str]:
    """Where the engine keeps what it fetches; llama.cpp has a variable of its own."""
    own = {"LLAMA_CACHE": f"{CACHE_FOLDER}/llama.cpp"} if kind is EngineKind.LLAMA_CPP else {}
    return {HUB_HOME: CACHE_FOLDER, **own}


def _probe(launch: Launch, failures: int) -> Manifest:
    return {
        "httpGet": {"path": launch.health_path, "port": "http"},
        "periodSeconds": PROBE_PERIOD_S,
        "timeoutSeconds": PROBE_PERIOD_S,
        "failureThreshold": failures,
    }


def _startup_failures(deadline_s: int) -> int:
    return math.ceil((deadline_s + STARTUP_MARGIN_S) / PROBE_PERIOD_S)
