"""`specbench drift`: whether acceptance has changed since a reference. Its exit code is the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbench_api.outcome.ending import Exit
from specbench_client.cli.options import FiniteRange
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

if TYPE_CHECKING:
    from specbench_client.analysis.drift.requests import Requests


@click.command()
@click.argument("reference", metavar="REFERENCE")
@click.argument("current", metavar="CURRENT")
@click.option("--arm", help="Of a stored run: the drafter.")
@click.option("--workload", help="Of a stored run: the workload.")
@click.option("--load", help="Of a stored run: the load, as tables call it.")
@click.option("--window", type=click.IntRange(min=1), default=200, show_default=True, help="Requests of one window.")
@click.option("--window-seconds", type=FiniteRange(min=0, min_open=True), help="Windows of time instead.")
@click.option(
    "--run-length",
    type=FiniteRange(min=100, max=1e6),
    help="Requests between two false alarms, on average.  [default: 20 times the length of CURRENT]",
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def drift(reference: str, current: str, *, output: str, **given: Any) -> int:
    """Ask whether acceptance in CURRENT is still what it was in REFERENCE. Exit code 0: nothing found; 3: alarm.

    Each is a stored run of ours, or a JSONL log with one request a line: steps, accepted_tokens, and where they are
    known drafted_tokens, category, time (RFC 3339, or seconds since 1970) and prompt_id. EWMA and CUSUM charts look for
    a lasting shift, with limits that the reference itself gives; the change is then told as a sum of two parts, other
    categories (mix) and other acceptance within them (drafter).

    \b
      specbench drift results/monday results/tuesday --arm eagle3 --load 8
      specbench drift reference.jsonl yesterday.jsonl --window-seconds 3600
      specbench drift s3://bench/runs/team/llama/3f2c… yesterday.jsonl --run-length 100000 --output json

    What it means and what to do: docs/drift.md. Rules for Prometheus: examples/monitoring/drift.rules.yaml.
    """
    from specbench_client.analysis.drift.judge import Wanted, judge_drift  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.report.drift import drift_lines, drift_markdown  # noqa: PLC0415

    logs = [_requests(where, given) for where in (reference, current)]
    wanted = Wanted(given["window"], given["window_seconds"], given["run_length"])
    report = judge_drift(logs[0], logs[1], wanted)
    if output == "json":
        click.echo(report.to_json(), nl=False)
    elif output == "markdown":
        click.echo(drift_markdown(report), nl=False)
    else:
        click.echo("\n".join(drift_lines(report)))
    return Exit.UNTRUSTWORTHY if report.alarm else Exit.OK


def _requests(where: str, given: dict[str, Any]) -> Requests:
    from specbench_client.drive.drifting import Choice, requests_of_log, requests_of_run  # noqa: PLC0415  as above

    path = Path(where)
    if path.is_file():
        return requests_of_log(path)
    if "://" not in where and not path.exists():
        raise BadInput(f"{where}: neither a log nor the results of a run")
    choice = Choice(given["arm"], given["workload"], given["load"])
    return requests_of_run(run_store(open_results(where), where, latest=given["latest"]), choice)
