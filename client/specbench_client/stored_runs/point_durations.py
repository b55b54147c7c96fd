"""Reads how long points and launches took in stored runs, from manifests only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from specbench_api.outcome.manifest import Manifest
from specbench_api.plan.estimate import point_conversations
from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.decision.gpu_hours import MeasuredDurations, PointDuration
from specbench_client.errors import NotDurable
from specbench_client.store.points import read_manifests
from specbench_client.store.store import Store, StoreErrorReason
from specbench_client.stored_runs.stored_documents import read_plan, run_roots

LAUNCH_MAX = timedelta(hours=2)
"""Longer pauses between two engines are interruptions of the run, not launches."""


@dataclass(frozen=True)
class StoredDurations:
    """A stored run and the manifests of its measured points."""

    plan: Plan
    manifests: dict[str, Manifest]


def read_durations(results: Store) -> list[StoredDurations]:
    """Read every run below a root of results; damaged ones are left out. Raises NotDurable if the store fails."""
    found: list[StoredDurations] = []
    for root in run_roots(results):
        store = results.below(root)
        try:
            plan = read_plan(store)
            found.append(StoredDurations(plan, read_manifests(store, [point.hash for point in plan.points])))
        except NotDurable as error:
            if error.reason != StoreErrorReason.DAMAGED:
                raise
    return found


def durations_for(plan: Plan, stored: Sequence[StoredDurations]) -> MeasuredDurations:
    """Return the durations that apply to a plan: of runs with its model, adapter, engine and number of GPUs."""
    runs = [run for run in stored if _hardware(run.plan) == _hardware(plan)]
    points = [_duration(run, point) for run in runs for point in run.plan.points if point.hash in run.manifests]
    launches = [seconds for run in runs for seconds in _launches(run)]
    return MeasuredDurations([each for each in points if each.seconds > 0], launches)


def _hardware(plan: Plan) -> tuple[object, ...]:
    engine = plan.engine
    return plan.target.title, engine.kind, engine.tensor_parallel_size, plan.placement.engine_devices


def _duration(run: StoredDurations, point: Point) -> PointDuration:
    manifest = run.manifests[point.hash]
    return PointDuration(
        arm=run.plan.arm(point.arm),
        workload=run.plan.workload(point.workload),
        level=point.level,
        requested=run.plan.load.requests,
        conversations=point_conversations(run.plan.load, point.level, manifest.observed.prompts),
        seconds=(_moment(manifest.ended_wall) - _load_start(manifest)).total_seconds(),
    )


def _launches(run: StoredDurations) -> list[float]:
    """Return the seconds between the last answer of a group and the start of the next group's load."""
    groups = [[run.manifests[p.hash] for p in group.points if p.hash in run.manifests] for group in run.plan.groups]
    spans = sorted((_load_start(g[0]), max(_moment(m.ended_wall) for m in g)) for g in groups if g)
    pauses = [begin - end for (_, end), (begin, _) in pairwise(spans)]
    return [pause.total_seconds() for pause in pauses if timedelta(0) < pause <= LAUNCH_MAX]


def _load_start(manifest: Manifest) -> datetime:
    """Return the start of the load, after warm-up."""
    return _moment(manifest.started_wall) + timedelta(microseconds=(manifest.load_started_ns or 0) / 1000)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
