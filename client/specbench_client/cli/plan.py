"""`specbench plan`: what a run or a campaign would launch and measure, and what it would cost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from specbench_api.campaign.expansion import PlannedRun, expand_campaign
from specbench_api.campaign.matrix import cell_text, name_of
from specbench_api.launch.launcher import CONFIG_FOLDER
from specbench_api.outcome.prompt_coverage import PromptCoverage
from specbench_api.outcome.termination import Exit
from specbench_api.plan.canonical import canonical_json
from specbench_api.plan.estimate import (
    SECONDS_AN_HOUR,
    CampaignCost,
    PlanEstimate,
    cost_of_run,
    estimate,
    over_budget,
    total,
)
from specbench_api.plan.expansion import expand, planned_launches
from specbench_api.plan.plan import Plan
from specbench_api.plan.template_validation import amount_of
from specbench_api.spec.campaign import Budget, SpecBenchCampaign
from specbench_api.spec.placement import CLIENT_DEFAULTS
from specbench_api.spec.workload import Workload
from specbench_client.analysis.decision.gpu_hours import PromptSizes
from specbench_client.cli.options import FILE, OUTPUT, SET, FiniteRange, read_spec_file
from specbench_client.cli.plan_hours import (
    ASSUME,
    HoursEstimator,
    HoursInputs,
    PlannedHours,
    hours_document,
    hours_text,
    hours_warnings,
    range_text,
    read_assumptions,
    sizes_of,
    total_document,
    total_text,
)
from specbench_client.cli.streams import echo, echo_json
from specbench_client.cli.validate import (
    campaign_warnings,
    local_template,
    missing_files,
    plan_warnings,
    print_warnings,
)
from specbench_client.drive.prompts import default_slots_problem
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import planned_command
from specbench_client.local.local_runs import find_local_run, open_results
from specbench_client.store.store import Store
from specbench_client.workload.chat_template.template import render_prompts
from specbench_client.workload.dataset_files import is_local
from specbench_client.workload.prompt_lengths import measure_lengths
from specbench_client.workload.prompts import Prompts, load_workload

# Campaigns.


@dataclass(frozen=True)
class CostedRun:
    """A run of a campaign, the hashes of its measured points, and the cost of the others.

    `cost`: as the operator counts it for the budget. `hours`: the estimate; None without GPUs and durations.
    """

    run: PlannedRun
    measured: frozenset[str]
    cost: CampaignCost
    hours: PlannedHours | None


def print_campaign_plan(
    campaign: SpecBenchCampaign, base_dir: Path, results: Store | None, inputs: HoursInputs, output: str
) -> float | None:
    """Print the runs of a campaign, their measured points in `results`, and the estimated cost.

    Returns the expected GPU-hours; None if they are not known.

    Raises InvalidSpec; BadInput for prompts that cannot be read.
    """
    planned = expand_campaign(campaign)
    sizes, estimator = _PromptSizes(base_dir), HoursEstimator(inputs, results)
    costed = [_costed(run, campaign.spec.budget, results, sizes, estimator) for run in planned.runs]
    cost, budget = total(each.cost for each in costed), campaign.spec.budget
    warnings, missing = campaign_warnings(planned, base_dir)
    over = over_budget(cost, budget)
    if over is not None:
        warnings.append(
            f"over budget by {over:.1f} GPU-hours: {cost.gpu_hours:.1f} needed, budget.gpuHours is {budget.gpu_hours:g}"
        )
    for each in costed:
        warnings += hours_warnings(each.hours, f"a launch of {each.run.name}")
    if output == "json":
        echo_json(json.dumps(_campaign_document(campaign, costed, cost, [*warnings, *missing]), indent=2))
    else:
        echo(_campaign_text(campaign, costed, cost))
    print_warnings(warnings, missing)
    estimated = _estimated(costed)
    return float(total_document(estimated)["gpuHours"]) if estimated else None


@dataclass
class _PromptSizes:
    """Turns and tokens of the prompts, for files on this machine; each file is read once."""

    base_dir: Path
    _cache: dict[str, PromptSizes] = field(default_factory=dict)

    def of(self, plan: Plan) -> dict[str, PromptSizes]:
        """Return the sizes by the workload's name."""
        local = [workload for workload in plan.workloads if is_local(workload.dataset, self.base_dir)]
        return {workload.name: self._read(workload) for workload in local}

    def _read(self, workload: Workload) -> PromptSizes:
        key = canonical_json(workload.to_dict())
        if key not in self._cache:
            self._cache[key] = sizes_of(load_workload(workload, self.base_dir))
        return self._cache[key]


def _costed(
    run: PlannedRun, budget: Budget, results: Store | None, prompts: _PromptSizes, estimator: HoursEstimator
) -> CostedRun:
    measured = find_local_run(results, run.plan).measured if results is not None else set()
    sizes = prompts.of(run.plan)
    cost = cost_of_run(run.plan, budget, measured, {name: each.turns for name, each in sizes.items()})
    hours = estimator.of(run.plan, run.run.spec.active_deadline_seconds, sizes, measured, budget)
    return CostedRun(run, frozenset(measured), cost, hours)


def _campaign_document(
    campaign: SpecBenchCampaign, costed: Sequence[CostedRun], cost: CampaignCost, warnings: Sequence[str]
) -> dict[str, Any]:
    return {
        "name": campaign.metadata.name,
        "kind": campaign.kind,
        "runs": [
            {
                "name": each.run.name,
                "cell": dict(each.run.cell),
                "resource": each.run.resource,
                "launches": [
                    {"index": group.index, "arm": group.arm, "points": [point.hash for point in group.points]}
                    for group in each.run.plan.groups
                ],
                "commands": _commands(each.run.plan),
                "measured": sorted(each.measured),
                "estimate": _size_document(each.cost) | hours_document(each.hours),
                "countedGpuHours": each.cost.gpu_hours,
            }
            for each in costed
        ],
        "estimate": _size_document(cost) | total_document(_estimated(costed)),
        "budget": {
            "gpuHours": campaign.spec.budget.gpu_hours,
            "countedGpuHours": cost.gpu_hours,
            "overByGpuHours": over_budget(cost, campaign.spec.budget),
            "pointsAssumed": cost.points_assumed,
            "launchSeconds": campaign.spec.budget.launch_seconds,
            "pointSeconds": campaign.spec.budget.point_seconds,
        },
        "warnings": list(warnings),
    }


def _commands(plan: Plan) -> dict[str, list[str]]:
    """Return the command line of each arm's engine, as `specbench run` would start it here."""
    return {arm: planned_command(launch) for arm, launch in planned_launches(plan).items()}


def _size_document(cost: CampaignCost) -> dict[str, float]:
    return {"launches": cost.launches, "points": cost.points}


def _estimated(costed: Sequence[CostedRun]) -> list[PlannedHours]:
    return [each.hours for each in costed if each.hours is not None]


def _campaign_text(campaign: SpecBenchCampaign, costed: Sequence[CostedRun], cost: CampaignCost) -> str:
    axes = " × ".join(f"{name_of(axis)} ({len(axis.values)})" for axis in campaign.spec.axes) or "no axes"
    lines = [f"{campaign.metadata.name}: {axes}", "", "Runs, in order, each with its launches (arm, points)"]
    for each in costed:
        measured = f"  {len(each.measured)} measured" if each.measured else ""
        hours = f"  {range_text(each.hours.estimate.gpu_hours)} GPU-hours" if each.hours is not None else ""
        lines.append(f"  {each.run.name}  {cell_text(each.run.cell)}{measured}{hours}")
        groups = each.run.plan.groups
        lines.append(f"    {'  '.join(f'{group.arm}:{len(group.points)}' for group in groups)}")
    return "\n".join([*lines, "", *_campaign_totals(campaign, costed, cost)])


def _campaign_totals(campaign: SpecBenchCampaign, costed: Sequence[CostedRun], cost: CampaignCost) -> list[str]:
    budget = campaign.spec.budget
    points = sum(len(each.run.plan.points) for each in costed)
    launches = sum(len(each.run.plan.groups) for each in costed)
    measured = sum(len(each.measured) for each in costed)
    known = cost.points - cost.points_assumed
    own = f", {known} points with the duration of their own load" if known else ""
    limit = f", of a budget of {budget.gpu_hours:g}" if budget.gpu_hours is not None else ""
    hours = cost.engine_seconds / SECONDS_AN_HOUR
    return [
        f"{len(costed)} runs, {launches} launches, {points} points ({measured} measured already)",
        *total_text(_estimated(costed)),
        f"counted for the budget: {hours:.1f} engine hours, {cost.gpu_hours:.1f} GPU-hours{limit}",
        f"  assumed: {budget.launch_seconds} s (budget.launchSeconds) for each of {cost.launches} launches,",
        f"  {budget.point_seconds} s (budget.pointSeconds) for each of {cost.points_assumed} points{own};",
        "  GPU-hours: engine hours times the GPUs of each engine (placement.gpus or claimedGpus, on all nodes)",
    ]


@click.command()
@FILE
@SET
@OUTPUT
@click.option(
    "--results",
    metavar="DIR-or-URI",
    help="Mark the points that are already measured in these results, and estimate the others from their durations.",
)
@ASSUME
@click.option(
    "--max-gpu-hours",
    type=FiniteRange(min=0),
    metavar="HOURS",
    help="Exit with code 2 if the points that are not measured yet are expected to need more GPU-hours.",
)
def plan(file: Path, settings: tuple[str, ...], output: str, results: str | None, **options: Any) -> int:
    """Show what FILE would launch and measure, and for engines on GPUs the hours it would take; nothing is started.

    \b
      specbench plan examples/local-llama-cpp.yaml
      specbench plan run.yaml --set spec.load.repeats=1 --assume gpu=H100 --output json
      specbench plan examples/seeds/temperature.yaml --results s3://bench-results/seeds
      specbench plan run.yaml --max-gpu-hours 4

    Shows the engine command line of each arm, the launches in order, and the points of each launch. For a campaign: its
    runs by name, and the expected GPU-hours. The estimate has a range. For engines without GPUs it needs durations in
    --results, or --assume streamTokensPerSecond.
    """
    resource, base_dir, inputs = (
        read_spec_file(file, settings),
        file.resolve().parent,
        read_assumptions(options["assumed"]),
    )
    store = open_results(results) if results is not None else None
    if isinstance(resource, SpecBenchCampaign):
        return _limit_exit(print_campaign_plan(resource, base_dir, store, inputs, output), options["max_gpu_hours"])
    expanded = expand(resource)
    measured = find_local_run(store, expanded).measured if store is not None else set()
    prompts = _prompts(expanded, base_dir)
    sizes = {name: sizes_of(rows) for name, rows in prompts.items()}
    size = estimate(expanded, {name: each.turns for name, each in sizes.items()})
    deadline_s = resource.spec.active_deadline_seconds
    hours = HoursEstimator(inputs, store).of(expanded, deadline_s, sizes, measured, Budget())
    slots = (default_slots_problem(expanded, expanded.workload(name), rows.rows) for name, rows in prompts.items())
    warnings = [*plan_warnings(expanded), *filter(None, slots), *hours_warnings(hours)]
    missing = missing_files(expanded, base_dir)
    described = {
        name: _described(rows) | _at_once(expanded, rows) | _rendered(expanded, name, rows, base_dir)
        for name, rows in prompts.items()
    }
    if output == "json":
        extra = {"prompts": described, "warnings": [*warnings, *missing]}
        echo_json(json.dumps(_document(expanded, measured, size, hours) | extra, indent=2))
    else:
        echo(_text(expanded, measured, size, hours))
        for name, facts in described.items():
            echo(f"{name}: " + "; ".join(f"{label}: {value}" for label, value in facts.items()))
    print_warnings(warnings, missing)
    return _limit_exit(hours.estimate.gpu_hours.expected if hours is not None else None, options["max_gpu_hours"])


def _limit_exit(gpu_hours: float | None, limit: float | None) -> int:
    """Return the exit code of `--max-gpu-hours`, and print why if it is not 0. None: the run declares no GPUs."""
    if limit is None:
        return Exit.OK
    if gpu_hours is None:
        echo("warning: --max-gpu-hours was not checked: the run declares no GPUs (spec.placement.gpus)", err=True)
    elif gpu_hours > limit:
        remedy = "measure fewer points (workloads, loads, repeats, drafters), or raise --max-gpu-hours"
        echo(f"error: {gpu_hours:.2f} GPU-hours are expected, and --max-gpu-hours is {limit:g}: {remedy}", err=True)
        return Exit.BAD_INPUT
    return Exit.OK


def _prompts(plan: Plan, base_dir: Path) -> dict[str, Prompts]:
    """Return the prompts of the workloads whose files are on this machine."""
    return {
        workload.name: load_workload(workload, base_dir)
        for workload in plan.workloads
        if is_local(workload.dataset, base_dir)
    }


def _described(prompts: Prompts) -> dict[str, object]:
    """Return counts of prompts, requests and categories, and lengths in tokens of o200k_base."""
    facts: dict[str, object] = {"prompts": len(prompts.rows), "requests": prompts.turns}
    facts["categories"] = len({prompt.category for prompt in prompts.rows})
    facts |= _coverage(prompts.coverage) if prompts.coverage else {}
    lengths = measure_lengths(prompts.rows)
    if lengths.tokens is None:
        return facts | {"lengths": f"not counted: {lengths.reason}"}
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


def _document(plan: Plan, measured: set[str], size: PlanEstimate, hours: PlannedHours | None) -> dict[str, Any]:
    launches = planned_launches(plan)
    return {
        **plan.to_dict(),
        "commands": _commands(plan),
        "configs": {arm: dict(launch.configs) for arm, launch in launches.items() if launch.configs},
        "measured": sorted(measured),
        "estimate": {
            "launches": size.launches,
            "points": size.points,
            "clients": plan.load.clients,
            "requests": size.requests,
            "outputTokensAtMost": size.output_tokens_at_most,
            "loadSeconds": size.load_seconds,
        }
        | hours_document(hours),
    }


def _config_lines(name: str, text: str) -> list[str]:
    return [f"{'':<18} {CONFIG_FOLDER}/{name}:", *(f"{'':<20} {line}" for line in text.splitlines())]


def _text(plan: Plan, measured: set[str], size: PlanEstimate, hours: PlannedHours | None) -> str:
    lines = [f"{plan.name}: {plan.target.title} on {plan.engine.kind}", "", "Arms"]
    for arm, launch in planned_launches(plan).items():
        lines.append(f"  {arm:<16} {shlex.join(planned_command(launch))}")
        lines += [line for name, text in launch.configs.items() for line in _config_lines(name, text)]
    lines += [f"  {arm.name:<16} {arm.endpoint.url}" for arm in plan.arms if arm.endpoint]
    what = "Turns" if plan.engine.is_external else "Launches"
    lines += ["", f"{what}, in order, each with its points (workload, load, repeat)"]
    for group in plan.groups:
        lines.append(f"  {group.index:>3}  {group.arm}")
        lines += [
            f"         {point.hash[:12]}  {point.workload}  at {point.level.label}  repeat {point.repeat}"
            + ("  measured" if point.hash in measured else "")
            for point in group.points
        ]
    requests = f", {size.requests} requests" if size.requests is not None else ""
    tokens = f", at most {size.output_tokens_at_most} output tokens" if size.output_tokens_at_most is not None else ""
    seconds = f", {size.load_seconds:.0f} s of load" if size.load_seconds is not None else ""
    done = f"({len(measured)} measured already)"
    counts = f"{size.launches} {what.lower()}, {size.points} points {done}"
    lines += ["", f"{counts}{requests}{tokens}{seconds}{_clients(plan)}"]
    return "\n".join([*lines, *(hours_text(hours) if hours is not None else [])])


def _clients(plan: Plan) -> str:
    """Return the number of client pods and what they request together; empty for one."""
    count, given = plan.load.clients, plan.placement.client.resources
    if count == 1:
        return ""
    cpu, memory = (
        count * amount_of(given.requests.get(name) or given.limits.get(name) or CLIENT_DEFAULTS[name])
        for name in ("cpu", "memory")
    )
    total = f"{cpu.normalize():f} CPU cores and {float(memory) / 2**30:.3g}Gi"
    return f", {count} client pods for each launch with together {total}"
