"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
SET = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Override a field: --set spec.load.repeats=1"
)
OUTPUT = click.option(
    "--output",
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one document on stdout.",
)
DEFAULT_RESULTS = "specbench-results"
