"""Converting Pydantic's schema into a structural one; what cannot be expressed is an error."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from generators.structural_schema import Schema, structural, walk
from specbench_api.api_model import ANYTHING, ApiModel, Distinct, PreserveUnknown, ValidationRule
from specbench_api.errors import NotStructural
from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.run import RunSpec
from specbench_api.spec.status import RunStatus


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


def test_a_status_has_no_defaults() -> None:
    model = create_model("Car", __base__=ApiModel, wheel=(Wheel, Wheel()), count=(int, 4))
    assert [path for path, node in walk(structural(model, defaults=False)) if "default" in node] == []


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
