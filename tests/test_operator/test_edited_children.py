"""Services and NetworkPolicies that somebody edited are applied again."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from specbench_operator.settings import NetworkPolicySettings
from specbench_operator.state.objects import fulfils
from specbench_testing.cluster_world import launched
from specbench_testing.operator_builders import SETTINGS
from specbench_testing.resources import edit

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
