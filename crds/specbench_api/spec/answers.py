"""`workloads[].answers`: what the answers are checked for. Schemas are checked when the spec is parsed.

Nothing that a schema refers to is ever fetched: references must lead to a definition in the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from specbench_api.api_model import ApiModel, PreserveUnknown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_MAX_SHOWN = 200
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_VALUES = ("const", "default", "enum", "examples")
_NAMED_SCHEMAS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


class AnswerMatch(StrEnum):
    """How an answer is compared with the expected one."""

    NUMBER = "Number"
    """The last number after `####` that, with a unit at most, is the rest of its line; else the last number. Commas are
    ignored, as by the graders of GSM8K, and `1e3` is 1000."""
    CHOICE = "Choice"
    """The letter, A to J, after the last `answer is` or `answer:` (also `option B`, `(b)`), else the last one that
    stands alone. A and I before a lower-case word are words, except before and, as, because, by, due, for, is, or,
    since."""
    EXACT = "Exact"
    """The whole text, without white space around it."""


class ExpectedAnswer(ApiModel):
    """The expected answer of each prompt, from its row. Of several turns, the last one is compared."""

    field: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Column with the expected answer. Without it: the source's own, or `answer` in a file of your own."""
    match: AnswerMatch
    """How it is compared. Number: the last number after `####`, else of the answer. Choice: the letter, A to J, after
    the last `answer is` or `answer:`, else the last one alone. Exact: the whole text, without white space around it."""


def schema_validator(schema: Mapping[str, Any]) -> Validator:
    """Return the validator of a JSON Schema: of the draft that it names, else of 2020-12. It fetches nothing."""
    from jsonschema.validators import Draft202012Validator, extend, validator_for  # noqa: PLC0415 -- slow to import
    from referencing import Registry  # noqa: PLC0415

    named = {"$schema": str(schema.get("$schema", ""))}
    kind: type[Validator] = validator_for(named, default=Draft202012Validator)
    kind = extend(kind, {"uniqueItems": _unique_items})  # type: ignore[no-untyped-call]
    # A reference to a schema that names its draft would be validated by jsonschema's own class.
    return kind({key: value for key, value in schema.items() if key != "$schema"}, registry=Registry())


def _unique_items(_: Validator, demanded: Any, items: Any, __: Any) -> Iterator[Exception]:
    """Yield an error if two items are equal. jsonschema compares each pair of objects: 8 s for 1,000 of them."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 -- slow to import

    if demanded and isinstance(items, list) and len(set(map(_hashable, items))) < len(items):
        yield ValidationError("has equal items")


def _hashable(value: Any) -> Any:
    """Return a value that is equal exactly if the JSON is: 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return (bool, value) if isinstance(value, bool) else value


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a valid schema with sorted keys: the API server does not keep their order. Raises ValueError."""
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 -- slow to import
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    try:
        schema_validator(schema).check_schema(schema)
    except SchemaError as error:
        where = error.json_path.removeprefix("$").removeprefix(".")
        problem = error.message if len(error.message) <= _MAX_SHOWN else f"{error.message[:_MAX_SHOWN]}…"
        raise ValueError(f"is not a valid JSON Schema: {f'{where}: ' if where else ''}{problem}: correct it") from error
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            message = f"the reference {reference!r} leads to nothing in this schema: refer to a definition in it"
            raise ValueError(f"{message}, as #/$defs/NAME") from error
    return _sorted(schema)


def _references(schema: Any) -> Iterator[str]:
    """Yield the references of a schema. Values that it compares or shows are no schemas, properties of any name are."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict):
        yield from (schema[key] for key in _REFERENCES if isinstance(schema.get(key), str))
        for key, each in schema.items():
            if key in _NAMED_SCHEMAS and isinstance(each, dict):
                yield from _references(list(each.values()))
            elif key not in _VALUES:
                yield from _references(each)


def _checked_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools in OpenAI's form, with checked parameters. Raises ValueError."""
    names = set[str]()
    for row, tool in enumerate(tools):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise ValueError(f'[{row}] is no tool: give {{"type": "function", "function": {{"name": …}}}}')
        name, parameters = function.get("name"), function.get("parameters", {})
        if not isinstance(name, str) or not name or name in names:
            raise ValueError(f"[{row}].function.name is {name!r}: give each tool a name of its own")
        names.add(name)
        if not isinstance(parameters, dict):
            raise ValueError(f"[{row}].function.parameters is not an object: give a JSON Schema")  # noqa: TRY004 -- pydantic's
        try:
            _checked(parameters)
        except ValueError as error:
            raise ValueError(f"[{row}].function.parameters {error}") from error
    return [_sorted(tool) for tool in tools]


def _sorted(value: dict[str, Any]) -> dict[str, Any]:
    """Return the same JSON with the keys of all objects sorted."""
    parsed: dict[str, Any] = json.loads(json.dumps(value, sort_keys=True))
    return parsed


class Answers(ApiModel):
    """What the answers are checked for, on every arm: see `AnswersWorse`. Code in answers is never executed."""

    # Not a rule of the API server: CEL cannot read fields with values of any type.
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    json_schema: Annotated[dict[str, Any], Field(max_length=64), AfterValidator(_checked), PreserveUnknown()] | None = (
        None
    )
    """A JSON Schema. Answers are requested in this form (`response_format`) and validated against it; `format` is not
    checked. An answer that takes more than 1 s of CPU time, as a `pattern` like `(a+)*` can, is `NotJudged`. Keys are
    sent in alphabetical order."""
    tools: (
        Annotated[
            list[Annotated[dict[str, Any], Field(max_length=8)]],
            Field(min_length=1, max_length=64),
            AfterValidator(_checked_tools),
            PreserveUnknown(),
        ]
        | None
    ) = None
    """Tools in OpenAI's form. They are sent with `tool_choice: auto`, which `extraBody` may replace; each answer must
    call at least one, with arguments that match its parameters. Most engines need arguments in engine.args for it: vLLM
    --enable-auto-tool-choice and --tool-call-parser."""
    expected: ExpectedAnswer | None = None
    """The expected answers. The request does not change."""

    @model_validator(mode="after")
    def _one_demand(self) -> Self:
        if sum(one is not None for one in (self.json_schema, self.tools, self.expected)) != 1:
            raise ValueError("set exactly one of answers.jsonSchema, answers.tools and answers.expected")
        return self

    @property
    def has_schemas(self) -> bool:
        """Whether answers are validated against JSON Schemas, which can take long."""
        return self.expected is None


CLAIMED_BY_ANSWERS = (
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "json_schema", "grammar", "regex", "ebnf", "structural_tag", "tools", "functions", "function_call",
)  # fmt: skip
"""Fields of the request body that `extraBody` must not set if the workload has `answers.jsonSchema` or `.tools`."""
