"""`specbench predict`: what formulas say beside what was measured, and what the speed-up would be on other traffic."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import yaml

from specbench_api.outcome.prediction import DomainPrediction, MixPrediction
from specbench_api.outcome.summary import Cell
from specbench_api.spec.dataset import Dataset
from specbench_client.analysis.prediction.domains import domains
from specbench_client.analysis.prediction.mixes import Mix, cells_of, predictions
from specbench_client.cli.consoles import page
from specbench_client.cli.runs import run_store
from specbench_client.drive.compared import read_result
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results
from specbench_client.report.columns import SIMULATED
from specbench_client.report.prediction import (
    FACTORS_SAY,
    categories_sheet,
    domains_sheet,
    factors_sheet,
    formula_lines,
    mixes_sheet,
)
from specbench_client.workload.guess import guess_dataset
from specbench_client.workload.prompts import load_prompts

PRESUMED = (
    "Presumed: a request of a category takes the time it took beside the measured mix, and its prompts are like yours."
)


@click.command()
@click.argument("where", metavar="WHERE")
@click.option(
    "--mix",
    "mixed",
    multiple=True,
    metavar="CATEGORY=SHARE,… or FILE",
    help="Your traffic: shares, or your prompts with categories. Given again: further shares.",
)
@click.option(
    "--by", type=click.Choice(["requests", "output-tokens"]), default="requests", show_default=True,
    help="What the shares of --mix are of.",
)  # fmt: skip
@click.option("--workload", metavar="NAME", help="Of this workload alone.")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def predict(where: str, mixed: tuple[str, ...], by: str, workload: str | None, output: str, *, latest: bool) -> None:
    """Lay each measured speed-up of the run at WHERE beside its prediction, or predict it for your mix of traffic.

    \b
      specbench predict specbench-results --latest
      specbench predict specbench-results --latest --mix coding=0.5,chat=0.5
      specbench predict specbench-results --latest --mix my-prompts.jsonl
      specbench predict specbench-results --latest --mix coding=0.8,chat=0.2 --by output-tokens --output json

    Without --mix: the factors whose product the measured speed-up is, and the formula of one acceptance rate. Formulas
    with their sources, and what they do not say, stand in docs/prediction.md.
    """
    result = read_result(run_store(open_results(where), where, latest=latest))
    cells = list(cells_of(result, workload))
    if not mixed:
        told = [cell for cell in cells if cell.prediction]
        if not told:
            remedy = f"if it is older, analyse its records again: specbench report {where} --recompute"
            raise BadInput(
                f"{where}: no cell has a prediction: nothing was compared, or steps are not told: {remedy}",
                "NoPrediction",
            )
        _show(told, [], output, simulated=result.summary.simulated, by_category=domains(result.summary, workload))
        return
    mixes = predictions(result, cells, Mix(_given(",".join(mixed)), by_tokens=by == "output-tokens"))
    if not mixes:
        raise BadInput(f"{where}: the records of these cells are gone, and a mix is weighed from records", "NoRecords")
    _show([], mixes, output, simulated=result.summary.simulated)


MOST = 1e12
"""A share may be a count of requests; sums of larger ones than anybody counts would have no end."""


def _given(text: str) -> dict[str, float]:
    """Shares by category, from the text or from a file of prompts. Raises BadInput."""
    if not text.strip():
        raise BadInput("--mix: nothing is given: --mix coding=0.5,chat=0.5, or a file of prompts", "Mix")
    if "=" not in text or Path(text).exists():
        return _counted(text)
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not name.strip() or name.strip() in given or not 0 <= value <= MOST:
            raise BadInput(f"--mix: {part!r} is no CATEGORY=SHARE, or is given twice: --mix coding=0.5,chat=0.5", "Mix")
        given[name.strip()] = value
    if not sum(given.values()) > 0:
        raise BadInput(f"--mix {text}: every share is 0: give one that is not", "Mix")
    _tell_the_sum(given)
    return given


def _tell_the_sum(given: Mapping[str, float]) -> None:
    """Shares may be counts or per cent; a sum that is neither 1 nor 100 may be a category that was forgotten."""
    whole = sum(given.values())
    if not any(math.isclose(whole, sum_, rel_tol=1e-3) for sum_ in (1.0, 100.0)):
        parts = ", ".join(f"{name} {share / whole:.1%}" for name, share in given.items())
        click.echo(f"the shares of --mix sum to {whole:g}, and are taken as parts of that: {parts}", err=True)


def _counted(file: str) -> dict[str, float]:
    prompts = load_prompts(Dataset.model_validate(guess_dataset(file)), Path.cwd(), with_tools=True).rows
    bare = sum(prompt.category is None for prompt in prompts)
    if bare:
        raise BadInput(
            f"--mix {file}: {bare} of {len(prompts)} prompts have no category: give each one, or shares", "Mix"
        )
    return {str(name): float(count) for name, count in Counter(prompt.category for prompt in prompts).items()}


def _show(
    cells: Sequence[Cell],
    mixes: Sequence[MixPrediction],
    output: str,
    *,
    simulated: bool,
    by_category: Sequence[DomainPrediction] = (),
) -> None:
    if output == "text":
        _text(cells, mixes, by_category, simulated=simulated)
        return
    document = {
        "simulated": simulated,
        "cells": [_document(cell) for cell in cells],
        "categories": [each.to_dict() for each in by_category],
        "mixes": [each.to_dict() for each in mixes],
    }
    told = {name: value for name, value in document.items() if value != []}
    text = (
        json.dumps(told, indent=2) + "\n"
        if output == "json"
        else yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
    )
    click.echo(text, nl=False)


def _document(cell: Cell) -> dict[str, object]:
    assert cell.prediction is not None
    place = {"arm": cell.arm, "workload": cell.workload, "load": cell.level.label, "valid": cell.valid}
    return {**place, "prediction": cell.prediction.to_dict()}


def _text(
    cells: Sequence[Cell],
    mixes: Sequence[MixPrediction],
    by_category: Sequence[DomainPrediction],
    *,
    simulated: bool,
) -> None:
    console = page()
    if simulated:
        console.print(SIMULATED)
    if cells:
        console.sheet(factors_sheet(cells))
        console.print(FACTORS_SAY, soft_wrap=True)
        for line in formula_lines(cells):
            console.print(line, soft_wrap=True)
        if by_category:
            console.sheet(domains_sheet(by_category))
        return
    for sheet in (mixes_sheet(mixes), categories_sheet(mixes)):
        console.sheet(sheet)
    console.print(PRESUMED, soft_wrap=True)
