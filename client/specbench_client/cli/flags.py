"""The flags of `specbench measure`: what each may be, said in the flag's own words.

Behind the flags stands the very schema of a SpecBenchRun, and its bounds hold here. But who writes flags has never seen
a field of it: what is wrong is told with the flag, the value that was given, and what to give instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import click

from specbench_api.model import ApiModel
from specbench_api.spec.address import SECRET, flaw_of
from specbench_client.errors import BadInput

FLAGS = {
    "spec.workloads[0].": "",
    "spec.": "",
    "metadata.name": "--name",
    "model.name": "--model",
    "engine.endpoint": "--endpoint",
    "engine.dialect": "--dialect",
    "dataset.uri": "--dataset",
    "sampling.temperature": "--temperature",
    "sampling.topP": "--top-p",
    "sampling.seed": "--seed",
    "output.maxTokens": "--max-tokens",
    "output.ignoreEos": "--ignore-eos",
    "output.stream": "--no-stream",
    "chatTemplate.tokenizer": "--tokenizer",
    "set appliedBy: Engine": "leave --tokenizer out",
    "extraBody": "--extra-body",
    "load.concurrency": "--concurrency",
    "load.rate": "--rate",
    "load.requests": "--requests",
    "load.durationSeconds": "--duration",
    "load.warmupRequests": "--warmup",
    "load.repeats": "--repeats",
    "load.arrival.process": "--arrival",
    "load.arrival.burstiness": "--burstiness",
    "load.arrival.uri": "--trace",
    "load.arrival.seed": "--seed",
}
"""A field of the spec → the flag that sets it; the first two are what stands before most of them."""
_FIELD = re.compile("|".join(re.escape(field) for field in sorted(FLAGS, key=len, reverse=True)))


def in_flags(text: str) -> str:
    """A message about the spec, with the flag in the place of every field that a flag sets."""
    return _FIELD.sub(lambda found: FLAGS[found[0]], text)


class Number(click.ParamType[float]):
    """A number within the bounds that a field of the schema has; whole where the field is."""

    def __init__(self, model: type[ApiModel], field: str) -> None:
        bounds = next(_numeric(model.model_json_schema(by_alias=False)["properties"][field]))
        self._whole = bounds["type"] == "integer"
        self._above: float | None = bounds.get("exclusiveMinimum")
        self._low: float = bounds["minimum"] if self._above is None else self._above
        self._high: float = bounds["maximum"]
        self.name = "integer" if self._whole else "float"

    @property
    def wanted(self) -> str:
        """What it may be."""
        kind = "a whole number" if self._whole else "a number"
        least = f"from {self._low} to" if self._above is None else f"above {self._low} and up to"
        return f"{kind} {least} {self._high}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; refused with what it may be."""
        try:
            number: float = int(value) if self._whole else float(value)
        except ValueError:
            number = math.nan
        if not self._low <= number <= self._high or number == self._above:  # no order holds with NaN
            self.fail(f"{str(value)!r}: give {self.wanted}", param, ctx)
        return number


class Numbers(click.ParamType[tuple[float, ...]]):
    """`1,8,32`, and the option may be given again."""

    name = "N[,N…]"

    def __init__(self, each: Number) -> None:
        self._each = each

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Each of them by the rule of one."""
        return tuple(self._each.convert(word.strip(), param, ctx) for word in value.split(","))


def levels(flag: str, given: tuple[tuple[float, ...], ...]) -> list[float]:
    """All levels of an option that may be given again. Raises BadInput where one is there twice."""
    found = [level for one in given for level in one]
    twice = next((level for at, level in enumerate(found) if level in found[:at]), None)
    if twice is not None:
        raise BadInput(f"{flag} {twice:g} is given twice: each level is measured once; for more, give --repeats")
    return found


def base_url(endpoint: str) -> str:
    """Without the /v1 with which OpenAI's own clients are given it. Raises BadInput."""
    flaw = flaw_of(endpoint)
    if flaw is not None:
        shown = re.sub("//[^/]*@", "//…@", endpoint)
        said = f"{flaw.what}: give it by --header 'Authorization: …'" if flaw is SECRET else flaw
        raise BadInput(f"--endpoint {shown!r} {said}")
    return endpoint.rstrip("/").removesuffix("/v1")


def _numeric(schema: Any) -> Iterator[dict[str, Any]]:
    """The parts of a JSON schema that are of a number."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield schema
        for part in schema.values():
            yield from _numeric(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _numeric(part)
