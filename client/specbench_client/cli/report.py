"""`specbench report`: the answer again, from what lies in a folder or in S3."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

import click
from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, SUMMARY
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.slo import Slo
from specbench_client.cli.files import deliver
from specbench_client.cli.runs import run_store
from specbench_client.cli.show import show
from specbench_client.cli.slo import asked_slo, overridden, slo_options
from specbench_client.errors import BadInput, NotDurable
from specbench_client.local.place import open_results
from specbench_client.metrics.energy import JOULES
from specbench_client.report.tables import csv, markdown
from specbench_client.store.store import Refusal, Store

Kept = TypeVar("Kept", Plan, RunSummary)
FORMATS = ["text", "json", "markdown", "csv", "html", "png", "parquet"]
BINARY = ("png", "parquet")
POINTS_STAND = (
    "analysed again: figures, comparisons, the checks of cells and of the run. Findings and figures of single points"
    " stand as their client left them (points/HASH/summary.json): what it saw of itself is in no record"
)


class Format(click.Choice[str]):
    """One of the formats. A file's name is refused with the option that takes one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format, as `Choice` has it."""
        kind = Path(value).suffix.removeprefix(".")
        if kind in self.choices and value not in self.choices:
            self.fail(f"{value!r} is the name of a file: give --output {kind} --to {value}", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--output",
    "-o",
    type=Format(FORMATS),
    default="text",
    show_default=True,
    help="Format; parquet: every record.",
)
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file instead of stdout.")
@click.option("--latest", is_flag=True, help="Of several runs, the newest.")
@click.option(
    "--recompute",
    is_flag=True,
    help="Analyse the records again, and replace summary and report; the checks of single points are not made again.",
)
@click.option(
    "--power",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Power samples while it was measured: nvidia-smi's CSV, time and watts, or Prometheus' JSON.",
)
@slo_options
def report(
    where: str,
    output: str,
    to: Path | None,
    *,
    latest: bool,
    recompute: bool,
    power: Path | None,
    **targets: float | None,
) -> None:
    """Show the run whose results lie at DIR-or-URI: a run's own root, or a results root. Several runs are listed.

    \b
      specbench report specbench-results --latest
      specbench report specbench-results --latest --output html --to report.html
      specbench report specbench-results --latest --output parquet --to records.parquet     one row a request
      specbench report specbench-results --latest --output json --slo-tpot-ms 35                by other targets
      specbench report s3://bench-results/llama33/runs/bench/llama33-70b/3f2c… --output markdown

    With --slo-… the records are analysed again and goodput is judged by these targets; with --power the energy of an
    output token is told, too (what a file must hold: docs/metrics.md, Energy). Only with --recompute is either kept.

    What the figures are stands in docs/metrics.md, what the records hold in docs/records.md.

    s3:// takes keys, region and AWS_ENDPOINT_URL_S3 (elsewhere than at AWS) from the environment, as the AWS CLI does.
    """
    if output in BINARY and to is None and sys.stdout.isatty():
        raise BadInput(f"--output {output} is nothing for a terminal: add --to FILE")
    store = run_store(open_results(where), where, latest=latest)
    plan = _read(Plan, store, PLAN)
    if output == "parquet":
        _deliver(_records(plan, store), to)
        return
    asked = asked_slo(targets["slo_ttft_ms"], targets["slo_tpot_ms"], targets["slo_e2e_ms"])
    summary = _summary(plan, store, asked, power, recompute=recompute)
    if power is not None:
        _tell_missing_energy(summary)
    if output in ("text", "json") and to is None:
        show(plan, summary, output, store.uri())
    else:
        _deliver(_rendered(plan, summary, output), to)


def _tell_missing_energy(summary: RunSummary) -> None:
    """Why samples that were given say nothing, once a reason."""
    told = [figure for cell in summary.cells if (figure := cell.figures.get(JOULES)) and figure.value is None]
    for reason in dict.fromkeys(figure.definition.partition("; missing: ")[2] for figure in told):
        click.echo(f"no energy: {reason}", err=True)


def _deliver(data: bytes, to: Path | None) -> None:
    if to:
        deliver("--to", to, data)
    else:
        click.echo(data, nl=False)


def _read(kind: type[Kept], store: Store, key: str) -> Kept:
    try:
        return kind.from_json(store.get(key) or b"")
    except ValidationError as error:
        remedy = "run the same spec again, or add --recompute" if key == SUMMARY else "its records are still there"
        what = "is damaged, or was written by another version of specbench"
        raise NotDurable(f"{store.uri(key)}: {what}: {remedy}", Refusal.DAMAGED) from error


def _summary(plan: Plan, store: Store, asked: Slo | None, power: Path | None, *, recompute: bool) -> RunSummary:
    """As it is kept, or made anew: kept where that was asked for or none was, else shown alone."""
    there = store.get(SUMMARY) is not None
    if there and not recompute and asked is None and power is None:
        return _read(RunSummary, store, SUMMARY)
    from specbench_client.drive.conclude import conclude, summarised  # noqa: PLC0415  seconds, and seldom wanted
    from specbench_client.drive.power import read_power  # noqa: PLC0415

    slo = overridden(_kept_slo(store), asked)
    samples = read_power(power) if power else None
    keep = recompute or not there
    if recompute:
        click.echo(POINTS_STAND, err=True)
    return conclude(plan, store, slo=slo, power=samples) if keep else summarised(plan, store, slo, samples)


def _kept_slo(store: Store) -> Slo | None:
    """The targets of the answer that is there; a damaged one is replaced, and has none."""
    try:
        return RunSummary.from_json(store.get(SUMMARY) or b"").slo
    except ValidationError:
        return None


def _records(plan: Plan, store: Store) -> bytes:
    from specbench_client.drive.export import records_parquet  # noqa: PLC0415  as is pyarrow

    return records_parquet(plan, store)


def _rendered(plan: Plan, summary: RunSummary, output: str) -> bytes:
    if output == "png":
        from specbench_client.report.plots import png  # noqa: PLC0415  as is matplotlib

        return png(summary)
    if output == "json":
        return summary.to_json().encode()
    if output == "csv":
        return csv(summary).encode()
    if output == "html":
        from specbench_client.report.html import render_html  # noqa: PLC0415

        return render_html(plan, summary).encode()
    return markdown(plan, summary).encode()
