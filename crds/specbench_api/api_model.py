"""The base class of every model that is serialised: to YAML, the API server, S3 or a command line.

Field names are camelCase when serialised and snake_case in Python. Models are frozen, so that a plan cannot change
while it is executed. Unknown keys are rejected: silently dropping a mistyped field would measure something else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    InitErrorDetails,
    PydanticCustomError,
    SchemaValidator,
    core_schema,
    from_json,
)


class Names(StrEnum):
    """Values that are names of things which are named elsewhere: engines, methods, datasets, figures, facts.

    They are spelled as there. The values of every other enum are CamelCase, as in the Kubernetes API.
    """


def in_words(value: StrEnum) -> str:
    """Return a CamelCase value as text for people: `TooFewRepeats` is `too few repeats`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", value).lower()


@dataclass(frozen=True)
class ValidationRule:
    """A CEL rule that the API server evaluates on this object, with the message shown when it is violated."""

    rule: str
    message: str
    holds: Callable[[Any], bool] | None = None
    """The same rule for `RuledModel`. None: only the API server can evaluate it, or the fields' types imply it."""


def cel_list(words: Iterable[str]) -> str:
    """Return words as a list in CEL, for a rule such as `self.source in ['a', 'b']`."""
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


@dataclass(frozen=True)
class KeyedBy:
    """Marks a list whose rows are identified by one field. A list-type map on the API server; checked here as well."""

    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._reject_duplicates, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "x-kubernetes-list-map-keys": [to_camel(self.field)]}

    def _reject_duplicates(self, rows: list[Any]) -> list[Any]:
        duplicate = _first_duplicate([getattr(row, self.field) for row in rows])
        if duplicate is not None:
            raise ValueError(f"the {to_camel(self.field)} {duplicate!r} is used twice: give each row its own")
        return rows


@dataclass(frozen=True)
class Distinct:
    """Marks a list of scalars without duplicates. A list-type set on the API server; checked here as well."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._reject_duplicates, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "uniqueItems": True}

    @staticmethod
    def _reject_duplicates(values: list[Any]) -> list[Any]:
        duplicate = _first_duplicate(values)
        if duplicate is not None:
            raise ValueError(f"{duplicate!r} is listed twice: remove one of them")
        return values


ANYTHING = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
"""The schema of a field that accepts any JSON value."""


@dataclass(frozen=True)
class PreserveUnknown:
    """Marks a field whose innermost values may be any JSON value, null included.

    It applies to the values of a map, the rows of a list, or the values of a list of maps. Such a field is rendered as
    a map and not as an open object: the API server compares open objects only by the keys of one side, so a changed key
    would pass the rule that makes the spec immutable. The values are nullable, because the API server would otherwise
    drop a null that is meant for the engine. Values that JSON cannot represent (NaN, infinity) are rejected.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._require_json, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _opened(handler(schema))

    @staticmethod
    def _require_json(values: Any) -> Any:
        json.dumps(values, allow_nan=False)  # raises ValueError, which pydantic turns into a validation error
        return values


INT_OR_STRING = "x-kubernetes-int-or-string"


@dataclass(frozen=True)
class IntOrString:
    """Marks a text that may also be written as a whole number that is not negative, as Kubernetes quantities may."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_text, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        text = {word: value for word, value in handler(schema).items() if word != "type"}
        return {**text, INT_OR_STRING: True, "minimum": 0}

    @staticmethod
    def _as_text(value: Any) -> Any:
        if isinstance(value, float):
            raise ValueError(f'{value} is neither text nor a whole number: quote it: "{value}"')  # noqa: TRY004 - pydantic's
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _opened(node: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema with its innermost values replaced by "anything"."""
    match node.get("type"):
        case "array":
            return {**node, "items": _opened(node["items"])}
        case "object":
            return {**node, "additionalProperties": dict(ANYTHING)}
    return dict(ANYTHING)


def _first_duplicate(values: list[Any]) -> Any:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


UNTRUSTED_VALUES_MAX = 250_000
"""Maximum number of values in a JSON document that somebody else may have written."""


def _bounded(schema: Any) -> Any:
    """The core schema with at most one error per collection, none for unknown keys, and finite numbers only.

    pydantic otherwise collects an error for every invalid value, which takes about 200 times the size of the document.
    """
    if isinstance(schema, list):
        return [_bounded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bounded = {key: _bounded(value) for key, value in schema.items()}
    if schema.get("type") in ("list", "dict", "tuple", "set"):
        bounded["fail_fast"] = True
    if schema.get("type") == "float":
        bounded["allow_inf_nan"] = False  # from_json also makes infinity from 1e999
    if schema.get("extra_behavior") == "forbid":
        bounded["extra_behavior"] = "ignore"
    if schema.get("extra_fields_behavior") == "forbid":
        bounded["extra_fields_behavior"] = "ignore"
    return bounded


@cache
def _untrusted_validator(model: type[BaseModel]) -> SchemaValidator:
    model.model_rebuild()
    return SchemaValidator(_bounded(model.__pydantic_core_schema__), _use_prebuilt=False)


class ApiModel(BaseModel):
    """Base class of all models. `rules` become `x-kubernetes-validations`, which the API server evaluates."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="null",
        defer_build=True,  # until the first use: a program uses few of the models that it imports
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = ()
    remedies: ClassVar[Mapping[str, str]] = {}
    """What to write instead, by name: of fields that users expect here, or whose own message does not show it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON-ready data in camelCase, without the fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json(self) -> str:
        """Return the model as one JSON document, as it is stored in S3."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse what `to_json` wrote. Raises pydantic.ValidationError, for NaN and infinity as well."""
        model = cls.model_validate_json(text)
        try:
            json.loads(text, parse_constant=_require_finite, parse_float=_require_finite)
        except ValueError as error:
            details = InitErrorDetails(type=PydanticCustomError("finite_number", "{why}", {"why": str(error)}), input=0)
            raise ValidationError.from_exception_data(cls.__name__, [details]) from error
        return model

    @classmethod
    def from_untrusted_json(cls, data: bytes) -> Self:
        """Parse a document that somebody else may have written, with bounded memory. Raises ValueError.

        Unknown keys are ignored. Only the first error is reported, without the value. The caller limits the size of the
        document.
        """
        # Every value follows one of these bytes, so a document cannot have more values than this.
        count = 1 + sum(data.count(mark) for mark in (b",", b"[", b"{"))
        if count > UNTRUSTED_VALUES_MAX:
            raise ValueError(f"the document has up to {count} values, and {UNTRUSTED_VALUES_MAX} are allowed")
        try:
            parsed: Self = _untrusted_validator(cls).validate_python(from_json(data, allow_inf_nan=False))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}") from error
        return parsed

    def unknown_field(self, data: bytes) -> str | None:
        """Return the path of the first field that the document which was parsed has beyond this model; None if none."""
        return next(_unknown_fields(from_json(data), self.to_dict(), ""), None)


def _unknown_fields(written: Any, known: Any, path: str) -> Iterator[str]:
    """Yield the paths of fields that have a value in the one document and another one, or none, in the other."""
    if isinstance(written, dict) and isinstance(known, dict):
        for key, value in written.items():
            yield from _unknown_fields(value, known.get(key), f"{path}.{key}" if path else key)
    elif isinstance(written, list) and isinstance(known, list):
        for index, pair in enumerate(zip(written, known, strict=True)):
            yield from _unknown_fields(*pair, f"{path}[{index}]")
    elif written != known:
        yield path


def _require_finite(number: str) -> float:
    """Return a number of a JSON document; JSON has neither NaN nor infinity, but parsers accept them."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


class RuledModel(ApiModel):
    """Base class of models whose `rules` are also checked in Python, with the same messages as on the API server."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise ValueError(rule.message)
        return self
