"""The one base of every model that crosses a border: YAML, the API server, S3, or a command line.

camelCase outside, snake_case inside; frozen, so that a plan cannot change under the hand that executes it;
unknown keys are refused, because a mistyped field that is dropped is a benchmark of something else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class Rule:
    """A CEL rule that the API server evaluates on this object, and the message that the user reads."""

    rule: str
    message: str


def refuse_broken(rules: Sequence[Rule], holds: Sequence[bool]) -> None:
    """Raise ValueError with the message of the first rule that does not hold: what the API server says of it."""
    for rule, kept in zip(rules, holds, strict=True):
        if not kept:
            raise ValueError(rule.message)


@dataclass(frozen=True)
class KeyedBy:
    """Marks a list whose rows one field tells apart: list-type map on the API server, and the same refusal here."""

    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._refuse_twins, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "x-kubernetes-list-map-keys": [to_camel(self.field)]}

    def _refuse_twins(self, rows: list[Any]) -> list[Any]:
        twin = _first_twin([getattr(row, self.field) for row in rows])
        if twin is not None:
            raise ValueError(f"the {to_camel(self.field)} {twin!r} is used twice: each row needs one of its own")
        return rows


@dataclass(frozen=True)
class Distinct:
    """Marks a list of scalars that holds no value twice: list-type set on the API server, and the same refusal here."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._refuse_twins, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "uniqueItems": True}

    @staticmethod
    def _refuse_twins(values: list[Any]) -> list[Any]:
        twin = _first_twin(values)
        if twin is not None:
            raise ValueError(f"{twin!r} is given twice: leave one of them out")
        return values


ANYTHING = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
"""The schema of a value that may be anything JSON has."""


@dataclass(frozen=True)
class Open:
    """Marks what may be anything JSON has, null too: values of a map, rows of a list, values of a list of maps.

    Rendered as a map and not as an open object: the API server compares open objects by the keys of one side alone,
    so that a field could change its name under the rule that what is measured cannot change. Its values are nullable,
    or the API server would drop a null that an engine was meant to read. What is no number of JSON (NaN) is refused.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._refuse_no_json, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _opened(handler(schema))

    @staticmethod
    def _refuse_no_json(values: Any) -> Any:
        json.dumps(values, allow_nan=False)  # a ValueError is a refusal
        return values


def _opened(node: JsonSchemaValue) -> JsonSchemaValue:
    """The schema with anything in the place of its innermost values."""
    match node.get("type"):
        case "array":
            return {**node, "items": _opened(node["items"])}
        case "object":
            return {**node, "additionalProperties": dict(ANYTHING)}
    return dict(ANYTHING)


def _first_twin(values: list[Any]) -> Any:
    return next((value for index, value in enumerate(values) if value in values[:index]), None)


class ApiModel(BaseModel):
    """Base of all models. `rules` become `x-kubernetes-validations`; python validators say the same."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        ser_json_inf_nan="null",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data in the outside spelling; what is missing is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json(self) -> str:
        """As one JSON document, the way it lies in S3."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(text)
