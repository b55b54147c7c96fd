"""`specbench analyze draft-lengths`: the best measured draft length at each load, and the engine's schedule of them."""

from __future__ import annotations

import click

from specbench_client.cli.options import LATEST, ONLY_WORKLOAD, output_option
from specbench_client.cli.output import ResultConsole, print_output
from specbench_client.cli.run_selection import select_run
from specbench_client.errors import BadInput

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
    it was run is stated below it. More: docs/research/draft-lengths.md.
    """
    from specbench_client.analysis.curves.draft_lengths import best_draft_lengths  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.analysis.explanation.traffic_mix import cells_of  # noqa: PLC0415
    from specbench_client.report.text.curves import draft_lengths_table, schedule_lines  # noqa: PLC0415
    from specbench_client.report.text.text_table import SIMULATED  # noqa: PLC0415

    result = select_run(where, latest=latest).require_summary()
    found = best_draft_lengths(result, cells_of(result, workload))
    if not found.tables:
        raise BadInput("\n".join([f"{where}: {NOTHING_COMPARED}", *found.left_out]), "NoDraftLengths")

    def print_text(console: ResultConsole) -> None:
        if found.simulated:
            console.print(SIMULATED)
        for table in found.tables:
            console.print_tables([draft_lengths_table(table)], [*schedule_lines(table), ""])
        for each in found.left_out:
            console.print_line(f"left out: {each}")

    print_output(output, found, text=print_text)
