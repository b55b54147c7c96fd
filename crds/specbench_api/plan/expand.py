"""Spec → plan: the baseline added, repeats laid out in order, neighbours of one arm joined in one launch.

Interleaved (ABBA): even repeats run the arms forwards, odd ones backwards. What drifts slowly (heat, clocks, a
neighbour on the node) then weighs on every arm alike. Where the last arm of one repeat is the first of the next, one
launch serves both. Within a launch: repeat, then workload, then load upwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.launch.launch import Order as LaunchOrder
from specbench_api.launch.table import levelled, problems_of
from specbench_api.plan.canonical import canonical_point, digest
from specbench_api.plan.placing import problems_of_placement
from specbench_api.plan.plan import Arm, EngineGroup, Plan, Point
from specbench_api.spec.chat_template import CLAIMED_BESIDE, CLAIMED_KWARGS
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Order
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.workload import CLAIMED_BODY

POINTS_MAX = 4096
CELLS_MAX = 1024
"""Rows of status.arms."""
ENDPOINT_NAME = "endpoint"
"""The one arm of an endpoint that already runs: with whatever drafter it was started, so it is no baseline."""
GROUPS_MAX = 512
"""Rows of status.groups."""
PLAN_BYTES_MAX = 900_000
"""A ConfigMap holds 1 MiB, and the object around the plan must fit too."""


def expand(run: SpecBenchRun) -> Plan:
    """The plan of a run. Raises InvalidSpec for what no schema can tell: engines, flags, sizes."""
    run = _levelled(run)
    arms = arms_of(run.spec)
    _refuse([*_of_launches(run.spec, arms), *problems_of_placement(run.spec), *_of_plan(run.spec, arms)])
    plan = _plan(run, arms)
    _refuse(too_long([plan.to_json()]))
    return plan


def lay_out(run: SpecBenchRun) -> Plan:
    """The plan of a run whose engines nobody has to launch: refused only for what is wrong with the plan itself."""
    run = _levelled(run)
    arms = arms_of(run.spec)
    _refuse(_of_plan(run.spec, arms))
    return _plan(run, arms)


def _levelled(run: SpecBenchRun) -> SpecBenchRun:
    engine = levelled(run.spec.engine, run.spec.drafters)
    return run.model_copy(update={"spec": run.spec.model_copy(update={"engine": engine})})


def _plan(run: SpecBenchRun, arms: list[Arm]) -> Plan:
    spec = run.spec
    return Plan(
        namespace=run.metadata.namespace,
        name=run.metadata.name,
        uid=run.results_uid,
        target=spec.model.model_copy(update={"token_secret": None}),
        engine=spec.engine,
        arms=arms,
        workloads=spec.workloads,
        load=spec.load,
        placement=spec.placement,
        groups=_groups(spec, arms),
    )


def arms_of(spec: RunSpec) -> list[Arm]:
    """The baseline (unless it is skipped), then the drafters in the order of the spec."""
    if spec.engine.kind is EngineKind.EXTERNAL:
        return [Arm(name=ENDPOINT_NAME)]
    baseline = [] if spec.baseline == "Skip" else [Arm(name=BASELINE_NAME)]
    return [*baseline, *(Arm(name=drafter.name, drafter=drafter) for drafter in spec.drafters)]


def launch_order(plan: Plan, arm: Arm) -> LaunchOrder:
    """What is to be started for an arm of this plan."""
    row = [each.name for each in plan.arms if not each.is_baseline].index(arm.name) if arm.drafter else 0
    return LaunchOrder(
        plan.engine, plan.target, arm.drafter, plan.slots, plan.placement.engine_devices, row, plan.placement.nodes
    )


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise InvalidSpec(problems)


def _of_launches(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    slots, gpus, nodes = spec.load.engine_slots, spec.placement.engine_devices, spec.placement.nodes
    rows = {drafter.name: row for row, drafter in enumerate(spec.drafters)}
    orders = [
        LaunchOrder(spec.engine, spec.model, arm.drafter, slots, gpus, rows.get(arm.name, 0), nodes) for arm in arms
    ]
    return list(dict.fromkeys(problem for order in orders for problem in problems_of(order)))


def too_long(texts: Iterable[str]) -> list[Problem]:
    """Beyond what a ConfigMap holds, in which the clients of a cluster are given the plan, and engines their files."""
    size = sum(len(text.encode()) for text in texts)
    message = f"its plan has {size} bytes and a ConfigMap holds {PLAN_BYTES_MAX}"
    remedy = "split it: fewer workloads, load levels or repeats in one run"
    return [Problem("spec", message, remedy)] if size > PLAN_BYTES_MAX else []


def _of_plan(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    return [*_too_large(spec, len(arms)), *_duplicates(spec, arms), *_claimed_fields(spec), *_of_templates(spec)]


def _too_large(spec: RunSpec, arms: int) -> list[Problem]:
    """Beyond what the custom resource can hold; told by count, before anything is laid out."""
    repeats, cells = spec.load.repeats, arms * len(spec.workloads) * len(spec.load.levels)
    launches = arms if spec.load.order is Order.SEQUENTIAL else repeats * (arms - 1) + 1
    fewer = "fewer drafters, workloads, load levels or repeats in one run"
    return [
        Problem("spec", f"{count} {what} are more than one run may hold ({most})", remedy)
        for count, most, what, remedy in (
            (cells * repeats, POINTS_MAX, "points", fewer),
            (cells, CELLS_MAX, "combinations of arm, workload and load", fewer),
            (launches, GROUPS_MAX, "engine launches", "fewer repeats, or load.order: Sequential"),
        )
        if count > most
    ]


def _duplicates(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    """Names are labels: two arms or workloads that differ in nothing else would be one point measured twice."""
    first, level = spec.workloads[0], spec.load.levels[0]
    drafting = [Arm(name=drafter.name, drafter=drafter) for drafter in spec.drafters]
    arm_digests = [(arm.name, digest(canonical_point(spec, arm, first, level, 0))) for arm in drafting]
    work_digests = [(work.name, digest(canonical_point(spec, arms[0], work, level, 0))) for work in spec.workloads]
    return [
        Problem(f"spec.{field}[{index}]", f"{name!r} differs from {twin!r} by name alone", "leave one of them out")
        for field, rows in (("drafters", arm_digests), ("workloads", work_digests))
        for index, (name, found) in enumerate(rows)
        for twin, earlier in rows[:index]
        if found == earlier
    ]


def _claimed_fields(spec: RunSpec) -> list[Problem]:
    """Fields of a request's body that are not the user's to set. Told here: no CEL rule sees into an open object."""
    return [
        Problem(f"spec.workloads[{row}].extraBody.{name}", "is set by specbench itself", CLAIMED_BODY[name])
        for row, workload in enumerate(spec.workloads)
        for name in sorted(CLAIMED_BODY.keys() & workload.extra_body)
    ]


def _of_templates(spec: RunSpec) -> list[Problem]:
    """Variables that a template is always given, and fields that only an engine's own template would read."""
    problems = []
    for row, workload in enumerate(spec.workloads):
        template, where = workload.client_template, f"spec.workloads[{row}]"
        if template is None:
            continue
        problems += [
            Problem(f"{where}.chatTemplate.kwargs.{name}", "is set by specbench itself", CLAIMED_KWARGS[name])
            for name in sorted(CLAIMED_KWARGS.keys() & template.kwargs)
        ]
        problems += [
            Problem(f"{where}.extraBody.{name}", "reaches no prompt that is sent as token ids", CLAIMED_BESIDE[name])
            for name in sorted(CLAIMED_BESIDE.keys() & workload.extra_body)
        ]
    return problems


def _groups(spec: RunSpec, arms: list[Arm]) -> list[EngineGroup]:
    passes = [(arm, repeat) for repeat in range(spec.load.repeats) for arm in _in_order(spec, arms, repeat)]
    if spec.load.order is Order.SEQUENTIAL:
        passes.sort(key=lambda visit: arms.index(visit[0]))
    launches = [list(visits) for _, visits in groupby(passes, key=lambda visit: visit[0].name)]
    return [
        EngineGroup(
            index=index,
            arm=visits[0][0].name,
            points=[point for arm, repeat in visits for point in _points(spec, arm, repeat)],
        )
        for index, visits in enumerate(launches)
    ]


def _in_order(spec: RunSpec, arms: list[Arm], repeat: int) -> list[Arm]:
    backwards = spec.load.order is Order.INTERLEAVED and repeat % 2 == 1
    return arms[::-1] if backwards else arms


def _points(spec: RunSpec, arm: Arm, repeat: int) -> list[Point]:
    return [
        Point(
            hash=digest(canonical_point(spec, arm, workload, level, repeat)),
            arm=arm.name,
            workload=workload.name,
            level=level,
            repeat=repeat,
        )
        for workload in spec.workloads
        for level in spec.load.levels
    ]
