"""`specbench plan`: what would be launched and measured, before it is paid for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from specbench_api.campaign.estimate import SECONDS_AN_HOUR, Cost, cost_of_run
from specbench_api.launch.launch import CONFIG_FOLDER, Launch
from specbench_api.launch.table import LAUNCHERS
from specbench_api.outcome.coverage import Coverage
from specbench_api.plan.estimate import Estimate, estimate
from specbench_api.plan.expand import expand, launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import Budget, SpecBenchCampaign
from specbench_client.cli.forewarn import at_hand, missing_here, template_here, warn
from specbench_client.cli.options import FILE, OUTPUT, SET
from specbench_client.cli.plan_campaign import show_plan
from specbench_client.cli.reading import read_file
from specbench_client.errors import BadInput
from specbench_client.local.place import find_run, open_results
from specbench_client.local.process import planned_command
from specbench_client.local.room import cramped
from specbench_client.workload.chat_template.prompts import render_prompts
from specbench_client.workload.lengths import measure_lengths
from specbench_client.workload.prompts import Prompts, load_prompts


@click.command()
@FILE
@SET
@OUTPUT
@click.option("--results", metavar="DIR-or-URI", help="Mark what is measured there already.")
def plan(file: Path, settings: tuple[str, ...], output: str, results: str | None) -> None:
    """Print what FILE would launch and measure, and the GPU-hours that it would take; nothing is started.

    Of a campaign: its runs by the names that they will have, and the GPU-hours that are to be expected.

    \b
      specbench plan examples/local-llama-cpp.yaml
      specbench plan run.yaml --set spec.load.repeats=1 --output json
      specbench plan examples/seeds/temperature.yaml --results s3://bench-results/seeds
    """
    read, base_dir = read_file(file, settings), file.resolve().parent
    store = open_results(results) if results is not None else None
    if isinstance(read, SpecBenchCampaign):
        show_plan(read, base_dir, store, output)
        return
    wanted = expand(read)
    measured = find_run(store, wanted).measured if store is not None else set()
    spoiling, missing = cramped(wanted), missing_here(wanted, base_dir)
    prompts = _prompts(wanted, base_dir)
    turns = {name: [len(row.turns) for row in rows.rows] for name, rows in prompts.items()}
    size = estimate(wanted, turns)
    cost = cost_of_run(wanted, Budget(), measured, turns) if wanted.placement.engine_devices else None
    described = {name: _described(rows) | _rendered(wanted, name, rows, base_dir) for name, rows in prompts.items()}
    if output == "json":
        told = {"prompts": described, "warnings": [*spoiling, *missing]}
        click.echo(json.dumps(_document(wanted, measured, size, cost) | told, indent=2))
    else:
        click.echo(_text(wanted, measured, size, cost))
        for name, known in described.items():
            click.echo(f"{name}: " + "; ".join(f"{what}: {value}" for what, value in known.items()))
    warn(spoiling, missing)


def _prompts(wanted: Plan, base_dir: Path) -> dict[str, Prompts]:
    """The prompts of the workloads whose files lie on this machine."""
    return {
        workload.name: load_prompts(workload.dataset, base_dir, with_tools=workload.client_template is not None)
        for workload in wanted.workloads
        if at_hand(workload.dataset, base_dir)
    }


def _described(prompts: Prompts) -> dict[str, object]:
    """How many, of how many categories, and how long on the field's common ruler."""
    told: dict[str, object] = {"prompts": len(prompts.rows), "requests": prompts.turns}
    told["categories"] = len({prompt.category for prompt in prompts.rows})
    told |= _covered(prompts.coverage) if prompts.coverage else {}
    lengths = measure_lengths(prompts.rows)
    if lengths.tokens is None:
        return told | {"lengths": f"not counted: {lengths.reason}"}
    tokens = sorted(lengths.tokens.values())
    return told | {"tokens in the median prompt (o200k_base)": tokens[len(tokens) // 2], "in the longest": tokens[-1]}


def _rendered(wanted: Plan, name: str, prompts: Prompts, base_dir: Path) -> dict[str, object]:
    """What the client makes of them by the chat template, where that is at hand; why it cannot is a warning already."""
    try:
        template = template_here(wanted, wanted.workload(name), base_dir)
        tokens = sorted(render_prompts(prompts.rows, template).tokens.values()) if template else []
    except BadInput:
        return {}
    if template is None:
        return {}
    told: dict[str, object] = {"chat template applied by the client": template.template_sha256[:12]}
    return told | {"token ids of the median prompt": tokens[len(tokens) // 2], "of the longest": tokens[-1]}


def _covered(coverage: Coverage) -> dict[str, object]:
    """What is not among them, and what a request log says of its own requests; nothing where there is nothing."""
    recorded = coverage.recorded
    told = {
        "left out": "; ".join(f"{count} x {reason}" for reason, count in coverage.left_out.items()),
        "excluded": "; ".join(f"{count} x {reason}" for reason, count in coverage.excluded.items()),
        "temperatures of the log": ", ".join(f"{value} ({n})" for value, n in recorded.temperatures.items())
        if recorded
        else "",
        "limit of its median request": f"{recorded.max_tokens_median:.0f}"
        if recorded and recorded.max_tokens_median
        else "",
    }
    return {what: value for what, value in told.items() if value}


def _launches(wanted: Plan) -> dict[str, Launch]:
    return {arm.name: LAUNCHERS[wanted.engine.kind].launch(launch_order(wanted, arm)) for arm in wanted.arms}


def _document(wanted: Plan, measured: set[str], size: Estimate, cost: Cost | None) -> dict[str, Any]:
    launches = _launches(wanted)
    return {
        **wanted.to_dict(),
        "commands": {arm: planned_command(launch) for arm, launch in launches.items()},
        "configs": {arm: dict(launch.configs) for arm, launch in launches.items() if launch.configs},
        "measured": sorted(measured),
        "estimate": {
            "launches": size.launches,
            "points": size.points,
            "requests": size.requests,
            "outputTokensAtMost": size.output_tokens_at_most,
            "loadSeconds": size.load_seconds,
            "engineHours": cost and cost.engine_seconds / SECONDS_AN_HOUR,
            "gpuHours": cost and cost.gpu_hours,
        },
    }


def _config_lines(name: str, text: str) -> list[str]:
    return [f"{'':<18} {CONFIG_FOLDER}/{name}:", *(f"{'':<20} {line}" for line in text.splitlines())]


def _text(wanted: Plan, measured: set[str], size: Estimate, cost: Cost | None) -> str:
    lines = [f"{wanted.name}: {wanted.target.name} on {wanted.engine.kind}", "", "Arms"]
    for arm, launch in _launches(wanted).items():
        lines.append(f"  {arm:<16} {shlex.join(planned_command(launch))}")
        lines += [line for name, text in launch.configs.items() for line in _config_lines(name, text)]
    lines += ["", "Launches, in order, each with its points (workload, load, repeat)"]
    for group in wanted.groups:
        lines.append(f"  {group.index:>3}  {group.arm}")
        lines += [
            f"         {point.hash[:12]}  {point.workload}  at {point.level.label}  repeat {point.repeat}"
            + ("  measured" if point.hash in measured else "")
            for point in group.points
        ]
    requests = f", {size.requests} requests" if size.requests is not None else ""
    tokens = f", at most {size.output_tokens_at_most} output tokens" if size.output_tokens_at_most is not None else ""
    seconds = f", {size.load_seconds:.0f} s of load" if size.load_seconds is not None else ""
    lines += [
        "",
        f"{size.launches} launches, {size.points} points ({len(measured)} measured already){requests}{tokens}{seconds}",
    ]
    return "\n".join([*lines, *(_hours(cost) if cost else [])])


def _hours(cost: Cost) -> list[str]:
    """What GPUs are held for, of what is still to do, by the seconds that a campaign assumes."""
    assumed = Budget()
    return [
        f"still to do: {cost.engine_seconds / SECONDS_AN_HOUR:.1f} hours of engines, {cost.gpu_hours:.1f} GPU-hours",
        f"  assumed: {assumed.launch_seconds} s for each of {cost.launches} launches (model load, first completion),",
        f"  {assumed.point_seconds} s for each of {cost.points_assumed} points whose load tells no time;",
        "  other seconds: as a SpecBenchCampaign without axes, by budget.launchSeconds and pointSeconds",
    ]
