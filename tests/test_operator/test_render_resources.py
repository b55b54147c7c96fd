"""Security, resources and volumes of every pod that the operator creates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.gate_report import GateRequest
from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import expand
from specbench_api.spec.gate import BaselineRef, Gate
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.client_jobs import client_job, gate_job, report_job
from specbench_operator.render.engine_job import engine_job
from specbench_operator.settings import OperatorSettings
from specbench_testing.operator_builders import SETTINGS, operator_run

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
    gate = Gate(baseline_ref=BaselineRef(run="main"))
    request = GateRequest(gate_digest="0" * 64, gate=gate, baseline="s3://b/r")
    jobs = {
        "engine": engine_job(run, plan, plan.groups[0], 1, settings),
        "client": client_job(run, plan, plan.groups[0], 1, settings, engine=HostFacts(), engine_pod="pod"),
        "report": report_job(run, settings),
        "gate": gate_job(run, request, settings),
    }
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
