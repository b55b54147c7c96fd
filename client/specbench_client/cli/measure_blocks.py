"""Chooses what `specbench measure` leaves open: the requests of a block with --baseline, the loads with --sweep.

Loads pandas, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from specbench_api.outcome.summary import REPEATS_IN_TURNS
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import PromptCache
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.measure_plan import MeasureOptions, plan_for_endpoints
from specbench_client.cli.options import slo_from_options
from specbench_client.cli.streams import echo
from specbench_client.drive.block_size import SIZES, block_size, probe_request_s
from specbench_client.drive.saturation import STREAMS_MAX, EndpointProbe, find_levels
from specbench_client.errors import BadInput
from specbench_client.local.local_runs import find_interrupted_plan
from specbench_client.store.locations import open_store, read_object
from specbench_client.workload.prompts import load_workload


def with_block_size(options: MeasureOptions, plan: Plan, headers: Mapping[str, str]) -> Plan:
    """Return the plan with the requests of a block: those of an interrupted run, else from how long requests take.

    Raises BadInput, EngineFailed.
    """
    interrupted = _interrupted(options, (replace(options, requests=size) for size in SIZES))
    if interrupted is not None:
        return interrupted
    prompts = load_workload(plan.workloads[0], Path.cwd(), read_object)
    request_s = run_until_interrupted(probe_request_s(plan, prompts, headers))
    conversation_s = request_s * prompts.turns / len(prompts.rows)
    size = block_size(plan, conversation_s)
    turns_s = _turns_s(plan, size, conversation_s)
    echo(
        f"a request takes about {request_s:.2g} s, so each turn has {size} requests (--requests changes this);"
        f" {REPEATS_IN_TURNS * len(plan.arms)} turns take about {max(turns_s / 60, 1):.0f} min",
        err=True,
    )
    return plan_for_endpoints(replace(options, requests=size))


def warn_of_repeated_prompts(plan: Plan) -> None:
    """Warn if turns of this many requests send prompts again that the servers may have in their caches."""
    requests = plan.load.requests
    if requests is None or plan.prompt_cache is PromptCache.DISABLED:
        return
    prompts = len(load_workload(plan.workloads[0], Path.cwd(), read_object).rows)
    needed = requests * min(plan.load.repeats, 2 * REPEATS_IN_TURNS) * len(plan.load.levels)
    if needed > prompts:
        echo(
            f"warning: the dataset has {prompts} prompts, but {needed} are needed to send none twice. A server with a"
            " prompt cache reads repeated prompts from it (finding PromptsSentAgain): give more prompts, or"
            " --prompt-cache disabled",
            err=True,
        )


TURN_OVERHEAD_S = 1.0
"""Seconds for the first completion and the start of the client's processes."""


def _turns_s(plan: Plan, requests: int, request_s: float) -> float:
    """Return roughly how long the fewest turns take, if requests take as long under load as alone."""
    levels = [
        requests * request_s / level.concurrency if level.concurrency else requests / (level.rate or 1.0)
        for level in plan.load.levels
    ]
    return REPEATS_IN_TURNS * len(plan.arms) * (sum(levels) + TURN_OVERHEAD_S)


def with_swept_loads(options: MeasureOptions, headers: Mapping[str, str]) -> MeasureOptions:
    """Return the options with the loads of a sweep: those of an interrupted run, else 1, 2, 4, … up to saturation.

    Raises BadInput, EngineFailed.
    """
    levels = tuple(2**power for power in range(STREAMS_MAX.bit_length()))
    fixed = replace(options, sweep=False)
    prefixes = (replace(fixed, concurrency=(levels[:size],)) for size in range(1, len(levels) + 1))
    interrupted = _interrupted(options, prefixes)
    if interrupted is not None:
        return replace(fixed, concurrency=(tuple(interrupted.load.concurrency or ()),))
    plan = plan_for_endpoints(replace(fixed, concurrency=((1,),)))
    prompts = load_workload(plan.workloads[0], Path.cwd(), read_object)
    most = STREAMS_MAX if options.duration is not None else options.requests or len(prompts.rows)
    slo = slo_from_options(options.slo_ttft_ms, options.slo_tpot_ms, options.slo_e2e_ms)
    probe = EndpointProbe(plan, prompts, headers, slo)
    found = run_until_interrupted(find_levels(probe, most, lambda line: echo(line, err=True)))
    return replace(fixed, concurrency=(tuple(found),))


def _interrupted(options: MeasureOptions, candidates: Iterable[MeasureOptions]) -> Plan | None:
    """Return the plan of the first of the candidates with an interrupted run: its size or loads were chosen earlier."""
    if options.new:
        return None
    return find_interrupted_plan(open_store(options.results), _valid_plans(candidates))


def _valid_plans(candidates: Iterable[MeasureOptions]) -> Iterator[Plan]:
    """Yield the plans up to the first invalid one: at a low rate, more requests would take even longer."""
    for candidate in candidates:
        try:
            plan = plan_for_endpoints(candidate)
        except BadInput:
            return
        yield plan
