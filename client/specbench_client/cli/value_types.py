"""Types of the values of options: what a command line may give, bounded by the fields of the spec."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar

import click

from specbench_api.spec.field_paths import steps_of
from specbench_api.spec.latency_percentiles import REPORTED_PERCENTS
from specbench_api.spec.run import RunSpec
from specbench_client.bounded_json import parse_json


class FiniteRange(click.FloatRange):
    """A finite number within bounds. Give at least one bound, or click's help text shows `x<=None`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert as `FloatRange` does, then reject NaN, which is within all bounds, and infinity."""
        number = float(super().convert(value, param, ctx))
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


class SchemaNumber(click.ParamType[float]):
    """A number with the bounds and the kind (whole or not) of a field of the spec. `most`: a lower upper bound."""

    def __init__(self, path: str, most: float = math.inf) -> None:
        bounds = next(schema for schema in field_schemas(path) if schema.get("type") in ("integer", "number"))
        self._whole = bounds["type"] == "integer"
        self._above: float | None = bounds.get("exclusiveMinimum")
        self._low: float = bounds["minimum"] if self._above is None else self._above
        self._high: float = min(bounds["maximum"], most)
        self.name = "integer" if self._whole else "float"

    @property
    def expected(self) -> str:
        """The accepted values, for messages: `a whole number from 1 to 4096`."""
        kind = "a whole number" if self._whole else "a number"
        least = f"from {self._low} to" if self._above is None else f"above {self._low} and up to"
        return f"{kind} {least} {self._high}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the text; the error states the accepted values."""
        try:
            number: float = int(value) if self._whole else float(value)
        except ValueError:
            number = math.nan
        if not self._low <= number <= self._high or number == self._above:  # false for NaN, so NaN is rejected here
            self.fail(f"{str(value)!r}: give {self.expected}", param, ctx)
        return number


class SchemaNumbers(click.ParamType[tuple[float, ...]]):
    """Comma-separated numbers, such as `1,8,32`, each with the bounds of a field of the spec."""

    name = "N[,N…]"

    def __init__(self, each: SchemaNumber) -> None:
        self._each = each

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Convert each number."""
        return tuple(self._each.convert(word.strip(), param, ctx) for word in value.split(","))


_SWITCHES = dict.fromkeys(("off", "no", "none", "false"), "disabled") | dict.fromkeys(
    ("on", "yes", "true", "enabled"), "as-served"
)
"""What is written for a switch with these two states."""


class Choice(click.Choice[str]):
    """One of several values in any case, as flags or as specs spell them: `as-served`, `AsServed`."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:  # noqa: ARG002 -- an override
        """Return the spelling in which values are compared and shown."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "-", str(choice)).lower()

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return the accepted values, and which one may be meant."""
        shown, given = [self.normalize_choice(each, ctx) for each in self.choices], str(value).lower()
        meant = get_close_matches(_SWITCHES.get(given, given), shown, 1)
        return super().get_invalid_choice_message(value, ctx) + (f" Did you mean {meant[0]!r}?" if meant else "")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value as it is declared, whatever its case, with or without hyphens."""
        same = [each for each in self.choices if each.replace("-", "").lower() == value.replace("-", "").lower()]
        return same[0] if same else super().convert(value, param, ctx)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object as text."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Parse the text; the error ends with the option's help text, which has an example."""
        example = param.help if isinstance(param, click.Option) else ""
        try:
            found = parse_json(value)
        except ValueError as error:
            self.fail(f"{value!r} is not valid JSON: {error}. {example}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"{value!r} is not a JSON object. {example}", param, ctx)
        return found


class LatencyStatistics(click.ParamType[tuple[str, ...]]):
    """Comma-separated statistics of latencies, such as `mean,50,90`: the suffixes of their figures, in this order."""

    name = "P[,P…]"
    known: ClassVar[Mapping[str, str]] = {
        "mean": "mean",
        **{str(percent): f"p{percent}" for percent in REPORTED_PERCENTS},
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Convert the names; the error states the accepted values."""
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower().removeprefix("p") for word in str(value).split(",")]
        if not set(words) <= set(self.known):
            self.fail(f"{value!r}: give some of {', '.join(self.known)}, such as mean,50,90", param, ctx)
        return tuple(self.known[word] for word in dict.fromkeys(words))


COMMA_SEPARATED = (SchemaNumbers, LatencyStatistics)
"""Types of a list in one word; in Python also any sequence."""
POSITIVE = FiniteRange(min=0, min_open=True)


@cache
def _spec_schema() -> dict[str, Any]:
    return RunSpec.model_json_schema()


def field_schemas(path: str) -> list[dict[str, Any]]:
    """Return the JSON schema of a field of the spec, and those that it consists of or refers to."""
    found = [_spec_schema()]
    for step in steps_of(path):
        if not step.isdecimal():  # the row of a list
            fields = [schema["properties"][step] for schema in found if step in schema.get("properties", {})]
            found = [part for schema in fields for part in _parts(schema)]
    return found


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema, and those of its references, its alternatives and the rows of its list."""
    yield schema
    referred = [_spec_schema()["$defs"][schema["$ref"].rpartition("/")[2]]] if "$ref" in schema else []
    rows = [schema["items"]] if "items" in schema else []
    for part in (*referred, *rows, *schema.get("anyOf", [])):
        yield from _parts(part)
