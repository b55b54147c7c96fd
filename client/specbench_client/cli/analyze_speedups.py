"""`specbench analyze curve`, `draft-lengths` and `explain`: how a measured speed-up depends on its settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from specbench_api.spec.dataset import Dataset
from specbench_client.analysis.curves.axes import AXIS_KINDS
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.curves.draft_lengths import best_draft_lengths
from specbench_client.analysis.explanation.traffic_mix import TrafficMix, cells_of, predict_mix
from specbench_client.cli.options import LATEST, ONLY_WORKLOAD, OUTPUT, output_option
from specbench_client.cli.output import print_report
from specbench_client.cli.run_selection import run_arguments, select_run
from specbench_client.cli.streams import echo
from specbench_client.cli.value_types import Choice
from specbench_client.documents.summary import Cell
from specbench_client.errors import BadInput, EvidenceInsufficient
from specbench_client.report.text.curves import (
    curves_csv,
    curves_report,
    draft_lengths_report,
)
from specbench_client.report.text.explanation import (
    FACTORS_SAY,
    categories_table,
    factors_table,
    mixes_table,
)
from specbench_client.report.text.text_table import SIMULATED, Report, Topic
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.source_detection import guess_dataset

LINES_MAX = 8
"""Excluded cells that an error message lists."""
REMEDY = "`specbench report {}` shows the findings of the run, and what to do about them"


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option("--by", type=Choice(list(AXIS_KINDS)), required=True, help="The axis that the curves are drawn against.")
@output_option("text", "json", "csv", "markdown")
@LATEST
def curve(where: str, by: str, output: str, *, latest: bool) -> None:
    """Draw speed-up and acceptance length of a run against one axis, and report where the speed-up falls to 1.

    \b
      specbench analyze curve specbench-results --latest --by concurrency
      specbench analyze curve specbench-results --latest --by draft-tokens
      specbench analyze curve s3://bench/runs/team/llama/3f2c… --by temperature --output csv

    One curve has the cells that are equal in everything but the axis: loads, arms that differ in their draft length
    alone, or workloads that differ in temperature, prompts or output limits alone.

    Method: docs, "Curves".
    """
    run = select_run(where, latest=latest, ended=True).require_summary()
    found = build_curves(by, run)
    if not found.curves:
        remedy = [REMEDY.format(run_arguments(run.plan, run.uri))] if found.left_out else []
        raise EvidenceInsufficient(
            "\n".join(["no curve can be drawn", *found.left_out[:LINES_MAX], *remedy]), "NothingToDraw"
        )

    print_report(output, found, curves_report(found), csv=lambda: curves_csv(found))


NOTHING_COMPARED = (
    "no draft length was compared: measure arms that differ only in numSpeculativeTokens together with a baseline"
)


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@ONLY_WORKLOAD
@output_option("text", "json")
@LATEST
def draft_lengths(where: str, workload: str | None, output: str, *, latest: bool) -> None:
    """Show the best measured number of draft tokens at each load, and the engine's schedule of them.

    \b
      specbench analyze draft-lengths specbench-results --latest
      specbench analyze draft-lengths specbench-results --latest --workload chat --output json

    Draft lengths are arms that differ only in numSpeculativeTokens; the baseline counts as 0. The best at a load is
    compared with the next best, request by request. The schedule has measured lengths at measured loads only; whether
    it was run is stated below it. More: docs, "The best draft length at each
    load".
    """
    result = select_run(where, latest=latest, ended=True).require_summary()
    found = best_draft_lengths(result, cells_of(result, workload))
    if not found.tables:
        raise EvidenceInsufficient("\n".join([f"{where}: {NOTHING_COMPARED}", *found.left_out]), "NoDraftLengths")
    print_report(output, found, draft_lengths_report(found))


ASSUMPTIONS = (
    "Assumed: a request of a category takes as long as it did in the measured mix, and its prompts are like the"
    " measured ones."
)


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--mix",
    "mixed",
    multiple=True,
    metavar="CATEGORY=SHARE,… or FILE",
    help="Your traffic mix: shares per category, or a file of your prompts with categories. Repeatable.",
)
@click.option(
    "--by",
    type=Choice(["requests", "output-tokens"]),
    default="requests",
    show_default=True,
    help="Whether the shares of --mix are shares of requests or of output tokens.",
)
@ONLY_WORKLOAD
@OUTPUT
@LATEST
def explain(where: str, mixed: tuple[str, ...], by: str, workload: str | None, output: str, *, latest: bool) -> None:
    """Explain each measured speed-up by its factors, or project it onto your traffic mix with --mix.

    \b
      specbench analyze explain specbench-results --latest
      specbench analyze explain specbench-results --latest --mix coding=0.8,creative=0.2
      specbench analyze explain specbench-results --latest --mix my-prompts.jsonl
      specbench analyze explain specbench-results --latest --mix coding=0.8,chat=0.2 --by output-tokens --output json

    Without --mix, the measured speed-up is shown as a product of factors. Details:
    docs, "Explain a speed-up".
    """
    result = select_run(where, latest=latest, ended=True).require_summary()
    cells = list(cells_of(result, workload))
    simulated = result.summary.simulated
    if mixed:
        mix = TrafficMix(_shares(",".join(mixed)), by_tokens=by == "output-tokens")
        mixes = predict_mix(result, cells, mix)
        if not mixes:
            raise EvidenceInsufficient(
                f"{where}: the records of these cells are missing, and --mix needs them: measure again", "NoRecords"
            )
        document: dict[str, object] = {"simulated": simulated, "mixes": [each.to_dict() for each in mixes]}
        topic = Topic("", [mixes_table(mixes), categories_table(mixes)], [ASSUMPTIONS])
        print_report(output, document, Report([topic], SIMULATED * simulated))
        return
    explained = [cell for cell in cells if cell.prediction]
    if not explained:
        raise EvidenceInsufficient(
            f"{where}: no cell has a prediction, because nothing was compared or the engine reports no steps: if the"
            f" run has both, analyze its records again: specbench report {where} --recompute",
            "NoPrediction",
        )
    topic = Topic("", [factors_table(explained)], [FACTORS_SAY])
    document = {"simulated": simulated, "cells": [_document(cell) for cell in explained]}
    print_report(output, document, Report([topic], SIMULATED * simulated))


SHARE_MAX = 1e12
"""Shares may be counts of requests; the bound keeps their sum finite."""


def _shares(text: str) -> dict[str, float]:
    """Return the shares by category, from text or from a file of prompts. Raises BadInput."""
    if not text.strip():
        raise BadInput("--mix: is empty: give --mix coding=0.8,creative=0.2, or a file of prompts", "Mix")
    if "=" not in text or Path(text).exists():
        return _category_counts(text)
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not name.strip() or name.strip() in shares or not 0 <= value <= SHARE_MAX:
            raise BadInput(
                f"--mix: {part!r} is not CATEGORY=SHARE, or repeats a category: give --mix coding=0.8,creative=0.2",
                "Mix",
            )
        shares[name.strip()] = value
    if not sum(shares.values()) > 0:
        raise BadInput(f"--mix {text}: every share is 0: give at least one above 0", "Mix")
    _report_sum(shares)
    return shares


def _report_sum(shares: Mapping[str, float]) -> None:
    """Print the sum unless it is 1 or 100: the user may have forgotten a category, or have given counts."""
    whole = sum(shares.values())
    if not any(math.isclose(whole, usual, rel_tol=1e-3) for usual in (1.0, 100.0)):
        parts = ", ".join(f"{name} {share / whole:.1%}" for name, share in shares.items())
        echo(f"the shares of --mix sum to {whole:g}; they are scaled to: {parts}", err=True)


def _category_counts(file: str) -> dict[str, float]:
    prompts = load_prompts(Dataset.model_validate(guess_dataset(file)), Path.cwd(), with_tools=True).rows
    bare = sum(prompt.category is None for prompt in prompts)
    if bare:
        raise BadInput(
            f"--mix {file}: {bare} of {len(prompts)} prompts have no category: add one to each, or give shares", "Mix"
        )
    return {str(name): float(count) for name, count in Counter(prompt.category for prompt in prompts).items()}


def _document(cell: Cell) -> dict[str, object]:
    assert cell.prediction is not None
    key = {"arm": cell.arm, "workload": cell.workload, "load": cell.level.label, "valid": cell.valid}
    return {**key, "prediction": cell.prediction.to_dict()}
