"""NetworkPolicies of a run: which connections they allow, when they are created, and repair of edited children."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from specbench_api.spec.parsing import parse_run
from specbench_operator.errors import Stop
from specbench_operator.render.network_policies import network_policies
from specbench_operator.settings import NetworkPolicySettings, OperatorSettings
from specbench_operator.state.objects import fulfils
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.operator_builders import OLDER_UID, SETTINGS, UID, operator_run
from specbench_testing.resources import edit

BLOCKED = ("169.254.0.0/16", "100.100.100.200/32", "fe80::/10", "fd00:ec2::254/128")
NETWORK = NetworkPolicySettings(BLOCKED)
ENV = {"SPECBENCH_CLIENT_IMAGE": "x", "SPECBENCH_LEASE": "team/specbench"}


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: a pod of the run's namespace or of another, or an address outside the cluster."""

    labels: Mapping[str, str] = field(default_factory=dict)
    same_namespace: bool = True
    address: str = ""


def pod(role: str, uid: str = UID) -> Peer:
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
        (pod("client"), 1, NETWORK, True),
        (pod("client", OLDER_UID), 1, NETWORK, False),
        (pod("report"), 1, NETWORK, False),
        (pod("engine"), 1, NETWORK, False),
        (pod("engine"), 2, NETWORK, True),
        (pod("engine", OLDER_UID), 2, NETWORK, False),
        (Peer({"app": "curl"}), 1, NETWORK, False),
        (Peer(address="10.0.0.7"), 1, NETWORK, False),
        (PROMETHEUS, 1, NETWORK, False),
        (PROMETHEUS, 1, replace(NETWORK, engine_from=({"namespaceSelector": {}, "podSelector": {}},)), True),
    ],
)
def test_only_clients_of_the_same_run_reach_an_engine(
    peer: Peer, nodes: int, settings: NetworkPolicySettings, *, expected: bool
) -> None:
    assert allowed("ingress", pod("engine"), peer, 8000, settings, nodes) is expected


@pytest.mark.parametrize("role", ["client", "report", "gate"])
@pytest.mark.parametrize("peer", [pod("engine"), pod("client"), Peer(address="10.0.0.7")], ids=str)
def test_nothing_connects_to_clients(role: str, peer: Peer) -> None:
    assert not allowed("ingress", pod(role), peer, 8000, NETWORK)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [(pod("client"), True), (pod("client", OLDER_UID), False), (pod("engine"), False), (pod("report"), False)],
)
def test_several_clients_of_a_run_reach_each_other(peer: Peer, *, expected: bool) -> None:
    run = parse_run(operator_run({"spec.load": {"concurrency": [8], "clients": 2}}))
    clients = list(network_policies(run, NETWORK))[-1]["spec"]
    assert selected(clients["podSelector"], pod("client").labels)
    assert any(matches(row, peer) for rule in clients["ingress"] for row in rule["from"]) is expected


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
    assert allowed("egress", pod(role), peer, port, NETWORK) is expected


def test_the_admin_can_allow_further_destinations() -> None:
    metadata_server = ({"to": [{"ipBlock": {"cidr": "169.254.169.252/32"}}]},)
    peer = Peer(address="169.254.169.252")
    assert not allowed("egress", pod("client"), peer, 988, NETWORK)
    assert allowed("egress", pod("client"), peer, 988, replace(NETWORK, egress=metadata_server))


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
