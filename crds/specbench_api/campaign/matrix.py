"""Combines axes, exclude and include into combinations, with the semantics of CI matrices.

    1. Take every combination of the axes' values; the first axis varies slowest.
    2. Remove each combination that matches a row of `exclude`, i.e. has all its values.
    3. Each row of `include` extends the remaining combinations that have all its values by the fields in its `set`. A
       row that matches none is appended as a separate combination, which is neither excluded nor extended.

Values are compared as JSON: 1 and 1.0 are equal, true is not a number, and the order of keys does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.plan.canonical import canonical_json, plain_numbers
from specbench_api.spec.campaign import Axis, CampaignSpec
from specbench_api.spec.campaign_limits import COMBINATION_TEXT_MAX, PRODUCT_MAX, RUNS_MAX
from specbench_api.spec.field_paths import steps_of

SET = "set"
"""The key of an include row that is not an axis."""


@dataclass(frozen=True)
class Combination:
    """The values of one run: by axis name, and further fields by path."""

    values: Mapping[str, Any]
    further: Mapping[str, Any] = field(default_factory=dict)


def name_of(axis: Axis) -> str:
    """Return the axis's name: its own, or the last component of its path that does not select a list row."""
    if axis.name is not None:
        return axis.name
    words = [step for step in steps_of(axis.path) if not step.isdecimal() and "=" not in step]
    return words[-1]


def combinations(spec: CampaignSpec) -> tuple[list[Combination], list[str]]:
    """Return all combinations in order, and warnings. Raises InvalidSpec with all problems of the matrix."""
    axes = {name_of(axis): axis for axis in spec.axes}
    problems = [*_of_names(spec), *_of_rows("exclude", spec.exclude, axes), *_of_rows("include", spec.include, axes)]
    problems += [*_of_sizes(spec), *_of_sets(spec)]
    if problems:
        raise InvalidSpec(problems)
    whole = [dict(zip(axes, values, strict=True)) for values in product(*(axis.values for axis in spec.axes))]
    excludes, includes = [_as_keys(row) for row in spec.exclude], [_as_keys(row) for row in spec.include]
    candidates = [(values, _as_keys(values)) for values in whole]
    remaining = [(values, keys) for values, keys in candidates if not any(_fits(row, keys) for row in excludes)]
    extended = [Combination(values, _further(keys, includes, spec.include)) for values, keys in remaining]
    unmatched = [not any(_fits(row, keys) for _, keys in remaining) for row in includes]
    added = [
        Combination({name: row[name] for name in axes if name in row}, row.get(SET, {}))
        for row, is_unmatched in zip(spec.include, unmatched, strict=True)
        if is_unmatched
    ]
    found = [*extended, *added]
    if not 0 < len(found) <= RUNS_MAX:
        message = f"{len(found)} combinations remain, but a campaign must have 1 to {RUNS_MAX}"
        raise InvalidSpec([Problem("spec.axes", message, "change axes or exclude, or split the campaign")])
    unused = [not any(_fits(row, keys) for _, keys in candidates) for row in excludes]
    return found, [*_unused_excludes(unused), *_unused_includes(spec.include, unmatched)]


def key_of(value: Any) -> str:
    """Return a text that is equal for values that are equal as JSON."""
    return canonical_json(plain_numbers(value))


def _as_keys(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the key of each value by axis name, without `set`."""
    return {name: key_of(value) for name, value in row.items() if name != SET}


def _fits(row: Mapping[str, str], combination: Mapping[str, str]) -> bool:
    """Return whether the combination has every value of the row."""
    return row.items() <= combination.items()


def _further(
    keys: Mapping[str, str], includes: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the further fields from all matching rows. Raises InvalidSpec if two rows set a field differently."""
    fields: dict[str, Any] = {}
    for at, (row, include) in enumerate(zip(rows, includes, strict=True)):
        if not _fits(include, keys):
            continue
        for path, value in row.get(SET, {}).items():
            if path in fields and key_of(fields[path]) != key_of(value):
                message = f"sets {path} to another value than an earlier row that matches the same combination"
                raise InvalidSpec([Problem(f"spec.include[{at}].set", message, "add axis values to one of the rows")])
            fields[path] = value
    return fields


def _of_names(spec: CampaignSpec) -> Iterator[Problem]:
    names = [name_of(axis) for axis in spec.axes]
    for at, (name, axis) in enumerate(zip(names, spec.axes, strict=True)):
        if name in names[:at]:
            yield Problem(f"spec.axes[{at}]", f"{axis.path} has the same name {name!r} as another axis", "set its name")
        if name == SET:
            yield Problem(f"spec.axes[{at}]", f"an axis cannot be named {SET!r}", "set its name")


def _of_rows(word: str, rows: Sequence[Mapping[str, Any]], axes: Mapping[str, Axis]) -> Iterator[Problem]:
    for at, row in enumerate(rows):
        known = {*axes, SET} if word == "include" else {*axes}
        for name in row:
            if name not in known:
                names = ", ".join(axes) or "none"
                yield Problem(f"spec.{word}[{at}].{name}", "is not an axis", f"axes: {names}")
        if not row.keys() & axes.keys() and (word == "exclude" or SET not in row):
            yield Problem(f"spec.{word}[{at}]", "has no value of an axis", "add at least one, such as engine: vllm")


def _of_sizes(spec: CampaignSpec) -> Iterator[Problem]:
    count = math.prod(len(axis.values) for axis in spec.axes)
    if count > PRODUCT_MAX:
        remedy = "use fewer axes or values, or split the campaign"
        yield Problem("spec.axes", f"{count} combinations exceed the maximum ({PRODUCT_MAX})", remedy)


def _of_sets(spec: CampaignSpec) -> Iterator[Problem]:
    varied = {steps_of(axis.path): name_of(axis) for axis in spec.axes}
    for at, row in enumerate(spec.include):
        path = f"spec.include[{at}].{SET}"
        further = row.get(SET, {})
        if not isinstance(further, dict):
            yield Problem(path, "is not a mapping of fields", "write set: {load.repeats: 5}")
            continue
        for each in further:
            if not steps_of(each):
                yield Problem(path, f"{each!r} is not a field path", "write a path such as load.repeats")
            elif steps_of(each) in varied:
                name = varied[steps_of(each)]
                yield Problem(f"{path}.{each}", "is already varied by an axis", f"write {name}: VALUE next to {SET}")


def _unused_excludes(unused: Sequence[bool]) -> Iterator[str]:
    for at, is_unused in enumerate(unused):
        if is_unused:
            yield f"spec.exclude[{at}] matches no combination: check its values"


def _unused_includes(rows: Sequence[Mapping[str, Any]], unmatched: Sequence[bool]) -> Iterator[str]:
    for at, (row, is_unmatched) in enumerate(zip(rows, unmatched, strict=True)):
        if not is_unmatched and not row.get(SET):
            yield f"spec.include[{at}] has no effect: the combination exists already, and it has no set"


# Text of a combination for people: axis=value, with an object's name instead of the object.

VALUE_TEXT_MAX = 40


def combination_text(combination: Mapping[str, Any]) -> str:
    """Return the complete text of a combination: `engine=vllm temperature=0.7`."""
    return " ".join(f"{name}={value_text(value)}" for name, value in combination.items()) or "the template"


def short_combination_text(combination: Mapping[str, Any]) -> str:
    """Return the text of a combination, truncated to the length of a status row."""
    return _cut(combination_text(combination), COMBINATION_TEXT_MAX)


def value_text(value: Any) -> str:
    """Return a scalar as it is, an object or list of objects by name, and anything else as truncated JSON.

    A long text is truncated at its start, because paths and model names differ at their end.
    """
    if isinstance(value, str):
        return value if len(value) <= VALUE_TEXT_MAX else f"…{value[1 - VALUE_TEXT_MAX :]}"
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return _cut(value["name"], VALUE_TEXT_MAX)
    if isinstance(value, list) and value and all(isinstance(row, Mapping) and "name" in row for row in value):
        return _cut("+".join(str(row["name"]) for row in value), VALUE_TEXT_MAX)
    return _cut(canonical_json(plain_numbers(value)), VALUE_TEXT_MAX)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
