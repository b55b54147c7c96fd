"""`specbench analyze draft-lengths`: the best draft length for each batch size, in the engine's own format."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
import yaml

from specbench_api.spec.drafter import DraftLength
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.what_if.draft_lengths import (
    SCHEDULE_ENGINES,
    ProposedSchedule,
    RunSource,
    drafting_pays,
    engine_schedule,
    missing_step_times,
    propose_schedules,
    run_differences,
    step_cost_profiles,
    without_repeats,
)
from specbench_client.cli.options import (
    LATEST,
    ONLY_WORKLOAD,
    PositiveIntegers,
    SchemaNumber,
    SchemaNumbers,
    output_option,
)
from specbench_client.cli.output import result_console
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.streams import echo, echo_document, echo_json
from specbench_client.documents.what_if import EngineDraftSchedule
from specbench_client.errors import BadInput
from specbench_client.report.text.step_costs import profile_line, split_table, terms_table
from specbench_client.report.text.text_table import SIMULATED
from specbench_client.report.text.what_if import (
    NO_CONTEXT_FORM,
    UNVERIFIED,
    context_tables,
    engine_lines,
    schedule_tables,
)
from specbench_client.stored_runs.results import read_result
from specbench_client.visible_text import visible

CONTEXT_TOKENS_MAX = 10_000_000
NOTHING_PAYS = "No draft length pays at any measured batch size: leave drafting off."


@click.command()
@click.argument("where", nargs=-1, required=True, metavar="WHERE...")
@click.option(
    "--engine",
    type=click.Choice([str(kind) for kind in SCHEDULE_ENGINES]),
    help="The engine whose format is printed.  [default: the run's]",
)
@ONLY_WORKLOAD
@click.option(
    "--draft-tokens",
    type=SchemaNumbers(SchemaNumber(DraftLength, "tokens")),
    multiple=True,
    metavar="K,…",
    help="Draft lengths, in tokens, to choose from.  [default: every measured length]",
)
@click.option(
    "--context-tokens",
    type=PositiveIntegers(most=CONTEXT_TOKENS_MAX),
    default=(),
    metavar="N,…",
    help="Tokens of context of a request, prompt and answer, to choose lengths for.  [default: the workload's mean]",
)
@output_option("text", "json", "yaml", help_text="Output format; yaml: SpecBenchRuns that verify the proposal.")
@LATEST
def draft_lengths(
    where: tuple[str, ...],
    engine: str | None,
    workload: str | None,
    *,
    draft_tokens: tuple[tuple[float, ...], ...],
    context_tokens: tuple[int, ...],
    output: str,
    latest: bool,
) -> None:
    """Propose the number of draft tokens for each batch size, from stored runs.

    \b
      specbench analyze draft-lengths specbench-results --latest
      specbench analyze draft-lengths results/k1 results/k3 results/k5 --engine vllm
      specbench analyze draft-lengths results --latest --context-tokens 1000,8000
      specbench analyze draft-lengths results --latest --output yaml > verify.yaml && specbench plan verify.yaml

    Step times come from the cells of the baseline and of one drafter, at one or more draft lengths and several loads;
    tokens per step come from the measured acceptance. The result is a proposal: measure it with the run that --output
    yaml prints. Method and limits: docs/research/draft-lengths.md.
    """
    sources, again = without_repeats([_source(location, latest=latest) for location in where])
    for source in again:
        echo(f"given twice, used once: {source.plan.name} ({source.plan.uid})", err=True)
    differing = run_differences(sources)
    if differing:
        raise BadInput(
            "; ".join(differing) + ": step times of these runs cannot be combined: give runs that agree in this",
            "NotComparable",
        )
    lengths = sorted({int(each) for group in draft_tokens for each in group})
    if lengths == [0]:
        raise BadInput("--draft-tokens 0: leaves nothing to choose from: give at least one length above 0")
    if context_tokens and output == "yaml":
        raise click.UsageError(
            "a run measures the contexts of its own prompts: remove --context-tokens or --output yaml"
        )
    found = propose_schedules(sources, lengths, context_tokens, workload)
    if not found:
        raise BadInput(_why_none(sources, workload), "NoSchedule")
    kinds = _kinds(engine, sources)
    rendered = [
        [engine_schedule(kind, sources[0].plan, each.longest, each.schedule) for kind in kinds]
        if drafting_pays(each.schedule)
        else []
        for each in found
    ]
    if output == "json":
        proposals = [_document(*pair) for pair in zip(found, rendered, strict=True)]
        echo_json(json.dumps({"proposals": proposals}, indent=2))
    elif output == "yaml":
        _print_yaml(rendered)
    else:
        _print_text(found, rendered, simulated=any(source.summary.simulated for source in sources))


def _source(where: str, *, latest: bool) -> RunSource:
    result = read_result(select_run(where, latest=latest))
    if not result.summary.step_costs and result.points:
        raise BadInput(f"{where}: {missing_step_times(result.plan, result.summary, where)}", "NoStepTimes")
    return RunSource(result.plan, result.summary)


def _kinds(engine: str | None, sources: Sequence[RunSource]) -> list[EngineKind]:
    """Return the requested engine, else the run's own, else every engine that supports a schedule."""
    if engine is not None:
        return [EngineKind(engine)]
    own = sources[0].plan.engine.kind
    return [own] if own in SCHEDULE_ENGINES else list(SCHEDULE_ENGINES)


def _why_none(sources: Sequence[RunSource], workload: str | None) -> str:
    notes = [f"{', '.join(cost.arms)}: {note}" for cost in step_cost_profiles(sources) for note in cost.notes]
    suffix = f" for --workload {workload}" if workload else ""
    return "\n".join(
        [
            f"no schedule{suffix}: measure a drafter with two draft lengths (the baseline counts as 0) at one load",
            *notes,
        ]
    )


def _document(found: ProposedSchedule, rendered: Sequence[EngineDraftSchedule]) -> dict[str, object]:
    return {
        "schedule": found.schedule.to_dict(),
        "stepCost": found.cost.to_dict(),
        "engines": [each.to_dict() for each in rendered],
    }


def _print_yaml(rendered: Sequence[Sequence[EngineDraftSchedule]]) -> None:
    runs = [each.run for row in rendered for each in row if each.run is not None]
    if not any(rendered):
        echo(NOTHING_PAYS, err=True)
        return
    if not runs:
        why = "; ".join(dict.fromkeys(problem for row in rendered for each in row for problem in each.problems))
        raise BadInput(
            f"no run can verify the schedule: {why or 'the engine of these results supports no schedule'}",
            "NotRunnable",
        )
    echo_document(visible(yaml.safe_dump_all(runs, sort_keys=False)))
    echo("set spec.results.s3 to your bucket, or give --results DIR; relative paths are relative to the file", err=True)


def _print_text(
    found: Sequence[ProposedSchedule], rendered: Sequence[Sequence[EngineDraftSchedule]], *, simulated: bool
) -> None:
    console = result_console()
    if simulated:
        console.print(SIMULATED)
    by_context = context_tables([each.schedule for each in found])
    if by_context:
        console.print_tables(by_context, [NO_CONTEXT_FORM, ""])
    for each, engines in zip(found, rendered, strict=True):
        tables = schedule_tables(each.schedule)
        if each.cost.coefficients:
            tables = [*tables, terms_table("Cost of a step", each.cost), split_table(each.cost)]
        lines = [profile_line(each.cost), *each.schedule.notes, ""]
        if engines:
            lines += [*(line for engine in engines for line in engine_lines(engine)), "", UNVERIFIED]
        else:
            lines.append(NOTHING_PAYS)
        console.print_tables(tables, lines)
