"""YAML text → SpecBenchRun or SpecBenchCampaign, or every problem found with its path and its remedy.

The very rules of admission: what the CRD's schema and CEL refuse on the API server, these models refuse here.
A test feeds the same bad specs to both.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from yaml.constructor import ConstructorError

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.model import ApiModel, Open
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.forms import FORMS
from specbench_api.spec.run import SpecBenchRun

_MERGE = "tag:yaml.org,2002:merge"
_Resource = TypeVar("_Resource", SpecBenchRun, SpecBenchCampaign)
_SURROGATE = re.compile("[\ud800-\udfff]")
UNNAMED = '"<unicode string>"'
"""What PyYAML calls a text that it was given as a string."""


def read_yaml(text: str, name: str = "(file)") -> dict[str, Any]:
    """The one mapping in a YAML text; `name`: what messages call the text. Raises NotYaml."""
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
        json.dumps(documents, default=str, skipkeys=True)  # an alias to what it stands in has no end
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that is none
        raise NotYaml([Problem(name, "not YAML: " + str(error).replace(UNNAMED, name))]) from error
    except RecursionError as error:
        raise NotYaml([Problem(name, "nested too deep", "one SpecBenchRun or SpecBenchCampaign a file")]) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = f"{len(documents)} documents" if len(documents) != 1 else type(documents[0]).__name__
        raise NotYaml(
            [Problem(name, f"expected one resource, found {found}", "one SpecBenchRun or SpecBenchCampaign a file")]
        )
    return documents[0]


def parse_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """A resource as data → the model. Raises InvalidSpec with every problem."""
    return _parsed(resource, SpecBenchRun)


def parse_campaign(resource: Mapping[str, Any]) -> SpecBenchCampaign:
    """A resource as data → the model. Raises InvalidSpec with every problem."""
    return _parsed(resource, SpecBenchCampaign)


def parse_resource(resource: Mapping[str, Any]) -> SpecBenchRun | SpecBenchCampaign:
    """A resource of either kind, by what it says it is. Raises InvalidSpec with every problem."""
    return parse_campaign(resource) if resource.get("kind") == "SpecBenchCampaign" else parse_run(resource)


def _parsed(resource: Mapping[str, Any], model: type[_Resource]) -> _Resource:
    kind, version = resource.get("kind"), resource.get("apiVersion")
    if kind != model.__name__:
        kinds = "kind: SpecBenchRun or SpecBenchCampaign"
        raise InvalidSpec([Problem("kind", f"{kind!r} is not a kind of this program", kinds)])
    if version != model.model_fields["api_version"].default:
        raise InvalidSpec([Problem("apiVersion", f"{version!r} is not known", "apiVersion: specbench.io/v1alpha1")])
    broken = [*_not_of_json(resource)]
    if broken:
        raise InvalidSpec(broken)
    try:
        # As JSON and strict, because that is how the API server reads it: "1" is no integer there.
        text = json.dumps(_without_nulls({**resource, "status": None}, model), default=str)
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidSpec(problems_in(error, model)) from error


def problems_in(error: ValidationError, model: type[ApiModel]) -> list[Problem]:
    """What pydantic refused of a model: where, what, and what was given."""
    return [_problem(details, model) for details in error.errors()]


def read_run(text: str) -> SpecBenchRun:
    """YAML text → the model. Raises InvalidSpec."""
    return parse_run(read_yaml(text))


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice: YAML keeps the last one, and drops what the user wrote first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: list[Any] = []
        for key, _ in node.value:
            if key.value in seen and key.tag != _MERGE:
                raise ConstructorError(None, None, f"the key {key.value!r} is written twice", key.start_mark)
            seen.append(key.value)
        return super().construct_mapping(node, deep)


def _not_of_json(data: Any, location: tuple[int | str, ...] = ()) -> Iterator[Problem]:
    """Where a key or a value has no form in JSON, which is what the API server reads; it would be refused whole."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            broken = list(_not_of_json(key, location)) if isinstance(key, str) else []
            yield from broken or _not_of_json(value, (*location, str(key)))
    elif isinstance(data, list):
        for row, value in enumerate(data):
            yield from _not_of_json(value, (*location, row))
    elif isinstance(data, str) and _SURROGATE.search(data):
        message = "no text: it holds half of a surrogate pair, which no file in UTF-8 can"
        yield Problem(_path(location), message, "write the character itself")
    elif isinstance(data, float) and not math.isfinite(data):
        message = f"{data} is no number that JSON has"
        yield Problem(_path(location), message, "write a number; where none is meant, leave it out")


def _without_nulls(data: Any, model: Any) -> Any:
    """Without the fields that are null: the API server reads them as not given. In an open map a null is a value."""
    if isinstance(data, list):
        return [_without_nulls(row, model) for row in data]
    if not isinstance(data, Mapping):
        return data
    fields = _by_alias(model)
    return {
        str(key): _with_text_keys(value)
        if _is_open(fields.get(key))
        else _without_nulls(value, _below(fields.get(key)))
        for key, value in data.items()
        if value is not None
    }


def _with_text_keys(data: Any) -> Any:
    """As it is, with keys that JSON can have: YAML reads some as numbers or dates."""
    if isinstance(data, Mapping):
        return {str(key): _with_text_keys(value) for key, value in data.items()}
    return [_with_text_keys(row) for row in data] if isinstance(data, list) else data


def _problem(details: ErrorDetails, model: type[ApiModel]) -> Problem:
    path = _path(details["loc"])
    if details["type"] == "extra_forbidden":
        return Problem(path, "unknown field", _nearest(details["loc"], model))
    if details["type"] == "string_pattern_mismatch" and (form := FORMS.get(details.get("ctx", {}).get("pattern", ""))):
        return Problem(path, f"should match its form, not {details.get('input')!r}", form)
    message = details["msg"].removeprefix("Value error, ")
    given = details.get("input")
    shown = (
        f", not {given!r}" if isinstance(given, str | int | float | bool) and details["type"] != "value_error" else ""
    )
    return Problem(path, message[:1].lower() + message[1:] + shown)


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "(resource)"


def _nearest(location: tuple[int | str, ...], root: type[ApiModel]) -> str:
    fields = _fields_at(location[:-1], root)
    near = difflib.get_close_matches(str(location[-1]), fields, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(fields)}"


def _fields_at(location: tuple[int | str, ...], root: type[ApiModel]) -> list[str]:
    model: Any = root
    for part in location:
        if isinstance(part, str):
            model = _below(_by_alias(model).get(part))
    return list(_by_alias(model))


def _by_alias(model: Any) -> dict[str, FieldInfo]:
    """The fields of a model by their names in the resource; none of what is no model."""
    return {field.alias or name: field for name, field in model.model_fields.items()} if model is not None else {}


def _is_open(field: FieldInfo | None) -> bool:
    return field is not None and any(isinstance(mark, Open) for mark in field.metadata)


def _below(field: FieldInfo | None) -> Any:
    """The model that a field holds, alone or in a list; None where it holds none."""
    return None if field is None else _model_in(field.annotation)


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)
