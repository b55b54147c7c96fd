"""Executing a plan for `run` and `measure`: measure, summarize, print, and choose the exit code.

A campaign's runs are executed one after another, with one table at the end and one exit code. Everything that can be
rejected is rejected before the first engine starts. A run whose engine fails does not stop the others unless the
campaign's failurePolicy requires it; if results cannot be stored, no further run begins.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specbench_api.campaign.expansion import PlannedRun
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import REPORT
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.run import RunSpec
from specbench_api.spec.slo import Slo
from specbench_client.analysis.estimates.point_rows import why_no_rounds_are_added
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.live_progress import LiveProgress
from specbench_client.cli.output import result_console
from specbench_client.cli.report import print_run_summary
from specbench_client.cli.run_selection import run_arguments, shown_path
from specbench_client.cli.streams import echo, echo_json
from specbench_client.documents.finding import doubting_checks, list_faults
from specbench_client.documents.summary import RunSummary, best_speedup_text
from specbench_client.drive.options import ClientOptions, SystemClock
from specbench_client.errors import BadInput, EngineFailed, Interrupted, NotDurable
from specbench_client.local.executor import LocalOptions, execute_locally, validate_inputs
from specbench_client.local.local_runs import (
    exclusive_campaign,
    exclusive_run,
    find_local_run,
    new_local_run,
)
from specbench_client.report.text.findings import points_are, with_settings
from specbench_client.report.text.text_table import TextTable, mark_simulated
from specbench_client.store.locations import open_store
from specbench_client.store.store import StoreErrorReason, check_s3_server
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.write_results import conclude


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line. `base_dir`: relative paths of the spec are relative to it."""

    base_dir: Path
    results: str
    output: str
    client: ClientOptions = field(default_factory=ClientOptions)
    new: bool = False
    """Whether to start a new run instead of continuing the stored one."""
    reuse_finished: bool = True
    """Whether a complete run is shown again. False for an endpoint, which may serve something else by now."""
    retries: int | None = None
    """How many rounds of an interleaved run may be measured again; None: as the run's spec says, and 0 without one."""
    retry_invalid: bool = False
    """Whether to measure the invalid rounds of a complete run again."""
    startup_deadline_s: float = 0.0
    slo: Slo | None = None
    """The latency limits of goodput."""
    statistics: Sequence[str] | None = None
    """Statistics of latencies in the table, such as `p90`; None: the usual ones."""

    def for_spec(self, spec: RunSpec) -> RunOptions:
        """Return the options with what the spec of a run sets, unless a flag does."""
        retries = spec.retries if self.retries is None else self.retries
        return replace(self, startup_deadline_s=spec.startup_deadline_seconds, slo=spec.slo, retries=retries)


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run. `failed`: arms whose engine failed.

    `finished`: when its last point ended, if the run was complete before and nothing was measured now; else empty.
    """

    run: Run
    summary: RunSummary
    failed: Mapping[str, EngineFailed]
    finished: str

    @property
    def exit(self) -> Exit:
        """The exit code of the run."""
        if self.failed:
            return Exit.ENGINE_FAILED
        return Exit.OK if self.summary.is_sound else Exit.UNTRUSTWORTHY

    @property
    def report(self) -> str:
        """The path or URI of the report."""
        return f"{self.run.uri.rstrip('/')}/{REPORT}"


def run_and_print(plan: Plan, options: RunOptions) -> int:
    """Execute a run and print its summary; return the exit code. Raises as `execute_run` does."""
    outcome = execute_run(plan, options)
    if outcome.finished:
        echo(
            f"nothing was measured: this run was already finished ({outcome.finished}); add --new to measure again",
            err=True,
        )
    try:
        print_run_summary(
            outcome.run.plan, outcome.summary, options.output, outcome.run.uri, statistics=options.statistics
        )
    except KeyboardInterrupt as error:
        where = run_arguments(outcome.run.plan, outcome.run.uri)
        stored = f"interrupted, but the results are stored: `specbench report {where}` prints them"
        raise Interrupted(stored) from error
    if options.output == "json":  # the text contains why engines failed
        for arm, failure in outcome.failed.items():
            echo(f"error: {arm}: {failure.reason}: {with_settings(outcome.run.plan, str(failure))}", err=True)
    return outcome.exit


def execute_run(plan: Plan, options: RunOptions) -> RunOutcome:
    """Measure the missing points, and store summary and report; of a finished run, return the stored summary.

    Raises BadInput before anything starts; NotDurable, Interrupted.
    """
    if options.retry_invalid and (options.new or not options.retries):
        other = "--new" if options.new else "--retries 0 (or spec.retries: 0)"
        raise BadInput(f"--retry-invalid continues a finished run, and {other} does not: leave out one of them")
    results = open_store(options.results)
    with exclusive_run(results, plan, process_label()):
        run = new_local_run(results, plan) if options.new else find_local_run(results, plan)
        if options.retry_invalid and not run.manifests:
            what = f"{options.results} has no run of this command, and --retry-invalid continues one"
            raise BadInput(f"{what}: leave it out, or repeat the options of the earlier command", "NothingToRetry")
        is_retried = options.retry_invalid and run.is_complete
        if run.is_complete and not options.reuse_finished and not is_retried:
            run = new_local_run(results, plan)
        validate_inputs(run, options.base_dir)
        echo(f"results: {shown_path(run.uri)}", err=True)
        finished = _ended(run) if run.is_complete and not is_retried else ""
        stored = _stored_summary(run, options.slo) if finished else None
        if stored is not None:
            return RunOutcome(run, stored, {}, finished)
        if run.is_finished and not run.is_complete:
            echo(f"every point was measured before, the last at {_ended(run)}: only the report is missing", err=True)
        elif run.manifests:
            echo(f"continuing: {points_are(run.plan, len(run.manifests))} measured already", err=True)
        measures = is_retried or not run.is_finished
        if measures:
            check_s3_server(results)
        with _stating_what_is_kept(run, options):
            added = run.plan.added_rounds
            retries = (options.retries or 0) + (added if is_retried else 0)
            failed = _measure(run, options, retries) if measures else {}
            if is_retried and run.plan.added_rounds == added:
                lacking = "nothing outside the servers spoiled a repeat, or too few prompts are left for another"
                why = why_no_rounds_are_added(run.plan) or lacking
                instead = "--new instead of --retry-invalid measures all of it again"
                echo(f"nothing was measured again, because {why}; {instead}", err=True)
            echo("analyzing the records and writing the report", err=True)
            causes = {arm: with_settings(run.plan, str(error)) for arm, error in failed.items()}
            summary = conclude(run.plan, run.store, slo=options.slo, failures=causes or None)
    return RunOutcome(run.reopened(), summary, failed, finished)


@contextmanager
def _stating_what_is_kept(run: Run, options: RunOptions) -> Iterator[None]:
    """Complete the message of an interruption or a full disk by what is stored and how to continue."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        raise Interrupted(_interruption(run, options)) from error
    except NotDurable as error:
        if error.reason != StoreErrorReason.DISK_FULL:
            raise
        raise NotDurable(f"{error}; {_interruption(run, options)}", error.reason) from error


def _interruption(run: Run, options: RunOptions) -> str:
    """Return after how many points the run ended, and how to continue it. Reading needs no space on a full disk."""
    try:
        measured = run.count_measured()
    except NotDurable as error:  # S3 does not respond, but the user's interruption comes first
        return f"interrupted; finished points are kept, but cannot be counted now: {error}"
    if not measured:
        return "interrupted before the first point was finished: run the same command again"
    points, _, verb = points_are(run.plan, measured).rpartition(" ")
    kept = f"which {verb} kept{', only the report is missing' if measured == len(run.plan.points) else ''}"
    # With --new, the same command would begin one more run.
    without = ", but without --new," if options.new else ""
    return f"interrupted after {points}, {kept}: run the same command again{without} to continue"


def _ended(run: Run) -> str:
    """Return when the last point of a run ended, RFC 3339."""
    return max(manifest.ended_wall for manifest in run.manifests.values())


def _stored_summary(run: Run, slo: Slo | None) -> RunSummary | None:
    """Return the stored summary of a finished run; None if it must be computed.

    That is the case if it or the report is missing or damaged, lacks points, or was computed with other limits.
    """
    summary = run.intact_summary()
    current = summary is not None and summary.slo == slo and not summary.missing and not summary.failures
    return summary if current and run.store.get(REPORT) is not None else None


def process_label() -> str:
    """Return a description of this process for its lock. Arguments are left out, because a header may contain a key."""
    command = " ".join(Path(word).name for word in sys.argv[:2])
    return f"process {os.getpid()} on {socket.gethostname()} ({command}, since {SystemClock().wall_text()})"


def _measure(run: Run, options: RunOptions, retries: int) -> dict[str, EngineFailed]:
    folder = TemporaryDirectory(prefix="specbench-", ignore_cleanup_errors=True)
    with folder as work_dir, LiveProgress(run.plan, run.manifests) as live:
        local_options = LocalOptions(
            base_dir=options.base_dir,
            work_dir=Path(work_dir),
            startup_deadline_s=options.startup_deadline_s,
            on_group=live.group,
            on_progress=live.progress,
            on_estimate=live.show_line,
            on_round=live.add_round,
            retries=retries,
            client=options.client,
        )
        return run_until_interrupted(execute_locally(run, local_options))


# Campaigns.

_EXITS_BY_SEVERITY = (Exit.OK, Exit.UNTRUSTWORTHY, Exit.ENGINE_FAILED, Exit.BAD_INPUT, Exit.RESULTS_NOT_STORED)
CAMPAIGN_COLUMNS = ("run", "combination", "points", "best", "trust")
_FAILED = (Exit.ENGINE_FAILED, Exit.BAD_INPUT)


@dataclass(frozen=True)
class CampaignRunResult:
    """How one run of a campaign ended: with an outcome, or with an error."""

    run: PlannedRun
    exit: Exit
    outcome: RunOutcome | None = None
    error: str = ""


def measure_campaign(campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], options: RunOptions) -> int:
    """Execute the runs of a campaign and print a table of their results; return the worst exit code.

    Raises BadInput before anything starts; Interrupted.
    """
    ended: list[CampaignRunResult] = []
    try:
        with exclusive_campaign(
            open_store(options.results), campaign.metadata.namespace, campaign.metadata.name, process_label()
        ):
            _require_valid_inputs(runs, options)
            _measure_runs(campaign, runs, options, ended)
    except (Interrupted, KeyboardInterrupt) as error:
        if options.output != "json":
            _print_campaign_table(campaign, runs, ended)
        if isinstance(error, KeyboardInterrupt):  # before, after or between runs
            raise Interrupted(f"interrupted after {len(ended)} of {len(runs)} runs") from error
        run = runs[len(ended)]
        raise Interrupted(f"run {len(ended) + 1} of {len(runs)}, {run.name}: {error}") from error
    code = max((each.exit for each in ended), key=_EXITS_BY_SEVERITY.index)
    if options.output == "json":
        echo_json(json.dumps(_campaign_document(campaign, runs, ended, code), indent=2))
    else:
        _print_campaign_table(campaign, runs, ended)
    return code


def _measure_runs(
    campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], options: RunOptions, ended: list[CampaignRunResult]
) -> None:
    """Execute the runs in order. Results are appended to `ended`, so an interruption keeps the earlier ones."""
    for number, run in enumerate(runs, start=1):
        if _stopped(campaign, ended):
            return
        echo(f"run {number}/{len(runs)}: {run.name}  {run.combination_text}", err=True)
        ended.append(_run_result(run, options))


def _require_valid_inputs(runs: Sequence[PlannedRun], options: RunOptions) -> None:
    """Check the inputs of every run before the first one starts. Raises BadInput with the names of the runs."""
    results = open_store(options.results)
    rejected: dict[str, list[str]] = {}
    reasons: set[str] = set()
    for run in runs:
        try:
            validate_inputs(find_local_run(results, run.plan), options.base_dir)
        except BadInput as error:
            rejected.setdefault(str(error), []).append(run.name)
            reasons.add(error.reason)
    if rejected:
        reason = reasons.pop() if len(reasons) == 1 else None
        raise BadInput("\n".join(f"{message} ({', '.join(names)})" for message, names in rejected.items()), reason)


def _run_result(run: PlannedRun, options: RunOptions) -> CampaignRunResult:
    try:
        outcome = execute_run(run.plan, options.for_spec(run.run.spec))
    except (BadInput, NotDurable) as error:
        echo(f"error: {run.name}: {error.reason}: {error}", err=True)
        return CampaignRunResult(run, error.exit, error=f"{error.reason}: {error}")
    for arm, failure in outcome.failed.items():
        echo(f"error: {run.name}: {arm}: {failure.reason}: {failure}", err=True)
    return CampaignRunResult(run, outcome.exit, outcome)


def _stopped(campaign: SpecBenchCampaign, ended: Sequence[CampaignRunResult]) -> bool:
    """Return whether no further run may begin."""
    limit = campaign.spec.failed_runs_max
    failed = sum(each.exit in _FAILED for each in ended)
    return (limit is not None and failed >= limit) or any(each.exit is Exit.RESULTS_NOT_STORED for each in ended)


def _campaign_document(
    campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], ended: Sequence[CampaignRunResult], code: Exit
) -> Mapping[str, Any]:
    return {
        "name": campaign.metadata.name,
        "kind": campaign.kind,
        "exit": int(code),
        "runs": [_campaign_document_row(each) for each in ended],
        "notBegun": [run.name for run in runs[len(ended) :]],
    }


def _campaign_document_row(ended: CampaignRunResult) -> dict[str, Any]:
    row = {"name": ended.run.name, "combination": dict(ended.run.combination), "exit": int(ended.exit)}
    if ended.outcome is None:
        return {**row, "error": ended.error}
    summary = ended.outcome.summary
    return {**row, "uri": ended.outcome.run.uri, "best": best_speedup_text(summary), "summary": summary.to_dict()}


def _print_campaign_table(
    campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], ended: Sequence[CampaignRunResult]
) -> None:
    console = result_console()
    simulated = any(each.outcome and each.outcome.summary.simulated for each in ended)
    title = f"{mark_simulated(campaign.metadata.name, simulated=simulated)}: {len(ended)} of {len(runs)} runs"
    unfinished = [(run.name, run.combination_text, "not finished", "", "") for run in runs[len(ended) :]]
    styles = ["" if each.exit in (0, 3) else "red" for each in ended] + ["dim"] * len(unfinished)
    table = TextTable(
        title, CAMPAIGN_COLUMNS, [*map(_campaign_row, ended), *unfinished], words=CAMPAIGN_COLUMNS, styles=styles
    )
    console.print_table(table)
    for each in ended:
        if each.outcome is not None:
            console.print(f"{each.run.name}: {shown_path(each.outcome.report)}", soft_wrap=True)


def _campaign_row(ended: CampaignRunResult) -> tuple[str, ...]:
    first = (ended.run.name, ended.run.combination_text)
    if ended.outcome is None:
        return (*first, "–", "–", ended.error.partition(":")[0])
    summary = ended.outcome.summary
    return (
        *first,
        f"{summary.points_measured}/{summary.points_total}" + (" (decided)" if summary.decided_after else ""),
        best_speedup_text(summary) or "–",
        _trust(summary),
    )


def _trust(summary: RunSummary) -> str:
    """Return the trust of a run, with the checks that failed."""
    if summary.trustworthy:
        return "; ".join(["Trustworthy", *(f"at fault: {arm}" for arm in list_faults(summary.findings))])
    return f"Untrustworthy ({', '.join(doubting_checks(summary.findings))})"
