"""The client, report and gate Jobs, and the plan's ConfigMap.

A Job is retried only where a retry can help. Bad input (exit code 2) and, for clients, a failed engine (4) would fail
again. Everything else (S3 unreachable, killed, a bug) is retried, and a client continues at the first point without a
manifest. Disrupted pods do not count as tries.

The pods run specbench's own image without Kubernetes credentials. The S3 address and keys are passed in the standard
environment variables of the AWS SDKs and never in arguments, which everybody can read who may list pods.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, PLAN_DIGEST_VARIABLE, run_root
from specbench_api.outcome.provenance import HOST_FACTS_VARIABLE, HostFacts
from specbench_api.plan.names import (
    LABEL_ROLE,
    LABEL_RUN_UID,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_GATE,
    ROLE_PLAN,
    ROLE_REPORT,
    client_name,
    gate_name,
    plan_name,
    report_name,
)
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.plan.validation import PREFERRED, too_long
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import FILE_ROOTS_VARIABLE, IMAGE_DATA_FOLDER, PVC_FOLDER, Dataset
from specbench_api.spec.gate import GATE_VARIABLE, GateRequest
from specbench_api.spec.model import Target
from specbench_api.spec.patterns import leads_out
from specbench_api.spec.placement import ClientPlacement
from specbench_api.spec.pod_template import PodTemplateMetadata
from specbench_api.spec.results import S3
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.slo import SLO_VARIABLE
from specbench_operator.render.engine_job import endpoint
from specbench_operator.render.engine_pod import AFFINITY_WEIGHT, config_key, engine_launch
from specbench_operator.render.job_annotations import ANNOTATION_ENGINE_POD
from specbench_operator.render.shared_fields import (
    RESTRICTED_SECURITY,
    Manifest,
    api_key,
    client_requirements,
    empty_dir,
    hub_token,
    labels,
    literal,
    metadata,
    pod_metadata,
    report_requirements,
    shared_pod_fields,
)
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ChildKey

CLIENT_CONTAINER = "client"
CLIENT_IMAGE, PLAN_SHA256 = "client-image", "plan-sha256"
"""Keys in the plan's ConfigMap, beside the plan: what other versions of the operator must not derive anew."""
PLAN_DIR = "/plan"
TMP_SIZE = "24Gi"
"""Size of /tmp: for downloaded data sets and tokenizers, for the records of the point in progress (328 MiB per million
requests without their texts, benchmarks/README.md), and for columns of the summary (360 bytes per record). A client
that writes more is evicted, and the next one continues at the first point without a manifest, at most RETRIES times."""
CLIENT_GRACE_S = 30
"""Grace period of client pods, in seconds: time to store records that are not in S3 yet."""
RETRIES = 6
"""With Kubernetes' back-off (10 s, doubling), S3 may be unreachable for ten minutes beyond the client's own retries."""

_SECRET_KEYS = {"AWS_ACCESS_KEY_ID": False, "AWS_SECRET_ACCESS_KEY": False, "AWS_SESSION_TOKEN": True}
"""Key of the Secret, which is also the variable's name → whether it is optional."""


def results_uri(run: SpecBenchRun) -> str:
    """URI of the root of this run's results in S3."""
    meta = run.metadata
    return f"{run.spec.results.store.uri}/{run_root(meta.namespace, meta.name, run.results_uid)}"


def client_pod(
    run: SpecBenchRun,
    args: Sequence[str],
    settings: OperatorSettings,
    extra_env: Mapping[str, str] | None = None,
    *,
    resources: Manifest,
    plan: Plan | None = None,
) -> Manifest:
    """PodSpec of `specbench-client ARGS`. `extra_env`: further variables. `plan`: the one to mount."""
    placement = run.spec.placement.client
    return {
        **shared_pod_fields(run, ours=True, grace_s=CLIENT_GRACE_S),
        **_client_placement(placement),
        "volumes": [
            *(
                [{"name": "plan", "configMap": {"name": plan_name(run.metadata.name, plan.added_rounds)}}]
                if plan
                else []
            ),
            empty_dir("tmp", TMP_SIZE),
        ],
        "containers": [{**_client_container(run, args, settings, extra_env or {}, plan=plan is not None), **resources}],
    }


def _client_placement(placement: ClientPlacement) -> Manifest:
    """The fields of a client's PodSpec that select nodes, and its service account."""
    fields: Manifest = {
        "serviceAccountName": placement.service_account_name,
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [toleration.to_dict() for toleration in placement.tolerations],
        "affinity": placement.affinity.to_dict() if placement.affinity else {},
    }
    fields["affinity"] = {name: terms for name, terms in fields["affinity"].items() if terms}
    return {name: value for name, value in fields.items() if value}


def _metadata_added(run: SpecBenchRun) -> PodTemplateMetadata | None:
    template = run.spec.placement.client.template
    return template.metadata if template else None


def away_from_engine(pod: Manifest, run: SpecBenchRun) -> Manifest:
    """The PodSpec of a measuring client, which prefers nodes without an engine of its run.

    On the engine's node it would compete with it for CPU and memory bandwidth, and so slow down what it measures. It is
    only a preference, because a cluster may have one node. Pod affinity of the run's own replaces it.
    """
    rules = pod.get("affinity", {})
    if run.spec.engine.is_external or "podAffinity" in rules or "podAntiAffinity" in rules:
        return pod
    engines = {"matchLabels": {LABEL_RUN_UID: run.metadata.uid, LABEL_ROLE: ROLE_ENGINE}}
    on_its_node = {"topologyKey": "kubernetes.io/hostname", "labelSelector": engines}
    preference = {PREFERRED: [{"weight": AFFINITY_WEIGHT, "podAffinityTerm": on_its_node}]}
    return {**pod, "affinity": {**rules, "podAntiAffinity": preference}}


def _client_container(
    run: SpecBenchRun, args: Sequence[str], settings: OperatorSettings, extra_env: Mapping[str, str], *, plan: bool
) -> Manifest:
    return {
        "name": CLIENT_CONTAINER,
        "image": settings.client_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["specbench-client"],
        "args": list(args),
        "env": [
            *_s3_environment(run.spec.results.store),
            {"name": FILE_ROOTS_VARIABLE, "value": ":".join(CLIENT_FOLDERS)},
            *({"name": name, "value": value} for name, value in extra_env.items()),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": dict(RESTRICTED_SECURITY),
        "volumeMounts": [
            *([{"name": "plan", "mountPath": PLAN_DIR, "readOnly": True}] if plan else []),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount, not a file
        ],
    }


def _s3_environment(s3: S3) -> list[Manifest]:
    plain = {
        "HOME": "/tmp",  # noqa: S108 - the only writable folder for caches of libraries
        "AWS_REGION": s3.region,
        "AWS_DEFAULT_REGION": s3.region,
        **({"AWS_ENDPOINT_URL_S3": s3.endpoint} if s3.endpoint else {}),
    }
    secret = s3.secret_name
    keys = _SECRET_KEYS.items() if secret else ()
    return [
        *({"name": name, "value": literal(value)} for name, value in plain.items()),
        *(
            {
                "name": key,
                "valueFrom": {
                    "secretKeyRef": {"name": secret, "key": key, **({"optional": True} if optional else {})},
                },
            }
            for key, optional in keys
        ),
    ]


def with_inputs(pod: Manifest, spec: RunSpec) -> Manifest:
    """The PodSpec of a measuring client: with volumes of prompts and tokenizers, and references to its tokens.

    Report and gate Jobs do not get these, because they read none of them and should not wait for a volume.
    """
    names = {claim: f"prompts-{number}" for number, claim in enumerate(dict.fromkeys(_claims_read_by_client(spec)))}
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}} for claim, name in names.items()
    ]
    mounts = [{"name": name, "mountPath": f"{PVC_FOLDER}/{claim}", "readOnly": True} for claim, name in names.items()]
    (container,) = pod["containers"]
    with_mounts = {
        **container,
        "env": [*container["env"], *hub_token(spec), *api_key(spec)],
        "volumeMounts": [*container["volumeMounts"], *mounts],
    }
    return {**pod, "volumes": [*pod["volumes"], *volumes], "containers": [with_mounts]}


def _claims_read_by_client(spec: RunSpec) -> Iterator[str]:
    """Claims of the datasets, and of the model if the client reads its tokenizer or a chat template from it."""
    for workload in spec.workloads:
        for selection in (workload.dataset, *(workload.dataset.members or [])):
            if selection.pvc:
                yield selection.pvc.claim_name
        template, pvc = workload.chat_template, spec.model.pvc
        if pvc and template and template.by_client and _client_reads_model(template, spec.model, pvc.claim_name):
            yield pvc.claim_name


def _client_reads_model(template: ChatTemplate, model: Target, claim: str) -> bool:
    """Whether a client needs the model's claim: for the model's own tokenizer, or for a path below its mount."""
    tokenizer = template.tokenizer or model.tokenizer
    paths = [path for path in (tokenizer, template.template) if path is not None]
    return tokenizer is None or any(PurePosixPath(path).is_relative_to(f"{PVC_FOLDER}/{claim}") for path in paths)


IGNORE_DISRUPTION = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def fail_on(*codes: Exit) -> Manifest:
    """The rule of a podFailurePolicy by which these exit codes fail the Job without a retry."""
    values = [int(code) for code in codes]
    return {"action": "FailJob", "onExitCodes": {"containerName": CLIENT_CONTAINER, "operator": "In", "values": values}}


def _job(meta: Manifest, pod_meta: Manifest, pod: Manifest, deadline_s: int, *not_retried: Exit) -> Manifest:
    """A Job that is retried except after these exit codes."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": deadline_s,
            "podFailurePolicy": {"rules": [IGNORE_DISRUPTION, fail_on(*not_retried)]},
            "template": {"metadata": pod_meta, "spec": pod},
        },
    }


def client_job(
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    attempt: int,
    settings: OperatorSettings,
    *,
    engine: HostFacts,
    engine_pod: str,
    plan_digest: str,
) -> Manifest:
    """The client Job of one launch.

    `engine`: facts about where the engine runs, which the client stores with the results. `engine_pod`: UID of its pod.
    `plan_digest`: that of the plan's document, which the client compares.
    """
    key = ChildKey(ROLE_CLIENT, group.index, attempt)
    args = (
        "drive",
        *("--plan", f"{PLAN_DIR}/{PLAN}"),
        *("--group", str(group.index)),
        *("--attempt", str(attempt)),
        *("--endpoint", literal(endpoint(run, plan, group, attempt))),
        *("--results", run.spec.results.store.uri),
    )
    extra = {HOST_FACTS_VARIABLE: engine.to_line(), PLAN_DIGEST_VARIABLE: plan_digest}
    pod = client_pod(run, args, settings, extra, resources=client_requirements(run, settings), plan=plan)
    return _job(
        {
            **metadata(run, client_name(run.metadata.name, group.index, attempt), key, group.arm),
            "annotations": {ANNOTATION_ENGINE_POD: engine_pod},
        },
        pod_metadata(labels(run, key, group.arm), _metadata_added(run)),
        with_inputs(away_from_engine(pod, run), run.spec),
        run.spec.active_deadline_seconds,
        Exit.BAD_INPUT,
        Exit.ENGINE_FAILED,
    )


def report_job(run: SpecBenchRun, plan: Plan, settings: OperatorSettings, plan_digest: str) -> Manifest:
    """The Job that makes the summary and the report from stored results; it needs no engine.

    The current SLO is passed to it, because the plan does not contain it: it may change while the run is in progress.
    """
    key = ChildKey(ROLE_REPORT)
    slo = run.spec.slo
    args = ("report", "--plan", f"{PLAN_DIR}/{PLAN}", "--results", run.spec.results.store.uri)
    return _job(
        metadata(run, report_name(run.metadata.name), key),
        pod_metadata(labels(run, key), _metadata_added(run), disruptable=True),
        client_pod(
            run,
            args,
            settings,
            {PLAN_DIGEST_VARIABLE: plan_digest, **({SLO_VARIABLE: slo.to_line()} if slo else {})},
            resources=report_requirements(run),
            plan=plan,
        ),
        run.spec.report_deadline_seconds,
        Exit.BAD_INPUT,
    )


def gate_job(run: SpecBenchRun, request: GateRequest, settings: OperatorSettings) -> Manifest:
    """The Job that compares two results in S3 and writes gate.json.

    Its name contains the gate's digest, so that a changed gate gets another Job.
    """
    key = ChildKey(ROLE_GATE)
    args = ("gate", "--results", results_uri(run))
    return _job(
        metadata(run, gate_name(run.metadata.name, request.gate_digest), key),
        pod_metadata(labels(run, key), _metadata_added(run), disruptable=True),
        client_pod(
            run,
            args,
            settings,
            {GATE_VARIABLE: request.to_line()},
            resources=report_requirements(run),
        ),
        run.spec.report_deadline_seconds,
        Exit.BAD_INPUT,
    )


def plan_config_map(run: SpecBenchRun, plan: Plan, client_image: str, plan_sha256: str) -> Manifest:
    """The plan, the image of its clients, and the configuration files of the arms' engines as a ConfigMap.

    It is immutable, so that a run ends with the plan and clients that it began with, whichever version of the operator
    reconciles it. A plan to which another round is added gets another ConfigMap, from whose creation on it is the
    run's. Raises InvalidSpec if the data is too large for a ConfigMap.
    """
    began_with = {CLIENT_IMAGE: client_image, PLAN_SHA256: plan_sha256}
    data = {PLAN: plan.to_json(), **began_with, **engine_configs(plan)}
    if problems := too_long(data.values()):
        raise InvalidSpec(problems)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            run, plan_name(run.metadata.name, plan.added_rounds), ChildKey(ROLE_PLAN, attempt=plan.added_rounds or None)
        ),
        "immutable": True,
        "data": data,
    }


def engine_configs(plan: Plan) -> dict[str, str]:
    """The configuration files of the arms' engines, by key in the plan's ConfigMap."""
    launches = {arm.name: engine_launch(plan, arm.name) for arm in plan.arms}
    return {config_key(arm, name): text for arm, launch in launches.items() for name, text in launch.configs.items()}


# The files that a spec names and a client Job reads: which paths it would refuse. Pure.
#
# A client resolves symbolic links and then refuses every file that is not below one of its folders, but only after an
# engine has been started for it. The operator refuses a path that leads out of them before it creates a child.

CLIENT_FOLDERS = (PVC_FOLDER, IMAGE_DATA_FOLDER)
"""The folders below which client Jobs read files."""
_WORKING_FOLDER = "/tmp"  # noqa: S108 - not written to; relative paths of client Jobs start at the image's WORKDIR


def unreadable_files(spec: RunSpec) -> list[Problem]:
    """Return a problem for every path, absolute or with a `..` component, that a client Job must not read.

    Other relative paths are left to the client.
    """
    folders = ", ".join(CLIENT_FOLDERS)
    remedy = "put the file on a volume (dataset.pvc), or give s3://BUCKET/KEY"
    return [
        Problem(field, f"{path} is not below a folder that clients may read ({folders})", remedy)
        for field, path in _paths(spec)
        if "://" not in path and (path.startswith(("/", "~")) or leads_out(path)) and not _is_below(path)
    ]


def _paths(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and value of each path that the client of a run reads."""
    for index, workload in enumerate(spec.workloads):
        base = f"spec.workloads[{index}]"
        yield from _of_dataset(f"{base}.dataset", workload.dataset)
        if (template := workload.client_template) is None:
            continue
        if template.template is not None:
            yield f"{base}.chatTemplate.template", template.template
        if template.tokenizer is not None:
            yield f"{base}.chatTemplate.tokenizer", template.tokenizer
        elif spec.model.tokenizer is not None:
            yield "spec.model.tokenizer", spec.model.tokenizer
        elif spec.model.path is not None:
            yield "spec.model.path", spec.model.path
    if spec.load.arrival is not None and spec.load.arrival.uri is not None:
        yield "spec.load.arrival.uri", spec.load.arrival.uri


def _of_dataset(field: str, dataset: Dataset) -> Iterator[tuple[str, str]]:
    if dataset.uri is not None:
        yield f"{field}.uri", dataset.uri
    for index, member in enumerate(dataset.members or []):
        if member.uri is not None:
            yield f"{field}.members[{index}].uri", member.uri


def _is_below(path: str) -> bool:
    resolved = PurePosixPath(posixpath.normpath(posixpath.join(_WORKING_FOLDER, path)))
    return not path.startswith("~") and any(resolved.is_relative_to(folder) for folder in CLIENT_FOLDERS)
