"""`specbench validate`: the very rules of admission, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import click

from specbench_api.plan.expand import expand
from specbench_client.cli.forewarn import missing_here, warn
from specbench_client.cli.options import FILE, OUTPUT, SET
from specbench_client.cli.reading import read_run_file
from specbench_client.local.room import cramped


@click.command()
@FILE
@SET
@OUTPUT
def validate(file: Path, settings: tuple[str, ...], output: str) -> None:
    """Check FILE by the rules of admission and by what its engine can do.

    \b
      specbench validate examples/local-llama-cpp.yaml
    """
    plan = expand(read_run_file(file, settings))
    spoiling, missing = cramped(plan), missing_here(plan, file.resolve().parent)
    if output == "json":
        told = {"valid": True, "name": plan.name, "points": len(plan.points), "warnings": [*spoiling, *missing]}
        click.echo(json.dumps(told))
    else:
        click.echo(f"{file}: valid: {len(plan.arms)} arms, {len(plan.groups)} launches, {len(plan.points)} points")
    warn(spoiling, missing)
