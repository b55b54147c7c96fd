"""The pod template of an engine: labels and annotations, its container, and scheduling and volumes from spec.placement.

The container is built from the LaunchSpec of the engine's launcher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from shlex import join
from typing import Any

from specbench_api.launch.launcher import HEALTH_PATH, LaunchSpec
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.outcome.provenance import GPUS, SUMMARY, TOPOLOGY
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.names import ROLE_ENGINE, plan_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.plan.template_conflicts import (
    CACHE_FOLDER,
    ENGINE_VOLUMES,
    HUB_CACHE,
    HUB_HOME,
    HUB_OFFLINE,
)
from specbench_api.plan.validation import PREFERRED, REQUIRED, TERMS
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.model_cache import ModelCache
from specbench_api.spec.placement import PinNode, Placement
from specbench_api.spec.pod_template import PodTemplate
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.shared_fields import (
    ENGINE_SECURITY,
    RESTRICTED_SECURITY,
    Manifest,
    empty_dir,
    engine_pod_security,
    hub_token,
    labels,
    literal,
    pod_metadata,
    resource_requirements,
    shared_pod_fields,
)
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ChildKey

# Arms are compared with each other, so all engines of a run should run on the same node: clocks, cooling and neighbours
# of otherwise equal nodes can differ by more than the speed-up that is measured. A node is selected by `matchFields`,
# because its label kubernetes.io/hostname need not be its name.

RESOURCE_CLAIM = "devices"
"""Name of the pod's resource claim."""
AFFINITY_WEIGHT = 100
"""The maximum weight of a preference in Kubernetes."""


def placement_fields(run: SpecBenchRun, preferred_nodes: Sequence[str]) -> Manifest:
    """The fields of a PodSpec that select nodes and resource claims."""
    placement = run.spec.placement
    claim = placement.resource_claim_template_name
    fields: Mapping[str, Any] = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [toleration.to_dict() for toleration in placement.tolerations],
        "affinity": affinity(placement, preferred_nodes),
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "serviceAccountName": placement.engine_service_account_name,
        "resourceClaims": [{"name": RESOURCE_CLAIM, "resourceClaimTemplateName": claim}] if claim else None,
    }
    return {name: value for name, value in fields.items() if value}


def affinity(placement: Placement, preferred_nodes: Sequence[str]) -> Manifest:
    """The run's own affinity combined with that for the preferred nodes; empty if there is neither."""
    rules = placement.affinity.to_dict() if placement.affinity else {}
    pin = placement.pin_node if preferred_nodes else PinNode.NONE
    if pin is not PinNode.NONE:
        rules["nodeAffinity"] = _PIN_RULES[pin](rules.get("nodeAffinity", {}), preferred_nodes)
    return {name: terms for name, terms in rules.items() if terms}


def _prefer_nodes(rules: Manifest, preferred_nodes: Sequence[str]) -> Manifest:
    terms = [
        {"weight": AFFINITY_WEIGHT, "preference": {"matchFields": [_node_named(node)]}} for node in preferred_nodes
    ]
    return {**rules, PREFERRED: [*rules.get(PREFERRED, ()), *terms]}


def _require_nodes(rules: Manifest, preferred_nodes: Sequence[str]) -> Manifest:
    """Terms are alternatives, so each of the run's own terms is combined with each of the nodes."""
    terms = rules.get(REQUIRED, {}).get(TERMS) or [{}]
    combined = [
        {**term, "matchFields": [*term.get("matchFields", ()), _node_named(node)]}
        for term in terms
        for node in preferred_nodes
    ]
    return {**rules, REQUIRED: {TERMS: combined}}


_PIN_RULES = {PinNode.PREFER: _prefer_nodes, PinNode.REQUIRE: _require_nodes}


def _node_named(node: str) -> Manifest:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


ENGINE_TMP = "256Gi"
"""Size of an engine's /tmp, into which an engine that is not root downloads its model: 141 GB for 70B in BF16."""
SHARED_MEMORY = "32Gi"
"""Size of /dev/shm unless the run sets sharedMemory: what SGLang's documentation uses for eight GPUs."""
SIMULATOR_TMP = "1Gi"
"""Size of the simulator's /tmp. It writes nothing; Python and its libraries may write small files."""


def config_key(arm: str, name: str) -> str:
    """The key of an arm's configuration file in the plan's ConfigMap."""
    return f"{arm}.{name}"


def volumes(run: SpecBenchRun, plan: Plan, launch: LaunchSpec, arm: str) -> list[Manifest]:
    """Volumes of the pod. A claim that contains both models and cache occurs twice, because one use is read-only."""
    pvc, cache = run.spec.model.pvc, run.spec.placement.model_cache
    shared_memory = empty_dir("shm", run.spec.placement.shared_memory or SHARED_MEMORY, "Memory")
    found = [shared_memory, empty_dir("tmp", ENGINE_TMP if launch.image else SIMULATOR_TMP)]
    if pvc:
        found.append(_claim("models", pvc.claim_name, readOnly=True))
    if cache:
        found.append(_claim("cache", cache.claim_name, **_read_only(cache)))
    if launch.configs:
        items = [{"key": config_key(arm, name), "path": name} for name in launch.configs]
        found.append(
            {"name": "config", "configMap": {"name": plan_name(run.metadata.name, plan.added_rounds), "items": items}}
        )
    return found


def mounts(run: SpecBenchRun, launch: LaunchSpec) -> list[Manifest]:
    """Where the volumes are mounted in the engine's container."""
    pvc, cache = run.spec.model.pvc, run.spec.placement.model_cache
    found = [_mount("shm"), _mount("tmp")]
    if pvc:
        found.append(_mount("models", readOnly=True, **_sub_path(pvc.sub_path)))
    if cache:
        found.append(_mount("cache", **_read_only(cache), **_sub_path(cache.sub_path)))
    if launch.configs:
        found.append(_mount("config", readOnly=True))
    return found


def _mount(volume: str, **more: Any) -> Manifest:
    return {"name": volume, "mountPath": ENGINE_VOLUMES[volume], **more}


def _claim(name: str, claim: str, **more: Any) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **more}}


def _read_only(cache: ModelCache) -> Manifest:
    return {} if cache.fill else {"readOnly": True}


def _sub_path(folder: str | None) -> Manifest:
    return {"subPath": folder} if folder else {}


ENGINE_CONTAINER = "engine"
PROBE_PERIOD_S = 2
STARTUP_MARGIN_S = 60
"""The kubelet's limit is this many seconds after startupDeadlineSeconds, which the operator enforces while it is up."""
GRACE_S = 5
"""Grace period of engine pods, in seconds. It is short because an engine has nothing to store."""


def engine_launch(plan: Plan, arm: str) -> LaunchSpec:
    """The launch specification of an arm's engine: image, arguments, port and health path."""
    launch = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, plan.arm(arm)))
    return replace(launch, args=tuple(str(argument) for argument in launch.args))  # YAML needs str instead of StrEnum


def engine_pod_template(  # noqa: PLR0917 -- the same parameters as engine_job
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    attempt: int,
    settings: OperatorSettings,
    preferred_nodes: Sequence[str] = (),
) -> Manifest:
    """The pod template of one launch. `preferred_nodes`: nodes of the run's last ready engine."""
    launch = engine_launch(plan, group.arm)
    startup_failures = math.ceil((run.spec.startup_deadline_seconds + STARTUP_MARGIN_S) / PROBE_PERIOD_S)
    serving = {
        "ports": [{"name": "http", "containerPort": launch.port}],
        "startupProbe": _probe(startup_failures),
        "readinessProbe": _probe(3),
    }
    container = _container(run, launch, launch.args, settings, serving)
    return {
        "metadata": _pod_metadata(run, group, attempt),
        "spec": _pod_spec(run, plan, launch, group.arm, settings, preferred_nodes, container),
    }


def worker_pod_template(  # noqa: PLR0917 -- the same parameters as engine_pod_template
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    attempt: int,
    settings: OperatorSettings,
    preferred_nodes: Sequence[str] = (),
) -> Manifest:
    """The pod template of the workers of an engine on several nodes. They serve no API, so they have no probes."""
    launch = engine_launch(plan, group.arm)
    assert launch.worker_args is not None
    container = _container(run, launch, launch.worker_args, settings, {})
    return {
        "metadata": _pod_metadata(run, group, attempt),
        "spec": _pod_spec(run, plan, launch, group.arm, settings, preferred_nodes, container),
    }


def _pod_metadata(run: SpecBenchRun, group: EngineGroup, attempt: int) -> Manifest:
    """Labels and annotations of an engine's pod."""
    key = ChildKey(ROLE_ENGINE, group.index, attempt)
    return pod_metadata(labels(run, key, group.arm), _template(run).metadata)


def _template(run: SpecBenchRun) -> PodTemplate:
    """What the run adds to the pod. Its conflicts with the operator's fields were refused when the run was parsed."""
    return run.spec.placement.template or PodTemplate()


def _pod_spec(  # noqa: PLR0917 -- the rule is five
    run: SpecBenchRun,
    plan: Plan,
    launch: LaunchSpec,
    arm: str,
    settings: OperatorSettings,
    preferred_nodes: Sequence[str],
    container: Manifest,
) -> Manifest:
    return {
        **shared_pod_fields(run, ours=not launch.image, grace_s=GRACE_S),
        "securityContext": engine_pod_security(run.spec.placement.security_context, ours=not launch.image),
        **placement_fields(run, preferred_nodes),
        "volumes": [*volumes(run, plan, launch, arm), *(volume.to_dict() for volume in _template(run).spec.volumes)],
        **({"initContainers": [probe_container(container)]} if settings.probe_engines else {}),
        "containers": [container],
    }


def _container(
    run: SpecBenchRun, launch: LaunchSpec, args: Sequence[str], settings: OperatorSettings, serving: Manifest
) -> Manifest:
    program = launch.command or launch.image_program
    return {
        "name": ENGINE_CONTAINER,
        "image": launch.image or settings.client_image,
        "imagePullPolicy": settings.image_pull_policy,
        **({"command": [literal(word) for word in program]} if program else {}),
        "args": [*map(literal, args), "--host", settings.listen_host, "--port", str(launch.port)],
        **_environment(run, launch),
        **({"ports": serving["ports"]} if serving else {}),
        **_engine_resources(run),
        **{name: probe for name, probe in serving.items() if name != "ports"},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _container_security(run, launch),
        "volumeMounts": [*mounts(run, launch), *(mount.to_dict() for mount in _template(run).engine.volume_mounts)],
    }


def _container_security(run: SpecBenchRun, launch: LaunchSpec) -> Manifest:
    fields = deepcopy(dict(ENGINE_SECURITY if launch.image else RESTRICTED_SECURITY))
    if added := _template(run).engine.security_context.capabilities.add:
        fields["capabilities"]["add"] = [str(capability) for capability in added]
    return fields


def _engine_resources(run: SpecBenchRun) -> Manifest:
    placement = run.spec.placement
    gpus = {placement.gpu_resource_name: str(placement.gpus)} if placement.gpus else {}
    requirements = resource_requirements(_template(run).engine.resources, gpus)
    if placement.resource_claim_template_name is None:
        return requirements
    return {"resources": {**requirements.get("resources", {}), "claims": [{"name": RESOURCE_CLAIM}]}}


def _environment(run: SpecBenchRun, launch: LaunchSpec) -> Manifest:
    """The environment from the launcher, the model cache and the hub token."""
    home = _home(run, launch)
    model_cache = run.spec.placement.model_cache
    cache = _cache(run.spec.engine.kind, model_cache) if model_cache else {}
    variables = home | dict(launch.env) | cache
    # The last of two variables with one name wins, so the operator's own are last.
    rows: list[Manifest] = [variable.to_dict() for variable in _template(run).engine.env]
    rows += ({"name": name, "value": literal(value)} for name, value in variables.items())
    rows += hub_token(run.spec)
    return {"env": rows} if rows else {}


def _home(run: SpecBenchRun, launch: LaunchSpec) -> dict[str, str]:
    """HOME where the image's is not writable, and a user name: PyTorch fails if the user ID has none in the image."""
    tmp = "/tmp"  # noqa: S108 - a mount, not a file
    if not launch.image:
        return {"HOME": tmp}  # the only writable folder in specbench's own image, which has a name for every user ID
    chosen = run.spec.placement.security_context
    return {"HOME": tmp, "USER": "engine"} if chosen and chosen.run_as_user else {}


READ_ONLY_HOME = "/tmp/huggingface"  # noqa: S108 - a mount, not a file
"""HF_HOME with a read-only cache: hub libraries also write locks, logs and modules there, which are no models."""


def _cache(kind: EngineKind, cache: ModelCache) -> dict[str, str]:
    """The variables that name the folder of downloaded models; llama.cpp has a separate one.

    A cache that is not to be filled is used without the hub. Otherwise a newer commit of a branch would be downloaded,
    which fails on a read-only volume.
    """
    own = {"LLAMA_CACHE": f"{CACHE_FOLDER}/llama.cpp"} if kind is EngineKind.LLAMA_CPP else {}
    if cache.fill:
        return {HUB_HOME: CACHE_FOLDER, **own}
    offline = {"LLAMA_ARG_OFFLINE": "1", "LLAMA_OFFLINE": "1"} if own else {}
    return {HUB_HOME: READ_ONLY_HOME, HUB_CACHE: f"{CACHE_FOLDER}/hub", HUB_OFFLINE: "1", **own, **offline}


def _probe(failures: int) -> Manifest:
    return {
        "httpGet": {"path": HEALTH_PATH, "port": "http"},
        "periodSeconds": PROBE_PERIOD_S,
        "timeoutSeconds": PROBE_PERIOD_S,
        "failureThreshold": failures,
    }


# The init container `probe` of an engine's pod, which records GPUs, links, driver and PyTorch.
#
# It is added if the chart's value probeEngines is true. It is no startup or readiness probe.
#
# It runs a shell script and writes the output to its termination message. Commands that are missing in the image are
# reported in that output, and the container succeeds anyway. It only needs a shell.

PROBE_CONTAINER = "probe"
"""Name of the init container."""
SECTION = "== "
"""Prefix of a line that names the section after it."""
OF_GPUS, OF_CUDA, OF_LINKS, OF_TORCH = "gpus", "cuda", "links", "torch"
_TORCH = (
    "import importlib.util as u, os, runpy; "
    "v = runpy.run_path(os.path.join(os.path.dirname(u.find_spec('torch').origin), 'version.py')); "
    "print(v['__version__'], v.get('cuda'))"
)
"""PyTorch's version, read from its version file, because importing torch takes longer than starting many an engine."""
_PROBE_COMMANDS = {
    OF_GPUS: f"{join(GPUS)} 2>&1 | head -c 900",
    OF_CUDA: f"{join(SUMMARY)} 2>&1 | head -n 5 | head -c 500",
    OF_LINKS: f"{join(TOPOLOGY)} 2>&1 | grep -e GPU -e smi | head -c 1600",
    OF_TORCH: f"{join(('python3', '-c', _TORCH))} 2>&1 | tail -n 1 | head -c 300",
}
"""Section → command. The output of each is limited, because a termination message has at most 4096 bytes."""
PROBE_SCRIPT = "\n".join(
    (
        "{",
        *(line for name, command in _PROBE_COMMANDS.items() for line in (f"printf '\\n{SECTION}{name}\\n'", command)),
        "} >/dev/termination-log 2>&1",
        "exit 0",
    )
)


def probe_container(engine: Manifest) -> Manifest:
    """The init container for an engine's container, with the same image, resources and security context."""
    same = ("image", "imagePullPolicy", "resources", "securityContext")
    copied = deepcopy({key: engine[key] for key in same if key in engine})
    return {"name": PROBE_CONTAINER, "command": ["/bin/sh", "-c", PROBE_SCRIPT], **copied}


def parse_probe_message(message: str) -> dict[str, str]:
    """Section → output, from a probe's termination message."""
    found: dict[str, str] = {}
    for part in f"\n{message}".split(f"\n{SECTION}")[1:]:
        name, _, text = part.partition("\n")
        found[name.strip()] = text
    return found
