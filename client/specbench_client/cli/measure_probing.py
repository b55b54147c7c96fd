"""Chooses what the options of `specbench measure` leave open, by asking the endpoints.

That is the dialect and the model, the loads with --sweep, and the requests of a repeat with --baseline. Loads pandas,
so it is imported late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import mean

from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import DialectName, PromptCache
from specbench_api.spec.load import STREAMS_MAX, Load
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.live_progress import repeats_of, shorter_ways
from specbench_client.cli.measure import OWN_PROMPTS, Measurement
from specbench_client.cli.streams import echo
from specbench_client.cli.validate import few_repeats, print_warnings
from specbench_client.documents.figure import counted
from specbench_client.drive.endpoint_detection import detect_endpoint, unreported_acceptance
from specbench_client.drive.engine_connection import FieldRejected, ModelNotServed, RateLimited
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.load_probes import (
    PROBES,
    SIZES,
    EndpointProbe,
    find_levels,
    probe_completion,
    probe_requests_s,
    size_of_repeat,
)
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.local.local_runs import find_begun_plan
from specbench_client.measure_flags import with_flag_names
from specbench_client.store.locations import open_store
from specbench_client.trust.checks.load import requests_queued
from specbench_client.workload.prompts import Prompts, load_workload


def choose_what_is_open(wanted: Measurement, headers: Mapping[str, str]) -> Measurement:
    """Return the measurement with everything chosen, and print what was. Raises BadInput, EngineFailed."""
    chosen, drafting = with_detected(wanted, headers)
    warn_of_swapped_servers(drafting)
    chosen = with_accepted_fields(chosen, headers, drafting)
    sweeps, compared = wanted.options["sweep"], wanted.options["baseline"] is not None
    begun = as_interrupted(chosen) if sweeps or compared else None
    if begun is not None:
        chosen = begun
    else:
        chosen = with_swept_loads(chosen, headers) if sweeps else chosen
        chosen = with_repeat_size(chosen, headers) if compared and wanted.options["requests"] is None else chosen
    if compared:
        print_warnings([with_flag_names(each) for each in few_repeats(chosen.plan)])
        warn_of_repeated_prompts(chosen.plan)
        if not chosen.plan.restarts:
            echo(
                "intervals do not include how much launches of a server differ; with --restart-command CMD they do",
                err=True,
            )
    return chosen


def _is_size_open(wanted: Measurement) -> bool:
    """Return whether the size of a repeat is to be chosen."""
    sizes = ("requests", "requests_per_stream", "duration")
    return wanted.options["baseline"] is not None and all(wanted.options[each] is None for each in sizes)


def with_detected(wanted: Measurement, headers: Mapping[str, str]) -> tuple[Measurement, set[str]]:
    """Return the measurement with the models and dialects of the endpoints, and the names of those that draft.

    Prints what was detected. Raises EngineFailed if an endpoint cannot be measured, and BadInput if the user must
    choose.
    """
    model, dialect = wanted.options["model"], wanted.options["dialect"]
    if model is not None and dialect is not None:
        return wanted, set()
    given = DialectName(dialect) if dialect else None
    rows, drafting = [], set()
    for row in wanted.endpoints:
        found = run_until_interrupted(detect_endpoint(row["url"], headers, model, given))
        server = f"{row['name']} at {row['url']}"
        several = len(wanted.endpoints) > 1
        echo(f"detected: {f'{server} is ' if several else ''}{found.line()}", err=True)
        if found.most_at_once is not None and max(wanted.options["concurrency"] or [0]) > found.most_at_once:
            echo(
                f"warning: {server} processes at most {counted(round(found.most_at_once), 'request')} at once, and the"
                f" others wait in its queue. {with_flag_names(requests_queued.remedy)}",
                err=True,
            )
        drafting |= {row["name"]} if found.drafting else set()
        detected = {"url": found.url, "dialect": str(found.dialect)}
        rows.append(row | detected | ({"model": found.model} if found.model else {}))
    return replace(wanted, endpoints=tuple(rows)), drafting


def warn_of_swapped_servers(drafting: set[str]) -> None:
    """Warn if of all servers only the baseline drafts."""
    if drafting == {BASELINE_NAME}:
        echo("warning: the baseline drafts, and no endpoint does: are --baseline and --endpoint swapped?", err=True)


def with_accepted_fields(wanted: Measurement, headers: Mapping[str, str], drafting: set[str]) -> Measurement:
    """Return the measurement without the fields of requests that a server rejects by name, and print them.

    They are left out for every server, so that a comparison stays equal, and stored with the run as extraBody. Warns if
    one of the servers that draft does not report acceptance.
    """
    for number in range(len(wanted.endpoints)):
        result = None
        while result is None:
            plan = (wanted.with_options(concurrency=[1]) if wanted.options["sweep"] else wanted).plan
            arm = plan.arms[number]
            server = f"{arm.name} at {arm.endpoint.address if arm.endpoint else ''}"
            try:
                result = run_until_interrupted(probe_completion(plan, arm, headers))
            except FieldRejected as rejected:
                if not rejected.harmless:
                    break
                given = wanted.options["extra_body"] or {}
                wanted = wanted.with_options(extra_body={**given, **rejected.changes})
                left_out = f"every request of this run has extraBody {json.dumps(rejected.changes)}"
                echo(f"{server} rejects {rejected.field} ({rejected.words}): {left_out}", err=True)
            except RateLimited:
                raise
            except ModelNotServed as error:
                raise BadInput(str(error)) from error
            except EngineFailed:  # The measurement reports it, after it has waited for the engine.
                break
        if result is not None and arm.name in drafting:
            warning = unreported_acceptance(plan.engine_of(arm).dialect, result)
            several = f"{server}: " if len(wanted.endpoints) > 1 else ""
            if warning:
                echo(f"warning: {several}{warning}", err=True)
    return wanted


def with_repeat_size(wanted: Measurement, headers: Mapping[str, str]) -> Measurement:
    """Return the measurement with the size of a repeat, if it is open, and print how long all of them take.

    By the time of a request. Raises BadInput, EngineFailed.
    """
    plan = wanted.plan
    closed = plan.load.concurrency is not None and plan.load.duration_seconds is None
    prompts = _prompts(plan)
    echo(f"timing {PROBES} requests to each server, one at a time; --requests N begins without", err=True)
    probed_s, turns = (
        run_until_interrupted(probe_requests_s(plan, prompts, headers, lambda line: echo(line, err=True))),
        prompts.turns / len(prompts.rows),
    )
    request_s, least_s = max(map(mean, probed_s)), sum(map(min, probed_s)) * turns
    given = plan.load.requests_per_stream or plan.load.duration_seconds
    size = given or size_of_repeat(load_arrival_plan(plan, Path.cwd(), {}), request_s * turns)
    repeats, loads = repeats_of(plan), len(plan.load.levels)
    load_s = repeats * size * (least_s if closed else len(plan.arms))
    unit = "requests for each stream (--requests-per-stream" if closed else "s of arrivals (--duration"
    sized = wanted.with_options(**{"requests_per_stream" if closed else "duration": size})
    of_each = f", {timedelta(seconds=int(load_s))} at each load" if loads > 1 else ""
    echo(
        f"a request takes {min(map(min, probed_s)):.2g} to {max(map(max, probed_s)):.2g} s, and each repeat has"
        f" {size * turns if closed else size:.4g} {unit}, now {size}, changes this);"
        f" {repeats} repeats of {len(plan.arms)} servers at {counted(loads, 'load')} take at least"
        f" {timedelta(seconds=int(loads * load_s))}{of_each}, and longer where load slows the servers down or answers"
        f" are longer{', besides the restarts' if plan.restarts else ''}"
        f"{shorter_ways(sized.plan, {level.words: load_s for level in plan.load.levels})}",
        err=True,
    )
    return sized


def warn_of_repeated_prompts(plan: Plan) -> None:
    """Warn if repeats of this many requests send prompts again that the servers may have in their caches.

    Of prompts that the user did not choose, only the finding PromptsSentAgain reports it, if a server has a cache.
    """
    if (
        plan.prompt_cache is PromptCache.DISABLED
        or plan.load.duration_seconds is not None
        or plan.workloads[0].dataset.uri == OWN_PROMPTS
    ):
        return
    rows, requested = _prompts(plan).rows, [plan.load.requested(level) or 0 for level in plan.load.levels]
    repeats = 1 if plan.launches_repeats else plan.load.repeats  # each launch begins with an empty cache
    needed = sum(requested) * repeats
    if needed > len(rows):
        echo(
            f"warning: the dataset has {len(rows)} prompts, but {needed} are needed to send none twice in"
            f" {'' if plan.stop is None or repeats == 1 else 'at most '}{counted(repeats, 'repeat')}. A server with a"
            " prompt cache reads repeated prompts from it (finding PromptsSentAgain): give more prompts, or"
            " --prompt-cache disabled",
            err=True,
        )


SWEPT = [2**power for power in range(STREAMS_MAX.bit_length())]
"""The loads of a sweep that nothing saturates."""


def with_swept_loads(wanted: Measurement, headers: Mapping[str, str]) -> Measurement:
    """Return the measurement with the loads 1, 2, 4, … up to saturation. Raises BadInput, EngineFailed."""
    lightest = wanted.with_options(concurrency=[1])
    prompts = _prompts(lightest.plan)
    grows = any(wanted.options[each] is not None for each in ("requests_per_stream", "duration"))
    most = STREAMS_MAX if grows else wanted.options["requests"] or len(prompts.rows)
    probe = EndpointProbe(lightest.plan, prompts, headers, lightest.run.spec.slo)
    found = run_until_interrupted(find_levels(probe, most, lambda line: echo(line, err=True)))
    return wanted.with_options(concurrency=found)


def _prompts(plan: Plan) -> Prompts:
    return load_workload(plan.workloads[0], Path.cwd())


def as_interrupted(wanted: Measurement) -> Measurement | None:
    """Return the measurement with the loads and the size that its run to continue has; None if there is none."""
    if wanted.options["new"]:
        return None

    def planned_again(load: Load) -> Plan | None:
        if wanted.options["sweep"] and load.concurrency != SWEPT[: len(load.concurrency or ())]:
            return None
        if _is_size_open(wanted) and (load.requests_per_stream or load.duration_seconds) not in SIZES:
            return None
        try:
            return _with_load(wanted, load).plan
        except BadInput:  # At a lower rate, its requests may take longer than is allowed.
            return None

    plan = (wanted.with_options(concurrency=[1]) if wanted.options["sweep"] else wanted).plan
    results, finished = open_store(wanted.options["results"]), wanted.options["retry_invalid"]
    begun = find_begun_plan(results, plan, planned_again, finished=finished)
    return None if begun is None else _with_load(wanted, begun.load)


def _with_load(wanted: Measurement, load: Load) -> Measurement:
    """Return the measurement with what its options leave open as in this load."""
    loads = {"concurrency": load.concurrency} if wanted.options["sweep"] else {}
    sizes = {"requests_per_stream": load.requests_per_stream, "duration": load.duration_seconds}
    return wanted.with_options(**loads, **(sizes if _is_size_open(wanted) else {}))
