"""Expands a spec into a plan: adds the baseline, orders the repeats, and divides the points into launches.

Interleaved (ABBA): even repeats run the arms forwards, odd ones backwards, so that slow drift (heat, clocks, other pods
on the node) affects all arms equally. Each repeat launches its engines anew, also the arm that was measured last:
launches of one engine differ, and repeats that shared a launch would not be independent: of three repeats A B, B A, A B
with four launches, the variance of the mean is 2.5 times what the repeats' spread shows.
Sequential: one launch serves all repeats of an arm. Order within a launch: repeat, then workload, then ascending load.
Each point has a launch of its own if its engine must be restarted to empty the prompt cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.launch.launcher import LaunchRequest, LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, equalized, with_gpus
from specbench_api.plan.canonical import point_hash
from specbench_api.plan.limits import GROUPS_MAX, POINTS_MAX
from specbench_api.plan.plan import Arm, EngineGroup, Plan, PlanCell, Point
from specbench_api.plan.validation import (
    engine_problems,
    launch_request,
    launches_each_point,
    placement_problems,
    plan_problems,
    too_long,
)
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import REPEATS_MAX, ArmOrder
from specbench_api.spec.parsing import problems_in
from specbench_api.spec.results import S3, Results
from specbench_api.spec.run import Metadata, RunSpec, SpecBenchRun, default_cache_policy


def expand(run: SpecBenchRun) -> Plan:
    """Return the plan of a run. Raises InvalidSpec for problems that no schema can check: engines, flags, sizes."""
    run = _with_resolved_engine(run)
    arms = arms_of(run.spec)
    _raise_if_any([*engine_problems(run.spec, arms), *placement_problems(run.spec), *plan_problems(run.spec, arms)])
    plan = _plan(run, arms)
    _raise_if_any(too_long([plan.to_json()]))
    return plan


def lay_out(run: SpecBenchRun) -> Plan:
    """Return the plan of a run whose engines are not launched by specbench, without checking engines and placement."""
    run = _with_resolved_engine(run)
    arms = arms_of(run.spec)
    _raise_if_any(plan_problems(run.spec, arms))
    return _plan(run, arms)


def _with_resolved_engine(run: SpecBenchRun) -> SpecBenchRun:
    """Return the run with the GPUs, settings of the engine and URLs of Services that follow from its other fields."""
    spec = with_gpus(run.spec)
    engine = equalized(spec.engine, spec.drafters)
    endpoints = engine.endpoints and [each.in_namespace(run.metadata.namespace) for each in engine.endpoints]
    engine = engine.model_copy(update={"endpoints": endpoints})
    return run.model_copy(update={"spec": spec.model_copy(update={"engine": engine})})


def _plan(run: SpecBenchRun, arms: list[Arm]) -> Plan:
    spec = run.spec
    groups = _groups(spec, arms)
    return Plan(**_taken_from(run, arms), prompt_cache=spec.cache_policy, placement=spec.placement, groups=groups)


def _taken_from(run: SpecBenchRun, arms: list[Arm]) -> dict[str, Any]:
    """Return the fields of a plan that every version takes from the run as they are."""
    spec = run.spec
    return {
        "namespace": run.metadata.namespace,
        "name": run.metadata.name,
        "uid": run.results_uid,
        "target": spec.model.model_copy(update={"token_secret_ref": None}),
        "engine": spec.engine.model_copy(update={"api_key_secret_ref": None}),
        "arms": arms,
        "workloads": spec.workloads,
        "load": spec.load,
        "search": spec.search,
        "stop": spec.load.stop,
        "restarts": None,  # only `specbench measure` restarts servers
    }


def flaws_of_stored(plan: Plan, run: SpecBenchRun) -> list[Problem]:
    """Return why a stored plan cannot be the run's: it differs from the spec, or no engine may be launched for that.

    Anybody may have written it. What is left to it are its points, their order, and the policy of prompt caches.
    """
    run, own = _with_resolved_engine(run), without_added_rounds(plan)
    arms = arms_of(run.spec)
    others = [name for name, value in _taken_from(run, arms).items() if getattr(own, name) != value]
    if others:
        return [Problem("plan.json", f"differs from the run in {', '.join(others)}")]
    return [*engine_problems(run.spec, arms), *placement_problems(run.spec)]


def arms_of(spec: RunSpec) -> list[Arm]:
    """Return the baseline (unless skipped), then the drafters or endpoints in the order of the spec."""
    if spec.engine.is_external:
        running = [Arm(name=each.name, endpoint=each) for each in spec.engine.endpoints or []]
        return sorted(running, key=lambda arm: not arm.is_baseline)
    baseline = [] if spec.baseline == "Skip" else [Arm(name=BASELINE_NAME)]
    drafting = [Arm(name=each.name, drafter=each) for drafter in spec.drafters for each in drafter.arms]
    return [*baseline, *drafting]


def launch_order(plan: Plan, arm: Arm) -> LaunchRequest:
    """Return the launch request for an arm of the plan."""
    return launch_request(plan, plan.target, plan.prompt_cache, arm)


def planned_launches(plan: Plan) -> dict[str, LaunchSpec]:
    """Return the launch of each arm; none for a server that is already running."""
    launcher = LAUNCHERS[plan.engine.kind]
    return {arm.name: launcher.launch(launch_order(plan, arm)) for arm in plan.arms if arm.endpoint is None}


def lossy_arms(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the arms whose answers lose the target's distribution, each with the options that cause it."""
    launcher = LAUNCHERS[plan.engine.kind]
    found = {arm.name: launcher.verification(plan.engine, arm.drafter).lossy for arm in plan.arms if arm.drafter}
    return {arm: options for arm, options in found.items() if options}


def _raise_if_any(problems: list[Problem]) -> None:
    if problems:
        raise InvalidSpec(problems)


def _groups(spec: RunSpec, arms: list[Arm]) -> list[EngineGroup]:
    passes = _passes(spec, arms, range(1 if spec.search else spec.load.repeats))
    if spec.load.order is not ArmOrder.INTERLEAVED:
        passes.sort(key=lambda each: arms.index(each[0]))
    measured = [(arm.name, _points(spec, arm, repeat)) for arm, repeat in passes]
    return _numbered(_launches(spec, measured))


def _passes(spec: RunSpec, arms: list[Arm], repeats: Iterable[int]) -> list[tuple[Arm, int]]:
    return [(arm, repeat) for repeat in repeats for arm in _in_order(spec, arms, repeat)]


def _launches(spec: RunSpec, passes: list[tuple[str, list[Point]]]) -> Iterator[tuple[str, list[Point]]]:
    """Yield the points of each launch, with their arm."""
    if launches_each_point(spec):
        yield from ((arm, [point]) for arm, points in passes for point in points)
    elif spec.load.order is ArmOrder.INTERLEAVED or (
        spec.engine.is_external and spec.load.order is ArmOrder.SEQUENTIAL
    ):
        yield from passes
    else:
        for arm, of_arm in groupby(passes, key=itemgetter(0)):
            yield arm, [point for _, points in of_arm for point in points]


def _in_order(spec: RunSpec, arms: list[Arm], repeat: int) -> list[Arm]:
    backwards = spec.load.order is ArmOrder.INTERLEAVED and repeat % 2 == 1
    return arms[::-1] if backwards else arms


def _points(spec: RunSpec, arm: Arm, repeat: int) -> list[Point]:
    return [
        Point(
            hash=point_hash(spec, arm, workload, level, repeat),
            arm=arm.name,
            workload=workload.name,
            level=level,
            repeat=repeat,
        )
        for workload in spec.workloads
        for level in spec.load.levels
    ]


# Recovery: when the resource of a run is lost, the run can be restored from the plan in its results.


def restore(plan: Plan, s3: S3) -> SpecBenchRun:
    """Return the run of a plan, set to adopt the plan's results in `s3`.

    A plan does not contain deadlines, suspend and similar fields, so they have their defaults. Raises InvalidSpec if
    this version would expand the run into a different plan, because its points would then not be found.
    """
    own = without_added_rounds(plan)
    try:
        run = _run_of(own, s3)
    except ValidationError as error:
        problems = [replace(problem, path=f"plan.json: {problem.path}") for problem in problems_in(error, SpecBenchRun)]
        raise InvalidSpec(problems) from error
    if expand(run) != own:
        message = "this version of specbench would plan the run differently and measure everything again"
        remedy = "use the version that measured it, which every point's manifest.json contains"
        raise InvalidSpec([Problem("plan.json", message, remedy)])
    retries = run.spec.retries if plan.search else max(run.spec.retries, plan.added_rounds)
    return run.model_copy(update={"spec": run.spec.model_copy(update={"retries": retries})})


def _run_of(plan: Plan, s3: S3 | None) -> SpecBenchRun:
    return SpecBenchRun(
        metadata=Metadata(name=plan.name, namespace=plan.namespace),
        spec=RunSpec(
            model=plan.target,
            engine=plan.engine,
            drafters=[arm.drafter for arm in plan.arms if arm.drafter],
            prompt_cache=None if plan.prompt_cache is default_cache_policy(plan.engine) else plan.prompt_cache,
            baseline="Measure" if any(arm.is_baseline or arm.endpoint for arm in plan.arms) else "Skip",
            workloads=plan.workloads,
            load=plan.load,
            search=plan.search,
            placement=plan.placement,
            results=Results(s3=s3, adopt=plan.uid),
        ),
    )


# Rounds that are added, by a search or in place of spoiled ones: a plan grows by them, and its other points stay.


def most_rounds(plan: Plan, retries: int) -> int:
    """Return how many rounds may be added to a plan. `retries`: those in place of spoiled ones."""
    return plan.load.repeats - plan.own_repeats if plan.search else retries


def with_another_round(plan: Plan, cells: Collection[PlanCell]) -> Plan:
    """Return the plan with another round of some of its cells, in groups of their own."""
    size = plan.repeats_of_round
    first = math.ceil(plan.begun_repeats / size) * size
    load = plan.load if plan.search else plan.load.model_copy(update={"repeats": first + size})
    spec = _run_of(plan, None).spec.model_copy(update={"load": load})
    passes = [
        (arm.name, [point for point in _points(spec, arm, repeat) if point.cell in cells])
        for arm, repeat in _passes(spec, plan.arms, range(first, first + size))
    ]
    before = [(group.arm, group.points) for group in plan.groups]
    groups = _numbered([*before, *_launches(spec, passes)])
    planned = None if plan.search else plan.own_repeats
    return plan.model_copy(update={"load": load, "groups": groups, "planned_repeats": planned})


def with_requested_round(plan: Plan, rounds: Sequence[Collection[PlanCell]], retries: int) -> Plan | None:
    """Return the plan with the first of these rounds that it lacks; None if there is none, or it may not be added.

    Anybody who may write to a bucket may have requested them: only arms and loads of the plan are measured, only in
    turns, and at most as many rounds as `most_rounds` allows.
    """
    added = plan.added_rounds
    if added >= min(len(rounds), most_rounds(plan, retries)) or plan.load.order is not ArmOrder.INTERLEAVED:
        return None
    cells = {point.cell for point in plan.points}.intersection(rounds[added])
    try:
        grown = with_another_round(plan, cells)
    except ValidationError:  # an earlier version made the plan, and this one would reject its run
        return None
    sizes = ((len(grown.points), POINTS_MAX), (len(grown.groups), GROUPS_MAX), (grown.load.repeats, REPEATS_MAX))
    fits = all(size <= most for size, most in sizes) and not too_long([grown.to_json()])
    return grown if cells and fits else None


def without_added_rounds(plan: Plan) -> Plan:
    """Return the plan as it was before rounds were added."""
    if not plan.added_rounds:
        return plan
    planned = plan.own_repeats
    load = plan.load if plan.search else plan.load.model_copy(update={"repeats": planned})
    groups = _only(lambda point: point.repeat < planned, plan.groups)
    return plan.model_copy(update={"load": load, "groups": groups, "planned_repeats": None})


def _only(is_kept: Callable[[Point], bool], groups: Iterable[EngineGroup]) -> list[EngineGroup]:
    return _numbered((group.arm, [*filter(is_kept, group.points)]) for group in groups)


def _numbered(launches: Iterable[tuple[str, list[Point]]]) -> list[EngineGroup]:
    kept = ((arm, points) for arm, points in launches if points)
    return [EngineGroup(index=index, arm=arm, points=points) for index, (arm, points) in enumerate(kept)]
