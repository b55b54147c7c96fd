"""`specbench validate`: the very rules of admission, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from specbench_api.campaign.expand import expand_campaign
from specbench_api.plan.expand import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_client.cli.forewarn import missing_here, warn
from specbench_client.cli.options import FILE, OUTPUT, SET
from specbench_client.cli.plan_campaign import warnings_of
from specbench_client.cli.reading import read_file
from specbench_client.local.room import cramped


@click.command()
@FILE
@SET
@OUTPUT
def validate(file: Path, settings: tuple[str, ...], output: str) -> None:
    """Check FILE by the rules of admission and by what its engine can do.

    Of a campaign, each of its combinations is checked as a run is.

    \b
      specbench validate examples/local-llama-cpp.yaml
    """
    read, base_dir = read_file(file, settings), file.resolve().parent
    if isinstance(read, SpecBenchCampaign):
        planned = expand_campaign(read)
        spoiling, missing = warnings_of(planned, base_dir)
        plans, runs = [run.plan for run in planned.runs], [run.name for run in planned.runs]
    else:
        plans, runs = [expand(read)], []
        spoiling, missing = cramped(plans[0]), missing_here(plans[0], base_dir)
    if output == "json":
        points = sum(len(plan.points) for plan in plans)
        told = {"valid": True, "name": read.metadata.name, "points": points, "warnings": [*spoiling, *missing]}
        click.echo(json.dumps(told | ({"runs": runs} if runs else {})))
    else:
        click.echo(f"{file}: valid: {_counted(plans, len(runs))}")
    warn(spoiling, missing)


def _counted(plans: Sequence[Plan], runs: int) -> str:
    """`runs`: of a campaign; 0 for a run by itself."""
    launches, points = sum(len(plan.groups) for plan in plans), sum(len(plan.points) for plan in plans)
    return f"{f'{runs} runs' if runs else f'{len(plans[0].arms)} arms'}, {launches} launches, {points} points"
