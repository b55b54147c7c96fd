"""The hours in `specbench plan`: from measured points, the load or assumptions; GPUs; what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_client.cli.plan_hours import (
    AssumedDurations,
    DurationBasis,
    HoursEstimate,
    MeasuredDurations,
    PointDuration,
    durations_for,
    estimate_hours,
)
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import read_manifests_below
from specbench_testing.local_results import OBSERVED, store_results
from specbench_testing.resources import external_engine, run_of
from specbench_testing.synthetic_records import SyntheticRun

NOTHING, LAUNCH = AssumedDurations(), AssumedDurations(launch_seconds=100)
HOURS_BOTH = AssumedDurations(launch_seconds=100, point_seconds=10)
COUNTED = {"concurrency": [4], "repeats": 1, "requests": 40}
TIMED = {"concurrency": [4], "repeats": 1, "durationSeconds": 60}


def plan(load: dict[str, Any], placement: dict[str, Any] | None = None, **edits: Any) -> Plan:
    return expand(run_of({"spec.load": load, "spec.placement": placement or {"gpus": 1}, **edits}))


def estimated(
    planned: Plan,
    assumed: AssumedDurations = HOURS_BOTH,
    measured: MeasuredDurations | None = None,
    turns: dict[str, Sequence[int]] | None = None,
    done: Sequence[str] = (),
) -> HoursEstimate:
    return estimate_hours(planned, assumed, measured or MeasuredDurations(), turns or {}, done)


@pytest.mark.parametrize(
    ("load", "basis", "seconds"),
    [
        (TIMED, DurationBasis.LOAD, 60),
        ({"rate": [2], "slots": 4, "repeats": 1, "requests": 120}, DurationBasis.LOAD, 60),
        ({"rate": [2], "slots": 4, "repeats": 1}, DurationBasis.LOAD, 40),
        (COUNTED, DurationBasis.ASSUMED, 10),
    ],
    ids=str,
)
def test_seconds_of_a_point_are_those_of_its_load_or_assumed(
    load: dict[str, Any], basis: DurationBasis, seconds: float
) -> None:
    planned = plan(load)
    found = estimated(planned, turns={planned.workloads[0].name: [1] * 80})
    assert found.bases == {basis: len(planned.points)}
    assert found.engine_seconds == len(planned.groups) * 100 + len(planned.points) * seconds


@pytest.mark.parametrize(
    ("load", "assumed", "known"),
    [(COUNTED, NOTHING, False), (COUNTED, LAUNCH, False), (TIMED, NOTHING, False), (TIMED, LAUNCH, True)],
    ids=str,
)
def test_hours_are_not_known_without_every_duration(
    load: dict[str, Any], assumed: AssumedDurations, *, known: bool
) -> None:
    found = estimated(plan(load), assumed)
    assert [each is not None for each in (found.engine_seconds, found.engine_hours, found.gpu_hours)] == [known] * 3


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({"gpus": 8, "nodes": 4}, 32),
        ({"claimedGpus": 4, "resourceClaimTemplateName": "four", "nodes": 2}, 8),
        ({"gpus": 0}, 0),
    ],
)
def test_gpu_hours_count_all_nodes_for_gpus_and_for_claimed_gpus(placement: dict[str, Any], gpus: int) -> None:
    found = estimated(plan(COUNTED, placement))
    assert found.engine_hours is not None
    assert found.gpu_hours == pytest.approx(gpus * found.engine_hours)


def test_a_running_endpoint_is_not_launched() -> None:
    served = plan(TIMED).model_copy(update={"engine": external_engine()})
    assert estimated(served, NOTHING).engine_seconds == len(served.points) * 60


def test_measured_points_and_finished_launches_cost_nothing() -> None:
    planned = plan({**COUNTED, "repeats": 2, "order": "Sequential"})
    group = planned.groups[0]
    left = estimated(planned, done=[point.hash for point in group.points])
    assert (left.launches, left.points) == (len(planned.groups) - 1, len(planned.points) - len(group.points))
    assert estimated(planned, NOTHING, done=[point.hash for point in planned.points]).engine_seconds == 0


def test_stored_points_have_their_conversations_and_not_the_rows_of_fillers(tmp_path: Path) -> None:
    observed = OBSERVED.model_copy(update={"prompts": 6})
    stored = store_results(SyntheticRun(prompts=6, turns=2), tmp_path, "u-1", observed=observed)
    points = durations_for(stored, read_manifests_below(FolderStore(tmp_path))).points
    assert {(each.conversations, each.requested, each.seconds) for each in points} == {(6, None, 60.0)}
    assert len(points) == len(stored.points)


def measured_of_hours(seen: Plan, seconds: float, conversations: int) -> MeasuredDurations:
    """Every point of a plan, measured with these seconds and conversations, and launches of about 50 seconds."""
    points = [
        PointDuration(
            arm=seen.arm(point.arm), workload=seen.workload(point.workload), level=point.level,
            requested=seen.load.requests, conversations=conversations, seconds=seconds,
        )
        for point in seen.points
    ]  # fmt: skip
    return MeasuredDurations(points, [40.0, 50.0, 90.0])


PROMPTS = {"chat": [1] * 8}


@pytest.mark.parametrize(
    ("load", "edits", "turns", "basis", "seconds"),
    [
        ({**COUNTED, "repeats": 3}, {}, PROMPTS, DurationBasis.MEASURED, 70),
        ({**COUNTED, "requests": 80}, {}, PROMPTS, DurationBasis.MEASURED, 140),
        ({**COUNTED, "requests": 80}, {"dataset.count": 8}, PROMPTS, DurationBasis.MEASURED, 140),
        ({**COUNTED, "repeats": 3}, {}, {}, DurationBasis.MEASURED, 70),
        ({**COUNTED, "requests": 80}, {}, {}, DurationBasis.MEASURED, 140),
        ({"concurrency": [4], "repeats": 1}, {}, PROMPTS, DurationBasis.MEASURED, 14),
        ({"concurrency": [4], "repeats": 1}, {}, {}, DurationBasis.ASSUMED, 10),
        ({**COUNTED, "concurrency": [5]}, {}, PROMPTS, DurationBasis.ASSUMED, 10),
        (COUNTED, {"output.maxTokens": 7}, PROMPTS, DurationBasis.ASSUMED, 10),
        (TIMED, {}, PROMPTS, DurationBasis.LOAD, 60),
    ],
    ids=[
        "repeats",
        "requests",
        "prompts",
        "unread",
        "unread, requests",
        "each prompt once",
        "unread prompts",
        "level",
        "workload",
        "timed",
    ],
)
def test_a_measured_point_gives_the_seconds_of_the_same_arm_workload_and_load(
    load: dict[str, Any], edits: dict[str, Any], turns: dict[str, Sequence[int]], basis: DurationBasis, seconds: float
) -> None:
    planned = plan(load, None, **{f"spec.workloads[0].{name}": value for name, value in edits.items()})
    found = estimated(planned, measured=measured_of_hours(plan(COUNTED), 70, 40), turns=turns)
    assert found.bases == {basis: len(planned.points)}
    assert (found.launch_seconds, found.point_seconds) == (50, seconds * len(planned.points))
