"""The chart's values are in the schema, have a description, and are rejected if invalid. Needs no Helm."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from packaging.version import Version

from specbench_api.spec.store_endpoints import LINK_LOCAL_NETWORKS, METADATA_ADDRESSES

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/specbench"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value of the schema with its path."""
    for name, node in schema["properties"].items():
        if "properties" in node:
            yield from leaves(node, f"{path}{name}.")
        else:
            yield f"{path}{name}", node


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the schema that has fields."""
    yield path, schema
    for name, node in schema["properties"].items():
        if "properties" in node:
            yield from objects(node, f"{path}.{name}")


def keys(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The path of every value of values.yaml, down to the depth of the schema."""
    for name, value in values.items():
        node = schema["properties"].get(name, {})
        if "properties" in node:
            yield from keys(value, node, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_the_default_values_are_valid() -> None:
    assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(VALUES)] == []


def test_every_value_has_a_default_and_a_description() -> None:
    assert {path for path, _ in leaves(SCHEMA)} - {"global"} == set(keys(VALUES, SCHEMA))
    assert [path for path, node in leaves(SCHEMA) if not node.get("description")] == []


def test_no_object_allows_additional_properties() -> None:
    assert [path for path, node in objects(SCHEMA) if node.get("additionalProperties") is not False] == []


def test_the_charts_readme_lists_every_value() -> None:
    page = (CHART / "README.md").read_text()
    assert [path for path, _ in leaves(SCHEMA) if path != "global" and f"| `{path}` |" not in page] == []


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 0},
        {"image": {"repo": "x"}},
        {"image": {"digest": "latest"}},
        {"watchNamespaces": "bench"},
        {"watchNamespaces": ["Not A Name"]},
        {"watchNamespaces": ["a", "a"]},
        {"logLevel": "LOUD"},
        {"workers": 0},
        {"metrics": {"serviceMonitor": {"interval": "often"}}},
        {"crds": {"install": "yes"}},
        {"imagePullSecrets": ["name"]},
        {"clientResources": {"cpu": "many"}},
        {"clientResources": {"cpu": -1}},
        {"networkPolicy": {"blockedAddresses": ["169.254.169.254"]}},
        {"networkPolicy": {"metricsFrom": {}}},
        {"rbac": {"namespaces": ["Not A Name"]}},
        {"fence": {"podLabels": ["sidecar.istio.io/inject"]}},
        {"fence": {"podAnnotations": ["k8s.v1.cni.cncf.io/networks"]}},
        {"fence": {"capabilities": ["SYS_ADMIN"]}},
    ],
    ids=json.dumps,
)
def test_rejects_invalid_values(edit: dict[str, Any]) -> None:
    assert list(Draft7Validator(SCHEMA).iter_errors(edit))


def test_the_network_policies_block_what_the_operator_refuses_for_an_s3_endpoint() -> None:
    blocked = VALUES["networkPolicy"]["blockedAddresses"]
    addresses = [ip_network(address) for address in METADATA_ADDRESSES]
    link_local = [ip_network(cidr) for cidr in LINK_LOCAL_NETWORKS]
    others = [each for each in addresses if not any(each.network_address in network for network in link_local)]
    assert sorted(blocked) == sorted(map(str, [*link_local, *others]))


def test_the_chart_and_app_versions_match_the_next_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    next_release = Version(version["raw-options"]["fallback_version"]).base_version
    assert chart["version"] == chart["appVersion"] == next_release


def test_the_description_of_the_alerts_names_all_of_them() -> None:
    template = (CHART / "templates/prometheusrule.yaml").read_text(encoding="utf-8")
    described = SCHEMA["properties"]["metrics"]["properties"]["prometheusRule"]["description"]
    assert re.findall(r"- alert: (\w+)", template) == re.findall(r"Specbench\w+", described)
