"""Options of commands that price steps: a step's cost, and batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.cost_model import CostModel
from specbench_api.spec.reading import problems_in, read_yaml
from specbench_client.analysis.oracle.published import BY_NAME
from specbench_client.errors import BadInput

MOST = 4096


class Counts(click.ParamType[tuple[int, ...]]):
    """`1,8,32`: whole numbers from 1 on, in order, none twice."""

    name = "N[,N…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers; refused with what they may be."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MOST for word in words):
            self.fail(f"{value!r}: give whole numbers from 1 to {MOST}, such as 1,8,32", param, ctx)
        return tuple(sorted({int(word) for word in words}))


STEP_COST = click.option(
    "--step-cost",
    metavar="FILE-or-NAME",
    help=f"What a step takes: a YAML file, or {' or '.join(BY_NAME)}. Without it there are no speed-ups.",
)
BATCH = click.option(
    "--batch", type=Counts(), default="1,8,32", show_default=True, help="Batch sizes that speed-ups are told for."
)


def cost_model(where: str | None) -> CostModel | None:
    """The cost model that an option names. Raises BadInput, InvalidSpec."""
    if where is None or where in BY_NAME:
        return BY_NAME[where] if where else None
    try:
        text = Path(where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise BadInput(f"--step-cost {where}: {why}: give a file, or one of {', '.join(BY_NAME)}") from error
    try:
        return CostModel.model_validate(read_yaml(text, where))
    except ValidationError as error:
        problems = problems_in(error, CostModel)
        raise InvalidSpec([Problem(f"{where}: {each.path}", each.message, each.remedy) for each in problems]) from error
