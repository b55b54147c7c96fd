"""Axes, exclude and include → combinations, as the matrices of CI systems have them.

    1. every combination of the axes' values, the first axis varying slowest;
    2. without those that a row of `exclude` stands for: all values of the row are the combination's;
    3. each row of `include` extends those of the rest that have all its values, by what stands under `set`; a row that
       no combination fits is one of its own, behind the others. What `include` added is neither excluded nor extended.

Values are compared as JSON: 1 and 1.0 are one number, true is none, and the order of keys does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.plan.canonical import canonical_json, plain_numbers
from specbench_api.spec.campaign import RUNS_MAX, Axis, CampaignSpec
from specbench_api.spec.paths import steps_of

SET = "set"
"""The word of an include row that is no axis."""
PRODUCT_MAX = 4096
"""Combinations before exclude: they are counted before any is made."""


@dataclass(frozen=True)
class Combination:
    """What one run takes from the axes: values by the axis's name, and further fields by their path."""

    values: Mapping[str, Any]
    further: Mapping[str, Any] = field(default_factory=dict)


def name_of(axis: Axis) -> str:
    """The axis's name: its own, or the last word of its path that is no number of a row."""
    if axis.name is not None:
        return axis.name
    words = [step for step in steps_of(axis.path) if not step.isdecimal() and "=" not in step]
    return words[-1]


def combinations(spec: CampaignSpec) -> tuple[list[Combination], list[str]]:
    """All of them in order, and warnings. Raises InvalidSpec with every problem of axes, exclude and include."""
    axes = {name_of(axis): axis for axis in spec.axes}
    problems = [*_of_names(spec), *_of_rows("exclude", spec.exclude, axes), *_of_rows("include", spec.include, axes)]
    problems += [*_of_sizes(spec), *_of_sets(spec)]
    if problems:
        raise InvalidSpec(problems)
    whole = [dict(zip(axes, values, strict=True)) for values in product(*(axis.values for axis in spec.axes))]
    excludes, includes = [_as_keys(row) for row in spec.exclude], [_as_keys(row) for row in spec.include]
    looked_at = [(values, _as_keys(values)) for values in whole]
    kept = [(values, keys) for values, keys in looked_at if not any(_fits(row, keys) for row in excludes)]
    extended = [Combination(values, _further(keys, includes, spec.include)) for values, keys in kept]
    lonely = [not any(_fits(row, keys) for _, keys in kept) for row in includes]
    added = [_of_row(row, axes) for row, alone in zip(spec.include, lonely, strict=True) if alone]
    found = [*extended, *added]
    if not 0 < len(found) <= RUNS_MAX:
        many = f"{len(found)} combinations are left, and a campaign has 1 to {RUNS_MAX}"
        raise InvalidSpec([Problem("spec.axes", many, "change exclude, or make two campaigns of it")])
    idle = [not any(_fits(row, keys) for _, keys in looked_at) for row in excludes]
    return found, [*_idle_excludes(idle), *_idle_includes(spec.include, lonely)]


def key_of(value: Any) -> str:
    """A value as a text that is the same for values which are one as JSON."""
    return canonical_json(plain_numbers(value))


def _as_keys(row: Mapping[str, Any]) -> dict[str, str]:
    """Values by the axis's name, each as its key; `set` is none of them."""
    return {name: key_of(value) for name, value in row.items() if name != SET}


def _fits(row: Mapping[str, str], combination: Mapping[str, str]) -> bool:
    """Whether the combination has every value of the row."""
    return row.items() <= combination.items()


def _further(
    keys: Mapping[str, str], includes: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the rows that fit set beside. Raises InvalidSpec where two of them set one field to different values."""
    told: dict[str, Any] = {}
    for at, (row, include) in enumerate(zip(rows, includes, strict=True)):
        if not _fits(include, keys):
            continue
        for path, value in row.get(SET, {}).items():
            if path in told and key_of(told[path]) != key_of(value):
                message = f"sets {path} where another row sets it to something else, in one combination"
                raise InvalidSpec([Problem(f"spec.include[{at}].set", message, "name more axes in one of the rows")])
            told[path] = value
    return told


def _of_row(row: Mapping[str, Any], axes: Mapping[str, Axis]) -> Combination:
    return Combination({name: row[name] for name in axes if name in row}, row.get(SET, {}))


def _of_names(spec: CampaignSpec) -> Iterator[Problem]:
    names = [name_of(axis) for axis in spec.axes]
    for at, (name, axis) in enumerate(zip(names, spec.axes, strict=True)):
        if name in names[:at]:
            yield Problem(f"spec.axes[{at}]", f"{axis.path} has the name {name!r} of another axis", "give it a name")
        if name == SET:
            yield Problem(f"spec.axes[{at}]", f"an axis cannot be called {SET!r}", "give it a name")


def _of_rows(word: str, rows: Sequence[Mapping[str, Any]], axes: Mapping[str, Axis]) -> Iterator[Problem]:
    for at, row in enumerate(rows):
        known = {*axes, SET} if word == "include" else {*axes}
        for name in row:
            if name not in known:
                told = ", ".join(axes) or "there is none"
                yield Problem(f"spec.{word}[{at}].{name}", "is no axis", f"axes: {told}")
        if not row.keys() & axes.keys() and (word == "exclude" or SET not in row):
            yield Problem(f"spec.{word}[{at}]", "names no value of an axis", "give at least one, such as engine: vllm")


def _of_sizes(spec: CampaignSpec) -> Iterator[Problem]:
    count = math.prod(len(axis.values) for axis in spec.axes)
    if count > PRODUCT_MAX:
        remedy = "fewer axes or values, or two campaigns"
        yield Problem("spec.axes", f"{count} combinations are more than are looked at ({PRODUCT_MAX})", remedy)


def _of_sets(spec: CampaignSpec) -> Iterator[Problem]:
    varied = {steps_of(axis.path): name_of(axis) for axis in spec.axes}
    for at, row in enumerate(spec.include):
        path = f"spec.include[{at}].{SET}"
        further = row.get(SET, {})
        if not isinstance(further, dict):
            yield Problem(path, "holds no fields", "set: {load.repeats: 5}")
            continue
        for each in further:
            if not steps_of(each):
                yield Problem(path, f"{each!r} is no path of a field", "such as load.repeats")
            elif steps_of(each) in varied:
                name = varied[steps_of(each)]
                yield Problem(f"{path}.{each}", "is the field of an axis", f"write {name}: VALUE beside {SET}")


def _idle_excludes(idle: Sequence[bool]) -> Iterator[str]:
    for at, none in enumerate(idle):
        if none:
            yield f"spec.exclude[{at}] stands for no combination: is a value mistyped?"


def _idle_includes(rows: Sequence[Mapping[str, Any]], lonely: Sequence[bool]) -> Iterator[str]:
    for at, (row, alone) in enumerate(zip(rows, lonely, strict=True)):
        if not alone and not row.get(SET):
            yield f"spec.include[{at}] adds nothing: the combination is there already, and nothing is set"
