"""`specbench analyze`: deeper questions about stored runs and logs, one subcommand per question."""

from __future__ import annotations

import click

from specbench_client.cli.command_groups import LazyGroup

HEADINGS = {
    "Acceptance": {
        "breakdown": "Acceptance by position, context, length, turn and reasoning.",
        "drift": "Whether acceptance has changed since a reference, and why.",
    },
    "Speed-up": {
        "curve": "Speed-up of a run by load, draft length, temperature or length.",
        "draft-lengths": "The best measured number of draft tokens at each load.",
        "explain": "The factors of a speed-up; its projection onto your mix.",
    },
    "What if": {
        "oracle": "Upper bounds: perfect and best fixed draft lengths.",
        "ngram": "Whether n-gram drafting would help, from recorded answers.",
    },
}


MODULES = {
    "breakdown": "analyze_acceptance",
    "drift": "analyze_acceptance",
    "curve": "analyze_speedups",
    "draft-lengths": "analyze_speedups",
    "explain": "analyze_speedups",
    "oracle": "analyze_what_if",
    "ngram": "analyze_what_if",
}


@click.group(cls=LazyGroup, headings=HEADINGS, modules=MODULES)
def analyze() -> None:
    """Analyze stored runs: where a drafter is accepted, what limits a speed-up, what other settings would give.

    \b
      specbench analyze breakdown specbench-results --latest
      specbench analyze explain specbench-results --latest --mix coding=0.8,creative=0.2
      specbench analyze draft-lengths specbench-results --latest
      specbench analyze drift results/monday results/tuesday --arm eagle3 --load 8
    """
