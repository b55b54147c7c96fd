"""Upgrades and rollbacks of the operator during a run, which ends with the plan and client of its start.

The other version is this one with another image. What it wrote differently is edited into the run's ConfigMap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import Mock

import pytest

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.names import plan_name
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_api.spec.load import Level
from specbench_operator.render.client_jobs import CLIENT_IMAGE, PLAN_SHA256
from specbench_testing.cluster_world import ClusterWorld, finished, launched
from specbench_testing.operator_builders import SETTINGS, fenced, operator_run
from specbench_testing.operator_crash_points import end_state

OLD, NEW = SETTINGS.client_image, "registry.example/specbench:0.2.0"
SIMULATED = {
    "spec.engine": {"kind": "simulator"},
    "spec.drafters": [{"name": "ngram", "method": "ngram"}],
    "spec.load": {"concurrency": [1], "repeats": 2},
}
CELLS = {(arm, "chat", Level(concurrency=1)) for arm in ("none", "ngram")}
Edit = Callable[[dict[str, Any]], object]
Step = Callable[[ClusterWorld], object]


def run_version(world: ClusterWorld, image: str) -> None:
    world.settings = replace(world.settings, client_image=image)


def reported(world: ClusterWorld) -> None:
    """The report requests another round; its digest is that of the version that made the plan."""
    world.store_results(following=CELLS)
    assert world.results is not None
    world.results = world.results.model_copy(update={"plan_sha256": world.plan_data[PLAN_SHA256]})


def planned(groups: range) -> list[Step]:
    measured = [
        (partial(ClusterWorld.serve, group=group), partial(ClusterWorld.finish_client, group=group)) for group in groups
    ]
    return [*chain.from_iterable(measured), reported]


def walk(world: ClusterWorld, steps: Iterable[Step]) -> None:
    for step in steps:
        step(world)
        world.settle()


LAUNCHES = 4
STEPS: list[Step] = [ClusterWorld.settle, *planned(range(LAUNCHES)), *planned(range(LAUNCHES, 2 * LAUNCHES))]
"""A run of four groups, and of four more in a round that is added."""
REPORTED = 1 + len(planned(range(LAUNCHES)))
"""Number of steps until the report of the four groups, included."""


@pytest.mark.parametrize("other", range(len(STEPS)))
def test_a_run_ends_with_the_clients_of_its_start_whenever_the_operator_changes(other: int) -> None:
    """After each step, to another version and, one step later, back."""
    world = ClusterWorld(operator_run(SIMULATED))
    for number in range(len(STEPS)):
        walk(world, STEPS[number : number + 1])
        run_version(world, NEW if number == other else OLD)
        world.settle()
    assert set(world.images.values()) == {OLD}
    assert world.launched == [world.engine(group) for group in range(2 * LAUNCHES)]
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "8/8")


def test_the_next_run_and_one_without_a_recorded_client_have_that_of_the_operator() -> None:
    """A run that an operator before this rule began has no record."""
    world = launched(operator_run(SIMULATED))
    world.plan_data = {PLAN: world.plan_data[PLAN]}
    run_version(world, NEW)
    world.serve()
    assert (world.images[world.engine()], world.images[world.client()]) == (OLD, NEW)


def begun_by(edit: Edit) -> ClusterWorld:
    """A run whose first engine was launched by another version, which wrote this differently."""
    world = launched(operator_run(SIMULATED))
    plan = json.loads(world.plan_data[PLAN])
    edit(plan)
    digest = plan.pop("digest", world.plan_data[PLAN_SHA256])
    world.plan_data |= {PLAN: json.dumps(plan, indent=2) + "\n", PLAN_SHA256: digest}
    run_version(world, NEW)
    return world


OPTIONAL: dict[str, Edit] = {
    "a field of the load": lambda plan: plan["load"].pop("order"),
    "a field of the placement": lambda plan: plan["placement"].pop("pinNode"),
    "an empty field more": lambda plan: plan["engine"].update(flux=None),
    "another digest alone": lambda plan: plan.update(digest="e" * 64),
}


@pytest.mark.parametrize("edit", OPTIONAL.values(), ids=OPTIONAL)
def test_a_plan_without_later_fields_is_measured_as_it_is(edit: Edit) -> None:
    """No round is added: this version would write fields that the run's client does not know, or lose some."""
    world = begun_by(edit)
    walk(world, STEPS[1:REPORTED])
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "4/4")
    assert ("ConfigMap", plan_name("demo", 1)) not in world.objects


UNKNOWN: dict[str, Edit] = {
    "engine.flux": lambda plan: plan["engine"].update(flux=8),
    "flux": lambda plan: plan.update(flux={"deep": True}),
    "groups[0].points[0].flux": lambda plan: plan["groups"][0]["points"][0].update(flux=False),
    "arms[1].drafter.flux": lambda plan: plan["arms"][1]["drafter"].update(flux=[1]),
}


@pytest.mark.parametrize("field", UNKNOWN)
@pytest.mark.parametrize("done", range(1, REPORTED + 1))
def test_no_engine_is_launched_for_a_plan_with_unknown_fields(
    monkeypatch: pytest.MonkeyPatch, field: str, done: int
) -> None:
    """After a rollback. The engine that runs is measured to its end; the newer version continues with the next."""
    world = begun_by(UNKNOWN[field])
    began_with = dict(world.plan_data)
    with monkeypatch.context() as newer:
        newer.setattr(ApiModel, "unknown_field", lambda *_: None)
        walk(world, STEPS[1:done])
    before = list(world.launched)
    ends = 1 + 2 * len(before)
    walk(world, [*STEPS[done:ends], ClusterWorld.settle])
    assert (world.launched, world.plan_data) == (before, began_with)
    if len(before) < LAUNCHES:
        assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanOfAnotherVersion")
        assert field in world.condition(ConditionType.STALLED).message
        assert world.status.completion_time is None
        assert not [pod for pod in world.pods.values() if pod.alive]
        monkeypatch.setattr(ApiModel, "unknown_field", lambda *_: None)
        world.settle()
    walk(world, STEPS[max(done, ends) : REPORTED])
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "4/4")
    assert world.launched == [world.engine(group) for group in range(LAUNCHES)]


UNREADABLE: dict[str, Edit] = {
    "another schema": lambda plan: plan.update(schemaVersion="specbench.io/plan/v3"),
    "a field that this version needs is missing": lambda plan: plan.pop("placement"),
    "an engine that this version does not know": lambda plan: plan["engine"].update(kind="flux"),
    "nothing": lambda plan: plan.clear(),
}


@pytest.mark.parametrize("edit", UNREADABLE.values(), ids=UNREADABLE)
def test_a_run_whose_plan_cannot_be_read_holds_no_gpu_until_a_version_can(edit: Edit) -> None:
    world = ClusterWorld(operator_run(SIMULATED))
    walk(world, STEPS[:4])
    readable = world.plan_data[PLAN]
    plan = json.loads(readable)
    edit(plan)
    world.plan_data[PLAN] = json.dumps(plan)
    run_version(world, NEW)
    world.settle()
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanOfAnotherVersion")
    assert not [pod for pod in world.pods.values() if pod.alive]
    assert world.launched == ["demo-g0-0", "demo-g1-0"]
    world.plan_data[PLAN] = readable
    world.settle()
    assert world.launched == ["demo-g0-0", "demo-g1-0", "demo-g1-1"]
    assert world.states() == [GroupState.DONE, GroupState.STARTING, *[GroupState.WAITING] * 2]


IMAGES = {
    "another tag": ("registry.example/specbench:0.0.9", True),
    "a digest": (f"registry.example/specbench@sha256:{'0' * 64}", True),
    "another repository": ("evil.example/specbench:0.1.0", False),
    "below the repository": ("registry.example/specbench/evil:0.1.0", False),
    "a repository that begins alike": ("registry.example/specbench-evil:0.1.0", False),
}


@pytest.mark.parametrize(("image", "allowed"), IMAGES.values(), ids=IMAGES)
def test_only_images_of_the_operators_repository_are_taken_from_a_config_map(image: str, *, allowed: bool) -> None:
    """Whoever may write ConfigMaps may name any image in one, and clients get the keys of the store."""
    world = launched(operator_run(SIMULATED), settings=fenced(images=("*",)))
    world.plan_data[CLIENT_IMAGE] = image
    world.lose_job(world.engine())
    world.reap()
    world.settle()
    assert (image in world.images.values()) == allowed
    if not allowed:
        assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanNotAllowed")


STATUSES: dict[str, Edit] = {
    "a later condition": lambda status: status["conditions"].insert(0, {**status["conditions"][0], "type": "Flux"}),
    "a later field": lambda status: status.update(flux=8),
    "a later field of a group": lambda status: status["groups"][0].update(flux="x"),
    "a later field of a condition": lambda status: status["conditions"][0].update(flux={}),
}


@pytest.mark.parametrize("edit", STATUSES.values(), ids=STATUSES)
def test_a_run_that_finished_under_a_later_version_stays_finished(edit: Edit) -> None:
    world = finished(ClusterWorld(operator_run()))
    ended, before = world.status.completion_time, list(world.launched)
    edit(world.run["status"])
    run_version(world, NEW)
    world.measured, world.results = set(), None
    world.settle()
    assert (world.status.completion_time, world.launched) == (ended, before)


READY = {"type": "Ready", "status": "True", "reason": "Finished", "message": "words"}
RESUMED = {"type": "Normal", "reason": "Resumed", "message": "words"}


@pytest.mark.parametrize("messages", [True, False])
@pytest.mark.parametrize(
    ("ready", "event", "words_only"),
    [
        ({"message": "other"}, {}, True),
        ({}, {"message": "other: words"}, True),
        ({"reason": "Other"}, {}, False),
        ({"status": "False"}, {}, False),
        ({}, {"reason": "Other"}, False),
        ({}, {"type": "Warning"}, False),
    ],
)
def test_a_hand_over_between_programs_compares_everything_but_the_texts_of_messages(
    ready: dict[str, Any], event: dict[str, Any], *, words_only: bool, messages: bool
) -> None:
    site: Any = Mock(
        **{
            "stored.return_value.points.return_value": [],
            "stored.return_value.versions.return_value": {},
            "measured.return_value": [],
        }
    )
    run: Any = Mock(uid="u", namespace="n", children=lambda *_: [], living=list, gpus=lambda: 0)
    run.name = "r"
    run.status.side_effect = [{"conditions": [row]} for row in (READY, {**READY, **ready})]
    run.cluster.call.side_effect = [{"items": [row]} for row in (RESUMED, {**RESUMED, **event})]
    before, after = (end_state(site, run, messages=messages) for _ in range(2))
    assert bool(after.differences([before])) is (messages or not words_only)
