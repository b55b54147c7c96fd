"""Estimates the hours of a plan before it runs: from measured durations where there are any, else from a prior.

    engine seconds = Σ launches (launch + warm-up) + Σ points, over the points that are not measured yet
    GPU-hours      = engine seconds × GPUs of an engine / 3600

A point's seconds are, in this order: those of the same point in an earlier repeat; the load's own duration, if it has
one; those of a similar point in the stored results, per request; and requests × answer tokens × seconds of a step /
batch, from `decode_speed`. Points of one engine are fast or slow together, so their ranges add up at both ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from specbench_api.plan.estimate import SECONDS_AN_HOUR, point_requests, point_seconds
from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.campaign import Budget
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.decision.decode_speed import DecodeSpeed, Span
from specbench_client.documents.assumptions import Assumptions


class DurationBasis(StrEnum):
    """Where the estimated duration of a point is from."""

    SAME_POINT = "earlier repeats of the same point"
    LOAD = "the load's own duration"
    SIMILAR_POINT = "similar points in the results"
    PRIOR = "the prior speed of the model on its GPU"
    ASSUMED = "budget.pointSeconds, because the number of requests or the engine's speed is not known"


@dataclass(frozen=True)
class PointDuration:
    """Seconds and requests of a measured point, without warm-up. `repeat_of`: whether its plan is this one."""

    arm: str
    workload: str
    level: Level
    max_tokens: int
    requests: int
    seconds: float
    repeat_of: bool


@dataclass(frozen=True)
class MeasuredDurations:
    """Durations in stored results. `launches`: seconds from an engine's last answer to the next one's load."""

    points: Sequence[PointDuration] = ()
    launches: Sequence[float] = ()


@dataclass(frozen=True)
class PromptSizes:
    """The turns of each prompt of a workload, and the mean tokens of a prompt; None: not counted."""

    turns: Sequence[int]
    mean_tokens: float | None = None


@dataclass(frozen=True)
class HoursEstimate:
    """What remains to be measured. `bases`: number of points by the basis of their duration."""

    launches: int
    points: int
    launch_seconds: Span
    """Of one launch."""
    engine_seconds: Span
    gpus: int
    bases: Mapping[DurationBasis, int] = field(default_factory=dict)

    @property
    def engine_hours(self) -> Span:
        """Hours for which one engine runs; arms are measured one after another."""
        return self.engine_seconds.scaled(1 / SECONDS_AN_HOUR)

    @property
    def gpu_hours(self) -> Span:
        """Engine hours times the GPUs of one engine."""
        return self.engine_hours.scaled(self.gpus)


NEAR = Span(0.8, 1, 1.25)
"""Factor between repeats of one point."""
SIMILAR = Span(0.6, 1, 1.7)
"""Factor between runs of one point with the same model and engine, on other days and machines."""
OTHER_WORKLOAD = Span(0.4, 1, 2.5)
"""Factor between requests of two workloads, per token of output.maxTokens."""


def estimate_hours(
    plan: Plan,
    speed: DecodeSpeed | None,
    assumed: Assumptions,
    *,
    budget: Budget,
    prompts: Mapping[str, PromptSizes],
    done: Collection[str] = (),
    measured: MeasuredDurations | None = None,
) -> HoursEstimate:
    """Return the hours of the points that are not in `done`. `prompts`: by workload, as far as they could be read.

    `speed`: None for an engine of unknown speed. `budget`: its launchSeconds and pointSeconds.
    """
    estimator = _Estimator(plan, budget, assumed, speed, prompts, measured or MeasuredDurations())
    launch, seconds, bases = estimator.launch(), Span.exactly(0), Counter[DurationBasis]()
    remaining = [[point for point in group.points if point.hash not in done] for group in plan.groups]
    groups = [points for points in remaining if points]
    for points in groups:
        seconds += launch
        for number, point in enumerate(points):
            duration, basis = estimator.point(point)
            seconds += duration
            bases[basis] += 1
            if number == 0:
                seconds += estimator.warmup(point)
    return HoursEstimate(
        launches=len(groups),
        points=sum(bases.values()),
        launch_seconds=launch,
        engine_seconds=seconds,
        gpus=plan.placement.engine_devices,
        bases=bases,
    )


@dataclass(frozen=True)
class _Estimator:
    plan: Plan
    budget: Budget
    assumed: Assumptions
    speed: DecodeSpeed | None
    prompts: Mapping[str, PromptSizes]
    measured: MeasuredDurations

    def launch(self) -> Span:
        """Return the seconds of one launch, without warm-up unless it is in the measured seconds."""
        if self.plan.engine.is_external:  # it runs already
            return Span.exactly(0)
        seen = self.measured.launches
        if seen:
            return Span(min(seen), median(seen), max(seen)).times(NEAR)
        return Span.of(self.assumed.launch_factor).scaled(self.budget.launch_seconds)

    def point(self, point: Point) -> tuple[Span, DurationBasis]:
        """Return the seconds of one point."""
        same = [each.seconds for each in self.measured.points if each.repeat_of and _is_place(each, point)]
        if same:
            return Span(min(same), median(same), max(same)).times(NEAR), DurationBasis.SAME_POINT
        load, turns = self.plan.load, self._turns(point)
        loaded, requests = point_seconds(load, point.level, turns), point_requests(load, point.level, turns)
        if loaded is not None:
            return self._loaded(point, loaded, requests), DurationBasis.LOAD
        similar = self._similar(point, requests) if requests is not None else None
        if similar is not None:
            return similar, DurationBasis.SIMILAR_POINT
        if requests is None or self.speed is None:
            return Span.of(self.assumed.point_factor).scaled(self.budget.point_seconds), DurationBasis.ASSUMED
        return self._work(self.speed, point, requests, self._batch(point, requests)), DurationBasis.PRIOR

    def warmup(self, point: Point) -> Span:
        """Return the seconds of a launch's warm-up, at the load of its first point."""
        load = self.plan.load
        if not load.warmup_requests or self.speed is None or self.measured.launches:
            return Span.exactly(0)
        requests = max(load.warmup_requests, point.level.concurrency or 1)
        work = self._work(self.speed, point, requests, self._batch(point, requests))
        return work.times(Span.of(self.assumed.warmup_factor))

    def _turns(self, point: Point) -> Sequence[int] | None:
        """Return the turns of the prompts; one each if they could not be read but their number is known or unused."""
        known = self.prompts.get(point.workload)
        if known is not None:
            return known.turns
        load, dataset = self.plan.load, self.plan.workload(point.workload).dataset
        count = dataset.count or dataset.turns or (1 if load.requests or load.duration_seconds else 0)
        return [1] * count or None

    def _batch(self, point: Point, requests: int) -> int:
        return max(1, min(point.level.concurrency or self.plan.slots, requests))

    def _loaded(self, point: Point, loaded: float, requests: int | None) -> Span:
        """Return the load's seconds and those of its last answers; more if the engine is slower than the load."""
        if self.speed is None:
            return Span.exactly(loaded)
        batch = self._batch(point, requests or self.plan.slots)
        answer = self._work(self.speed, point, 1, 1, step_batch=batch)
        slowest = self._work(self.speed, point, requests, batch).high if requests is not None else 0.0
        return Span(loaded, loaded + answer.expected, max(loaded + answer.high, slowest))

    def _work(self, speed: DecodeSpeed, point: Point, requests: int, batch: int, step_batch: int | None = None) -> Span:
        """Return the seconds of this many requests, `batch` at a time."""
        workload = self.plan.workload(point.workload)
        answer = self._answer_share(workload).scaled(workload.output.max_tokens)
        decode = answer.times(speed.step(step_batch or batch)).scaled(requests / batch)
        if not self.plan.arm(point.arm).is_baseline:
            decode = decode.times(Span.of(self.assumed.speed_up).inverse())
        known = self.prompts.get(point.workload)
        tokens = known.mean_tokens if known else None
        prompt = Span.exactly(tokens) if tokens else Span.of(self.assumed.prompt_tokens)
        return decode + prompt.times(speed.prompt_token).scaled(requests)

    def _answer_share(self, workload: Workload) -> Span:
        return Span.exactly(1) if workload.output.ignore_eos else Span.of(self.assumed.answer_share)

    def _similar(self, point: Point, requests: int) -> Span | None:
        """Return the seconds of the most similar measured points, per request; None without one."""
        batch, rated = self._batch(point, requests), list[tuple[int, float, Span]]()
        longest = self.plan.workload(point.workload).output.max_tokens
        for seen in self.measured.points:
            if not seen.requests or seen.level.concurrency is None:
                continue
            ratio = min(seen.level.concurrency, seen.requests) / batch
            factor, differences = SIMILAR, 0
            if seen.arm != point.arm:
                differences += 1
                factor = factor.times(self._between_arms(seen.arm, point.arm))
            if seen.workload != point.workload:
                differences += 1
                factor = factor.times(OTHER_WORKLOAD)
            if ratio != 1:  # between streams that share an engine without loss, and an engine that is full
                differences += 1
                factor = factor.times(Span(min(ratio, 1), ratio**0.5, max(ratio, 1)))
            each = seen.seconds / seen.requests * longest / seen.max_tokens
            rated.append((differences, each, factor))
        if not rated:
            return None
        nearest = min(differences for differences, _, _ in rated)
        spans = [factor.scaled(each) for differences, each, factor in rated if differences == nearest]
        expected = median(each.expected for each in spans)
        return Span(min(each.low for each in spans), expected, max(each.high for each in spans)).scaled(requests)

    def _between_arms(self, seen: str, planned: str) -> Span:
        """Return the factor from one arm's seconds to another's."""
        gain = Span.of(self.assumed.speed_up)
        names = {arm.name for arm in self.plan.arms if arm.is_baseline}
        if seen in names:
            return gain.inverse()
        return gain if planned in names else Span(gain.low / gain.high, 1, gain.high / gain.low)


def _is_place(seen: PointDuration, point: Point) -> bool:
    return (seen.arm, seen.workload, seen.level) == (point.arm, point.workload, point.level)


@dataclass(frozen=True)
class ParallelArms:
    """What measuring arms at once on separate GPUs of a node would save. It is not offered."""

    node_gpus: int
    idle_gpus: int
    arms_at_once: int
    engine_hours: float
    """Engine hours over the arms at once."""


def parallel_arms(plan: Plan, estimate: HoursEstimate, node_gpus: int) -> ParallelArms | None:
    """Return what it would save; None if one engine needs the whole node, or there is one arm."""
    if not 0 < estimate.gpus < node_gpus or len(plan.arms) < 2:
        return None
    at_once = min(node_gpus // estimate.gpus, len(plan.arms))
    if at_once < 2:
        return None
    return ParallelArms(node_gpus, node_gpus - estimate.gpus, at_once, estimate.engine_hours.expected / at_once)
