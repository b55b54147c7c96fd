"""Parses YAML text into a SpecBenchRun or SpecBenchCampaign, or reports every problem with its path and remedy.

The rules are those of admission: what the CRD's schema and CEL rules reject on the API server, these models reject
here. A test feeds the same invalid specs to both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from specbench_api import API_VERSION
from specbench_api.api_model import ApiModel, PreserveUnknown
from specbench_api.errors import InvalidSpec, NotYaml, Problem, did_you_mean
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.patterns import PATTERN_DESCRIPTIONS
from specbench_api.spec.run import SpecBenchRun

_Resource = TypeVar("_Resource", SpecBenchRun, SpecBenchCampaign)
_SURROGATE = re.compile("[\ud800-\udfff]")
ONE_RESOURCE = "write one SpecBenchRun or SpecBenchCampaign per file"


def read_yaml(text: str, name: str = "(file)", remedy: str = ONE_RESOURCE) -> dict[str, Any]:
    """Return the one mapping in a YAML text; messages refer to the text as `name`. Raises NotYaml."""
    documents = yaml_documents(text, name)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = f"{len(documents)} documents" if len(documents) != 1 else type(documents[0]).__name__
        raise NotYaml([Problem(name, f"expected one mapping of names to values, found {found}", remedy)])
    return documents[0]


def parse_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """Validate a resource and return the model. Raises InvalidSpec with every problem."""
    return _parsed(resource, SpecBenchRun)


def parse_campaign(resource: Mapping[str, Any]) -> SpecBenchCampaign:
    """Validate a resource and return the model. Raises InvalidSpec with every problem."""
    return _parsed(resource, SpecBenchCampaign)


def parse_resource(resource: Mapping[str, Any]) -> SpecBenchRun | SpecBenchCampaign:
    """Validate a resource of either kind, chosen by its `kind`. Raises InvalidSpec with every problem."""
    return parse_campaign(resource) if resource.get("kind") == "SpecBenchCampaign" else parse_run(resource)


def _parsed(resource: Mapping[str, Any], model: type[_Resource]) -> _Resource:
    kind, version = resource.get("kind"), resource.get("apiVersion")
    if kind != model.__name__:
        kinds = "write kind: SpecBenchRun or kind: SpecBenchCampaign"
        raise InvalidSpec([Problem("kind", f"{kind!r} is not a kind of {API_VERSION}", kinds)], complete=False)
    if version != model.model_fields["api_version"].default:
        unsupported = Problem("apiVersion", f"{version!r} is not supported", f"write apiVersion: {API_VERSION}")
        raise InvalidSpec([unsupported], complete=False)
    if oversized := _oversized(resource):
        raise InvalidSpec([oversized], complete=False)
    problems = list(_non_json_values(resource))
    if problems:
        raise InvalidSpec(problems, complete=False)
    try:
        # Validate as strict JSON, as the API server does: "1" is not an integer there.
        text = json.dumps(_without_nulls({**resource, "status": None}, model), default=str)
        # Accept only the names of the CRD's schema, not Python's: num_speculative_tokens is an unknown field there.
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidSpec(problems_in(error, model), complete=False) from error


def problems_in(error: ValidationError, model: type[ApiModel]) -> list[Problem]:
    """Convert pydantic's errors into problems: where, what is wrong, and the value found."""
    return [_problem(details, model) for details in error.errors()]


def read_run(text: str) -> SpecBenchRun:
    """Parse YAML text into a run. Raises InvalidSpec."""
    return parse_run(read_yaml(text))


def _oversized(resource: Mapping[str, Any]) -> Problem | None:
    """Return the problem of a field with more levels or values than a file may have; the API server accepts far more.

    Not recursive, and bounded in time and memory, unlike everything that processes the resource later.
    """
    for key, value in resource.items():
        level, count = [value], 1
        for _ in range(DEPTH_MAX):
            values = chain.from_iterable(_values_of(container) for container in level)
            level = list(islice(values, NODES_MAX - count + 1))
            count += len(level)
            if count > NODES_MAX:
                return Problem(str(key), f"has more than {NODES_MAX} values", "write less, or split the resource")
        if level:
            return Problem(str(key), f"is nested too deeply: more than {DEPTH_MAX} levels", "nest less")
    return None


def _values_of(container: Any) -> Iterable[Any]:
    if isinstance(container, Mapping):
        return container.values()
    return container if isinstance(container, list) else ()


def _non_json_values(data: Any, location: tuple[int | str, ...] = ()) -> Iterator[Problem]:
    """Yield a problem for each key or value that JSON, and so the API server, cannot represent."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            problems = list(_non_json_values(key, location)) if isinstance(key, str) else []
            yield from problems or _non_json_values(value, (*location, str(key)))
    elif isinstance(data, list):
        for row, value in enumerate(data):
            yield from _non_json_values(value, (*location, row))
    elif isinstance(data, str) and _SURROGATE.search(data):
        message = "is not valid text: it contains half of a surrogate pair, which UTF-8 cannot encode"
        yield Problem(_path(location), message, "write the character itself")
    elif isinstance(data, float) and not math.isfinite(data):
        message = f"{data} is not valid JSON: NaN and infinity are not allowed"
        yield Problem(_path(location), message, "write a finite number, or remove the field")


def _without_nulls(data: Any, model: Any) -> Any:
    """Remove fields that are null, which the API server treats as unset. In a map of any values a null is a value."""
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
    """Convert all keys to text: YAML parses some keys as numbers or dates, but JSON keys are strings."""
    if isinstance(data, Mapping):
        return {str(key): _with_text_keys(value) for key, value in data.items()}
    return [_with_text_keys(row) for row in data] if isinstance(data, list) else data


def _problem(details: ErrorDetails, model: type[ApiModel]) -> Problem:
    path, remedy = _path(details["loc"]), _remedy(details["loc"], model)
    if details["type"] == "extra_forbidden":
        return Problem(path, "unknown field", remedy or _nearest(details["loc"], model))
    if details["type"] == "string_pattern_mismatch" and (
        form := PATTERN_DESCRIPTIONS.get(details.get("ctx", {}).get("pattern", ""))
    ):
        return Problem(path, f"should match the required form, not {details.get('input')!r}", form)
    message = details["msg"].removeprefix("Value error, ").replace(" after validation", "")
    given = details.get("input")
    if isinstance(given, str | int | float) and details["type"] != "value_error":
        message += f", not {json.dumps(given) if isinstance(given, bool) else repr(given)}"
    if details["type"] in ("enum", "literal_error"):
        remedy = remedy or did_you_mean(str(given), re.findall("'([^']*)'", details["ctx"]["expected"]))
    if details["type"] == "string_type" and isinstance(given, int | float):
        remedy = remedy or f'quote it: "{json.dumps(given)}"'
    return Problem(path, message[:1].lower() + message[1:], remedy)


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) or set("./") & set(part) else f".{part}" for part in location)
    return text.removeprefix(".") or "(resource)"


def _nearest(location: tuple[int | str, ...], root: type[ApiModel]) -> str:
    """Return where the field belongs: one level below, or a similar name; else the names of all fields."""
    fields, name = _by_alias(_model_at(location[:-1], root)), str(location[-1])
    near = [
        f"{field}{'[]' if get_origin(info.annotation) is list else ''}.{name}"
        for field, info in fields.items()
        if name in _by_alias(_below(info))
    ]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return did_you_mean(name, fields, f"known fields: {', '.join(fields)}")


def _remedy(location: tuple[int | str, ...], root: type[ApiModel]) -> str:
    """Return the model's own remedy for an error of one of its fields; empty if it has none."""
    model = _model_at(location[:-1], root) if location else None
    return model.remedies.get(location[-1], "") if model is not None else ""


def _model_at(location: tuple[int | str, ...], root: type[ApiModel]) -> Any:
    model: Any = root
    for part in location:
        if isinstance(part, str):
            model = _below(_by_alias(model).get(part))
    return model


def _by_alias(model: Any) -> dict[str, FieldInfo]:
    """Return a model's fields by their names in the resource; empty if `model` is None."""
    return {field.alias or name: field for name, field in model.model_fields.items()} if model is not None else {}


def _is_open(field: FieldInfo | None) -> bool:
    return field is not None and any(isinstance(mark, PreserveUnknown) for mark in field.metadata)


def _below(field: FieldInfo | None) -> Any:
    """Return the model that a field contains, directly or in a list; None if it contains none."""
    return None if field is None else _model_in(field.annotation)


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)


# Reads YAML that anybody may have written, in bounded time and memory.
#
# A few hundred bytes of YAML can describe gigabytes, because an alias repeats what its anchor names. So every node
# counts as often as it is repeated, and size, nesting and the length of numbers are bounded. Duplicate keys are
# rejected.

TEXT_BYTES_MAX = 1024 * 1024
"""Bytes of a text. The API server stores no larger resource."""
NODES_MAX = 50_000
"""Keys and values of a text; what an alias repeats counts each time."""
DEPTH_MAX = 64
"""Levels of nested mappings and lists."""
NUMBER_CHARACTERS_MAX = 100
"""Characters of a number. Python needs quadratic time to read an integer."""
UNNAMED = '"<unicode string>"'
"""How PyYAML refers to text that it received as a string."""
_MERGE = "tag:yaml.org,2002:merge"
_TAG_ERRORS = (ArithmeticError, LookupError, AttributeError, TypeError)
"""What PyYAML raises, besides ValueError, where a value does not fit its tag, such as `!!int ""`."""
_QUOTE = "quote the value if it is meant as text"


def yaml_documents(text: str, name: str = "(file)") -> list[Any]:
    """Return the documents of a text, without empty ones; messages refer to the text as `name`. Raises NotYaml."""
    if len(text) > TEXT_BYTES_MAX or len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise too_large(name)
    try:
        return [document for document in yaml.load_all(text, _BoundedLoader) if document is not None]
    except yaml.YAMLError as error:
        raise NotYaml([Problem(name, f"not valid YAML: {error}".replace(UNNAMED, name), "correct it there")]) from error
    except ValueError as error:  # an impossible date or number; the message describes it
        raise NotYaml([Problem(name, f"not valid YAML: {error}", _QUOTE)]) from error
    except _TAG_ERRORS as error:
        raise NotYaml([Problem(name, "not valid YAML: a value does not fit its type or tag", _QUOTE)]) from error


def too_large(name: str) -> NotYaml:
    """Return the error for a text above the limit."""
    remedy = "the API server stores no larger resource: split it"
    return NotYaml([Problem(name, f"is larger than {TEXT_BYTES_MAX // 1024} KiB", remedy)])


class _BoundedLoader(yaml.SafeLoader):
    """A YAML loader with limits that rejects duplicate keys; PyYAML silently keeps the last one."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._depth = 0
        self._deepest = 0
        self._anchored: dict[yaml.Node, tuple[int, int]] = {}
        """Anchored node → its nodes, and its levels of nesting."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node. Raises ComposerError above a limit."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark, is_alias, anchor = event.start_mark, self.check_event(yaml.AliasEvent), event.anchor
        if is_alias:
            node = super().compose_node(parent, index)
            if node not in self._anchored:
                message = f"the alias *{anchor} is inside the value that it repeats: write the value itself"
                raise ComposerError(None, None, message, mark)
            nodes, levels = self._anchored[node]
            self._count(nodes, levels, mark)
            return node
        nodes, deepest, self._deepest = self._nodes, self._deepest, 0
        self._count(1, 1, mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None and node is not None:
            self._anchored[node] = self._nodes - nodes, self._deepest - self._depth
        self._deepest = max(deepest, self._deepest)
        return node

    def _count(self, nodes: int, levels: int, mark: Any) -> None:
        self._nodes += nodes
        self._deepest = max(self._deepest, self._depth + levels)
        if self._nodes > NODES_MAX:
            message = f"more than {NODES_MAX:,} keys and values, aliases repeated: write fewer values, and no aliases"
            raise ComposerError(None, None, message, mark)
        if self._deepest > DEPTH_MAX:
            raise ComposerError(None, None, f"nested too deeply: more than {DEPTH_MAX} levels: nest less", mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys: set[Hashable] = set()
        for key, _ in node.value:
            if not isinstance(key.value, Hashable):
                continue  # PyYAML rejects it below
            if key.value in keys and key.tag != _MERGE:
                raise ConstructorError(None, None, f"the key {key.value!r} is written twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number. Raises ConstructorError for one that is too long."""
        if len(node.value) > NUMBER_CHARACTERS_MAX:
            message = f"a number of {len(node.value)} characters: quote it if it is meant as text"
            raise ConstructorError(None, None, message, node.start_mark)
        is_int = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _BoundedLoader.construct_number)
