"""Chooses the requests of a block for `specbench measure --baseline`; loads pandas, so it is imported late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specbench_api.outcome.summary import REPEATS_IN_TURNS
from specbench_api.plan.plan import Plan
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.measure_plan import MeasureOptions, plan_for_endpoints
from specbench_client.cli.streams import echo
from specbench_client.drive.block_size import SIZES, block_size, probe_request_s
from specbench_client.errors import BadInput
from specbench_client.local.local_runs import find_local_run, open_results
from specbench_client.store.locations import read_object
from specbench_client.workload.prompts import load_prompts


def with_block_size(options: MeasureOptions, plan: Plan, headers: Mapping[str, str]) -> Plan:
    """Return the plan with the requests of a block: those of an interrupted run, else from how long requests take.

    Raises BadInput, EngineFailed.
    """
    interrupted = None if options.new else _interrupted(options)
    if interrupted is not None:
        return interrupted
    prompts = load_prompts(plan.workloads[0].dataset, Path.cwd(), read_object)
    request_s = run_until_interrupted(probe_request_s(plan, prompts, headers))
    blocks = min(plan.load.repeats, 2 * REPEATS_IN_TURNS)
    size = block_size(plan, request_s, len(prompts.rows), blocks)
    echo(
        f"a request takes about {request_s:.2g} s, so each turn has {size.requests} requests (--requests changes this)",
        err=True,
    )
    if size.repeats_prompts:
        needed = size.requests * blocks * len(plan.load.levels)
        echo(
            f"warning: the dataset has {len(prompts.rows)} prompts, but {needed} are needed to send none twice. A"
            " server with a prompt cache would read repeated prompts from it (finding PromptCacheHit): give more"
            " prompts, or switch the cache off",
            err=True,
        )
    return plan_for_endpoints(replace(options, requests=size.requests))


def _interrupted(options: MeasureOptions) -> Plan | None:
    """Return the plan of the interrupted run of the same command, whose block size was chosen earlier."""
    results = open_results(options.results)
    for size in SIZES:
        try:
            plan = plan_for_endpoints(replace(options, requests=size))
        except BadInput:  # at a low rate, so many requests would take too long; more of them even more so
            return None
        found = find_local_run(results, plan)
        if found.measured and not found.finished:
            return plan
    return None
