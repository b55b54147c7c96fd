"""`specbench report`: show a stored run in any format, or analyze its records again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import DialectName
from specbench_api.spec.latency_percentiles import PERCENTILES as PERCENTILE_NAMES
from specbench_api.spec.latency_percentiles import TERMINAL_STATISTICS
from specbench_api.spec.slo import Slo
from specbench_client.analysis.summary.stop_rule import is_settled
from specbench_client.cli.options import LATEST, PERCENTILES, override_slo, slo_from_options, slo_options
from specbench_client.cli.output import result_console, write_output_file
from specbench_client.cli.run_selection import run_arguments, select_run, shown_path
from specbench_client.cli.streams import echo, echo_document, echo_json
from specbench_client.cli.value_types import Choice
from specbench_client.documents.figure import StatusFigure
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import RunSummary
from specbench_client.errors import BadInput, NotDurable
from specbench_client.report.results_csv import csv
from specbench_client.report.text.answers import answers_lines, answers_table
from specbench_client.report.text.applicability import applicability_line
from specbench_client.report.text.breakdown import reuse_lines
from specbench_client.report.text.curves import crossover_lines
from specbench_client.report.text.findings import failure_lines, group_findings, next_step
from specbench_client.report.text.results_table import cells_table
from specbench_client.report.text.run_report import markdown
from specbench_client.report.text.trends import trends_table
from specbench_client.store.store import StoreErrorReason
from specbench_client.stored_runs.run import Run
from specbench_client.trust.checks.comparison import missing_points
from specbench_client.trust.checks.engine import simulated

FORMATS = ["text", "json", "markdown", "csv", "html", "png", "parquet"]
BINARY = ("png", "parquet")
_MARKDOWN = "markdown"
_SUFFIXES = {**{f".{name}": name for name in FORMATS if name != "text"}, ".md": _MARKDOWN, ".htm": "html"}
"""Suffix of a file → the format to write into it."""
NOTES = 3
"""Notes that the terminal shows without --all."""
_UNKNOWN_AL = (
    "Note: acceptance length (AL) and acceptance rate are unknown: dialect openai does not contain them."
    " If the server is vLLM, SGLang, TensorRT-LLM or llama.cpp, measure again with its --dialect (vllm, sglang,"
    " tensorrt-llm, llama-cpp)"
)
_AL_NOT_IMPORTED = (
    "Note: where acceptance length (AL) and acceptance rate are missing, the imported file does not have the engine's"
    " steps of each request"
)
POINTS_STAND = (
    "analyzed again: figures, comparisons, and the checks of cells and of the run. Figures and findings of single"
    " points are unchanged (points/HASH/summary.json), because the records do not contain what the client observed"
    " of itself"
)


class ReportFormat(Choice):
    """One of the formats. For a file name, the error names the option that takes a file."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format."""
        kind = Path(value).suffix.removeprefix(".")
        if kind in self.choices and value not in self.choices:
            self.fail(f"{value!r} is a file name: give --output {kind} --to {value}", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--output",
    "-o",
    type=ReportFormat(FORMATS),
    help="Output format; parquet: every record.  [default: the format of --to's suffix, else text]",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file instead of stdout; text is written as Markdown.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Show every finding and note on the terminal, not only the first few."
)
@LATEST
@click.option(
    "--recompute",
    is_flag=True,
    help="Analyze the records again, and replace the stored summary and report. Single points are not checked again.",
)
@PERCENTILES
@slo_options
@click.option("--no-slo", is_flag=True, help="Drop the stored latency limits: only those given here count.")
def report(
    where: str,
    output: str | None,
    to: Path | None,
    percentiles: Sequence[str] | None,
    *,
    show_all: bool,
    latest: bool,
    recompute: bool,
    no_slo: bool,
    **slo: float | None,
) -> None:
    """Show the result of a stored run: in the terminal, or as Markdown, CSV, JSON, HTML, PNG or Parquet.

    \b
      specbench report specbench-results --latest
      specbench report specbench-results --latest --to report.html
      specbench report specbench-results --latest --to records.parquet     one row per request
      specbench report specbench-results --latest --output json --slo-tpot-ms 35            with another latency limit
      specbench report s3://bench-results/llama33/runs/bench/llama33-70b/3f2c… --output markdown

    DIR-or-URI is the root of a run, or a results root; several runs are listed. With --slo-…, the records are analyzed
    again and goodput is judged by these limits, and by the stored ones that they do not replace. This is stored only
    with --recompute; --recompute --no-slo removes the stored limits. Nothing is stored of a run that has not ended.

    Definitions: docs, "Figures and checks" and "Records".

    For s3://, credentials, region and AWS_ENDPOINT_URL_S3 (for stores other than AWS) come from the environment, as
    with the AWS CLI.
    """
    output = _format_of(output, to)
    if output in BINARY and to is None and sys.stdout.isatty():
        raise BadInput(f"--output {output} is a binary format: add --to FILE")
    if percentiles is not None and output not in ("text", _MARKDOWN):
        raise BadInput(f"--percentiles selects columns of text and Markdown, {output} has all of them: leave it out")
    run = select_run(where, latest=latest)
    plan = run.plan
    if output == "parquet":
        from specbench_client.stored_runs.frames import records_parquet  # noqa: PLC0415  pandas takes a second to import

        _write(records_parquet(run), to)
        return
    stored = run.has_current_summary()
    unfinished = run.unfinished(stored=stored)
    given, ended = slo_from_options(slo), unfinished is None
    if stored and ended and not recompute and not no_slo and given is None:
        summary = run.summary
    else:
        summary = _analyze(run, given, keep_slo=not no_slo, store=ended and (recompute or not stored))
    if recompute and ended:
        echo(POINTS_STAND, err=True)
    if output in ("text", "json") and to is None:
        print_run_summary(
            plan, summary, output, run.uri, show_all=show_all, statistics=percentiles, unfinished=unfinished
        )
    else:
        _write(_rendered(plan, summary, output, percentiles or PERCENTILE_NAMES), to)
    if unfinished is not None and (output != "text" or to is not None):
        echo(f"{unfinished[0]} The figures are preliminary.", err=True)


def _format_of(output: str | None, to: Path | None) -> str:
    """Return the format: the requested one, else that of the file's suffix. Raises BadInput if they contradict."""
    of_suffix = _SUFFIXES.get(to.suffix.lower()) if to else None
    if output is None:
        if to is not None and of_suffix is None and to.suffix.lower() not in ("", ".txt"):
            raise BadInput(
                f"--to {to}: no format has this suffix: give one of {' '.join(_SUFFIXES)}, or --output FORMAT"
            )
        return of_suffix or "text"
    if of_suffix is not None and (_MARKDOWN if output == "text" else output) != of_suffix:
        raise BadInput(f"--output {output} contradicts --to {to}: leave out --output, or give --output {of_suffix}")
    return output


def _write(data: bytes, to: Path | None) -> None:
    if to:
        write_output_file("--to", to, data)
    else:  # bytes are written as they are, whatever the encoding of stdout
        echo_document(data)


def _analyze(run: Run, given: Slo | None, *, keep_slo: bool, store: bool) -> RunSummary:
    """Return the summary computed from the records. `keep_slo`: whether stored limits hold that are not given."""
    from specbench_client.stored_runs.write_results import conclude, summarize_stored  # noqa: PLC0415  pandas takes seconds to import

    kept = run.summary_of_any_version()
    if kept is None and keep_slo:
        what = "the latency limits and the reasons why engines failed cannot be read"
        remedy = "repeat with --no-slo to drop them, and with the limits that should hold (--slo-…)"
        raise NotDurable(f"{run.store.uri(SUMMARY)}: {what}: {remedy}", StoreErrorReason.DAMAGED)
    slo = override_slo(kept.slo if kept and keep_slo else None, given)
    return conclude(run.plan, run.store, slo=slo) if store else summarize_stored(run, slo)


def _rendered(plan: Plan, summary: RunSummary, output: str, statistics: Sequence[str]) -> bytes:
    if output == "png":
        from specbench_client.report.plots.charts import speedup_png  # noqa: PLC0415  matplotlib takes seconds to import

        return speedup_png(summary)
    if output == "json":
        return summary.to_json().encode()
    if output == "csv":
        return csv(summary).encode()
    if output == "html":
        from specbench_client.report.html import render_html  # noqa: PLC0415

        return render_html(plan, summary).encode()
    return markdown(plan, summary, statistics).encode()


def print_run_summary(
    plan: Plan,
    summary: RunSummary,
    output: str,
    uri: str,
    *,
    show_all: bool = False,
    statistics: Sequence[str] | None = None,
    unfinished: tuple[str, str] | None = None,
) -> None:
    """Print the answer: one JSON document, or text for people. `statistics`: see `cell_columns`.

    A run that has not ended has figures, but no conclusion and no report. `unfinished`: see `unfinished_run`.
    Findings above Info are always printed, since the headline names them; of everything else `NOTES` lines, unless
    `show_all`.
    """
    if output == "json":
        echo_json(summary.to_json())
        return
    console = result_console()
    found = [each for each in summary.findings if unfinished is None or each.check != missing_points.name]
    groups = group_findings(plan, found)
    if not show_all:
        # The headline already reports that a run was simulated.
        groups = [group for group in groups if group.check != simulated.name]
    texts = [group.text + (f"\n  What to do: {group.remedy}" if group.remedy else "") for group in groups]
    named = sum(group.severity is not Severity.INFO for group in groups)
    notes = [*texts[named:], *_result_notes(plan, summary)]
    shown = notes if show_all else notes[:NOTES]
    console.print_line(f"{unfinished[0]} The figures are preliminary." if unfinished else summary.headline)
    if summary.trustworthy and not summary.simulated:
        console.print_line("Trustworthy: no check found a reason to doubt these figures.")
    if summary.decided_after is not None:
        console.print_line(_why_stopped(plan, summary))
    for line in failure_lines(summary):
        console.print_line(line)
    tables = (cells_table(summary, statistics or TERMINAL_STATISTICS), trends_table(summary), answers_table(summary))
    console.print_tables([table for table in tables if table.rows])
    for text in [*reuse_lines(summary.cells), *_why_no_acceptance(plan, summary), *texts[:named], *shown]:
        console.print_line(text)
    where = run_arguments(plan, uri)
    more = len(notes) - len(shown)
    if more:
        echo(f"{more} more note{'s' if more > 1 else ''}: `specbench report {where} --all`")
    console.print_line(f"Next: {unfinished[1] if unfinished else next_step(plan, summary, where)}")
    if unfinished is None:
        console.print(f"Report: {shown_path(uri)}/{REPORT}", soft_wrap=True)


def _why_stopped(plan: Plan, summary: RunSummary) -> str:
    """Return why a run with a stop rule ended early."""
    why = "every speed-up is clear"
    if not all(cell.valid for cell in summary.cells):
        why = "more repeats would not make an invalid comparison valid"
    elif not all(is_settled(cell.claims.overall, cell.speedup) for cell in summary.cells if cell.claims):
        why = "the servers had the prompts of the last ones in their caches: give more prompts"
    return f"Stopped after {summary.decided_after} of at most {plan.load.repeats} repeats: {why}."


def _why_no_acceptance(plan: Plan, summary: RunSummary) -> list[str]:
    """Return the reason for missing acceptance lengths, if it is known."""
    missing = [cell.value(StatusFigure.ACCEPTANCE_LENGTH) is None for cell in summary.cells]
    if plan.engine.is_imported:
        return [_AL_NOT_IMPORTED] if any(missing) else []
    plain = all(plan.engine_of(arm).dialect in (None, DialectName.OPENAI) for arm in plan.arms)
    return [_UNKNOWN_AL] if plan.engine.is_external and plain and missing and all(missing) else []


def _result_notes(plan: Plan, summary: RunSummary) -> list[str]:
    """What the results allow beyond the table, the most useful first."""
    if not summary.cells:
        return []
    crossovers = [f"Note: {line}" for line in crossover_lines(summary)]
    found = summary.recommendation if plan.has_baseline else None
    decision = [f"Recommendation: {found.sentence}"] if found else []
    early, repeats = list[str](), plan.load.repeats
    if plan.stop == "WhenDecayed" and not summary.missing:
        ended = {cell.arm: len(cell.points) for cell in summary.cells if len(cell.points) < repeats}
        early += [f"Note: {arm} ended after {count} of {repeats} windows: it decayed" for arm, count in ended.items()]
    answers = [] if answers_table(summary).rows else answers_lines(summary)
    return [
        *early,
        *crossovers,
        *decision,
        *answers,
        f"These results apply to {applicability_line(plan, summary)}",
    ]
