"""Scheduling of engines: GPUs of every vendor, resource claims, caches, tokens, and the node of the last launch."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import expand
from specbench_api.plan.validation import PREFERRED, REQUIRED, TERMS, placement_problems
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.placement import Affinity, PinNode, Placement
from specbench_operator.render.client_jobs import client_job, report_job
from specbench_operator.render.engine_job import engine_job
from specbench_operator.render.engine_pod import affinity
from specbench_operator.run.launches.children import serving_nodes
from specbench_operator.state.objects import ChildKey, ObjectRef, Pod
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import NOON, SETTINGS, UID, operator_run

TOKEN = {"spec.model.tokenSecretRef": {"name": "hub", "key": "token"}}
CACHE = {"spec.placement": {"modelCache": {"claimName": "cache"}}}
FILLED_CACHE = {"spec.placement": {"modelCache": {"claimName": "cache", "fill": True}}}


def engine(edits: dict[str, Any]) -> Any:
    run = parse_run(operator_run(edits))
    plan = expand(run)
    return engine_job(run, plan, plan.groups[0], 0, SETTINGS)["spec"]["template"]["spec"]


def on_node(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu",
     "aws.amazon.com/neuron", "gpu.intel.com/i915"],
)  # fmt: skip
def test_devices_are_requested_under_their_resource_name(name: str) -> None:
    resources = engine({"spec.placement": {"gpus": 3, "gpuResourceName": name}})["containers"][0]["resources"]
    assert resources == {"requests": {name: "3"}, "limits": {name: "3"}}


def test_a_resource_claim_replaces_device_plugin_gpus() -> None:
    pod = engine({"spec.placement": {"claimedGpus": 2, "resourceClaimTemplateName": "two-gpus"}})
    assert pod["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": "two-gpus"}]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "devices"}]}


def test_a_claim_for_another_device_is_added_to_device_plugin_gpus() -> None:
    resources = engine({"spec.placement": {"gpus": 4, "resourceClaimTemplateName": "imex"}})["containers"][0]
    gpus = {"nvidia.com/gpu": "4"}
    assert resources["resources"] == {"requests": gpus, "limits": gpus, "claims": [{"name": "devices"}]}


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({"gpus": 2}, 2),
        ({"gpus": 7, "gpuResourceName": "nvidia.com/mig-1g.10gb"}, 7),
        ({"claimedGpus": 3, "resourceClaimTemplateName": "three"}, 3),
        ({"gpus": 4, "resourceClaimTemplateName": "imex"}, 4),
    ],
)
def test_gpu_seconds_count_devices_from_any_source(placement: dict[str, Any], gpus: int) -> None:
    world = ClusterWorld(operator_run({"spec.placement": placement}))
    world.settle()
    world.serve()
    world.pass_time(100)
    world.reconcile()
    assert world.status.gpu_seconds_held == pytest.approx(gpus * 100, abs=gpus)


def test_only_engine_and_client_reference_the_token_secret() -> None:
    run = parse_run(operator_run(TOKEN))
    plan = expand(run)
    (row,) = [row for row in engine(TOKEN)["containers"][0]["env"] if row["name"] == "HF_TOKEN"]
    assert row == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert "hub" not in plan.to_json()
    assert "tokenSecretRef" not in plan.to_json()
    client = client_job(
        run, plan, plan.groups[0], 0, SETTINGS, engine=HostFacts(unknown_reason="it was not seen"), engine_pod="pod"
    )
    assert row in client["spec"]["template"]["spec"]["containers"][0]["env"], "prompts and tokenizers may be gated too"
    assert "HF_TOKEN" not in json.dumps(report_job(run, SETTINGS)), "a report downloads nothing from a hub"


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_TOKEN"])
def test_a_plain_text_token_is_refused_because_it_would_be_stored(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.model\.tokenSecretRef") as refused:
        expand(parse_run(operator_run({"spec.engine.env": [{"name": name, "value": "hf_secret"}]})))
    assert "hf_secret" not in str(refused.value)


def environment_of(pod: Any) -> dict[str, str]:
    return {row["name"]: row["value"] for row in pod["containers"][0]["env"]}


def test_a_cache_to_fill_is_writable_and_the_home_of_hub_libraries() -> None:
    pod = engine(FILLED_CACHE)
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "cache"]
    names = environment_of(pod)
    assert names["HF_HOME"] == mount["mountPath"]
    assert "HF_HUB_OFFLINE" not in names
    assert "readOnly" not in mount
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}} in pod["volumes"]


def test_a_cache_is_read_only_by_default_and_used_without_the_hub() -> None:
    pod = engine(CACHE)
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "cache"]
    names = environment_of(pod)
    assert mount["readOnly"] is True
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "cache", "readOnly": True}} in pod["volumes"]
    assert names["HF_HUB_CACHE"] == f"{environment_of(engine(FILLED_CACHE))['HF_HOME']}/hub", (
        "where a filling run stores"
    )
    assert names["HF_HUB_OFFLINE"] == "1"
    assert names["HF_HOME"].startswith("/tmp/"), "libraries also write files that are no models"


@pytest.mark.parametrize("name", ["HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"])
def test_a_cache_that_is_set_twice_is_refused(name: str) -> None:
    twice = {**CACHE, "spec.engine.env": [{"name": name, "value": "/x"}]}
    with pytest.raises(InvalidSpec, match=rf"spec.engine.env\[0\]: {name} is also set by spec.placement.modelCache"):
        expand(parse_run(operator_run(twice)))


@pytest.mark.parametrize("fill", [True, False])
def test_llama_cpp_stores_downloads_in_the_same_cache(fill: bool) -> None:
    cache = FILLED_CACHE if fill else CACHE
    names = environment_of(engine({**cache, "spec.engine": {"kind": "llama-cpp", "version": "b6000"}}))
    assert names["LLAMA_CACHE"] == "/var/cache/specbench/hub/llama.cpp"
    assert ("LLAMA_ARG_OFFLINE" in names) is not fill


def test_every_pod_of_a_run_has_the_same_image_pull_secrets() -> None:
    run = parse_run(operator_run({"spec.placement": {"imagePullSecrets": [{"name": "registry"}, {"name": "other"}]}}))
    plan = expand(run)
    group = plan.groups[0]
    engines = engine_job(run, plan, group, 0, SETTINGS)
    clients = client_job(
        run, plan, group, 0, SETTINGS, engine=HostFacts(unknown_reason="it was not seen"), engine_pod="pod"
    )
    for job in (engines, clients, report_job(run, SETTINGS)):
        assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]


# Nodes.


def test_the_second_arm_prefers_the_node_of_the_first() -> None:
    world = ClusterWorld()
    world.settle()
    assert "affinity" not in _last_engine(world)
    world.serve()
    world.change_pod(world.engine(), node="gpu-7")
    world.reconcile()
    assert world.status.engine_nodes == ["gpu-7"]
    world.finish_client()
    applied = []
    for _ in range(5):
        applied += [manifest for manifest in world.reconcile().apply if manifest["kind"] == "Job"]
        world.reap()
    assert world.engine(1) in [manifest["metadata"]["name"] for manifest in applied]
    pod = applied[-1]["spec"]["template"]["spec"]
    preferred = pod["affinity"]["nodeAffinity"][PREFERRED]
    assert preferred == [{"weight": 100, "preference": on_node("gpu-7")}]


def _last_engine(world: ClusterWorld) -> Any:
    run = parse_run(world.run)
    return engine_job(run, world.plan, world.plan.groups[0], 0, SETTINGS, tuple(world.status.engine_nodes))["spec"][
        "template"
    ]["spec"]


def pod(name: str, group: int, node: str, *, ready: bool, age_s: float = 0) -> Pod:
    created = NOON - timedelta(seconds=age_s)
    place = ChildKey("engine", group, 0)
    return Pod(ObjectRef("Pod", name, name), UID, place, "j", "j", "Running", created, ready=ready, node=node)


def test_nodes_without_a_ready_engine_are_not_preferred() -> None:
    assert serving_nodes([pod("a", 1, "bad", ready=False)], ["good"]) == ("good",)
    assert serving_nodes([pod("a", 1, "bad", ready=False), pod("b", 0, "good", ready=True, age_s=9)], []) == ("good",)
    assert serving_nodes([pod("a", 1, "new", ready=True), pod("b", 0, "old", ready=True, age_s=9)], ["x"]) == ("new",)
    client = replace(pod("c", 1, "cpu", ready=True), key=ChildKey("client", 1, 0))
    assert serving_nodes([client], []) == ()


def placement(pin: PinNode, requested: dict[str, Any] | None = None) -> Placement:
    return Placement(pin_node=pin, affinity=Affinity(node_affinity=requested) if requested else None)


def test_no_affinity_is_added_when_pinning_is_off_or_no_node_is_known() -> None:
    assert affinity(placement(PinNode.NONE), ("a",)) == {}
    assert affinity(placement(PinNode.REQUIRE), ()) == {}


def test_required_pinning_combines_the_runs_terms_with_the_node() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    requested = {REQUIRED: {TERMS: [zone]}}
    assert affinity(placement(PinNode.REQUIRE, requested), ("a",)) == {
        "nodeAffinity": {REQUIRED: {TERMS: [{**zone, **on_node("a")}]}}
    }
    assert affinity(placement(PinNode.REQUIRE), ("a", "b")) == {
        "nodeAffinity": {REQUIRED: {TERMS: [on_node("a"), on_node("b")]}}
    }


TERM = st.fixed_dictionaries({}, optional={"matchExpressions": st.just([{"key": "k", "operator": "Exists"}])})


@settings(max_examples=50)
@given(
    terms=st.lists(TERM, max_size=3),
    preferred=st.lists(st.just({"weight": 1}), max_size=3),
    near=st.lists(st.sampled_from(["a", "b", "c"]), unique=True),
    pin=st.sampled_from(PinNode),
)
def test_pinning_preserves_the_runs_own_affinity(
    terms: list[dict[str, Any]], preferred: list[dict[str, Any]], near: list[str], pin: PinNode
) -> None:
    requested: dict[str, Any] = {REQUIRED: {TERMS: terms}} if terms else {}
    requested |= {PREFERRED: preferred} if preferred else {}
    found = affinity(placement(pin, requested), near).get("nodeAffinity", {})
    assert found.get(PREFERRED, [])[: len(preferred)] == preferred
    for term in found.get(REQUIRED, {}).get(TERMS, []):
        assert {key: value for key, value in term.items() if key != "matchFields"} in (terms or [{}])
    if pin is PinNode.NONE or not near:
        assert found == requested


@pytest.mark.parametrize(
    ("requested", "path"),
    [
        ({"nodeAffinity": {"required": {}}}, "nodeAffinity.required"),
        ({"nodeAffinity": {REQUIRED: [{}]}}, f"nodeAffinity.{REQUIRED}"),
        ({"nodeAffinity": {REQUIRED: {TERMS: "x"}}}, f"nodeAffinity.{REQUIRED}"),
        ({"nodeAffinity": {PREFERRED: {}}}, f"nodeAffinity.{PREFERRED}"),
        ({"podAffinity": {REQUIRED: {}}}, f"podAffinity.{REQUIRED}"),
        ({"podAntiAffinity": {REQUIRED: [None]}}, f"podAntiAffinity.{REQUIRED}"),
        ({"podAntiAffinity": {PREFERRED: [{"x": "y" * 20_000}]}}, "spec.placement.affinity"),
    ],
)
def test_a_malformed_affinity_is_refused_with_its_path(requested: dict[str, Any], path: str) -> None:
    (problem,) = placement_problems(parse_run(operator_run({"spec.placement": {"affinity": requested}})).spec)
    assert path in problem.path
    assert problem.remedy
