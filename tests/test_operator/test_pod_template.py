"""What placement.template and placement.client add to pods, and what of a pod they cannot change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.fence.check import FenceCheck
from specbench_api.fence.model import Fence
from specbench_api.plan.expansion import expand
from specbench_api.plan.template_validation import DO_NOT_DISRUPT, ENGINE_VARIABLES, ENGINE_VOLUMES, HUB_TOKEN
from specbench_api.plan.validation import PREFERRED
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.engine_job import engine_job
from specbench_operator.render.engine_pod import engine_launch
from specbench_testing.documented_runs import documented_runs
from specbench_testing.operator_builders import SETTINGS, UID, operator_run
from specbench_testing.rendered_jobs import own_jobs

VALUES: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml").read_text(encoding="utf-8")
)
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "b"}},
    "spec": {
        "volumes": [
            {"name": "certificates", "secret": {"secretName": "certs"}},
            {"name": "topology", "configMap": {"name": "topology"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
        "containers": [
            {
                "name": "engine",
                "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "certs", "key": "k"}}}],
                "volumeMounts": [{"name": "topology", "mountPath": "/mnt/topology", "subPath": "a", "readOnly": True}],
                "resources": {"requests": {"cpu": 4}, "limits": {"cpu": "8", "rdma/hca": 1}},
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            }
        ],
    },
}
ENGINES: dict[str, dict[str, Any]] = {
    "simulator": {"kind": "simulator"},
    "vllm": {"kind": "vllm", "env": [{"name": "VLLM_X", "value": "1"}]},
    "sglang": {"kind": "sglang"},
    "tensorrt-llm": {"kind": "tensorrt-llm"},
    "llama-cpp": {"kind": "llama-cpp"},
}
OWN: dict[str, Any] = {
    "gpus": 1,
    "modelCache": {"claimName": "cache"},
    "securityContext": {"runAsNonRoot": True, "runAsUser": 2000},
}


def engine_template(engine: dict[str, Any], placement: dict[str, Any]) -> Any:
    edits = {
        "spec.engine": engine,
        "spec.placement": placement,
        "spec.model": {"name": "a/b", "pvc": {"claimName": "m", "path": "x"}, "tokenSecretRef": {"name": "hub"}},
    }
    run = parse_run(operator_run(edits))
    plan = expand(run)
    return engine_job(run, plan, plan.groups[0], 0, SETTINGS)["spec"]["template"]


def jobs(client: dict[str, Any]) -> dict[str, Any]:
    """The pod templates of the Jobs with specbench's own image, by role."""
    made = own_jobs(parse_run(operator_run({"spec.placement.client": client})))
    return {role: job["spec"]["template"] for role, job in made.items()}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_template_only_adds_to_the_pod(engine: dict[str, Any]) -> None:
    """Whatever the operator sets is still there, and last or first where the order decides."""
    plain, added = (engine_template(engine, {**OWN, **more}) for more in ({}, {"template": TEMPLATE}))
    for field in ("labels", "annotations"):
        assert added["metadata"][field] == {**TEMPLATE["metadata"][field], **plain["metadata"][field]}
    volumes = TEMPLATE["spec"]["volumes"]
    assert added["spec"]["volumes"][: -len(volumes)] == plain["spec"]["volumes"]
    assert [row["name"] for row in added["spec"]["volumes"][-len(volumes) :]] == [row["name"] for row in volumes]
    (before,), (after,) = plain["spec"]["containers"], added["spec"]["containers"]
    (mount,) = TEMPLATE["spec"]["containers"][0]["volumeMounts"]
    assert after["volumeMounts"] == [*before["volumeMounts"], mount]
    assert after["env"] == [*TEMPLATE["spec"]["containers"][0]["env"], *before["env"]]
    assert after["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "1", "rdma/hca": "1"},
        "limits": {"cpu": "8", "nvidia.com/gpu": "1", "rdma/hca": "1"},
    }
    assert after["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    changed = {"volumeMounts", "env", "resources", "securityContext"}
    assert {name: value for name, value in after.items() if name not in changed} == {
        name: value for name, value in before.items() if name not in changed
    }
    rest = {"volumes", "containers"}
    assert {name: value for name, value in added["spec"].items() if name not in rest} == {
        name: value for name, value in plain["spec"].items() if name not in rest
    }


def test_claims_of_a_template_are_mounted_read_only() -> None:
    rows = engine_template(ENGINES["vllm"], {"template": TEMPLATE})["spec"]["volumes"]
    (claim,) = [row["persistentVolumeClaim"] for row in rows if row["name"] == "data"]
    assert claim == {"claimName": "data", "readOnly": True}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_the_tables_of_conflicts_contain_everything_that_the_operator_renders(engine: dict[str, Any]) -> None:
    for cache in ({"claimName": "cache"}, {"claimName": "cache", "fill": True}):
        template = engine_template(engine, {**OWN, "modelCache": cache})
        (container,) = template["spec"]["containers"]
        folders = {row["name"]: row["mountPath"] for row in container["volumeMounts"]}
        assert folders.items() <= ENGINE_VOLUMES.items()
        assert {row["name"] for row in template["spec"]["volumes"]} == set(folders)
        run = parse_run(operator_run({"spec.engine": engine}))
        launched = engine_launch(expand(run), "none").env
        names = {row["name"] for row in container.get("env", [])}
        assert names <= {*ENGINE_VARIABLES, HUB_TOKEN, *launched}
        assert template["metadata"]["annotations"] == DO_NOT_DISRUPT
        assert all(re.match(r"(.*\.)?(specbench|kubernetes)\.io/", key) for key in template["metadata"]["labels"])


def test_a_measuring_client_prefers_nodes_without_an_engine_of_its_run() -> None:
    wanted = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"specbench.io/run-uid": UID, "specbench.io/role": "engine"}},
    }
    rules = jobs({})["client"]["spec"]["affinity"]
    assert rules == {"podAntiAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": wanted}]}}
    labels = engine_template(ENGINES["vllm"], {})["metadata"]["labels"]
    assert wanted["labelSelector"]["matchLabels"].items() <= labels.items()  # type: ignore[index]


NODES = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": []}}]}}


@pytest.mark.parametrize(
    ("affinity", "preferred"),
    [
        (None, True),
        ({}, True),
        (NODES, True),
        ({"podAntiAffinity": {PREFERRED: [{}]}}, False),
        ({**NODES, "podAffinity": {PREFERRED: [{}]}}, False),
    ],
)
def test_own_pod_affinity_of_the_client_replaces_the_preference(affinity: Any, preferred: bool) -> None:
    made = jobs({"affinity": affinity} if affinity is not None else {})
    text = json.dumps(made["client"]["spec"].get("affinity", {}))
    assert ("specbench.io/run-uid" in text) is preferred
    for name, terms in (affinity or {}).items():
        assert made["client"]["spec"]["affinity"][name] == terms
    for role in ("report", "gate"):
        assert made[role]["spec"].get("affinity", {}) == (affinity or {})


def test_a_clients_nodes_and_labels_apply_to_all_its_jobs() -> None:
    fields: dict[str, Any] = {
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
        "serviceAccountName": "bench",
    }
    metadata = {"labels": {"team": "a"}, "annotations": {"example.com/note": "b"}}
    made = jobs({**fields, "template": {"metadata": metadata}})
    for role, template in made.items():
        assert {name: template["spec"][name] for name in fields} == fields
        assert metadata["labels"].items() <= template["metadata"]["labels"].items()
        assert metadata["annotations"].items() <= template["metadata"]["annotations"].items()
        assert (DO_NOT_DISRUPT.items() <= template["metadata"]["annotations"].items()) is (role == "client")


@pytest.mark.parametrize("name", documented_runs())
def test_the_page_shows_the_values_of_the_fence_that_each_run_needs(name: str) -> None:
    run = documented_runs()[name]
    spec = parse_run(run.resource).spec

    def refused(values: Mapping[str, Any]) -> set[str]:
        fence = Fence.from_json(json.dumps({**VALUES["fence"], **values}))
        problems = FenceCheck(fence, "registry.example/specbench:1").problems_of(spec, "bench")
        return {word for problem in problems for word in re.findall(r"fence\.(\w+)", problem.remedy or "")}

    lists = {field: value for field, value in run.fence.items() if field != "limits"}
    limits = {"limits": {**VALUES["fence"]["limits"], **run.fence.get("limits", {})}}
    assert refused({**lists, **limits}) == set()
    assert refused({}) == set(run.fence)
