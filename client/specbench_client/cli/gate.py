"""`specbench gate`: whether a result is not worse than an earlier one. Its exit code is the verdict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.ending import Exit
from specbench_api.outcome.gate import AskedGate, GateReport
from specbench_api.plan.asked import asked_digest
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.gate import BaselineRef, Gate, GateMetric
from specbench_api.spec.reading import problems_in
from specbench_client.cli.consoles import page
from specbench_client.cli.files import deliver
from specbench_client.cli.reading import read_file
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

_TOLERANCE = re.compile(r"(?P<metric>[A-Za-z]+)(?:\.(?P<percentile>p\d+))?=(?P<percent>[0-9.]+)%?")


@click.command()
@click.argument("result", metavar="RESULT")
@click.option("--baseline", metavar="RESULT", help="The earlier result: a run's root, or a results root.")
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="A SpecBenchRun whose spec.gate is taken; --baseline and --tolerance override it.",
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="METRIC=PERCENT",
    help="So much worse it may be: speedup=5%, tpot=3%, ttft.p95=10%.  [default: speedup=5% and tpot=5%]",
)
@click.option("--confidence", type=float, metavar="SHARE", help="Of each one-sided test.  [default: 0.95]")
@click.option(
    "--inconclusive", type=click.Choice(["Fail", "Pass"]), help="What an undecided gate means.  [default: Fail]"
)
@click.option("--allow-untrustworthy", is_flag=True, help="Compare results that the checks doubt.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the comment.")
@click.option("--report-url", default="", metavar="URL", help="What the comment links to.")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def gate(result: str, **given: Any) -> int:
    """Pass or fail RESULT against an earlier one. Exit code 0: passed; 3: failed, or neither could be shown.

    A gate passes when every cell is shown to be within its tolerance, at the confidence asked for. It fails when one is
    shown to be beyond it. Else it is inconclusive, which is no pass: docs/gate.md says why, and what would decide.

    \b
      specbench gate results/pr --baseline results/main
      specbench gate results/pr --baseline results/main --tolerance speedup=3% --tolerance ttft.p95=10%
      specbench gate results/pr --from run.yaml --markdown comment.md
    """
    wanted = _gate_of(given)
    if wanted.baseline_ref.uri is None:
        raise BadInput(
            f"spec.gate.baselineRef names {_named(wanted.baseline_ref)}, which only a cluster can find:"
            " give its results by --baseline",
            "BaselineMissing",
        )
    from specbench_client.drive.compared import gate_stores  # noqa: PLC0415  statistics: seconds of imports

    places = (wanted.baseline_ref.uri, result)
    before, after = (run_store(open_results(where), where, latest=given["latest"]) for where in places)
    if before.uri() == after.uri():
        raise BadInput(f"{before.uri()} is both the result and its baseline: give an earlier result as --baseline")
    asked = AskedGate(asked=asked_digest(wanted), gate=wanted, baseline=before.uri())
    report = gate_stores(asked, before, after)
    _deliver(report, given)
    return Exit.OK if report.passed else Exit.UNTRUSTWORTHY


def _gate_in(file: Path) -> Gate | None:
    """Of a run, or of every run of a campaign."""
    resource = read_file(file)
    spec = resource.spec.template.spec if isinstance(resource, SpecBenchCampaign) else resource.spec
    return spec.gate


def _gate_of(given: dict[str, Any]) -> Gate:
    """The gate of the file, with what the command line says over it. Raises InvalidSpec, BadInput."""
    found = _gate_in(given["file"]) if given["file"] else None
    if given["file"] and found is None:
        raise InvalidSpec([Problem("spec.gate", f"{given['file']} has none", "add it, or give --baseline")])
    if found is None and given["baseline"] is None:
        raise BadInput("nothing to compare with: give --baseline RESULT, or --from FILE with a spec.gate")
    data = found.to_dict() if found else {}
    changes = {
        "baselineRef": {"uri": given["baseline"]} if given["baseline"] is not None else None,
        "tolerances": [_tolerance(text) for text in given["tolerances"]] or None,
        "confidence": given["confidence"],
        "inconclusive": given["inconclusive"],
        "requireTrustworthy": False if given["allow_untrustworthy"] else None,
    }
    try:
        return Gate.model_validate({**data, **{name: value for name, value in changes.items() if value is not None}})
    except ValidationError as error:
        raise InvalidSpec([Problem(f"gate.{each.path}", each.message) for each in problems_in(error, Gate)]) from error


def _tolerance(text: str) -> dict[str, Any]:
    match = _TOLERANCE.fullmatch(text)
    if match is None or match["metric"] not in list(GateMetric):
        known = ", ".join(GateMetric)
        raise InvalidSpec([Problem("--tolerance", f"{text!r} is not METRIC=PERCENT", f"metrics: {known}; speedup=5%")])
    found: dict[str, Any] = {"metric": match["metric"], "maxRegressionPercent": match["percent"]}
    return {**found, "percentile": match["percentile"]} if match["percentile"] else found


def _named(ref: BaselineRef) -> str:
    return f"the run {ref.run!r}" if ref.run is not None else f"the campaign {ref.campaign!r}"


def _deliver(report: GateReport, given: dict[str, Any]) -> None:
    from specbench_client.report.compared import gate_markdown, gate_sheet, lines_below  # noqa: PLC0415  as above

    comment = gate_markdown(report, given["report_url"])
    if given["markdown"]:
        deliver("--markdown", given["markdown"], comment.encode())
    if given["output"] == "json":
        click.echo(report.to_json(), nl=False)
    elif given["output"] == "markdown":
        click.echo(comment, nl=False)
    else:
        console = page()
        if report.tests:
            console.sheet(gate_sheet(report))
        lines = [f"{report.reason}: {report.message}", *lines_below(report.differences, report.uncompared)]
        for line in [*lines, *report.limits]:
            console.print(line)
