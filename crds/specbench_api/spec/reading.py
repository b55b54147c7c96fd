"""YAML text → SpecBenchRun, or every problem found with its path and its remedy.

The very rules of admission: what the CRD's schema and CEL refuse on the API server, these models refuse here.
A test feeds the same bad specs to both.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.constructor import ConstructorError

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.run import SpecBenchRun

_MERGE = "tag:yaml.org,2002:merge"
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
        raise NotYaml([Problem(name, "nested too deep", "one SpecBenchRun a file")]) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = f"{len(documents)} documents" if len(documents) != 1 else type(documents[0]).__name__
        raise NotYaml([Problem(name, f"expected one resource, found {found}", "one SpecBenchRun a file")])
    return documents[0]


def parse_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """A resource as data → the model. Raises InvalidSpec with every problem."""
    kind, version = resource.get("kind"), resource.get("apiVersion")
    if kind != "SpecBenchRun":
        raise InvalidSpec([Problem("kind", f"{kind!r} is not a kind of this program", "kind: SpecBenchRun")])
    if version != SpecBenchRun.model_fields["api_version"].default:
        raise InvalidSpec([Problem("apiVersion", f"{version!r} is not known", "apiVersion: specbench.io/v1alpha1")])
    try:
        # As JSON and strict, because that is how the API server reads it: "1" is no integer there.
        text = json.dumps(_without_nulls({**resource, "status": None}), default=str)
        return SpecBenchRun.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidSpec([_problem(details) for details in error.errors()]) from error


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


def _without_nulls(data: Any) -> Any:
    """Without the fields that are null: the API server reads them as not given."""
    if isinstance(data, Mapping):
        return {str(key): _without_nulls(value) for key, value in data.items() if value is not None}
    return [_without_nulls(row) for row in data] if isinstance(data, list) else data


def _problem(details: ErrorDetails) -> Problem:
    path = _path(details["loc"])
    if details["type"] == "extra_forbidden":
        return Problem(path, "unknown field", _nearest(details["loc"]))
    message = details["msg"].removeprefix("Value error, ")
    given = details.get("input")
    shown = (
        f", not {given!r}" if isinstance(given, str | int | float | bool) and details["type"] != "value_error" else ""
    )
    return Problem(path, message[:1].lower() + message[1:] + shown)


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "(resource)"


def _nearest(location: tuple[int | str, ...]) -> str:
    fields = _fields_at(location[:-1])
    near = difflib.get_close_matches(str(location[-1]), fields, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(fields)}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    model: Any = SpecBenchRun
    for part in location:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            by_alias = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
            model = _model_in(by_alias.get(part))
    return [field.alias or name for name, field in model.model_fields.items()] if model is not None else []


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)
