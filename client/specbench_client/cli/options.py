"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds. `nan` lies within any, and makes every comparison false: it is refused, as `inf` is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As its base, of finite numbers alone."""
        number = float(super().convert(value, param, ctx))
        return number if math.isfinite(number) else self.fail(f"{value} is no number.", param, ctx)


class Finite(click.ParamType[float]):
    """A number, whichever; `nan` and `inf` are refused."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = float(click.FLOAT.convert(value, param, ctx))
        return number if math.isfinite(number) else self.fail(f"{value} is no number.", param, ctx)


FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
"""`-` is stdin; relative paths then begin in the working directory."""
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field: --set spec.load.repeats=1. Repeatable.",
)
OUTPUT = click.option(
    "--output",
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one document on stdout.",
)
NEW = click.option("--new", is_flag=True, help="Measure again: a new run beside the one that is there.")
DEFAULT_RESULTS = "specbench-results"
