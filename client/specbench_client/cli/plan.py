"""`specbench plan`: what a run or a campaign would launch and measure, and what it would cost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.campaign.matrix import name_of
from specbench_api.launch.launcher import CONFIG_FOLDER
from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.canonical import canonical_json
from specbench_api.plan.estimate import rounds_text
from specbench_api.plan.expansion import expand, planned_launches
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_client.cli.options import FILE, OUTPUT, SET, read_spec_file
from specbench_client.cli.plan_hours import (
    ASSUME,
    EstimatedRun,
    RunEstimator,
    hours_document,
    hours_text,
    hours_warnings,
    number_text,
    read_assumptions,
)
from specbench_client.cli.streams import echo, echo_json
from specbench_client.cli.validate import (
    campaign_warnings,
    local_template,
    missing_files,
    plan_warnings,
    print_warnings,
)
from specbench_client.cli.value_types import FiniteRange
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.drive.prompts import default_slots_problem
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import planned_command
from specbench_client.store.locations import open_store
from specbench_client.workload.chat_template.template import render_prompts
from specbench_client.workload.locations import is_local, reject_prompts_missing_everywhere
from specbench_client.workload.prompt_lengths import measure_lengths
from specbench_client.workload.prompts import Prompts, load_workload

# Campaigns.


def _print_campaign_plan(
    campaign: SpecBenchCampaign, base_dir: Path, estimator: RunEstimator, output: str
) -> list[EstimatedRun]:
    """Print the runs of a campaign and return them. Raises InvalidSpec; BadInput for prompts that cannot be read."""
    planned, known = expand_campaign(campaign), dict[str, list[int]]()
    reject_prompts_missing_everywhere([run.plan for run in planned.runs], base_dir)
    runs = [
        estimator.of(run.plan, run.run.spec.active_deadline_seconds, _known_turns(run.plan, base_dir, known))
        for run in planned.runs
    ]
    warnings, missing = campaign_warnings(planned, base_dir)
    needed, budget = hours_document(runs)["gpuHours"], campaign.spec.budget.gpu_hours
    if needed is not None and budget is not None and needed > budget:
        warnings.append(
            f"over budget by {needed - budget:.1f} GPU-hours: {needed:.1f} needed, budget.gpuHours is {budget:g}"
        )
    for run, estimated in zip(planned.runs, runs, strict=True):
        warnings += hours_warnings(estimated, f"a launch of {run.name}")
    if output == "json":
        echo_json(json.dumps(_campaign_document(campaign, planned, runs, [*warnings, *missing]), indent=2))
    else:
        echo(_campaign_text(campaign, planned, runs))
    print_warnings(warnings, missing)
    return runs


def _known_turns(plan: Plan, base_dir: Path, known: dict[str, list[int]]) -> dict[str, Sequence[int]]:
    """Return the turns of each prompt by workload, of files on this machine. `known`: of what was read before."""
    keys = {each.name: canonical_json(each.to_dict()) for each in plan.workloads if is_local(each.dataset, base_dir)}
    for name, key in keys.items():
        if key not in known:
            known[key] = _turns(load_workload(plan.workload(name), base_dir))
    return {name: known[key] for name, key in keys.items()}


def _campaign_document(
    campaign: SpecBenchCampaign, planned: CampaignPlan, runs: Sequence[EstimatedRun], warnings: Sequence[str]
) -> dict[str, Any]:
    return {
        "name": campaign.metadata.name,
        "kind": campaign.kind,
        "runs": [
            {
                "name": run.name,
                "combination": dict(run.combination),
                "resource": run.resource,
                "launches": [
                    {"index": group.index, "arm": group.arm, "points": [point.hash for point in group.points]}
                    for group in run.plan.groups
                ],
                "commands": _commands(run.plan),
                "measured": sorted(each.measured),
                "estimate": _size_document(each),
            }
            for run, each in zip(planned.runs, runs, strict=True)
        ],
        "estimate": {
            "launches": sum(each.size.launches for each in runs),
            "points": sum(each.size.points for each in runs),
            "requests": _requests(runs),
        }
        | hours_document(runs),
        "budget": campaign.spec.budget.to_dict(),
        "warnings": list(warnings),
    }


def _commands(plan: Plan) -> dict[str, list[str]]:
    """Return the command line of each arm's engine, as `specbench run` would start it here."""
    return {arm: planned_command(launch) for arm, launch in planned_launches(plan).items()}


def _size_document(run: EstimatedRun) -> dict[str, Any]:
    size = run.size
    return {
        "launches": size.launches,
        "points": size.points,
        "requests": size.requests,
        "outputTokensAtMost": size.output_tokens_at_most,
        "loadSeconds": size.load_seconds,
        **hours_document([run]),
    }


def _requests(runs: Sequence[EstimatedRun]) -> int | None:
    """Return the requests of all runs; None if load and prompts of any do not determine them."""
    counts = [each.size.requests for each in runs]
    return None if None in counts else sum(count for count in counts if count is not None)


def _campaign_text(campaign: SpecBenchCampaign, planned: CampaignPlan, runs: Sequence[EstimatedRun]) -> str:
    axes = " × ".join(f"{name_of(axis)} ({len(axis.values)})" for axis in campaign.spec.axes) or "no axes"
    lines = [f"{campaign.metadata.name}: {axes}", "", "Runs, in order, each with its launches (arm, points)"]
    for run, each in zip(planned.runs, runs, strict=True):
        measured = f"  {len(each.measured)} measured" if each.measured else ""
        needed = each.hours.gpu_hours
        hours = f"  {number_text(needed)} GPU-hours" if needed else ""
        lines.append(f"  {run.name}  {run.combination_text}{measured}{hours}")
        lines.append(f"    {'  '.join(f'{group.arm}:{len(group.points)}' for group in run.plan.groups)}")
    points, launches = sum(each.size.points for each in runs), sum(each.size.launches for each in runs)
    done, requests = f"({sum(len(each.measured) for each in runs)} measured already)", _requests(runs)
    counts = f"{len(runs)} runs, {launches} launches, {points} points {done}"
    counts += f", {requests} requests" if requests is not None else ""
    return "\n".join([*lines, "", counts, *hours_text(runs)])


@click.command()
@FILE
@SET
@OUTPUT
@click.option(
    "--results",
    metavar="DIR-or-URI",
    help="Mark the points that are already measured in these results, and take durations from them.",
)
@ASSUME
@click.option(
    "--max-gpu-hours",
    type=FiniteRange(min=0),
    metavar="HOURS",
    help="Exit with code 2 if the points that are not measured yet need more GPU-hours. If these are not known: if"
    " their launches can use more until their deadlines.",
)
def plan(file: Path, settings: tuple[str, ...], output: str, results: str | None, **options: Any) -> int:
    """Show what FILE would launch and measure, and the hours it would take; nothing is started.

    \b
      specbench plan run.yaml
      specbench plan run.yaml --set spec.load.repeats=1 --output json
      specbench plan campaign.yaml --results s3://bench-results/seeds
      specbench plan run.yaml --assume launchSeconds=300,pointSeconds=120 --max-gpu-hours 4

    Shows the engine command line of each arm, the launches in order, and the points of each launch. For a campaign: its
    runs by name. The hours need durations: of earlier runs in --results, or of --assume.
    """
    resource, base_dir = read_spec_file(file, settings), file.resolve().parent
    assumed, limit = read_assumptions(options["assumed"]), options["max_gpu_hours"]
    estimator = RunEstimator(assumed, open_store(results) if results is not None else None)
    if isinstance(resource, SpecBenchCampaign):
        return _limit_exit(_print_campaign_plan(resource, base_dir, estimator, output), limit)
    expanded = expand(resource)
    reject_prompts_missing_everywhere([expanded], base_dir)
    prompts = _prompts(expanded, base_dir)
    turns = {name: _turns(rows) for name, rows in prompts.items()}
    run = estimator.of(expanded, resource.spec.active_deadline_seconds, turns)
    slots = (default_slots_problem(expanded, expanded.workload(name), rows.rows) for name, rows in prompts.items())
    uncounted = measure_lengths([]).reason if prompts else None
    warnings = [*plan_warnings(expanded), *filter(None, slots), *hours_warnings(run)]
    warnings += [f"lengths of prompts are not counted: {uncounted}"] if uncounted else []
    missing = missing_files(expanded, base_dir)
    described = {
        name: _described(rows) | _at_once(expanded, rows) | _rendered(expanded, name, rows, base_dir)
        for name, rows in prompts.items()
    }
    if output == "json":
        extra = {"prompts": described, "warnings": [*warnings, *missing]}
        echo_json(json.dumps(_document(run) | extra, indent=2))
    else:
        echo(_text(run))
        for name, facts in described.items():
            echo(f"{name}: " + "; ".join(f"{label}: {value}" for label, value in facts.items()))
    print_warnings(warnings, missing)
    return _limit_exit([run], limit)


def _limit_exit(runs: Sequence[EstimatedRun], limit: float | None) -> int:
    """Return the exit code of `--max-gpu-hours`, and print why if it is not 0."""
    if limit is None:
        return Exit.OK
    if not any(run.hours.gpus for run in runs):
        echo("warning: --max-gpu-hours was not checked: the run declares no GPUs (spec.placement.gpus)", err=True)
        return Exit.OK
    total = hours_document(runs)
    expected, most = total["gpuHours"], total["limitGpuHours"]
    if expected is not None and expected > limit:
        needed = f"{expected:.2f} GPU-hours are expected"
        remedy = "measure fewer points (workloads, loads, repeats, drafters)"
    elif expected is None and most > limit:
        needed = f"launches can use {most:.2f} GPU-hours until their activeDeadlineSeconds"
        remedy = "give durations (--results, --assume), lower activeDeadlineSeconds"
    else:
        return Exit.OK
    echo(f"error: {needed}, and --max-gpu-hours is {limit:g}: {remedy}, or raise --max-gpu-hours", err=True)
    return Exit.BAD_INPUT


def _turns(prompts: Prompts) -> list[int]:
    """Return the number of turns of each prompt."""
    return [len(row.turns) for row in prompts.rows]


def _prompts(plan: Plan, base_dir: Path) -> dict[str, Prompts]:
    """Return the prompts of the workloads whose files are on this machine."""
    return {
        workload.name: load_workload(workload, base_dir)
        for workload in plan.workloads
        if is_local(workload.dataset, base_dir)
    }


def _described(prompts: Prompts) -> dict[str, object]:
    """Return counts of prompts, turns and categories, and lengths in tokens of o200k_base."""
    facts: dict[str, object] = {"prompts": len(prompts.rows), "turns": prompts.turns}
    facts["categories"] = len({prompt.category for prompt in prompts.rows})
    facts |= _coverage(prompts.coverage) if prompts.coverage else {}
    lengths = measure_lengths(prompts.rows)
    if lengths.tokens is None:
        return facts | {"lengths": "not counted"}
    tokens = sorted(lengths.tokens.values())
    return facts | {"tokens in the median prompt (o200k_base)": tokens[len(tokens) // 2], "in the longest": tokens[-1]}


def _at_once(plan: Plan, prompts: Prompts) -> dict[str, object]:
    """Return how many requests of recorded sessions may be open at once; the engine serves `load.slots` of them."""
    if not any(prompt.starts for prompt in prompts.rows):
        return {}
    most = max(max(prompt.in_flight) for prompt in prompts.rows)
    facts: dict[str, object] = {"requests of one session that may be open at once": most}
    arrival = plan.load.arrival
    sessions = max(plan.load.concurrency or [0]) or (arrival.max_in_flight if arrival else None)
    return facts | ({"of all sessions": f"{sessions * most} (load.slots: {plan.slots})"} if sessions else {})


def _rendered(plan: Plan, name: str, prompts: Prompts, base_dir: Path) -> dict[str, object]:
    """Return the lengths after the client's chat template, if it is on this machine; problems are warnings already."""
    try:
        template = local_template(plan, plan.workload(name), base_dir)
        tokens = sorted(render_prompts(prompts.rows, template).tokens.values()) if template else []
    except BadInput:
        return {}
    if template is None:
        return {}
    facts: dict[str, object] = {"chat template applied by the client": template.template_sha256[:12]}
    return facts | {"token ids of the median prompt": tokens[len(tokens) // 2], "of the longest": tokens[-1]}


def _coverage(coverage: PromptCoverage) -> dict[str, object]:
    """Return which rows were left out, the share that is reusable, and what a request log records, if there is any."""
    recorded = coverage.recorded
    facts = {
        "left out": "; ".join(f"{count} x {reason}" for reason, count in coverage.unusable.items()),
        "excluded": "; ".join(f"{count} x {reason}" for reason, count in coverage.excluded.items()),
        "reusable by a prompt cache": "" if coverage.reusable_share is None else f"{coverage.reusable_share:.1%}",
        "temperatures in the log": ", ".join(f"{value} ({n})" for value, n in recorded.temperatures.items())
        if recorded
        else "",
        "max_tokens of its median request": f"{recorded.max_tokens_median:.0f}"
        if recorded and recorded.max_tokens_median
        else "",
    }
    return {label: value for label, value in facts.items() if value}


def _document(run: EstimatedRun) -> dict[str, Any]:
    plan = run.plan
    launches = planned_launches(plan)
    return {
        **plan.to_dict(),
        "commands": _commands(plan),
        "configs": {arm: dict(launch.configs) for arm, launch in launches.items() if launch.configs},
        "measured": sorted(run.measured),
        "estimate": _size_document(run),
    }


def _text(run: EstimatedRun) -> str:
    plan, size = run.plan, run.size
    lines = [f"{plan.name}: {plan.target.title} on {plan.engine.kind}", "", "Arms"]
    for arm, launch in planned_launches(plan).items():
        lines.append(f"  {arm:<16} {shlex.join(planned_command(launch))}")
        for name, text in launch.configs.items():
            lines += [f"{'':<18} {CONFIG_FOLDER}/{name}:", *(f"{'':<20} {line}" for line in text.splitlines())]
    lines += [f"  {arm.name:<16} {arm.endpoint.address}" for arm in plan.arms if arm.endpoint]
    external = plan.engine.is_external
    lines += ["", f"{'Servers' if external else 'Launches'}, in order, each with its points (workload, load, repeat)"]
    for group in plan.groups:
        lines.append(f"  {group.index:>3}  {group.arm}")
        lines += [
            f"         {point.hash[:12]}  {point.workload}  at {point.level.label}  repeat {point.repeat + 1}"
            + ("  measured" if point.hash in run.measured else "")
            for point in group.points
        ]
    requests = f", {size.requests} requests" if size.requests is not None else ""
    tokens = f", at most {size.output_tokens_at_most} output tokens" if size.output_tokens_at_most is not None else ""
    seconds = f", {size.load_seconds:.0f} s of load" if size.load_seconds is not None else ""
    done = f"({len(run.measured)} measured already)"
    counts = f"{'' if external else f'{size.launches} launches, '}{size.points} points {done}"
    lines += ["", f"{counts}{requests}{tokens}{seconds}{rounds_text(plan)}"]
    return "\n".join([*lines, *hours_text([run])])
