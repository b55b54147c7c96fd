"""The structural schema of the resources: its conversion from Pydantic's, its patterns, and that of campaigns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from generators.custom_resources import CAMPAIGN, CustomResource
from generators.custom_resources import RUN as RUN_RESOURCE
from generators.structural_schema import LIST_TYPE, MAP_KEYS, VALIDATIONS, Schema, structural, walk
from specbench_api.api_model import ANYTHING, ApiModel, Distinct, PreserveUnknown, ValidationRule
from specbench_api.errors import InvalidSpec, NotStructural
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign
from specbench_api.spec.campaign_limits import RUNS_MAX
from specbench_api.spec.campaign_status import CampaignPhase, CampaignRunStatus, CampaignStatus, RunCounts
from specbench_api.spec.conditions import Phase
from specbench_api.spec.parsing import parse_resource
from specbench_api.spec.patterns import PATTERN_DESCRIPTIONS
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.status import RunStatus
from specbench_testing.invalid_specs import INVALID_SPECS
from specbench_testing.resources import campaign


class Colour(StrEnum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Wheel(ApiModel):
    """One wheel."""

    rules: ClassVar = (ValidationRule("self.inches > 3", "a wheel needs more than 3 inches"),)

    inches: int = 20
    """Diameter."""
    colour: Colour = Colour.RED
    """Its colour."""


def field_of(annotation: Any, default: Any = ...) -> Schema:
    """The schema of one field of this type."""
    model: type[BaseModel] = create_model("Car", __base__=ApiModel, field=(annotation, default))
    return dict(structural(model)["properties"]["field"])


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        (int, ..., {"type": "integer"}),
        (bool, False, {"type": "boolean", "default": False}),
        (str | None, None, {"type": "string"}),
        (Annotated[str, Field(max_length=3)] | None, None, {"type": "string", "maxLength": 3}),
        (Literal["only"], "only", {"type": "string", "enum": ["only"], "default": "only"}),
        (Literal["a", "b"], ..., {"type": "string", "enum": ["a", "b"]}),
        (Annotated[float, Field(gt=0)], 1, {"type": "number", "default": 1, "minimum": 0, "exclusiveMinimum": True}),
        (Annotated[float, Field(lt=9)], ..., {"type": "number", "maximum": 9, "exclusiveMaximum": True}),
        (list[int], ..., {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "integer"}}),
        (
            Annotated[list[int], Distinct()],
            ...,
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        ),
        (dict[str, str], {}, {"type": "object", "default": {}, "additionalProperties": {"type": "string"}}),
        (
            Annotated[dict[str, Annotated[str, Field(max_length=9)]], Field(max_length=2)],
            ...,
            {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "maxLength": 9}},
        ),
        (
            Annotated[dict[str, Any], Field(max_length=2), PreserveUnknown()],
            {},
            {
                "type": "object",
                "default": {},
                "maxProperties": 2,
                "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True, "nullable": True},
            },
        ),
        (Colour, ..., {"description": "What it looks like.", "type": "string", "enum": ["red", "blue"]}),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_becomes_its_structural_schema(annotation: Any, default: Any, expected: Schema) -> None:
    assert field_of(annotation, default) == expected


def test_a_reference_is_inlined_with_its_rules() -> None:
    assert field_of(Wheel) == {
        "description": "One wheel.",
        "type": "object",
        "properties": {
            "inches": {"description": "Diameter.", "type": "integer", "default": 20},
            "colour": {
                "description": "Its colour.",
                "type": "string",
                "enum": ["red", "blue"],
                "default": "red",
            },
        },
        "x-kubernetes-validations": [{"rule": "self.inches > 3", "message": "a wheel needs more than 3 inches"}],
    }


@pytest.mark.parametrize(("default", "expected"), [(Wheel(), {}), (Wheel(inches=26), {"inches": 26})])
def test_the_default_of_an_object_contains_only_differences(default: Wheel, expected: Schema) -> None:
    assert field_of(Wheel, default)["default"] == expected


def test_a_status_has_neither_defaults_nor_enums() -> None:
    model = create_model("Car", __base__=ApiModel, wheel=(Wheel, Wheel()), count=(int, 4), phase=(Phase, Phase.PENDING))
    assert [path for path, node in walk(structural(model, observed=True)) if {"default", "enum"} & {*node}] == []


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int | str, "a union"),
        (Any, "needs a type"),
        (dict[str, Any], "needs the type of its values"),
        (tuple[int, str], "prefixItems"),
        (Annotated[int, Field(multiple_of=2)], "multipleOf"),
        (Annotated[dict[str, str], Field(json_schema_extra={"x-custom": True})], "x-custom"),
        (list, "needs a type"),
        (dict, "needs the type of its values"),
    ],
    ids=str,
)
def test_rejects_a_schema_that_cannot_be_expressed_with_its_path(annotation: Any, expected: str) -> None:
    with pytest.raises(NotStructural, match=rf"^Car\.field.*{expected}"):
        field_of(annotation)


MODELS = [RunSpec, RunStatus, CampaignSpec, CampaignStatus]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_string_list_and_map_of_the_api_has_a_maximum_size(model: type[BaseModel]) -> None:
    """The API server estimates the cost of CEL rules from these bounds, and they limit the size of an object."""
    bounds = {"string": "maxLength", "array": "maxItems"}
    for path, node in walk(structural(model)):
        bound = "maxProperties" if "additionalProperties" in node else bounds.get(node.get("type", ""))
        assert bound is None or bound in node or "enum" in node, path


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_of_the_api_has_a_description(model: type[BaseModel]) -> None:
    for path, node in walk(structural(model)):
        undescribed = [name for name, field in node.get("properties", {}).items() if not field.get("description")]
        assert undescribed == [], path


BOOLEANS = {
    *("suspend", "readOnly", "runAsNonRoot", "stream", "ignoreEos", "fill", "allowMissing", "requireTrustworthy"),
    *("valid", "passed", "endsRun"),
}
WITHOUT_REQUIRED_FIELD = ("placement.tolerations", "placement.client.tolerations")
LINTER: dict[str, Callable[[str, Schema], bool]] = {
    "nobools": lambda path, node: node.get("type") != "boolean" or path.rpartition(".")[2] in BOOLEANS,
    "nonullable": lambda _, node: not node.get("nullable") or node == ANYTHING,
    "nomaps": lambda _, node: "properties" not in (node.get("additionalProperties") or {}),
    "ssatags": lambda _, node: node.get("type") != "array" or "x-kubernetes-list-type" in node,
    "arrayofstruct": lambda path, node: (
        not node.get("items", {}).get("properties")
        or bool(node["items"].get("required"))
        or path.endswith(WITHOUT_REQUIRED_FIELD)
    ),
    "defaultorrequired": lambda _, node: (
        not any("default" in node["properties"][name] for name in node.get("required", ()))
    ),
    "jsontags": lambda path, _: re.fullmatch(r"([a-z][a-z0-9]*([A-Z][a-z0-9]*)*(\[\]|{})*\.?)*", path) is not None,
    "noreferences": lambda path, _: "eference" not in path,
    "notimestamp": lambda path, _: "timestamp" not in path.lower(),
    "nophase": lambda path, _: not path.lower().endswith("phase") or path in ("phase", "runs[].phase"),
    "nodurations": lambda _, node: node.get("format") != "duration",
}
"""Rules of kube-api-linter: whether a node follows it. generators/custom_resources.py argues the exceptions."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("rule", LINTER)
def test_a_schema_follows_the_rules_of_kube_api_linter(rule: str, model: type[BaseModel]) -> None:
    assert [path for path, node in walk(structural(model)) if not LINTER[rule](path, node)] == []


@pytest.mark.parametrize("resource", [RUN_RESOURCE, CAMPAIGN], ids=lambda resource: resource.name)
def test_the_status_is_a_subresource_with_conditions_by_type(resource: CustomResource) -> None:
    (version,) = resource.definition()["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    conditions = status["properties"]["conditions"]
    assert (version["subresources"], "required" in status) == ({"status": {}}, False)
    assert (conditions[LIST_TYPE], conditions[MAP_KEYS]) == ("map", ["type"])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_rule_reads_a_field_with_values_of_any_type(model: type[BaseModel]) -> None:
    """The API server cannot compile such a rule, and rejects the whole definition."""
    for path, node in walk(structural(model)):
        rules = " ".join(rule["rule"] for rule in node.get("x-kubernetes-validations", ()))
        for name in re.findall(r"self\.(\w+)", rules):
            field = node.get("properties", {}).get(name, {})
            while "items" in field or "additionalProperties" in field:
                field = field.get("items") or field["additionalProperties"]
            assert field != ANYTHING, f"{path}.{name}"


# Every pattern of the resources has a description: no message contains a regular expression.


def patterns(node: Any) -> Iterator[str]:
    """Every pattern in a JSON schema."""
    if isinstance(node, dict):
        if isinstance(pattern := node.get("pattern"), str):
            yield pattern
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from patterns(inner)


def test_every_pattern_has_a_description_and_vice_versa() -> None:
    schema_patterns = {
        found for kind in (SpecBenchRun, SpecBenchCampaign) for found in patterns(kind.model_json_schema())
    }
    assert set(PATTERN_DESCRIPTIONS) == schema_patterns


@pytest.mark.parametrize("pattern", [pattern for pattern, words in PATTERN_DESCRIPTIONS.items() if ": " in words])
def test_the_example_of_a_description_matches_its_pattern(pattern: str) -> None:
    example = PATTERN_DESCRIPTIONS[pattern].rpartition(": ")[2].partition(", ")[0]
    assert re.search(pattern, example)


def test_no_message_contains_a_regular_expression() -> None:
    specs = [row.resource for row in INVALID_SPECS] + [
        campaign({"spec.schedule": "every day"}),
        campaign(name="Bad_Name"),
    ]
    messages = []
    for spec in specs:
        try:
            parse_resource(spec)
        except InvalidSpec as rejected:
            messages.append(str(rejected))
    assert len(messages) > 50
    assert [text for text in messages if "[a-z" in text or "[A-Z" in text or "$'" in text] == []


# The campaign's definition: a run's schema without the immutability rule, and a small status.


SCHEMA = CAMPAIGN.schema()
TEMPLATE = SCHEMA["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
RUN = RUN_RESOURCE.schema()["properties"]["spec"]
ETCD_FRIENDLY_BYTES = 100_000


def test_the_template_has_the_schema_of_a_run_without_the_immutability_rule() -> None:
    assert TEMPLATE["properties"] == RUN["properties"]
    assert TEMPLATE["required"] == RUN["required"]
    dropped = [rule for rule in RUN[VALIDATIONS] if rule not in TEMPLATE[VALIDATIONS]]
    assert [rule["message"][:34] for rule in dropped] == ["what is measured cannot be changed"]
    assert all(rule in RUN[VALIDATIONS] for rule in TEMPLATE[VALIDATIONS])


def test_no_cel_rule_of_a_campaign_uses_old_self_or_untyped_values() -> None:
    rules = [rule["rule"] for _, node in walk(SCHEMA) for rule in node.get(VALIDATIONS, [])]
    assert rules
    assert [rule for rule in rules if "oldSelf" in rule or re.search(r"\.(values|exclude|include)\b", rule)] == []


def test_axis_values_may_be_any_json_and_exclude_and_include_rows_are_open_maps() -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert spec["axes"]["x-kubernetes-list-map-keys"] == ["path"]
    assert spec["axes"]["items"]["properties"]["values"]["items"] == anything
    assert spec["exclude"]["items"]["additionalProperties"] == anything
    assert spec["include"]["items"]["maxProperties"] == spec["axes"]["maxItems"] + 1


@pytest.mark.parametrize("column", CAMPAIGN.columns, ids=lambda column: column["name"])
def test_every_printer_column_shows_an_existing_field_of_the_same_type(column: dict[str, Any]) -> None:
    path = column["jsonPath"]
    if path.startswith(".metadata") or "conditions" in path:
        return
    node: Schema = SCHEMA
    for step in path.strip(".").split("."):
        node = node["properties"][step]
    assert node["type"] == column["type"]


def test_the_names_of_a_campaign() -> None:
    names = CAMPAIGN.definition()["spec"]["names"]
    assert (names["plural"], names["shortNames"], names["categories"]) == (
        "specbenchcampaigns", ["sbc"], ["specbench"],
    )  # fmt: skip


def longest_row(row: int) -> CampaignRunStatus:
    """A row in which every string has its maximum length."""
    texts: dict[str, Any] = {}
    for name, field in CampaignRunStatus.model_fields.items():
        max_length = next((mark.max_length for mark in field.metadata if hasattr(mark, "max_length")), None)
        texts |= {name: "x" * max_length} if max_length else {}
    return CampaignRunStatus(**{**texts, "name": f"{row:040d}", "gpu_seconds": 123456.789})


def test_the_largest_status_is_below_100_kb() -> None:
    """Only the rows grow with a campaign; its other strings are few and have a maximum length."""
    rows = [longest_row(row) for row in range(RUNS_MAX)]
    status = CampaignStatus(phase=CampaignPhase.RUNNING, counts=RunCounts(total=RUNS_MAX), runs=rows)
    assert len(status.model_dump_json(by_alias=True, exclude_none=True).encode()) < ETCD_FRIENDLY_BYTES
