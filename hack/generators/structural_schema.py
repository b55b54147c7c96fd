"""Converts a Pydantic model into the structural schema of a CustomResourceDefinition (a subset of OpenAPI v3).

Pydantic produces JSON Schema 2020-12, the API server accepts a strict subset of OpenAPI with its own extensions. This
module rewrites each keyword, and raises an error for one that it does not know: the API server would at best reject it,
and at worst silently prune it.

    $ref                         inlined; the field's description precedes what that of its class adds
    anyOf [X, null]              X: the API server treats null as unset
    const                        an enum with one value
    exclusiveMinimum: 0          minimum: 0, exclusiveMinimum: true
    title                        dropped
    additionalProperties: false  dropped: the API server prunes unknown fields; kubectl and our models reject them
    a list                       list-type set (uniqueItems), map (keys from the model), or atomic
    IntOrString                  x-kubernetes-int-or-string without a type
    PreserveUnknown values       kept: any JSON, which CEL rules cannot read
    default of a nested model    the difference to that model's own defaults, mostly {}; the server fills in the rest
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from generators.docstrings import documented, reflowed
from specbench_api.api_model import ANYTHING, INT_OR_STRING, ApiModel, ValidationRule
from specbench_api.errors import NotStructural

Schema = dict[str, Any]

MAP_KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"
VALIDATIONS = "x-kubernetes-validations"

_KEPT = (
    "description", "type", "format", "enum", "default", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties", "minimum", "maximum", "required", MAP_KEYS, VALIDATIONS, INT_OR_STRING,
)  # fmt: skip
_REWRITTEN = ("const", "exclusiveMinimum", "exclusiveMaximum", "items", "properties", "additionalProperties")
_DROPPED = ("title", "uniqueItems")
_ORDER = (
    "description", "type", INT_OR_STRING, "format", "enum", "default", "pattern", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
    LIST_TYPE, MAP_KEYS, "required", "items", "properties", "additionalProperties", VALIDATIONS,
)  # fmt: skip


def structural(model: type[BaseModel], *, observed: bool = False) -> Schema:
    """Return the schema of a model.

    `observed`: a status, which has no defaults, and no enums: an operator of another version, as during an upgrade, may
    write values that this definition does not know, and the API server would refuse its whole status.
    """
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    rewriting = _Rewriting(schema.pop("$defs", {}), observed)
    return rewriting.rewrite(schema, model.__name__)


def validations(rules: tuple[ValidationRule, ...]) -> list[Schema]:
    """Return CEL rules in the API server's format."""
    return [{"rule": rule.rule, "message": rule.message} for rule in rules]


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, extended with descriptions from docstrings, the models' CEL rules and minimal defaults."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        rendered = super().model_schema(schema)
        cls = schema["cls"]
        for name, text in described_fields(cls).items():
            rendered["properties"][name]["description"] = text
        if issubclass(cls, ApiModel) and cls.rules:
            rendered[VALIDATIONS] = validations(cls.rules)
        return rendered

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return super().encode_default(dft)


def described_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field, by its serialised name. A model that was made at run time has none."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, ApiModel):
            texts |= documented(base)
    return {str(field.alias): texts[name] for name, field in model.model_fields.items() if name in texts}


@dataclass(frozen=True)
class _Rewriting:
    """One pass over a document: its definitions, and whether it is a status."""

    definitions: Mapping[str, Schema]
    observed: bool

    def rewrite(self, node: Schema, where: str) -> Schema:
        """Return the node, rewritten recursively. Raises NotStructural with the path `where`."""
        found = self._resolved(node, where)
        if found == ANYTHING:
            return found
        unknown = sorted(set(found) - {*_KEPT, *_REWRITTEN, *_DROPPED})
        if unknown:
            raise NotStructural(f"{where}: {', '.join(unknown)} cannot be expressed in a CustomResourceDefinition")
        if "type" not in found and INT_OR_STRING not in found:
            raise NotStructural(f"{where}: a structural schema needs a type everywhere")
        done = {word: found[word] for word in _KEPT if word in found}
        if self.observed or done.get("default", "") is None:
            done.pop("default", None)
        if "const" in found:
            done["enum"] = [found["const"]]
        if self.observed:
            done.pop("enum", None)
        if "description" in done:
            done["description"] = reflowed(done["description"])
        done |= _exclusive(found, "Minimum") | _exclusive(found, "Maximum")
        done |= self._list(found, where) | self._object(found, where)
        return {word: done[word] for word in _ORDER if word in done}

    def _resolved(self, node: Schema, where: str) -> Schema:
        """Return the node without `$ref` and without its optional null."""
        if "anyOf" in node:
            choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
            if len(choices) != 1:
                raise NotStructural(
                    f"{where}: a union cannot be expressed in a CustomResourceDefinition; use two fields"
                )
            return self._resolved(_over(choices[0], node, "anyOf"), where)
        if "$ref" not in node:
            return node
        target = self.definitions[node["$ref"].removeprefix("#/$defs/")]
        return self._resolved(_over(target, node, "$ref"), where)

    def _list(self, found: Schema, where: str) -> Schema:
        if found.get("type") != "array":
            return {}
        items = self.rewrite(found.get("items", {}), f"{where}[]")
        kind = "map" if MAP_KEYS in found else "set" if found.get("uniqueItems") else "atomic"
        return {LIST_TYPE: kind, "items": items}

    def _object(self, found: Schema, where: str) -> Schema:
        if found.get("type") != "object":
            return {}
        rest = found.get("additionalProperties", False)
        if isinstance(rest, dict):
            return {"additionalProperties": self.rewrite(rest, f"{where}{{}}")}
        if rest is not False:
            raise NotStructural(f"{where}: an object without properties needs the type of its values")
        fields = found.get("properties", {})
        return {"properties": {name: self.rewrite(node, f"{where}.{name}") for name, node in fields.items()}}


def _over(target: Schema, node: Schema, word: str) -> Schema:
    """Return the referenced schema, overridden by the field's keywords, and with what both descriptions say."""
    overrides = {key: value for key, value in node.items() if key != word}
    text = _joined(overrides.get("description", ""), target.get("description", ""), values="enum" in target)
    return {**target, **overrides, **({"description": text} if text else {})}


def _joined(own: str, of_class: str, *, values: bool) -> str:
    """Return the field's description, then what the description of its class adds.

    One paragraph about a class of `values` adds nothing: it says what the type is, and the field what a value means.
    """
    if own and values and "\n\n" not in of_class:
        return own
    if of_class.startswith(own.removesuffix(".")):
        return of_class
    return f"{own}\n\n{of_class}" if of_class else own


def _exclusive(found: Schema, bound: str) -> Schema:
    word = f"exclusive{bound}"
    return {bound.lower(): found[word], word: True} if word in found else {}


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every node with its path, parents first."""
    yield path, schema
    for name, node in schema.get("properties", {}).items():
        yield from walk(node, f"{path}.{name}" if path else name)
    for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if word in schema:
            yield from walk(schema[word], f"{path}{mark}")
