"""The hours in `specbench plan`, where measurements, the load itself or --assume determine every duration.

    engine seconds = Σ launches + Σ points, over the points that are not measured yet
    GPU-hours      = engine seconds × GPUs of an engine / 3600

No speed is assumed: without the duration of every launch and point, the hours are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Annotated, Any

import click
from pydantic import Field, ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.errors import InvalidSpec
from specbench_api.plan.estimate import SECONDS_AN_HOUR, PlanSize, estimate, point_conversations, point_seconds
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.load import Level
from specbench_api.spec.parsing import problems_in
from specbench_api.spec.workload import Workload
from specbench_client.cli.options import prefixed
from specbench_client.documents.manifest import Manifest
from specbench_client.local.local_runs import find_local_run
from specbench_client.store.store import Store
from specbench_client.stored_runs.run import read_manifests_below

ASSUME = click.option(
    "--assume",
    "assumed",
    metavar="NAME=SECONDS,…",
    help="Durations of what was not measured: launchSeconds=300,pointSeconds=120.",
)


class DurationBasis(StrEnum):
    """Where the duration of a point is from, in the order of preference."""

    MEASURED = "the same point in the results"
    LOAD = "the load's own duration"
    ASSUMED = "--assume pointSeconds"
    UNKNOWN = "nothing: their duration is not known"


class AssumedDurations(ApiModel):
    """Durations that the user gives for launches and points that were not measured."""

    launch_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Seconds of one launch: scheduling, image pull, model load, warm-up, shutdown."""
    point_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Seconds of a point whose load has no duration of its own."""


def read_assumptions(given: str | None) -> AssumedDurations:
    """Return the durations of --assume. Raises InvalidSpec."""
    pairs = (pair.partition("=") for pair in given.split(",")) if given is not None else ()
    try:
        given_names = {name.strip(): seconds for name, _, seconds in pairs}
        return AssumedDurations.model_validate_strings(given_names, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidSpec(prefixed(problems_in(error, AssumedDurations), "--assume")) from error


@dataclass(frozen=True)
class PointDuration:
    """Seconds of a measured point, without warm-up, for this number of conversations; None: not known from its load.

    `requested`: how many its load requests. Fillers take part of the seconds, so their requests do not count.
    """

    arm: Arm
    workload: Workload
    level: Level
    requested: int | None
    conversations: int | None
    seconds: float


@dataclass(frozen=True)
class MeasuredDurations:
    """Durations in stored results. `launches`: seconds from an engine's last answer to the next one's load."""

    points: Sequence[PointDuration] = ()
    launches: Sequence[float] = ()


LAUNCH_MAX = timedelta(hours=2)
"""Longer pauses between two engines are interruptions of the run, not launches."""


def durations_for(plan: Plan, stored: Sequence[tuple[Plan, Mapping[str, Manifest]]]) -> MeasuredDurations:
    """Return the durations that apply to a plan: of stored runs with its model, adapter, engine and number of GPUs."""
    runs = [(theirs, manifests) for theirs, manifests in stored if _hardware(theirs) == _hardware(plan)]
    points = [
        _duration(theirs, point, manifests[point.hash])
        for theirs, manifests in runs
        for point in theirs.points
        if point.hash in manifests
    ]
    launches = [seconds for run in runs for seconds in _launches(*run)]
    return MeasuredDurations([each for each in points if each.seconds > 0], launches)


def _hardware(plan: Plan) -> tuple[object, ...]:
    engine = plan.engine
    return plan.target.title, engine.kind, engine.tensor_parallel_size, plan.placement.engine_devices


def _duration(plan: Plan, point: Point, manifest: Manifest) -> PointDuration:
    return PointDuration(
        arm=plan.arm(point.arm),
        workload=plan.workload(point.workload),
        level=point.level,
        requested=plan.load.requested(point.level),
        conversations=point_conversations(plan.load, point.level, manifest.observed.prompts),
        seconds=(_moment(manifest.ended_wall) - _load_start(manifest)).total_seconds(),
    )


def _launches(plan: Plan, manifests: Mapping[str, Manifest]) -> list[float]:
    """Return the seconds between the last answer of a group and the start of the next group's load."""
    groups = [[manifests[p.hash] for p in group.points if p.hash in manifests] for group in plan.groups]
    spans = sorted((_load_start(g[0]), max(_moment(m.ended_wall) for m in g)) for g in groups if g)
    pauses = [begin - end for (_, end), (begin, _) in pairwise(spans)]
    return [pause.total_seconds() for pause in pauses if timedelta(0) < pause <= LAUNCH_MAX]


def _load_start(manifest: Manifest) -> datetime:
    """Return the start of the load, after warm-up."""
    return _moment(manifest.started_wall) + timedelta(microseconds=(manifest.load_started_ns or 0) / 1000)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class HoursEstimate:
    """What remains to be measured. `bases`: number of points by the basis of their duration."""

    launches: int
    points: int
    launch_seconds: float | None
    """Of one launch; None if it is not known."""
    point_seconds: float | None
    """Of all points; None if the duration of any is not known."""
    gpus: int
    """Of one engine."""
    bases: Counter[DurationBasis]

    @property
    def engine_seconds(self) -> float | None:
        """Seconds for which engines run, one after another; None if they are not known."""
        if not self.points:
            return 0.0
        if self.launch_seconds is None or self.point_seconds is None:
            return None
        return self.launches * self.launch_seconds + self.point_seconds

    @property
    def engine_hours(self) -> float | None:
        """The same in hours."""
        return None if self.engine_seconds is None else self.engine_seconds / SECONDS_AN_HOUR

    @property
    def gpu_hours(self) -> float | None:
        """Engine hours times the GPUs of one engine."""
        return None if self.engine_hours is None else self.engine_hours * self.gpus


def estimate_hours(
    plan: Plan,
    assumed: AssumedDurations,
    measured: MeasuredDurations,
    turns: Mapping[str, Sequence[int]],
    done: Collection[str] = (),
) -> HoursEstimate:
    """Return the hours of the points that are not in `done`.

    `turns`: number of turns of each prompt by workload, where the prompts could be read.
    """
    remaining = [[point for point in group.points if point.hash not in done] for group in plan.groups]
    points = [point for group in remaining for point in group]
    durations = [_point(plan, point, assumed, measured, turns.get(point.workload)) for point in points]
    seconds = [each for each, _ in durations if each is not None]
    return HoursEstimate(
        launches=sum(bool(group) for group in remaining),
        points=len(points),
        launch_seconds=_launch(plan, assumed, measured),
        point_seconds=sum(seconds) if len(seconds) == len(points) else None,
        gpus=plan.placement.engine_devices,
        bases=Counter(basis for _, basis in durations),
    )


def _launch(plan: Plan, assumed: AssumedDurations, measured: MeasuredDurations) -> float | None:
    if plan.engine.is_external:  # it runs already
        return 0.0
    return median(measured.launches) if measured.launches else assumed.launch_seconds


def _point(
    plan: Plan, point: Point, assumed: AssumedDurations, measured: MeasuredDurations, turns: Sequence[int] | None
) -> tuple[float | None, DurationBasis]:
    """Return the seconds of one point."""
    load, workload = plan.load, plan.workload(point.workload)
    conversations = point_conversations(load, point.level, None if turns is None else len(turns))
    loaded = point_seconds(load, point.level, turns)
    same = [each for each in measured.points if (each.arm, each.level) == (plan.arm(point.arm), point.level)]
    alike = [each for each in same if _any_count(each.workload) == _any_count(workload)]
    each_takes = [each.seconds / each.conversations for each in alike if each.conversations]
    if each_takes and conversations is not None:
        return median(each_takes) * conversations, DurationBasis.MEASURED
    if loaded is not None:
        return loaded, DurationBasis.LOAD
    equal = [each for each in same if (each.workload, each.requested) == (workload, load.requested(point.level))]
    if equal:  # a trace, or prompts that are not on this machine
        return median(each.seconds for each in equal), DurationBasis.MEASURED
    return assumed.point_seconds, DurationBasis.UNKNOWN if assumed.point_seconds is None else DurationBasis.ASSUMED


def _any_count(workload: Workload) -> Workload:
    """Return the workload with any number of its prompts: the time of a conversation does not depend on it."""
    return workload.model_copy(update={"dataset": workload.dataset.model_copy(update={"count": None})})


# The estimate of a run, with what is stored of it.


@dataclass(frozen=True)
class EstimatedRun:
    """A run with its size, the hashes of its measured points, and the hours of the others."""

    plan: Plan
    deadline_s: int
    """Of each launch."""
    size: PlanSize
    measured: frozenset[str]
    hours: HoursEstimate
    has_results: bool
    """Whether durations were looked for in stored results."""

    @property
    def limit_gpu_hours(self) -> float:
        """GPU-hours after which Kubernetes has ended every launch that remains, if each is attempted once."""
        return self.hours.launches * self.deadline_s * self.hours.gpus / SECONDS_AN_HOUR


@dataclass(frozen=True)
class RunEstimator:
    """Estimates the runs of one command. The stored results, if there are any, are read once."""

    assumed: AssumedDurations
    results: Store | None

    @cached_property
    def _stored(self) -> Sequence[tuple[Plan, Mapping[str, Manifest]]]:
        return read_manifests_below(self.results) if self.results is not None else []

    def of(self, plan: Plan, deadline_s: int, turns: Mapping[str, Sequence[int]]) -> EstimatedRun:
        """Return the estimate of one run."""
        done = frozenset(find_local_run(self.results, plan).manifests if self.results is not None else ())
        hours = estimate_hours(plan, self.assumed, durations_for(plan, self._stored), turns, done)
        return EstimatedRun(plan, deadline_s, estimate(plan, turns), done, hours, self.results is not None)


def hours_document(runs: Sequence[EstimatedRun]) -> dict[str, Any]:
    """Return the sums over runs for JSON. Hours that are not known for each of them are null."""
    found = [run.hours for run in runs]
    return {
        "engineHours": _total(each.engine_hours for each in found),
        "gpuHours": _total(each.gpu_hours for each in found),
        "limitGpuHours": sum(run.limit_gpu_hours for run in runs),
        "remainingLaunches": sum(each.launches for each in found),
        "remainingPoints": sum(each.points for each in found),
        "pointsByBasis": {basis.name.title(): count for basis, count in _bases(runs).items()},
    }


def _total(hours: Iterable[float | None]) -> float | None:
    known = list(hours)
    return None if None in known else sum(each for each in known if each is not None)


def _bases(runs: Sequence[EstimatedRun]) -> Counter[DurationBasis]:
    return sum((run.hours.bases for run in runs), Counter())


def number_text(value: float) -> str:
    """Return a number with two digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def hours_text(runs: Sequence[EstimatedRun]) -> list[str]:
    """Return the sums over runs in lines."""
    total = hours_document(runs)
    lines = [_unknown_text(runs)]
    if total["engineHours"] is not None:
        engine, gpu = number_text(total["engineHours"]), number_text(total["gpuHours"])
        lines = [
            f"estimate of what remains: {engine} engine hours, {gpu} GPU-hours",
            *(f"  {count} points from {basis}" for basis, count in _bases(runs).items()),
        ]
    if total["limitGpuHours"]:
        limit = number_text(total["limitGpuHours"])
        lines.append(f"limit on a cluster: {limit} GPU-hours, if each launch runs once to its activeDeadlineSeconds")
    return lines


def _unknown_text(runs: Sequence[EstimatedRun]) -> str:
    """Return which durations are not known, and how to give them."""
    found = [each.hours for each in runs]
    unknown, total = _bases(runs)[DurationBasis.UNKNOWN], sum(each.points for each in found)
    missing = {"pointSeconds=…": f"of {unknown} of {total} points"} if unknown else {}
    if any(each.points and each.launch_seconds is None for each in found):
        missing["launchSeconds=…"] = "of a launch"
    return (
        f"hours: not known: there is no duration {' and '.join(missing.values())}"
        f"{' in --results, which has no such run' if runs[0].has_results else ''}: give --assume"
        f" {','.join(missing)}, or --results with runs of the same model, engine, GPUs, arms, workloads and loads"
    )


def hours_warnings(run: EstimatedRun, what: str = "a launch") -> list[str]:
    """Return a warning if Kubernetes would end the launches before they are expected to be done."""
    found = run.hours
    if not found.launches or found.engine_seconds is None or found.engine_seconds <= found.launches * run.deadline_s:
        return []
    each = found.engine_seconds / found.launches
    remedy = "on a cluster, raise spec.activeDeadlineSeconds, or measure fewer requests"
    return [f"{what} is expected to take {each:.0f} s, more than activeDeadlineSeconds ({run.deadline_s}): {remedy}"]
