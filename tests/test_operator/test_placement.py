"""Scheduling of engines (GPUs, claims, caches, the node of the last launch) and the NetworkPolicies of a run."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address, ip_network
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
from specbench_operator.errors import Stop
from specbench_operator.render.client_jobs import client_job, report_job
from specbench_operator.render.engine_job import engine_job
from specbench_operator.render.engine_pod import affinity
from specbench_operator.render.network_policies import network_policies
from specbench_operator.run.launches.children import serving_nodes
from specbench_operator.settings import NetworkPolicySettings, OperatorSettings
from specbench_operator.state.objects import ChildKey, ObjectRef, Pod, fulfils
from specbench_operator.state.run import parsed_run
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.operator_builders import NOON, OLDER_UID, SETTINGS, UID, operator_run
from specbench_testing.resources import edit

TOKEN = {"spec.model.tokenSecretRef": {"name": "hub", "key": "token"}}
CACHE = {"spec.placement": {"modelCache": {"claimName": "cache"}}}
FILLED_CACHE = {"spec.placement": {"modelCache": {"claimName": "cache", "fill": True}}}


def engine(edits: dict[str, Any]) -> Any:
    run = parsed_run(operator_run(edits))
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


def test_devices_that_are_not_given_follow_from_the_engine() -> None:
    split = {"spec.engine": {"kind": "vllm", "tensorParallelSize": 4}, "spec.placement": {}}
    assert engine(split)["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_a_claim_for_another_device_is_added_to_device_plugin_gpus() -> None:
    resources = engine({"spec.placement": {"gpus": 4, "resourceClaimTemplateName": "imex"}})["containers"][0]
    gpus = {"nvidia.com/gpu": "4"}
    assert resources["resources"] == {"requests": gpus, "limits": gpus, "claims": [{"name": "devices"}]}


def test_only_engine_and_client_reference_the_token_secret() -> None:
    run = parse_run(operator_run(TOKEN))
    plan = expand(run)
    (row,) = [row for row in engine(TOKEN)["containers"][0]["env"] if row["name"] == "HF_TOKEN"]
    assert row == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert "hub" not in plan.to_json()
    assert "tokenSecretRef" not in plan.to_json()
    client = client_job(
        run,
        plan,
        plan.groups[0],
        0,
        SETTINGS,
        engine=HostFacts(unknown_reason="it was not seen"),
        engine_pod="pod",
        plan_digest="",
    )
    assert row in client["spec"]["template"]["spec"]["containers"][0]["env"], "prompts and tokenizers may be gated too"
    assert "HF_TOKEN" not in json.dumps(report_job(run, plan, SETTINGS, "")), "a report downloads nothing from a hub"


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


# Nodes.


def test_the_second_arm_prefers_the_node_of_the_first() -> None:
    world = launched()
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


BLOCKED = ("169.254.0.0/16", "100.100.100.200/32", "fe80::/10", "fd00:ec2::254/128")
NETWORK = NetworkPolicySettings(BLOCKED)
ENV = {"SPECBENCH_CLIENT_IMAGE": "x", "SPECBENCH_LEASE": "team/specbench"}


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: a pod of the run's namespace or of another, or an address outside the cluster."""

    labels: Mapping[str, str] = field(default_factory=dict)
    same_namespace: bool = True
    address: str = ""


def peer_of(role: str, uid: str = UID) -> Peer:
    return Peer({"specbench.io/role": role, "specbench.io/run-uid": uid})


def selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items()
    rows = selector.get("matchExpressions", [])
    assert {row["operator"] for row in rows} <= {"In"}
    return wanted <= labels.items() and all(labels.get(row["key"]) in row["values"] for row in rows)


def matches(rule: Mapping[str, Any], peer: Peer) -> bool:
    """One row of `from` or `to`."""
    if "ipBlock" in rule:
        block = rule["ipBlock"]
        return (
            bool(peer.address)
            and contains(block["cidr"], peer)
            and not any(contains(cidr, peer) for cidr in block.get("except", []))
        )
    if peer.address:
        return False
    in_namespace = rule["namespaceSelector"] == {} if "namespaceSelector" in rule else peer.same_namespace
    return in_namespace and selected(rule.get("podSelector", {}), peer.labels)


def contains(cidr: str, peer: Peer) -> bool:
    address, network = ip_address(peer.address), ip_network(cidr)
    return address.version == network.version and address in network


def allowed(  # noqa: PLR0917 -- the rule is five
    direction: str, of: Peer, peer: Peer, port: int, settings: NetworkPolicySettings, nodes: int = 1
) -> bool:
    """Whether the policies of the run allow the connection. Pods that no policy selects are not isolated."""
    run = parse_run(operator_run({"spec.placement": {"nodes": nodes}, "spec.engine": {"kind": "vllm"}}))
    specs = [policy["spec"] for policy in network_policies(run, settings)]
    isolating = [spec for spec in specs if selected(spec["podSelector"], of.labels)]
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in isolating)
    key = "from" if direction == "ingress" else "to"
    rules = [rule for spec in isolating for rule in spec[direction]]
    return not isolating or any(
        ("ports" not in rule or port in [row["port"] for row in rule["ports"]])
        and (key not in rule or any(matches(row, peer) for row in rule[key]))
        for rule in rules
    )


PROMETHEUS = Peer({"app": "prometheus"}, same_namespace=False)


@pytest.mark.parametrize(
    ("peer", "nodes", "settings", "expected"),
    [
        (peer_of("client"), 1, NETWORK, True),
        (peer_of("client", OLDER_UID), 1, NETWORK, False),
        (peer_of("report"), 1, NETWORK, False),
        (peer_of("engine"), 1, NETWORK, False),
        (peer_of("engine"), 2, NETWORK, True),
        (peer_of("engine", OLDER_UID), 2, NETWORK, False),
        (Peer({"app": "curl"}), 1, NETWORK, False),
        (Peer(address="10.0.0.7"), 1, NETWORK, False),
        (PROMETHEUS, 1, NETWORK, False),
        (PROMETHEUS, 1, replace(NETWORK, engine_from=({"namespaceSelector": {}, "podSelector": {}},)), True),
    ],
)
def test_only_clients_of_the_same_run_reach_an_engine(
    peer: Peer, nodes: int, settings: NetworkPolicySettings, *, expected: bool
) -> None:
    assert allowed("ingress", peer_of("engine"), peer, 8000, settings, nodes) is expected


@pytest.mark.parametrize("role", ["client", "report", "gate"])
@pytest.mark.parametrize("peer", [peer_of("engine"), peer_of("client"), Peer(address="10.0.0.7")], ids=str)
def test_nothing_connects_to_clients(role: str, peer: Peer) -> None:
    assert not allowed("ingress", peer_of(role), peer, 8000, NETWORK)


@pytest.mark.parametrize("role", ["engine", "client", "report", "gate"])
@pytest.mark.parametrize(
    ("peer", "port", "expected"),
    [
        (Peer(address="169.254.169.254"), 80, False),
        (Peer(address="169.254.20.10"), 53, True),
        (Peer(address="100.100.100.200"), 80, False),
        (Peer(address="fd00:ec2::254"), 80, False),
        (Peer(address="fe80::1"), 80, False),
        (Peer(address="10.0.0.7"), 443, True),
        (Peer(address="52.216.0.1"), 443, True),
        (Peer(address="2001:db8::1"), 443, True),
        (Peer({"app": "minio"}, same_namespace=False), 9000, True),
    ],
    ids=str,
)
def test_no_pod_of_a_run_reaches_a_blocked_address(role: str, peer: Peer, port: int, *, expected: bool) -> None:
    assert allowed("egress", peer_of(role), peer, port, NETWORK) is expected


def test_the_admin_can_allow_further_destinations() -> None:
    metadata_server = ({"to": [{"ipBlock": {"cidr": "169.254.169.252/32"}}]},)
    peer = Peer(address="169.254.169.252")
    assert not allowed("egress", peer_of("client"), peer, 988, NETWORK)
    assert allowed("egress", peer_of("client"), peer, 988, replace(NETWORK, egress=metadata_server))


def names(applied: Iterable[Mapping[str, Any]]) -> set[str]:
    return {row["metadata"]["name"] for row in applied if row["kind"] == "NetworkPolicy"}


def test_the_policies_are_created_before_the_first_engine_and_restored_if_deleted() -> None:
    world = ClusterWorld(settings=replace(SETTINGS, network_policies=NETWORK))
    applied = world.reconcile().apply
    kinds = [row["kind"] for row in applied]
    assert kinds.index("Job") > max(at for at, kind in enumerate(kinds) if kind == "NetworkPolicy")
    assert names(applied) == {"demo-engines", "demo-clients"}
    assert names(world.reconcile().apply) == set()
    del world.objects["NetworkPolicy", "demo-clients"]
    assert names(world.reconcile().apply) == {"demo-clients"}


def test_without_the_setting_there_are_no_policies() -> None:
    assert names(ClusterWorld().reconcile().apply) == set()


def test_the_settings_are_parsed_from_the_charts_json() -> None:
    text = '{"blockedAddresses": ["169.254.0.0/16"], "engineFrom": [{"namespaceSelector": {}}], "runEgress": [{}]}'
    settings = OperatorSettings.from_env({**ENV, "SPECBENCH_NETWORK_POLICIES": text})
    assert settings.network_policies == NetworkPolicySettings(("169.254.0.0/16",), ({"namespaceSelector": {}},), ({},))
    empty = OperatorSettings.from_env({**ENV, "SPECBENCH_NETWORK_POLICIES": "{}"})
    assert empty.network_policies == NetworkPolicySettings()
    assert OperatorSettings.from_env(ENV).network_policies is None


@pytest.mark.parametrize("text", ["x", "[]", '{"engines": []}', '{"blockedAddresses": "169.254.0.0/16"}'])
def test_invalid_settings_are_rejected_by_name(text: str) -> None:
    with pytest.raises(Stop, match="SPECBENCH_NETWORK_POLICIES"):
        OperatorSettings.from_env({**ENV, "SPECBENCH_NETWORK_POLICIES": text})


# Children that somebody edited.


WITH_POLICIES = replace(SETTINGS, network_policies=NetworkPolicySettings())


@pytest.mark.parametrize(
    ("kind", "name", "edits"),
    [
        ("Service", "demo-g0-0", {"selector": {"app": "mine"}}),
        ("Service", "demo-g0-0", {"selector.more": "x"}),
        ("Service", "demo-g0-0", {"ports": []}),
        ("NetworkPolicy", "demo-engines", {"ingress": [{}]}),
        ("NetworkPolicy", "demo-engines", {"podSelector.matchLabels.more": "x"}),
        ("NetworkPolicy", "demo-clients", {"policyTypes": ["Ingress"]}),
    ],
)
def test_an_edited_child_is_repaired(kind: str, name: str, edits: dict[str, Any]) -> None:
    world = launched(settings=WITH_POLICIES)
    wanted = world.objects[kind, name]
    edited: dict[str, Any] = copy.deepcopy(dict(wanted.spec or {}))
    for path, value in edits.items():
        edit(edited, path, value)
    assert edited != wanted.spec
    world.objects[kind, name] = replace(wanted, spec=edited)
    world.settle()
    assert world.objects[kind, name] == wanted


@pytest.mark.parametrize(
    ("found", "wanted", "fulfilled"),
    [
        ({"ports": [{"port": 1, "protocol": "TCP"}], "clusterIP": "10.0.0.1"}, {"ports": [{"port": 1}]}, True),
        ({"ports": [{"port": 2}]}, {"ports": [{"port": 1}]}, False),
        ({"ports": [{"port": 1}, {"port": 2}]}, {"ports": [{"port": 1}]}, False),
        ({"selector": {"a": "b", "c": "d"}}, {"selector": {"a": "b"}}, False),
        ({"podSelector": {}}, {"podSelector": {}, "ingress": []}, True),
        ({"ingress": [{}]}, {"ingress": []}, False),
        ({}, {"ports": [{"port": 1}]}, False),
    ],
)
def test_default_values_of_the_api_server_are_no_edits(found: Any, wanted: Any, fulfilled: bool) -> None:
    assert fulfils(found, wanted) == fulfilled
