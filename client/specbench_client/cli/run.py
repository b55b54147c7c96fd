"""`specbench run`: execute a SpecBenchRun on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_api.plan.expand import expand
from specbench_client.cli.forewarn import warn
from specbench_client.cli.options import DEFAULT_RESULTS, FILE, NEW, OUTPUT, SET
from specbench_client.cli.reading import read_run_file
from specbench_client.local.room import cramped


@click.command()
@FILE
@SET
@OUTPUT
@click.option("--results", default=DEFAULT_RESULTS, show_default=True, metavar="DIR-or-URI", help="Where results go.")
@NEW
@click.option("--keep-text", is_flag=True, help="Keep the answers' texts in the records.")
def run(file: Path, settings: tuple[str, ...], output: str, results: str, *, new: bool, keep_text: bool) -> int:
    """Measure FILE here: the same plan, the same points and the same layout of results as on a cluster.

    What is measured already (same spec, same results folder) is not measured again: interrupt it and run it again.
    --new measures everything again, and keeps the old run beside it.

    \b
      specbench run examples/local-simulator.yaml
      specbench run run.yaml --results s3://bench-results/try --set spec.load.repeats=5
    """
    wanted = read_run_file(file, settings)
    plan = expand(wanted)
    warn(cramped(plan))
    # Only now: pandas and its kin take seconds, and a spec that is wrong should say so at once.
    from specbench_client.cli.measuring import Wish, measured  # noqa: PLC0415

    deadline_s = wanted.spec.startup_deadline_seconds
    wish = Wish(file.resolve().parent, deadline_s, results, output, keep_text=keep_text, new=new)
    return measured(plan, wish)
