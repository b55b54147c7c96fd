"""Security, resources and volumes of the pods that the operator creates, and the rights that its children need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.engine_job import engine_job
from specbench_operator.settings import OperatorSettings
from specbench_testing.operator_builders import SETTINGS, operator_run, own_jobs
from specbench_testing.operator_process import GROUP_RULES, RULES

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
NON_ROOT = {"runAsNonRoot": True, "runAsUser": 2000, "runAsGroup": 0, "fsGroup": 2000}
ENGINES: dict[str, dict[str, Any]] = {
    "simulator": {"kind": "simulator"},
    "vllm": {"kind": "vllm"},
    "sglang": {"kind": "sglang"},
    "tensorrt-llm": {"kind": "tensorrt-llm"},
    "llama-cpp": {"kind": "llama-cpp"},
    "transformers": {"kind": "transformers", "image": "registry.example/specbench:research"},
}


def pods_of(
    engine: dict[str, Any], placement: dict[str, Any] | None = None, settings: OperatorSettings = SETTINGS
) -> dict[str, Any]:
    """The PodSpecs of a run's Jobs, by role."""
    run = parse_run(operator_run({"spec.engine": engine, "spec.placement": placement or {}}))
    plan = expand(run)
    jobs = {"engine": engine_job(run, plan, plan.groups[0], 1, settings), **own_jobs(run, settings)}
    return {role: job["spec"]["template"]["spec"] for role, job in jobs.items()}


def resources_of(pod: dict[str, Any]) -> Any:
    return pod["containers"][0].get("resources")


def empty_dirs(node: Any) -> list[Any]:
    """Every emptyDir of a manifest, at any depth."""
    if isinstance(node, list):
        return [found for row in node for found in empty_dirs(row)]
    if not isinstance(node, dict):
        return []
    here = [node["emptyDir"]] if "emptyDir" in node else []
    return here + [found for value in node.values() for found in empty_dirs(value)]


def test_every_empty_dir_has_a_size_limit() -> None:
    found = [volume for file in GOLDEN for volume in empty_dirs(yaml.safe_load(file.read_text()))]
    assert len(found) > 20
    assert [volume for volume in found if not volume.get("sizeLimit")] == []


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_every_engine_drops_all_capabilities_and_uses_the_default_seccomp_profile(engine: dict[str, Any]) -> None:
    pod = pods_of(engine, settings=replace(SETTINGS, probe_engines=True))["engine"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    containers = [*pod["containers"], *pod["initContainers"]]
    assert len(containers) == 2
    for container in containers:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_engine_has_the_users_and_groups_of_the_run(engine: dict[str, Any]) -> None:
    pods = pods_of(engine, {"securityContext": NON_ROOT})
    assert pods["engine"]["securityContext"] == {
        **NON_ROOT,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pods["client"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_only_specbenchs_own_image_excludes_root_by_default() -> None:
    contexts = {name: pods_of(engine)["engine"]["securityContext"] for name, engine in ENGINES.items()}
    assert {name for name, context in contexts.items() if context.get("runAsNonRoot")} == {"simulator"}


@pytest.mark.parametrize(
    ("context", "env", "expected"),
    [
        (None, [], {}),
        ({"runAsNonRoot": True}, [], {}),
        ({"runAsUser": 0}, [], {}),
        ({"runAsUser": 2000}, [], {"HOME": "/tmp", "USER": "engine"}),
        ({"runAsUser": 2000}, [{"name": "HOME", "value": "/data"}], {"HOME": "/data", "USER": "engine"}),
    ],
)
def test_an_engine_with_a_chosen_user_has_a_writable_home_and_a_user_name(
    context: Any, env: list[Any], expected: dict[str, str]
) -> None:
    placement = {"securityContext": context} if context else {}
    container = pods_of({"kind": "vllm", "env": env}, placement)["engine"]["containers"][0]
    found = {row["name"]: row["value"] for row in container.get("env", [])}
    assert {name: found[name] for name in ("HOME", "USER") if name in found} == expected


def test_a_security_context_that_starts_as_root_and_excludes_root_is_invalid() -> None:
    context = {"runAsNonRoot": True, "runAsUser": 0}
    with pytest.raises(InvalidSpec, match=r"securityContext.runAsUser 0 is root, which runAsNonRoot excludes"):
        parse_run(operator_run({"spec.placement": {"securityContext": context}}))


@pytest.mark.parametrize("field", ["privileged", "capabilities", "seLinuxOptions", "sysctls", "supplementalGroups"])
def test_no_other_field_of_a_security_context_can_be_set(field: str) -> None:
    with pytest.raises(InvalidSpec, match=field):
        parse_run(operator_run({"spec.placement": {"securityContext": {field: True}}}))


@pytest.mark.parametrize(
    ("chosen", "settings", "expected"),
    [
        ({}, SETTINGS, {"cpu": "2", "memory": "4Gi"}),
        ({"cpu": "8"}, SETTINGS, {"cpu": "8", "memory": "4Gi"}),
        ({"cpu": "8", "memory": "16Gi"}, SETTINGS, {"cpu": "8", "memory": "16Gi"}),
        ({}, replace(SETTINGS, client_cpu="4", client_memory="1Gi"), {"cpu": "4", "memory": "1Gi"}),
        ({}, replace(SETTINGS, client_cpu="0"), {"memory": "4Gi"}),
    ],
)
def test_a_client_is_guaranteed_its_resources(
    chosen: dict[str, str], settings: OperatorSettings, expected: dict[str, str]
) -> None:
    client = pods_of(ENGINES["vllm"], {"client": {"resources": {"limits": chosen}}}, settings)["client"]
    assert resources_of(client) == {"requests": expected, "limits": expected}


def test_a_client_can_do_without_resources_if_the_operator_has_no_defaults() -> None:
    assert (
        resources_of(pods_of({"kind": "vllm"}, {}, replace(SETTINGS, client_cpu="0", client_memory="0"))["client"])
        is None
    )


@pytest.mark.parametrize("role", ["report", "gate"])
def test_report_and_gate_have_requests_and_limits_which_the_run_can_set(role: str) -> None:
    default = resources_of(pods_of(ENGINES["vllm"])[role])
    assert default == {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
    chosen = resources_of(pods_of(ENGINES["vllm"], {"client": {"resources": {"limits": {"memory": "16Gi"}}}})[role])
    assert chosen == {"requests": {"cpu": "100m", "memory": "16Gi"}, "limits": {"cpu": "2", "memory": "16Gi"}}


def test_an_engine_without_chosen_resources_has_none() -> None:
    """They depend on the model: a default would slow down some engines and kill others."""
    assert resources_of(pods_of(ENGINES["vllm"])["engine"]) is None


# What clients read.


ON_A = {"source": "jsonl", "pvc": {"claimName": "a", "path": "p.jsonl"}}
ON_MODELS = {"claimName": "models", "subPath": "team", "path": "tiny"}
MIX = {
    "source": "mix",
    "members": [
        {"name": "one", "weight": 1, **ON_A},
        {"name": "two", "weight": 1, "source": "csv", "pvc": {"claimName": "b.c", "path": "x/p.csv"}},
    ],
}


def pods(*datasets: dict[str, Any], model: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    rows = [{"name": f"w{number}", "dataset": dataset, **workload} for number, dataset in enumerate(datasets)]
    edits = {"spec.workloads": rows} | ({"spec.model": {"name": "acme/tiny", **model}} if model else {})
    run = parse_run(operator_run(edits))
    plan = expand(run)
    jobs = {"engine": engine_job(run, plan, plan.groups[0], 1, SETTINGS), **own_jobs(run)}
    return {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}


def test_clients_mount_each_prompt_claim_once_and_read_only() -> None:
    client = pods(ON_A, MIX)["client"]

    volumes = [volume for volume in client["volumes"] if volume["name"].startswith("prompts-")]
    mounts = [mount for mount in client["containers"][0]["volumeMounts"] if mount["name"].startswith("prompts-")]
    assert volumes == [
        {"name": "prompts-0", "persistentVolumeClaim": {"claimName": "a", "readOnly": True}},
        {"name": "prompts-1", "persistentVolumeClaim": {"claimName": "b.c", "readOnly": True}},
    ]
    assert mounts == [
        {"name": "prompts-0", "mountPath": "/prompts/a", "readOnly": True},
        {"name": "prompts-1", "mountPath": "/prompts/b.c", "readOnly": True},
    ]


def test_only_the_client_mounts_the_prompt_claim() -> None:
    found = pods(ON_A)
    assert "persistentVolumeClaim" not in str(found["engine"]) + str(found["report"])


@pytest.mark.parametrize(
    ("model", "template", "mounted"),
    [
        ({"pvc": ON_MODELS}, {"appliedBy": "Client"}, True),
        ({"pvc": ON_MODELS}, {"appliedBy": "Engine"}, False),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "s3://b/tokenizer/"}, False),
        ({"pvc": ON_MODELS, "tokenizer": "acme/tiny"}, {"appliedBy": "Client"}, False),
        ({"path": "/models/tiny"}, {"appliedBy": "Client"}, False),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "/prompts/models/team/tokenizer"}, True),
        ({"pvc": ON_MODELS, "tokenizer": "/prompts/models/team/tokenizer/"}, {"appliedBy": "Client"}, True),
        (
            {"pvc": ON_MODELS, "tokenizer": "a/b"},
            {"appliedBy": "Client", "template": "/prompts/models/own.jinja"},
            True,
        ),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "/prompts/models-2/tokenizer"}, False),
    ],
)
def test_the_model_claim_is_mounted_where_its_tokenizer_is_read(
    model: dict[str, Any], template: dict[str, Any], mounted: bool
) -> None:
    found = pods({"source": "jsonl", "uri": "s3://b/p.jsonl"}, model=model, chatTemplate=template)
    assert ("/prompts/models" in str(found["client"])) is mounted
    assert "/prompts/models" not in str(found["engine"]) + str(found["report"])


def test_a_claim_with_prompts_and_model_is_mounted_once() -> None:
    on_models = {"source": "jsonl", "pvc": {"claimName": "models", "path": "p.jsonl"}}
    client = pods(on_models, model={"pvc": ON_MODELS}, chatTemplate={"appliedBy": "Client"})["client"]
    assert [mount["mountPath"] for mount in client["containers"][0]["volumeMounts"]].count("/prompts/models") == 1


# The chart's rights cover the children, also where the admission plugin for owner references is enabled.


RESOURCES = {"SpecBenchRun": "specbenchruns", "Job": "jobs"}
SPREAD = "LeaderWorkerSet"


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_children_that_block_owner_deletion_have_the_finalizers_permission(file: Path) -> None:
    """OpenShift enables the admission plugin OwnerReferencesPermissionEnforcement."""
    rules = [*RULES, *GROUP_RULES]
    for child in yaml.safe_load_all(file.read_text()):
        for owner in child["metadata"].get("ownerReferences", []):
            if owner.get("blockOwnerDeletion"):
                allowed = RULES if child["kind"] != SPREAD else rules
                named = f"{RESOURCES[owner['kind']]}/finalizers"
                group = owner["apiVersion"].partition("/")[0]
                assert [rule for rule in allowed if named in rule["resources"] and group in rule["apiGroups"]] == [
                    {"apiGroups": [group], "resources": [named], "verbs": ["update"]}
                ]


def test_some_children_block_owner_deletion() -> None:
    assert sum("blockOwnerDeletion: true" in file.read_text() for file in GOLDEN) > 5
