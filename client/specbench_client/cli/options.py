"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
"""`-` is stdin; relative paths then begin in the working directory."""
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field: --set spec.load.repeats=1. Repeatable.",
)
OUTPUT = click.option(
    "--output",
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one document on stdout.",
)
NEW = click.option("--new", is_flag=True, help="Measure again: a new run beside the one that is there.")
DEFAULT_RESULTS = "specbench-results"
