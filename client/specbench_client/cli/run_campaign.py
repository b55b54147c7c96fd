"""What `specbench run` does with a campaign: its runs one after another, one table at the end, one exit code.

Everything that can be refused is refused before the first engine starts. A run whose engine fails holds up no other,
unless the campaign's failurePolicy says so; where results cannot be kept, none goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from specbench_api.campaign.cell import cell_text
from specbench_api.campaign.expand import PlannedRun
from specbench_api.outcome.best import best_of
from specbench_api.outcome.ending import Exit
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_client.cli.consoles import page
from specbench_client.cli.measuring import Outcome, Wish, carried_out, who
from specbench_client.errors import BadInput, Interrupted, NotDurable
from specbench_client.local.executor import refuse_unusable
from specbench_client.local.place import alone_with_campaign, find_run, open_results
from specbench_client.report.sheets import Sheet

_FROM_GOOD_TO_BAD = (Exit.OK, Exit.UNTRUSTWORTHY, Exit.ENGINE_FAILED, Exit.BAD_INPUT, Exit.NOT_DURABLE)
COLUMNS = ("run", "combination", "points", "best", "trust")
_FAILED = (Exit.ENGINE_FAILED, Exit.BAD_INPUT)


@dataclass(frozen=True)
class Ended:
    """How one run ended: with its answer, or with what kept it from one."""

    run: PlannedRun
    exit: Exit
    outcome: Outcome | None = None
    error: str = ""


def measure_campaign(campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], wish: Wish) -> int:
    """Measure what is not measured yet of every run; show what they came to. Returns the worst of their exit codes.

    Raises BadInput before anything starts, Interrupted.
    """
    ended: list[Ended] = []
    try:
        with alone_with_campaign(
            open_results(wish.results), campaign.metadata.namespace, campaign.metadata.name, who()
        ):
            _refuse_unusable(runs, wish)
            _measure(campaign, runs, wish, ended)
    except (Interrupted, KeyboardInterrupt):  # the one while measuring, the other while a run begins or is concluded
        if wish.output != "json":
            _show_table(campaign, runs, ended)
        raise
    code = max((each.exit for each in ended), key=_FROM_GOOD_TO_BAD.index)
    if wish.output == "json":
        click.echo(json.dumps(_document(campaign, runs, ended, code), indent=2))
    else:
        _show_table(campaign, runs, ended)
    return code


def _measure(campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], wish: Wish, ended: list[Ended]) -> None:
    """One after another; `ended` is added to, so that an interruption leaves what there is by then."""
    for number, run in enumerate(runs, start=1):
        if _stopped(campaign, ended):
            return
        click.echo(f"run {number}/{len(runs)}: {run.name}  {cell_text(run.cell)}", err=True)
        ended.append(_ended(run, wish))


def _refuse_unusable(runs: Sequence[PlannedRun], wish: Wish) -> None:
    """As each run does before it begins, with the run's name. Raises BadInput."""
    results = open_results(wish.results)
    refused: dict[str, list[str]] = {}
    for run in runs:
        try:
            refuse_unusable(find_run(results, run.plan), wish.base_dir)
        except BadInput as error:
            refused.setdefault(str(error), []).append(run.name)
    if refused:
        raise BadInput("\n".join(f"{message} ({', '.join(names)})" for message, names in refused.items()))


def _ended(run: PlannedRun, wish: Wish) -> Ended:
    spec = run.run.spec
    try:
        outcome = carried_out(run.plan, replace(wish, startup_deadline_s=spec.startup_deadline_seconds, slo=spec.slo))
    except (BadInput, NotDurable) as error:
        click.echo(f"error: {run.name}: {error.reason}: {error}", err=True)
        return Ended(run, error.exit, error=f"{error.reason}: {error}")
    for arm, failure in outcome.failed.items():
        click.echo(f"error: {run.name}: {arm}: {failure.reason}: {failure}", err=True)
    return Ended(run, outcome.exit, outcome)


def _stopped(campaign: SpecBenchCampaign, ended: Sequence[Ended]) -> bool:
    """Whether no further run is to begin."""
    most = campaign.spec.failed_runs_max
    failed = sum(each.exit in _FAILED for each in ended)
    return (most is not None and failed >= most) or any(each.exit is Exit.NOT_DURABLE for each in ended)


def _document(
    campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], ended: Sequence[Ended], code: Exit
) -> Mapping[str, Any]:
    return {
        "name": campaign.metadata.name,
        "kind": campaign.kind,
        "exit": int(code),
        "runs": [_row(each) for each in ended],
        "notBegun": [run.name for run in runs[len(ended) :]],
    }


def _row(ended: Ended) -> dict[str, Any]:
    told = {"name": ended.run.name, "cell": dict(ended.run.cell), "exit": int(ended.exit)}
    if ended.outcome is None:
        return {**told, "error": ended.error}
    summary = ended.outcome.summary
    return {**told, "uri": ended.outcome.uri, "best": best_of(summary), "summary": summary.to_dict()}


def _show_table(campaign: SpecBenchCampaign, runs: Sequence[PlannedRun], ended: Sequence[Ended]) -> None:
    console = page()
    simulated = any(each.outcome and each.outcome.summary.simulated for each in ended)
    marked = " (simulated, not a measurement)" if simulated else ""
    title = f"{campaign.metadata.name}{marked}: {len(ended)} of {len(runs)} runs"
    unfinished = [(run.name, cell_text(run.cell), "not finished", "", "") for run in runs[len(ended) :]]
    styles = ["" if each.exit in (0, 3) else "red" for each in ended] + ["dim"] * len(unfinished)
    sheet = Sheet(title, COLUMNS, [*map(_cells, ended), *unfinished], words=COLUMNS, styles=styles)
    console.sheet(sheet)
    for each in ended:
        if each.outcome is not None:
            console.print(f"{each.run.name}: {each.outcome.report}", soft_wrap=True)


def _cells(ended: Ended) -> tuple[str, ...]:
    known = (ended.run.name, cell_text(ended.run.cell))
    if ended.outcome is None:
        return (*known, "–", "–", ended.error.partition(":")[0])
    summary = ended.outcome.summary
    return (*known, f"{summary.points_measured}/{summary.points_total}", best_of(summary) or "–", _trust(summary))


def _trust(summary: RunSummary) -> str:
    """Whether, and the checks that speak against it."""
    if summary.trustworthy:
        return "Trustworthy"
    checks = [finding.check for finding in summary.findings if finding.severity is not Severity.NOTE]
    return f"Untrustworthy ({', '.join(dict.fromkeys(checks))})"
