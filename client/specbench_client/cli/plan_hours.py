"""The hours in `specbench plan`: the option --assume, the estimate, and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.plan.plan import Plan
from specbench_api.plan.size import SECONDS_AN_HOUR
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.parsing import problems_in
from specbench_client.analysis.decision.gpu_hours import (
    AssumedDurations,
    DurationBasis,
    HoursEstimate,
    durations_for,
    estimate_hours,
)
from specbench_client.cli.options import prefixed
from specbench_client.store.store import Store
from specbench_client.stored_runs.run import read_manifests_below

ASSUME = click.option(
    "--assume",
    "assumed",
    metavar="NAME=SECONDS,…",
    help="Durations of what was not measured: launchSeconds=300,pointSeconds=120.",
)
_ON_GPUS = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)


def read_assumptions(given: str | None) -> AssumedDurations:
    """Return the durations of --assume. Raises InvalidSpec."""
    pairs = (pair.partition("=") for pair in given.split(",")) if given is not None else ()
    try:
        given_names = {name.strip(): seconds for name, _, seconds in pairs}
        return AssumedDurations.model_validate_strings(given_names, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidSpec(prefixed(problems_in(error, AssumedDurations), "--assume")) from error


def with_gpus(plan: Plan) -> Plan:
    """Return the plan with the GPUs of `tensorParallelSize`, if the engine needs GPUs and `placement` has none."""
    if plan.placement.engine_devices or plan.engine.kind not in _ON_GPUS:
        return plan
    placement = plan.placement.model_copy(update={"gpus": plan.engine.tensor_parallel_size})
    return plan.model_copy(update={"placement": placement})


@dataclass(frozen=True)
class PlannedHours:
    """The estimate of one run, and the deadline of its launches."""

    estimate: HoursEstimate
    deadline_s: int
    has_results: bool
    """Whether durations were looked for in stored results."""

    @property
    def limit_gpu_hours(self) -> float:
        """GPU-hours after which Kubernetes has ended every launch that remains, if each is attempted once."""
        return self.estimate.launches * self.deadline_s * self.estimate.gpus / SECONDS_AN_HOUR


class HoursEstimator:
    """Estimates the runs of one command; the stored results are read once."""

    def __init__(self, assumed: AssumedDurations, results: Store | None) -> None:
        self._assumed = assumed
        self._stored = None if results is None else read_manifests_below(results)

    def of(
        self, plan: Plan, deadline_s: int, turns: Mapping[str, Sequence[int]], done: Collection[str]
    ) -> PlannedHours:
        """Return the estimate of one run."""
        measured = durations_for(plan, self._stored or [])
        found = estimate_hours(with_gpus(plan), self._assumed, measured, turns, done)
        return PlannedHours(found, deadline_s, self._stored is not None)


def hours_document(runs: Sequence[PlannedHours]) -> dict[str, Any]:
    """Return the sums over runs for JSON. Hours that are not known for each of them are null."""
    found = [each.estimate for each in runs]
    return {
        "engineHours": _total(each.engine_hours for each in found),
        "gpuHours": _total(each.gpu_hours for each in found),
        "limitGpuHours": sum(each.limit_gpu_hours for each in runs),
        "remainingLaunches": sum(each.launches for each in found),
        "remainingPoints": sum(each.points for each in found),
        "pointsByBasis": {basis.name.title(): count for basis, count in _bases(runs).items()},
    }


def _total(hours: Iterable[float | None]) -> float | None:
    known = list(hours)
    return None if None in known else sum(each for each in known if each is not None)


def _bases(runs: Sequence[PlannedHours]) -> Counter[DurationBasis]:
    return sum((each.estimate.bases for each in runs), Counter())


def number_text(value: float) -> str:
    """Return a number with two digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def hours_text(runs: Sequence[PlannedHours]) -> list[str]:
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


def _unknown_text(runs: Sequence[PlannedHours]) -> str:
    """Return which durations are not known, and how to give them."""
    found = [each.estimate for each in runs]
    unknown, total = _bases(runs)[DurationBasis.UNKNOWN], sum(each.points for each in found)
    missing = {"pointSeconds=…": f"of {unknown} of {total} points"} if unknown else {}
    if any(each.points and each.launch_seconds is None for each in found):
        missing["launchSeconds=…"] = "of a launch"
    return (
        f"hours: not known: there is no duration {' and '.join(missing.values())}"
        f"{' in --results, which has no such run' if runs[0].has_results else ''}: give --assume"
        f" {','.join(missing)}, or --results with runs of the same model, engine, GPUs, arms, workloads and loads"
    )


def hours_warnings(hours: PlannedHours, what: str = "a launch") -> list[str]:
    """Return a warning if Kubernetes would end the launches before they are expected to be done."""
    found = hours.estimate
    if not found.launches or found.engine_seconds is None or found.engine_seconds <= found.launches * hours.deadline_s:
        return []
    each = found.engine_seconds / found.launches
    remedy = "on a cluster, raise spec.activeDeadlineSeconds, or measure fewer requests"
    return [f"{what} is expected to take {each:.0f} s, more than activeDeadlineSeconds ({hours.deadline_s}): {remedy}"]
