"""`specbench run`: execute a SpecBenchRun, or every run of a SpecBenchCampaign, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_api.campaign.expand import expand_campaign
from specbench_api.plan.expand import expand
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_client.cli.forewarn import warn
from specbench_client.cli.options import DEFAULT_RESULTS, FILE, NEW, OUTPUT, SET
from specbench_client.cli.plan_campaign import warnings_of
from specbench_client.cli.reading import read_file
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

    The runs of a campaign are measured one after another, with a table at the end and the worst of their exit codes.

    \b
      specbench run examples/local-simulator.yaml
      specbench run run.yaml --results s3://bench-results/try --set spec.load.repeats=5
      specbench run campaign.yaml --set spec.template.spec.load.repeats=5
    """
    wanted = read_file(file, settings)
    base_dir = file.resolve().parent
    if isinstance(wanted, SpecBenchCampaign):
        planned = expand_campaign(wanted)
        warn(warnings_of(planned, base_dir)[0])
    else:
        plan = expand(wanted)
        warn(cramped(plan))
    # Only now: pandas and its kin take seconds, and a spec that is wrong should say so at once.
    from specbench_client.cli.measuring import Wish, measured  # noqa: PLC0415
    from specbench_client.cli.run_campaign import measure_campaign  # noqa: PLC0415

    spec = wanted.spec.template.spec if isinstance(wanted, SpecBenchCampaign) else wanted.spec
    wish = Wish(base_dir, spec.startup_deadline_seconds, results, output, keep_text=keep_text, new=new, slo=spec.slo)
    return (
        measure_campaign(wanted, planned.runs, wish) if isinstance(wanted, SpecBenchCampaign) else measured(plan, wish)
    )
