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
from specbench_api.launch.launcher import CONFIG_FOLDER, LaunchSpec
from specbench_api.launch.registry import LAUNCHERS
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
from specbench_api.plan.expansion import expand, launch_order
from specbench_api.plan.plan import Plan
from specbench_api.plan.template_validation import amount_of
from specbench_api.spec.campaign import Budget, SpecBenchCampaign
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.placement import CLIENT_DEFAULTS
from specbench_api.spec.workload import Workload
from specbench_client.cli.options import FILE, OUTPUT, SET, FiniteRange, read_spec_file
from specbench_client.cli.streams import echo, echo_json
from specbench_client.cli.validate import campaign_warnings, is_local, local_template, missing_files, print_warnings
from specbench_client.drive.context_length import slots_too_small
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import planned_command
from specbench_client.local.local_runs import find_local_run, open_results
from specbench_client.store.store import Store
from specbench_client.workload.chat_template.template import render_prompts
from specbench_client.workload.prompt_lengths import measure_lengths
from specbench_client.workload.prompts import Prompts, load_prompts

# Campaigns.


@dataclass(frozen=True)
class CostedRun:
    """A run of a campaign, the hashes of its measured points, and the cost of the others."""

    run: PlannedRun
    measured: frozenset[str]
    cost: CampaignCost


def print_campaign_plan(
    campaign: SpecBenchCampaign, base_dir: Path, results: Store | None, output: str
) -> CampaignCost:
    """Print the runs of a campaign, their measured points in `results`, and the estimated cost; return the cost.

    Raises InvalidSpec; BadInput for prompts that cannot be read.
    """
    planned = expand_campaign(campaign)
    turns = _TurnCounts(base_dir)
    costed = [_costed(run, campaign.spec.budget, results, turns) for run in planned.runs]
    cost, budget = total(each.cost for each in costed), campaign.spec.budget
    warnings, missing = campaign_warnings(planned, base_dir)
    over = over_budget(cost, budget)
    if over is not None:
        warnings.append(
            f"over budget by {over:.1f} GPU-hours: {cost.gpu_hours:.1f} needed, budget.gpuHours is {budget.gpu_hours:g}"
        )
    if output == "json":
        echo_json(json.dumps(_campaign_document(campaign, costed, cost, [*warnings, *missing]), indent=2))
    else:
        echo(_campaign_text(campaign, costed, cost))
    print_warnings(warnings, missing)
    return cost


@dataclass
class _TurnCounts:
    """The number of turns of each prompt, for files on this machine; each file is read once."""

    base_dir: Path
    _cache: dict[str, Sequence[int]] = field(default_factory=dict)

    def of(self, plan: Plan) -> dict[str, Sequence[int]]:
        """Return the turns of each prompt by the workload's name."""
        local = [workload for workload in plan.workloads if is_local(workload.dataset, self.base_dir)]
        return {workload.name: self._read(workload) for workload in local}

    def _read(self, workload: Workload) -> Sequence[int]:
        by_client = workload.client_template is not None
        key = canonical_json({"dataset": workload.dataset.to_dict(), "byClient": by_client})
        if key not in self._cache:
            prompts = load_prompts(workload.dataset, self.base_dir, with_tools=by_client)
            self._cache[key] = [len(row.turns) for row in prompts.rows]
        return self._cache[key]


def _costed(run: PlannedRun, budget: Budget, results: Store | None, turns: _TurnCounts) -> CostedRun:
    measured = find_local_run(results, run.plan).measured if results is not None else set()
    return CostedRun(run, frozenset(measured), cost_of_run(run.plan, budget, measured, turns.of(run.plan)))


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
                "estimate": _estimate_document(each.cost),
            }
            for each in costed
        ],
        "estimate": {
            **_estimate_document(cost),
            "assumed": {
                "launchSeconds": campaign.spec.budget.launch_seconds,
                "pointSeconds": campaign.spec.budget.point_seconds,
            },
            "budgetGpuHours": campaign.spec.budget.gpu_hours,
            "overBudgetByGpuHours": over_budget(cost, campaign.spec.budget),
        },
        "warnings": list(warnings),
    }


def _commands(plan: Plan) -> dict[str, list[str]]:
    """Return the command line of each arm's engine, as `specbench run` would start it here."""
    launcher = LAUNCHERS[plan.engine.kind]
    return {arm.name: planned_command(launcher.launch(launch_order(plan, arm))) for arm in plan.arms}


def _estimate_document(cost: CampaignCost) -> dict[str, float]:
    return {
        "launches": cost.launches,
        "points": cost.points,
        "pointsAssumed": cost.points_assumed,
        "engineHours": cost.engine_seconds / SECONDS_AN_HOUR,
        "gpuHours": cost.gpu_hours,
    }


def _campaign_text(campaign: SpecBenchCampaign, costed: Sequence[CostedRun], cost: CampaignCost) -> str:
    axes = " × ".join(f"{name_of(axis)} ({len(axis.values)})" for axis in campaign.spec.axes) or "no axes"
    lines = [f"{campaign.metadata.name}: {axes}", "", "Runs, in order, each with its launches (arm, points)"]
    for each in costed:
        measured = f"  {len(each.measured)} measured" if each.measured else ""
        hours = f"  {each.cost.gpu_hours:.2f} GPU-hours" if each.run.plan.placement.engine_devices else ""
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
        f"remaining: {hours:.1f} engine hours, {cost.gpu_hours:.1f} GPU-hours{limit}",
        f"  assumed: {budget.launch_seconds} s (budget.launchSeconds) for each of {cost.launches} launches,",
        f"  {budget.point_seconds} s (budget.pointSeconds) for each of {cost.points_assumed} points{own};",
        "  GPU-hours: engine hours times the GPUs of each engine (placement.gpus or claimedGpus, on all nodes)",
    ]


@click.command()
@FILE
@SET
@OUTPUT
@click.option("--results", metavar="DIR-or-URI", help="Mark the points that are already measured in these results.")
@click.option(
    "--max-gpu-hours",
    type=FiniteRange(min=0),
    metavar="HOURS",
    help="Exit with code 2 if the points that are not measured yet need more GPU-hours.",
)
def plan(file: Path, settings: tuple[str, ...], output: str, results: str | None, max_gpu_hours: float | None) -> int:
    """Show what FILE would launch and measure, and for engines on GPUs the hours it would take; nothing is started.

    \b
      specbench plan examples/local-llama-cpp.yaml
      specbench plan run.yaml --set spec.load.repeats=1 --output json
      specbench plan examples/seeds/temperature.yaml --results s3://bench-results/seeds
      specbench plan run.yaml --max-gpu-hours 4

    Shows the engine command line of each arm, the launches in order, and the points of each launch. For a campaign: its
    runs by name, and the expected GPU-hours. No time is estimated for a run whose engines have no GPUs.
    """
    resource, base_dir = read_spec_file(file, settings), file.resolve().parent
    store = open_results(results) if results is not None else None
    if isinstance(resource, SpecBenchCampaign):
        return _limit_exit(print_campaign_plan(resource, base_dir, store, output), max_gpu_hours)
    expanded = expand(resource)
    measured = find_local_run(store, expanded).measured if store is not None else set()
    warnings, missing = slots_too_small(expanded), missing_files(expanded, base_dir)
    prompts = _prompts(expanded, base_dir)
    turns = {name: [len(row.turns) for row in rows.rows] for name, rows in prompts.items()}
    size = estimate(expanded, turns)
    with_gpus = _with_gpus(expanded)
    cost = cost_of_run(with_gpus, Budget(), measured, turns) if with_gpus.placement.engine_devices else None
    described = {name: _described(rows) | _rendered(expanded, name, rows, base_dir) for name, rows in prompts.items()}
    if output == "json":
        extra = {"prompts": described, "warnings": [*warnings, *missing]}
        echo_json(json.dumps(_document(expanded, measured, size, cost) | extra, indent=2))
    else:
        echo(_text(expanded, measured, size, cost))
        for name, facts in described.items():
            echo(f"{name}: " + "; ".join(f"{label}: {value}" for label, value in facts.items()))
    print_warnings(warnings, missing)
    return _limit_exit(cost, max_gpu_hours)


def _limit_exit(cost: CampaignCost | None, limit: float | None) -> int:
    """Return the exit code of `--max-gpu-hours`, and print why if it is not 0. No cost: the run declares no GPUs."""
    if limit is None:
        return Exit.OK
    if cost is None:
        echo("warning: --max-gpu-hours was not checked: the run declares no GPUs (spec.placement.gpus)", err=True)
    elif cost.gpu_hours > limit:
        remedy = "measure fewer points (workloads, loads, repeats, drafters), or raise --max-gpu-hours"
        echo(f"error: {cost.gpu_hours:.2f} GPU-hours needed, --max-gpu-hours is {limit:g}: {remedy}", err=True)
        return Exit.BAD_INPUT
    return Exit.OK


_ON_GPUS = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)


def _with_gpus(plan: Plan) -> Plan:
    """Return the plan with the GPUs of `tensorParallelSize`, if the engine needs GPUs and `placement` has none."""
    if plan.placement.engine_devices or plan.engine.kind not in _ON_GPUS:
        return plan
    placement = plan.placement.model_copy(update={"gpus": plan.engine.tensor_parallel_size})
    return plan.model_copy(update={"placement": placement})


def _prompts(plan: Plan, base_dir: Path) -> dict[str, Prompts]:
    """Return the prompts of the workloads whose files are on this machine."""
    return {
        workload.name: load_prompts(workload.dataset, base_dir, with_tools=workload.client_template is not None)
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
    """Return which rows were left out, and what a request log records about its requests, as far as there is any."""
    recorded = coverage.recorded
    facts = {
        "left out": "; ".join(f"{count} x {reason}" for reason, count in coverage.unusable.items()),
        "excluded": "; ".join(f"{count} x {reason}" for reason, count in coverage.excluded.items()),
        "temperatures in the log": ", ".join(f"{value} ({n})" for value, n in recorded.temperatures.items())
        if recorded
        else "",
        "max_tokens of its median request": f"{recorded.max_tokens_median:.0f}"
        if recorded and recorded.max_tokens_median
        else "",
    }
    return {label: value for label, value in facts.items() if value}


def _launches(plan: Plan) -> dict[str, LaunchSpec]:
    return {arm.name: LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)) for arm in plan.arms}


def _document(plan: Plan, measured: set[str], size: PlanEstimate, cost: CampaignCost | None) -> dict[str, Any]:
    launches = _launches(plan)
    return {
        **plan.to_dict(),
        "commands": {arm: planned_command(launch) for arm, launch in launches.items()},
        "configs": {arm: dict(launch.configs) for arm, launch in launches.items() if launch.configs},
        "measured": sorted(measured),
        "estimate": {
            "launches": size.launches,
            "points": size.points,
            "clients": plan.load.clients,
            "requests": size.requests,
            "outputTokensAtMost": size.output_tokens_at_most,
            "loadSeconds": size.load_seconds,
            "engineHours": cost and cost.engine_seconds / SECONDS_AN_HOUR,
            "gpuHours": cost and cost.gpu_hours,
        },
    }


def _config_lines(name: str, text: str) -> list[str]:
    return [f"{'':<18} {CONFIG_FOLDER}/{name}:", *(f"{'':<20} {line}" for line in text.splitlines())]


def _text(plan: Plan, measured: set[str], size: PlanEstimate, cost: CampaignCost | None) -> str:
    lines = [f"{plan.name}: {plan.target.name} on {plan.engine.kind}", "", "Arms"]
    for arm, launch in _launches(plan).items():
        lines.append(f"  {arm:<16} {shlex.join(planned_command(launch))}")
        lines += [line for name, text in launch.configs.items() for line in _config_lines(name, text)]
    lines += ["", "Launches, in order, each with its points (workload, load, repeat)"]
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
    lines += ["", f"{size.launches} launches, {size.points} points {done}{requests}{tokens}{seconds}{_clients(plan)}"]
    return "\n".join([*lines, *(_hours(plan, cost) if cost else [])])


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


def _hours(plan: Plan, cost: CampaignCost) -> list[str]:
    """Return the cost of the remaining points, with a campaign's default durations."""
    assumed, gpus = Budget(), plan.engine.tensor_parallel_size
    declared = bool(plan.placement.engine_devices)
    return [
        f"remaining: {cost.engine_seconds / SECONDS_AN_HOUR:.1f} engine hours, {cost.gpu_hours:.1f} GPU-hours",
        f"  assumed: {assumed.launch_seconds} s for each of {cost.launches} launches (model load, first completion),",
        f"  {assumed.point_seconds} s for each of {cost.points_assumed} points whose load has no duration;",
        *([] if declared else [f"  {gpus} GPU{'s' * (gpus > 1)} an engine (engine.tensorParallelSize);"]),
        "  to assume others, use a SpecBenchCampaign with budget.launchSeconds and budget.pointSeconds",
    ]
