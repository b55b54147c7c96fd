"""A user's prices from a file and from flags. The flags stand over the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.prices import Prices
from specbench_api.spec.reading import problems_in

_EXAMPLE = "gpuHour: {NVIDIA-H100-80GB-HBM3: 2.5}"


def prices_of(
    file: Path | None, flags: Mapping[str, Any], training: Sequence[str], hours: Sequence[str] = ()
) -> Prices | None:
    """The prices, or None where none were given. `flags`: fields by their names, None where not given.

    `training`: ARM=AMOUNT; `hours`: ARM=GPU-HOURS. Raises InvalidSpec.
    """
    told = _read(file) if file else {}
    given = {name: value for name, value in flags.items() if value is not None}
    costs = dict(_of_arm("--training-cost", "AMOUNT", text) for text in training)
    spent = dict(_of_arm("--training-gpu-hours", "HOURS", text) for text in hours)
    if not told and not given and not costs and not spent:
        return None
    if costs:
        given["training"] = {**_mapping(told.get("training")), **costs}
    if spent:
        trained = _mapping(told.get("trained"))
        of_each = {arm: {**_mapping(trained.get(arm)), "gpuHours": each} for arm, each in spent.items()}
        given["trained"] = {**trained, **of_each}
    name = str(file) if file else "prices"
    try:
        return Prices.model_validate({**told, **given})
    except ValidationError as error:
        raise InvalidSpec(
            [Problem(f"{name}: {each.path}", each.message, each.remedy) for each in problems_in(error, Prices)]
        ) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise NotYaml([Problem(str(file), f"cannot be read as YAML: {error}", _EXAMPLE)]) from error
    if not isinstance(told, dict):
        raise NotYaml([Problem(str(file), f"expected a price list, found {type(told).__name__}", _EXAMPLE)])
    return told


def _of_arm(flag: str, what: str, text: str) -> tuple[str, float]:
    arm, separator, amount = text.partition("=")
    try:
        cost = float(amount)
    except ValueError:
        cost = -1.0
    if not separator or not arm or cost < 0:
        raise InvalidSpec([Problem(flag, f"{text!r} is not ARM={what}", f"{flag} eagle3=100")])
    return arm, cost


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
