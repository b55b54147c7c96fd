"""`specbench schedule`: the best draft length by batch size, as engines take it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
import yaml

from specbench_api.outcome.schedule import EngineSchedule
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.drafter import BASELINE_NAME, DraftLength
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.schedule.emit import ENGINES, engine_schedule
from specbench_client.analysis.schedule.sources import Proposed, Source, apart, each_once, profiles, proposals
from specbench_client.cli.consoles import page
from specbench_client.cli.flags import Number, Numbers
from specbench_client.cli.runs import run_store
from specbench_client.drive.compared import read_result
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results
from specbench_client.report.columns import SIMULATED
from specbench_client.report.schedule import UNVERIFIED, engine_lines, schedule_sheets
from specbench_client.report.stepcost import profile_line, split_sheet, terms_sheet


@click.command()
@click.argument("where", nargs=-1, required=True, metavar="WHERE...")
@click.option("--engine", type=click.Choice([str(kind) for kind in ENGINES]), help="Whose words. [default: the run's]")
@click.option("--workload", metavar="NAME", help="Of this workload alone.")
@click.option(
    "--draft-tokens", type=Numbers(Number(DraftLength, "tokens")), multiple=True, metavar="K,…",
    help="Draft lengths to choose from. [default: all that are known]",
)  # fmt: skip
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True,
    help="yaml: the runs that verify it.",
)  # fmt: skip
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def schedule(
    where: tuple[str, ...],
    engine: str | None,
    workload: str | None,
    draft_tokens: tuple[tuple[float, ...], ...],
    output: str,
    *,
    latest: bool,
) -> None:
    """Propose how many tokens to draft at which batch size, from the stored runs at WHERE.

    \b
      specbench schedule specbench-results --latest
      specbench schedule results/k1 results/k3 results/k5 --engine vllm
      specbench schedule results --latest --output yaml > verify.yaml && specbench plan verify.yaml

    Step times come from the cells of a drafter, at one length or several, and of the baseline, at several loads; tokens
    a step come from the measured acceptance. It is a proposal: --output yaml prints the run that verifies it. What is
    computed, and when there is none, stands in docs/schedule.md.
    """
    sources, again = each_once([_source(place, latest=latest) for place in where])
    for source in again:
        click.echo(f"given twice, and counted once: {source.plan.name} ({source.plan.uid})", err=True)
    differing = apart(sources)
    if differing:
        raise BadInput("; ".join(differing) + ": step times of both would be put together", "NotComparable")
    lengths = sorted({int(each) for given in draft_tokens for each in given})
    found = [each for each in proposals(sources, lengths) if workload in (None, each.schedule.workload)]
    if not found:
        raise BadInput(_why_none(sources, workload), "NoSchedule")
    kinds = _kinds(engine, sources)
    rendered = [
        [engine_schedule(kind, sources[0].plan, each.longest, each.schedule) for kind in kinds] for each in found
    ]
    if output == "json":
        click.echo(
            json.dumps({"proposals": [_document(*pair) for pair in zip(found, rendered, strict=True)]}, indent=2)
        )
    elif output == "yaml":
        _yaml(rendered)
    else:
        _text(found, rendered, simulated=any(source.summary.simulated for source in sources))


def _source(where: str, *, latest: bool) -> Source:
    result = read_result(run_store(open_results(where), where, latest=latest))
    if not result.summary.step_costs and result.points:
        raise BadInput(f"{where}: {_why_no_step_times(result.summary, where)}", "NoStepTimes")
    return Source(result.plan, result.summary)


def _why_no_step_times(summary: RunSummary, where: str) -> str:
    """Cells that a check made invalid tell no step times: to analyse those again would change nothing."""
    drafted = [cell for cell in summary.cells if cell.arm != BASELINE_NAME]
    if drafted and not any(cell.valid for cell in drafted):
        return f"no cell with a drafter is valid: specbench report {where} says why, and what to do about it"
    remedy = f"analyse the records again: specbench report {where} --recompute"
    return f"its summary holds no step times: no cell tells its steps, or it is older: {remedy}"


def _kinds(engine: str | None, sources: Sequence[Source]) -> list[EngineKind]:
    """The engine that was asked for, else the run's own, else all that take a schedule."""
    if engine is not None:
        return [EngineKind(engine)]
    own = sources[0].plan.engine.kind
    return [own] if own in ENGINES else list(ENGINES)


def _why_none(sources: Sequence[Source], workload: str | None) -> str:
    told = [f"{', '.join(cost.arms)}: {note}" for cost in profiles(sources) for note in cost.notes]
    of = f" for workload {workload}" if workload else ""
    return "\n".join(
        [f"no schedule can be made{of}: a drafter needs two draft lengths (the baseline counts) at one load", *told]
    )


def _document(found: Proposed, rendered: Sequence[EngineSchedule]) -> dict[str, object]:
    return {
        "schedule": found.schedule.to_dict(),
        "stepCost": found.cost.to_dict(),
        "engines": [each.to_dict() for each in rendered],
    }


def _yaml(rendered: Sequence[Sequence[EngineSchedule]]) -> None:
    runs = [each.run for row in rendered for each in row if each.run is not None]
    if not runs:
        why = "; ".join(dict.fromkeys(problem for row in rendered for each in row for problem in each.problems))
        raise BadInput(
            f"no run verifies it here: {why or 'the engine of these results takes no schedule'}", "NotRunnable"
        )
    click.echo(yaml.safe_dump_all(runs, sort_keys=False), nl=False)
    click.echo(
        "set spec.results.s3 to yours, or give --results DIR; relative paths begin where the file lies", err=True
    )


def _text(found: Sequence[Proposed], rendered: Sequence[Sequence[EngineSchedule]], *, simulated: bool) -> None:
    console = page()
    if simulated:
        console.print(SIMULATED)
    for each, engines in zip(found, rendered, strict=True):
        for sheet in schedule_sheets(each.schedule):
            console.sheet(sheet)
        lines = [profile_line(each.cost), *each.schedule.notes]
        if each.cost.coefficients:
            for sheet in (terms_sheet("Cost of a step", each.cost), split_sheet(each.cost)):
                console.sheet(sheet)
        for line in [*lines, "", *(line for engine in engines for line in engine_lines(engine)), "", UNVERIFIED]:
            console.print(line, soft_wrap=True)
