"""What `specbench plan` and `validate` say of a campaign: its runs, and what they will cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from specbench_api.campaign.cell import cell_text
from specbench_api.campaign.estimate import SECONDS_AN_HOUR, Cost, cost_of_run, over_budget, total
from specbench_api.campaign.expand import CampaignPlan, PlannedRun, expand_campaign
from specbench_api.campaign.matrix import name_of
from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.canonical import canonical_json
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import Budget, SpecBenchCampaign
from specbench_api.spec.workload import Workload
from specbench_client.cli.forewarn import at_hand, missing_here, warn
from specbench_client.local.place import find_run
from specbench_client.local.process import planned_command
from specbench_client.local.room import cramped
from specbench_client.store.store import Store
from specbench_client.workload.prompts import load_prompts


@dataclass(frozen=True)
class Costed:
    """One run, the hashes of its points that are measured, and what the others cost."""

    run: PlannedRun
    measured: frozenset[str]
    cost: Cost


def show_plan(campaign: SpecBenchCampaign, base_dir: Path, results: Store | None, output: str) -> None:
    """Print the runs, what is measured of them in `results`, and the estimate: text, or one JSON document.

    Raises InvalidSpec; BadInput for prompts that no client could read.
    """
    planned = expand_campaign(campaign)
    turns = _Turns(base_dir)
    costed = [_costed(run, campaign.spec.budget, results, turns) for run in planned.runs]
    cost, budget = total(each.cost for each in costed), campaign.spec.budget
    spoiling, missing = warnings_of(planned, base_dir)
    over = over_budget(cost, budget)
    if over is not None:
        spoiling.append(f"over budget by {over:.1f} GPU-hours: {cost.gpu_hours:.1f} of {budget.gpu_hours:g}")
    if output == "json":
        click.echo(json.dumps(_document(campaign, costed, cost, [*spoiling, *missing]), indent=2))
    else:
        click.echo(_text(campaign, costed, cost))
    warn(spoiling, missing)


def warnings_of(planned: CampaignPlan, base_dir: Path) -> tuple[list[str], list[str]]:
    """What would spoil the answers or is most likely a slip, and what is not on this machine. Each line once."""
    spoiling = [*planned.warnings, *(line for run in planned.runs for line in cramped(run.plan))]
    missing = [line for run in planned.runs for line in missing_here(run.plan, base_dir)]
    return list(dict.fromkeys(spoiling)), list(dict.fromkeys(missing))


@dataclass
class _Turns:
    """How many turns each prompt has, of the files that lie on this machine; each file is read once."""

    base_dir: Path
    seen: dict[str, Sequence[int]] = field(default_factory=dict)

    def of(self, plan: Plan) -> dict[str, Sequence[int]]:
        """By the workload's name."""
        near = [workload for workload in plan.workloads if at_hand(workload.dataset, self.base_dir)]
        return {workload.name: self._read(workload) for workload in near}

    def _read(self, workload: Workload) -> Sequence[int]:
        by_client = workload.client_template is not None
        key = canonical_json({"dataset": workload.dataset.to_dict(), "byClient": by_client})
        if key not in self.seen:
            prompts = load_prompts(workload.dataset, self.base_dir, with_tools=by_client)
            self.seen[key] = [len(row.turns) for row in prompts.rows]
        return self.seen[key]


def _costed(run: PlannedRun, budget: Budget, results: Store | None, turns: _Turns) -> Costed:
    measured = find_run(results, run.plan).measured if results is not None else set()
    return Costed(run, frozenset(measured), cost_of_run(run.plan, budget, measured, turns.of(run.plan)))


def _document(
    campaign: SpecBenchCampaign, costed: Sequence[Costed], cost: Cost, warnings: Sequence[str]
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
                "estimate": _estimate(each.cost),
            }
            for each in costed
        ],
        "estimate": {
            **_estimate(cost),
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
    """Of each arm, as `specbench run` would start it here."""
    launcher = LAUNCHERS[plan.engine.kind]
    return {arm.name: planned_command(launcher.launch(launch_order(plan, arm))) for arm in plan.arms}


def _estimate(cost: Cost) -> dict[str, float]:
    return {
        "launches": cost.launches,
        "points": cost.points,
        "pointsAssumed": cost.points_assumed,
        "engineHours": cost.engine_seconds / SECONDS_AN_HOUR,
        "gpuHours": cost.gpu_hours,
    }


def _text(campaign: SpecBenchCampaign, costed: Sequence[Costed], cost: Cost) -> str:
    axes = " × ".join(f"{name_of(axis)} ({len(axis.values)})" for axis in campaign.spec.axes) or "no axes"
    lines = [f"{campaign.metadata.name}: {axes}", "", "Runs, in order, each with its launches (arm, points)"]
    for each in costed:
        there = f"  {len(each.measured)} measured" if each.measured else ""
        hours = f"  {each.cost.gpu_hours:.2f} GPU-hours" if each.run.plan.placement.engine_devices else ""
        lines.append(f"  {each.run.name}  {cell_text(each.run.cell)}{there}{hours}")
        groups = each.run.plan.groups
        lines.append(f"    {'  '.join(f'{group.arm}:{len(group.points)}' for group in groups)}")
    return "\n".join([*lines, "", *_sums(campaign, costed, cost)])


def _sums(campaign: SpecBenchCampaign, costed: Sequence[Costed], cost: Cost) -> list[str]:
    budget = campaign.spec.budget
    points = sum(len(each.run.plan.points) for each in costed)
    launches = sum(len(each.run.plan.groups) for each in costed)
    measured = sum(len(each.measured) for each in costed)
    known = cost.points - cost.points_assumed
    told = f", {known} points with the seconds of their own load" if known else ""
    bound = f", of a budget of {budget.gpu_hours:g}" if budget.gpu_hours is not None else ""
    hours = cost.engine_seconds / SECONDS_AN_HOUR
    return [
        f"{len(costed)} runs, {launches} launches, {points} points ({measured} measured already)",
        f"still to do: {hours:.1f} hours of engines, {cost.gpu_hours:.1f} GPU-hours{bound}",
        f"  assumed: {budget.launch_seconds} s (budget.launchSeconds) for each of {cost.launches} launches,",
        f"  {budget.point_seconds} s (budget.pointSeconds) for each of {cost.points_assumed} points{told};",
        "  GPU-hours: times the GPUs of each engine (placement: gpus or claimedGpus, on all nodes)",
    ]
