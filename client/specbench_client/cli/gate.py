"""`specbench gate`: whether a result is no worse than an earlier one. The exit code is the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.gate import Gate, GateMetric, GateRequest
from specbench_api.spec.parsing import problems_in
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN, field_options, read_spec_file, with_fields
from specbench_client.cli.output import print_output, write_output_file
from specbench_client.cli.run_selection import select_run
from specbench_client.documents.comparison import GateReport
from specbench_client.errors import BadInput
from specbench_client.measure_flags import SpecFlag
from specbench_client.report.text.comparison import comparison_notes, gate_markdown, gate_table
from specbench_client.stored_runs.gate import gate_runs

_TOLERANCE = re.compile(r"(?P<metric>[A-Za-z]+)(?:\.(?P<percentile>p\d+))?=(?P<percent>[0-9.]+)%?")


FLAGS = (
    SpecFlag("--confidence", "gate.confidence", "Confidence of each one-sided test.", "SHARE"),
    SpecFlag("--inconclusive", "gate.onInconclusive", "Whether an undecided gate passes."),
)


@click.command()
@click.argument("result", metavar="RESULT")
@click.option("--baseline", metavar="RESULT", help="The earlier result: the root of a run, or a results root.")
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Use the spec.gate of this SpecBenchRun; --baseline and --tolerance override it.",
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="METRIC=PERCENT",
    help="Largest accepted regression: speedup=5%, tpot=3%, ttft.p95=10%. Repeatable.  [default: speedup=5%, tpot=5%]",
)
@field_options(FLAGS)
@click.option("--allow-untrustworthy", is_flag=True, help="Also accept results that failed trust checks.")
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a Markdown comment for a pull request.",
)
@click.option("--report-url", default="", metavar="URL", help="Link of the comment.")
@OUTPUT_MARKDOWN
@LATEST
def gate(result: str, **options: Any) -> int:
    """Decide whether RESULT is no worse than an earlier result. Exit code 0: passed; 3: regressed or inconclusive.

    \b
      specbench gate results/pr --baseline results/main
      specbench gate results/pr --baseline results/main --tolerance speedup=3% --tolerance ttft.p95=10%
      specbench gate results/pr --from run.yaml --markdown comment.md

    The gate passes if every cell is shown to be within its tolerance at the given confidence, and fails if one is shown
    to be beyond it. Otherwise it is inconclusive, and does not pass unless --inconclusive is Pass. Each side needs at
    least 3 repeats. Results of `specbench measure` without --baseline have no baseline arm, so only tpot is compared
    by default. Details: docs, "Compare two results and gate a
    change".
    """
    requested = _gate_of(options)
    if requested.baseline_ref.uri is None:
        ref = requested.baseline_ref
        named = f"the run {ref.run!r}" if ref.run is not None else f"the campaign {ref.campaign!r}"
        remedy = "which only a cluster can find: give its results with --baseline"
        raise BadInput(f"spec.gate.baselineRef names {named}, {remedy}", "BaselineMissing")
    locations = (requested.baseline_ref.uri, result)
    before, after = (select_run(where, latest=options["latest"]) for where in locations)
    if before.uri == after.uri:
        raise BadInput(f"{before.uri} is both the result and its baseline: give an earlier result with --baseline")
    request = GateRequest(gate_digest=digest_of_gate(requested), gate=requested, baseline=before.uri)
    report = gate_runs(request, before, after)
    _print(report, options)
    return Exit.OK if report.passed else Exit.UNTRUSTWORTHY


def _gate_of(options: dict[str, Any]) -> Gate:
    """Return the gate of the file with the command line's changes. Raises InvalidSpec, BadInput."""
    found = None
    if options["file"]:
        resource = read_spec_file(options["file"])
        found = (resource.spec.template if isinstance(resource, SpecBenchCampaign) else resource).spec.gate
        if found is None:
            raise InvalidSpec([Problem("spec.gate", f"{options['file']} has no gate", "add one, or give --baseline")])
    elif options["baseline"] is None:
        raise BadInput("no earlier result: give --baseline RESULT, or --from FILE with a spec.gate")
    data = with_fields({"gate": found.to_dict() if found else {}}, FLAGS, options)["gate"]
    changes = {
        "baselineRef": {"uri": options["baseline"]} if options["baseline"] is not None else None,
        "tolerances": [_tolerance(text) for text in options["tolerances"]] or None,
        "requireTrustworthy": False if options["allow_untrustworthy"] else None,
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


def _print(report: GateReport, options: dict[str, Any]) -> None:
    comment = gate_markdown(report, options["report_url"])
    if options["markdown"]:
        write_output_file("--markdown", options["markdown"], comment.encode())
    # The message already contains the first cells that could not be compared.
    other_gaps = [each for each in report.uncompared if f"{each.place} ({each.message})" not in report.message]
    notes = [*comparison_notes(report.differences, other_gaps), *report.limits]

    tables, lines = [gate_table(report)] if report.tests else [], [f"{report.reason}: {report.message}", *notes]
    print_output(
        options["output"],
        report,
        text=lambda console: console.print_tables(tables, lines),
        markdown=lambda: comment,
    )
