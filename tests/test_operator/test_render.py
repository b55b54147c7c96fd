"""Rendered manifests are compared in full with golden files.

SPECBENCH_REWRITE_GOLDEN=1 rewrites the files. The tests still fail then, so that the difference is reviewed first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.fence.check import FenceCheck
from specbench_api.fence.model import Fence
from specbench_api.launch.launcher import CONFIG_FOLDER
from specbench_api.outcome.layout import PLAN
from specbench_api.outcome.provenance import Fact, FactName, HostFacts
from specbench_api.plan.expansion import expand, with_another_round
from specbench_api.plan.limits import PLAN_BYTES_MAX
from specbench_api.plan.names import ROLE_ENGINE, client_name, clients_policy_name, gate_name, nodes_name, plan_name
from specbench_api.plan.plan import Plan
from specbench_api.plan.template_conflicts import DO_NOT_DISRUPT, ENGINE_VARIABLES, ENGINE_VOLUMES, HUB_TOKEN
from specbench_api.plan.validation import PREFERRED
from specbench_api.spec.gate import BaselineRef, Gate, GateMetric, GateRequest, Tolerance
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NAME_MAX, SpecBenchRun
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_operator.render.client_jobs import (
    CLIENT_IMAGE,
    PLAN_SHA256,
    client_job,
    gate_job,
    plan_config_map,
    report_job,
)
from specbench_operator.render.engine_job import engine_job, engine_service, leader_worker_set, leader_worker_set_job
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.render.network_policies import network_policies
from specbench_operator.settings import NetworkPolicySettings
from specbench_operator.state.objects import ChildKey, Job, ObjectRef
from specbench_testing.operator_builders import NOON, SETTINGS, UID, operator_run, own_jobs

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/placement.md"


@dataclass(frozen=True)
class DocumentedRun:
    """A run of the page."""

    resource: dict[str, Any]
    fence: Mapping[str, Any]
    """Values of the chart that the page shows after the run."""

    @property
    def edits(self) -> dict[str, Any]:
        """The run's spec as edits of another run."""
        return {f"spec.{field}": value for field, value in self.resource["spec"].items()}


def documented_runs() -> dict[str, DocumentedRun]:
    """Name → the run. The first is complete, and each of the others shows the placement with which it differs."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index("### RDMA"), page.index("## Provide the model")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", page[begin:end], re.DOTALL)]
    whole = blocks[0]
    placements = [whole["spec"]["placement"], *(block["placement"] for block in blocks[2::2])]
    names = re.findall(r"^### (\w+)$", page[begin:end], re.MULTILINE)
    return {
        name.lower(): DocumentedRun({**whole, "spec": {**whole["spec"], "placement": placement}}, values["fence"])
        for name, placement, values in zip(names, placements, blocks[1::2], strict=True)
    }


GOLDEN = Path(__file__).parent / "golden"
SMALL: dict[str, Any] = {"spec.placement": {}}
IMAGE, DIGEST = SETTINGS.client_image, "0" * 64
QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench", "queuePriorityClass": "nightly"}}
FULL: dict[str, Any] = {
    "spec.model": {"name": "acme/tiny", "pvc": {"claimName": "models", "path": "tiny.gguf"}},
    "spec.engine": {
        "kind": "llama-cpp",
        "version": "b6000",
        "args": ["--ctx-size=8192"],
        "env": [{"name": "GGML_CUDA_GRAPHS", "value": "1"}],
        "tensorParallelSize": 2,
    },
    "spec.drafters[0].numSpeculativeTokens": 5,
    "spec.load": {"concurrency": [1, 8], "repeats": 1},
    "spec.placement": {
        "gpus": 2,
        "nodeSelector": {"nvidia.com/gpu.product": "H100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "bench",
        "imagePullSecrets": [{"name": "registry"}],
        "template": {
            "spec": {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "16", "memory": "64Gi"}}}]}
        },
        "client": {
            "serviceAccountName": "bench-client",
            "resources": {"limits": {"cpu": "4", "memory": "4Gi"}},
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "cpu-pool", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
                    ]
                }
            },
        },
    },
    "spec.results": {
        "s3": {
            "bucket": "results",
            "prefix": "team/a",
            "endpoint": "http://s3.storage:9000",
            "region": "eu-west-1",
            "credentialsSecretRef": {"name": "bench-s3"},
        },
    },
    "spec.activeDeadlineSeconds": 3600,
    "spec.startupDeadlineSeconds": 601,
    "spec.reportDeadlineSeconds": 7200,
}


TENSORRT: dict[str, Any] = {
    "spec.model": {"name": "acme/tiny", "pvc": {"claimName": "models", "path": "tiny"}},
    "spec.engine": {"kind": "tensorrt-llm", "config": {"kv_cache_config": {"dtype": "fp8"}}},
}


PLACED: dict[str, Any] = {
    "spec.model": {
        "name": "acme/tiny",
        "pvc": {"claimName": "models", "subPath": "team/a", "path": "tiny.gguf"},
        "tokenSecretRef": {"name": "hub", "key": "token"},
    },
    "spec.engine": {"kind": "llama-cpp", "version": "b6000"},
    "spec.placement": {
        "resourceClaimTemplateName": "one-gpu",
        "claimedGpus": 1,
        "nodeSelector": {"pool": "bench"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}],
                },
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}},
                ],
            },
        },
        "runtimeClassName": "nvidia",
        "engineServiceAccountName": "bench-engine",
        "imagePullSecrets": [{"name": "registry"}],
        "sharedMemory": "16Gi",
        "modelCache": {"claimName": "hub-cache", "subPath": "team/a"},
    },
}


SPREAD: dict[str, Any] = {
    "spec.model": {"name": "acme/large", "tokenSecretRef": {"name": "hub"}},
    "spec.engine": {"kind": "vllm", "version": "0.33.0", "tensorParallelSize": 16},
    "spec.placement": {
        "gpus": 8,
        "nodes": 2,
        "nodeSelector": {"pool": "h100"},
        "imagePullSecrets": [{"name": "registry"}],
    },
}


PLACE = HostFacts(
    facts={FactName.NODE: Fact.observed("gpu-1", "the pod's spec.nodeName")}, unknown_reason="nobody tells it"
)
SPREAD_QUEUED: dict[str, Any] = {
    **SPREAD,
    "spec.placement": {**SPREAD["spec.placement"], "queueName": "bench", "queuePriorityClass": "nightly"},
}


def given(edits: Mapping[str, Any]) -> tuple[SpecBenchRun, Plan]:
    run = parse_run(operator_run(edits))
    return run, expand(run)


def _engine(run: SpecBenchRun, plan: Plan) -> Any:
    return engine_job(run, plan, plan.groups[1], 2, SETTINGS)


def _placed(run: SpecBenchRun, plan: Plan) -> Any:
    return engine_job(run, plan, plan.groups[1], 2, SETTINGS, ("gpu-1",))


def _deadline(run: SpecBenchRun, plan: Plan) -> Any:
    return leader_worker_set_job(run, plan.groups[1], 2, SETTINGS)


def _group(run: SpecBenchRun, plan: Plan) -> Any:
    name = _deadline(run, plan)["metadata"]["name"]
    owner = Job(ObjectRef("Job", name, "uid-of-the-job"), run.metadata.uid, ChildKey(ROLE_ENGINE, 1, 2), NOON)
    return leader_worker_set(run, plan, plan.groups[1], owner, SETTINGS, ("gpu-1", "gpu-2"))


def _probed(run: SpecBenchRun, plan: Plan) -> Any:
    return engine_job(run, plan, plan.groups[1], 2, replace(SETTINGS, probe_engines=True))


def _service_again(run: SpecBenchRun, plan: Plan) -> Any:
    """The Service of launch 2, whose Job was created for launch 0 and restarted since."""
    return engine_service(run, plan, plan.groups[1], 2, 0)


def _service(run: SpecBenchRun, plan: Plan) -> Any:
    return engine_service(run, plan, plan.groups[1], 2)


def _client(run: SpecBenchRun, plan: Plan) -> Any:
    return client_job(run, plan, plan.groups[1], 2, SETTINGS, engine=PLACE, engine_pod="pod-uid", plan_digest="")


def _report(run: SpecBenchRun, plan: Plan) -> Any:
    return report_job(run, plan, SETTINGS, "")


GATE = Gate(baseline_ref=BaselineRef(run="main"), tolerances=[Tolerance(metric=GateMetric.TTFT, percentile="p95")])


def _gate(run: SpecBenchRun, _plan: Plan) -> Any:
    request = GateRequest(
        gate_digest="0123456789abcdef", gate=GATE, baseline="s3://results/team/a/runs/default/main/$(UID)"
    )
    return gate_job(run, request, SETTINGS)


def _plan(run: SpecBenchRun, plan: Plan) -> Any:
    """Without the plan itself: it has its own tests, and every change of it would change this file."""
    return {**plan_config_map(run, plan, IMAGE, DIGEST), "data": {PLAN: "…"}}


NETWORK = NetworkPolicySettings(("169.254.0.0/16", "fd00:ec2::254/128"), ({"namespaceSelector": {}},), ({},))


def _engines_policy(run: SpecBenchRun, _plan: Plan) -> Any:
    return next(network_policies(run, NETWORK))


def _clients_policy(run: SpecBenchRun, _plan: Plan) -> Any:
    return list(network_policies(run, NETWORK))[-1]


EXTERNAL: dict[str, Any] = {
    "spec.engine": {
        "kind": "external",
        "dialect": "vllm",
        "apiKeySecretRef": {"name": "endpoint-key"},
        "endpoints": [
            {"name": "none", "url": "http://plain.serving:8000"},
            # Kubernetes must not replace the reference by the value of the variable.
            {"name": "eagle3", "url": "https://gateway.example/$(HOME)", "dialect": "sglang"},
        ],
    },
    "spec.drafters": [],
    "spec.placement": {"client": {"nodeSelector": {"pool": "cpu"}}},
    "spec.results.s3.credentialsSecretRef": {"name": "bench-s3"},
}
DOCUMENTED = {name: run.edits for name, run in documented_runs().items()}

MANIFESTS: dict[str, tuple[Callable[[SpecBenchRun, Plan], Any], dict[str, Any]]] = {
    "engine-simulator": (_engine, SMALL),
    "engine-llama-cpp": (_engine, FULL),
    "engine-tensorrt-llm": (_engine, TENSORRT),
    "engine-queued": (_engine, QUEUED),
    "engine-probed": (_probed, FULL),
    "engine-placed": (_placed, PLACED),
    "engine-multus": (_engine, DOCUMENTED["multus"]),
    "engine-istio": (_engine, DOCUMENTED["istio"]),
    "client-istio": (_client, DOCUMENTED["istio"]),
    "group-rdma": (_group, DOCUMENTED["rdma"]),
    "group": (_group, SPREAD),
    "group-queued": (_group, SPREAD_QUEUED),
    "group-deadline": (_deadline, SPREAD),
    "group-deadline-queued": (_deadline, SPREAD_QUEUED),
    "group-service": (_service, SPREAD),
    "service-simulator": (_service, SMALL),
    "service-llama-cpp": (_service, FULL),
    "service-started-over": (_service_again, SMALL),
    "client-small": (_client, SMALL),
    "client-full": (_client, FULL),
    "client-external": (_client, EXTERNAL),
    "report-small": (_report, SMALL),
    "report-full": (_report, FULL),
    "report-with-targets": (_report, {**SMALL, "spec.slo": {"ttftMs": 500, "tpotMs": 35}}),
    "gate-full": (_gate, FULL),
    "plan": (_plan, SMALL),
    "network-engines": (_engines_policy, SPREAD),
    "network-clients": (_clients_policy, SMALL),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_matches_its_golden_file(name: str) -> None:
    render, edits = MANIFESTS[name]
    file = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump(render(*given(edits)), sort_keys=False, width=120)
    if os.environ.get("SPECBENCH_REWRITE_GOLDEN") == "1":
        before = file.read_text() if file.exists() else ""
        file.write_text(text)
        assert before == text, f"{file.name} was rewritten: read it, then run again without SPECBENCH_REWRITE_GOLDEN"
    assert yaml.safe_load(file.read_text()) == yaml.safe_load(text)
    assert file.read_text() == text


@pytest.mark.parametrize("name", [name for name, (render, _) in MANIFESTS.items() if render in (_engine, _group)])
def test_engines_listen_in_the_family_of_the_operators_pod(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in a manifest depends on it."""
    render, edits = MANIFESTS[name]
    ipv4 = json.dumps(render(*given(edits)))
    assert '"--host", "0.0.0.0"' in ipv4
    monkeypatch.setitem(globals(), "SETTINGS", replace(SETTINGS, pod_ip="fd00::7"))
    assert json.dumps(render(*given(edits))) == ipv4.replace('"--host", "0.0.0.0"', '"--host", "::"')


def test_the_api_key_is_passed_by_reference_to_measuring_clients_only() -> None:
    run, plan = given(EXTERNAL)
    assert "endpoint-key" not in plan_config_map(run, plan, IMAGE, DIGEST)["data"][PLAN]
    assert "endpoint-key" not in json.dumps([report_job(run, plan, SETTINGS, ""), _gate(run, plan)])
    (variable,) = [row for row in _container_of(_client(run, plan))["env"] if row["name"] == API_KEY_VARIABLE]
    reference = {"name": "endpoint-key", "key": "OPENAI_API_KEY"}
    assert variable == {"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": reference}}
    assert API_KEY_VARIABLE not in [row["name"] for row in _container_of(_client(*given(SMALL)))["env"]]


def test_a_run_without_engines_has_a_network_policy_for_its_clients_alone() -> None:
    (policy,) = network_policies(given(EXTERNAL)[0], NETWORK)
    assert policy["metadata"]["name"] == clients_policy_name("demo")


def _container_of(job: Any) -> Any:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container


def test_the_config_map_contains_the_plan_as_stored_in_s3() -> None:
    run, plan = given(SMALL)
    assert plan_config_map(run, plan, IMAGE, DIGEST)["data"] == {
        PLAN: plan.to_json(),
        CLIENT_IMAGE: IMAGE,
        PLAN_SHA256: DIGEST,
    }


def test_the_config_map_contains_each_arms_files_and_a_pod_mounts_its_own() -> None:
    run, plan = given(TENSORRT)
    data = plan_config_map(run, plan, IMAGE, DIGEST)["data"]
    assert set(data) == {PLAN, CLIENT_IMAGE, PLAN_SHA256, "none.config.yaml", "ngram.config.yaml"}
    for group in plan.groups:
        pod = engine_job(run, plan, group, 1, SETTINGS)["spec"]["template"]["spec"]
        (volume,) = [volume["configMap"] for volume in pod["volumes"] if "configMap" in volume]
        assert volume["name"] == plan_config_map(run, plan, IMAGE, DIGEST)["metadata"]["name"]
        ((key, path),) = [(item["key"], item["path"]) for item in volume["items"]]
        assert f"{CONFIG_FOLDER}/{path}" in pod["containers"][0]["args"]
        assert ("speculative_config" in yaml.safe_load(data[key])) == (group.arm != "none")


@pytest.mark.parametrize("edits", [SMALL, TENSORRT])
def test_every_pod_mounts_the_plan_with_the_rounds_that_were_added(edits: dict[str, Any]) -> None:
    """In addition, so that pods of the earlier plan still find theirs."""
    run, plan = given(edits)
    grown = with_another_round(plan, {point.cell for point in plan.points})
    created = plan_config_map(run, grown, IMAGE, DIGEST)
    assert (
        created["metadata"]["name"]
        == plan_name("demo", 1)
        != plan_config_map(run, plan, IMAGE, DIGEST)["metadata"]["name"]
    )
    assert Plan.from_json(created["data"][PLAN]) == grown
    jobs = [
        engine_job(run, grown, grown.groups[-1], 1, SETTINGS),
        client_job(run, grown, grown.groups[-1], 1, SETTINGS, engine=PLACE, engine_pod="pod-uid", plan_digest=""),
        report_job(run, grown, SETTINGS, ""),
    ]
    volumes = [volume for job in jobs for volume in job["spec"]["template"]["spec"]["volumes"]]
    mounted = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
    assert mounted == [plan_name("demo", 1)] * (3 if edits is TENSORRT else 2)


@pytest.mark.draws
def test_a_plan_whose_files_exceed_a_config_map_is_refused() -> None:
    large = {**TENSORRT, "spec.engine": {"kind": "tensorrt-llm", "config": {"note": "x" * (PLAN_BYTES_MAX // 3)}}}
    assert plan_config_map(*given({**large, "spec.drafters": []}), IMAGE, DIGEST)["data"]
    with pytest.raises(InvalidSpec, match=f"more than the {PLAN_BYTES_MAX} that fit into a ConfigMap"):
        plan_config_map(*given(large), IMAGE, DIGEST)


def test_every_golden_file_has_a_manifest() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(MANIFESTS)


def test_the_longest_run_name_gives_valid_child_names() -> None:
    assert len(client_name("n" * NAME_MAX, 511, 9_999)) <= 63
    assert len(gate_name("n" * NAME_MAX, "0" * 64)) <= 63
    stateful_set = f"{nodes_name('n' * NAME_MAX, 511, 9)}-0"
    assert len(f"{stateful_set}-0123456789") <= 63, "a label of its pods, controller-revision-hash"


WITHOUT_PODS = (_plan, _service, _service_again, _group, _deadline, _engines_policy, _clients_policy)


@pytest.mark.parametrize("name", [name for name, (render, _) in MANIFESTS.items() if render not in WITHOUT_PODS])
def test_pods_have_no_service_account_token_no_host_network_and_no_secret_on_a_command_line(name: str) -> None:
    render, edits = MANIFESTS[name]
    pod = render(*given(edits))["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"
    assert "hostNetwork" not in pod
    container = pod["containers"][0]
    text = " ".join([*container.get("command", []), *container["args"]])
    assert "AWS" not in text
    assert "KEY" not in text


# What placement.template and placement.client add to pods, and what of a pod they cannot change.


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
