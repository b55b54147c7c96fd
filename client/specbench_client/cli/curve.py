"""`specbench curve`: speed-up and acceptance of several stored runs against one axis."""

from __future__ import annotations

import click

from specbench_api.outcome.curves import Basis, Curves
from specbench_client.cli.consoles import page
from specbench_client.cli.options import Finite
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

AXES = ["temperature", "draft-tokens", "input-tokens", "output-tokens", "concurrency"]
WHOLE = ("draft-tokens", "concurrency")
"""Between two neighbouring numbers of these there is nothing."""
LINES = 8
"""What was left out, that a refusal names."""


@click.command()
@click.argument("where", metavar="WHERE...", nargs=-1, required=True)
@click.option("--by", type=click.Choice(AXES), required=True, help="What the curves are drawn against.")
@click.option(
    "--at",
    type=Finite(),
    multiple=True,
    metavar="X",
    help="What the curves say at X; outside of them nothing. Repeatable.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json", "csv", "markdown"]),
    default="text",
    show_default=True,
    help="Format.",
)
def curve(where: tuple[str, ...], by: str, at: tuple[float, ...], output: str) -> None:
    """Draw speed-up and acceptance length of stored runs against one axis, and say where the speed-up falls to 1.

    WHERE: a run's root, or a results root, of which every run is taken. Runs join one curve where they are alike in
    everything but the axis (model, engine, hardware, drafter, prompts, …); others make a curve of their own, which says
    in what it differs. Of runs that are the same the newest counts.

    \b
      specbench curve results --by temperature
      specbench curve results --by draft-tokens --at 4            between measured places: marked as interpolated
      specbench curve s3://bench/short s3://bench/long --by input-tokens --output csv
      specbench curve results/runs/local/smollm2/0190… --by concurrency

    What the curves, their intervals and their words are stands in docs/crossover.md.
    """
    for place in at:
        _refuse_impossible(by, place)
    from specbench_client.drive.curves import curves_in  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.report.curves import curves_csv, curves_markdown  # noqa: PLC0415  as above

    found = curves_in([open_results(root) for root in where], by, at)
    _refuse_nothing(found)
    if output == "json":
        click.echo(found.to_json(), nl=False)
    elif output == "csv":
        click.echo(curves_csv(found), nl=False)
    elif output == "markdown":
        click.echo(curves_markdown(found), nl=False)
    else:
        _show(found)


def _show(found: Curves) -> None:
    from specbench_client.report.curves import curve_sheet, lines_below  # noqa: PLC0415  as above

    console = page()
    for each in found.curves:
        console.sheet(curve_sheet(found, each))
    for line in lines_below(found):
        console.print(line)


def _refuse_impossible(by: str, place: float) -> None:
    """Raises BadInput where no curve could have such a place."""
    if by in WHOLE and place != round(place):
        raise BadInput(f"--at {place:g}: {by} is counted in whole numbers: give {round(place)}")
    if not 0 <= place < float("inf") or (place == 0 and by != "temperature"):
        raise BadInput(f"--at {place:g}: there is no such {by}: give a number above 0")


def _refuse_nothing(found: Curves) -> None:
    """Raises BadInput where there is no curve, or none that goes as far as what was asked for."""
    if not found.curves:
        lines = [f"{each.what}: {each.reason}" for each in found.left_out[:LINES]]
        raise BadInput("\n".join(["there is nothing to draw", *lines]), "NothingToDraw")
    for asked in zip(*(each.predictions for each in found.curves), strict=True):
        if all(each.basis is Basis.REFUSED for each in asked):
            raise BadInput(f"--at {asked[0].message}", "OutsideOfWhatWasMeasured")
