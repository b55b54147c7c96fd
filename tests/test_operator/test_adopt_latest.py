"""`adopt: Latest` is resolved once to the newest results with the same points; nothing is created before that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from specbench_api.outcome.gate_report import GateReport
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionType
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.observer import RunObserver
from specbench_operator.cluster.results import known_results_uid, newest_matching_results, with_adopted_uid
from specbench_operator.cluster.s3 import Listing
from specbench_operator.state.run import RunObservation, StoredResults, StoreFailure
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.operator_builders import OLDER_UID, UID, operator_run
from specbench_testing.resources import edit

ROOT = "team/runs/default/demo"
LATEST = {"spec.results.adopt": "Latest"}


def plan_of(uid: str, edits: Mapping[str, Any] | None = None) -> Plan:
    run = operator_run(edits)
    run["metadata"]["uid"] = uid
    return expand(parse_run(run))


@dataclass
class Kept:
    """plan.json by UID, each with the hour at which it was stored."""

    plans: Mapping[str, tuple[int, str]]

    def listing(self, prefix: str) -> Listing:
        if prefix == f"{ROOT}/":
            return Listing({}, tuple(f"{ROOT}/{uid}/" for uid in (*self.plans, "half-written")))
        found = self.plans.get(prefix.removeprefix(f"{ROOT}/").rstrip("/"))
        stored = {f"{prefix}plan.json": datetime(2026, 1, 2, found[0], tzinfo=UTC)} if found else {}
        return Listing({}, (), stored)

    def get(self, key: str) -> bytes:
        return self.plans[key.split("/")[-2]][1].encode()


@pytest.mark.parametrize(
    ("plans", "found"),
    [
        ({}, None),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a").to_json())}, "a"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a", {"spec.load.repeats": 2}).to_json())}, "b"),
        ({"a": (12, plan_of("a", {"spec.placement.queueName": "elsewhere"}).to_json())}, "a"),
        ({"a": (12, '{"schemaVersion": "specbench.io/plan/v0"}')}, None),
        ({"a": (12, plan_of("a", {"spec.drafters[0].name": "renamed"}).to_json())}, "a"),
        ({"a": (12, plan_of("a", {"spec.workloads[0].name": "renamed"}).to_json())}, "a"),
        ({"a": (12, plan_of("a", {"spec.load.order": "Sequential"}).to_json())}, None),
    ],
    ids=[
        "none", "the newest", "that measures the same", "in any queue", "not another version's",
        "under other names of arms", "or of workloads", "not of repeats that are laid out otherwise",
    ],
)  # fmt: skip
def test_the_newest_results_that_measure_the_same_are_found(
    plans: Mapping[str, tuple[int, str]], found: str | None
) -> None:
    bucket: Any = Kept(plans)
    assert newest_matching_results(bucket, ROOT, plan_of(UID)) == found


@pytest.mark.parametrize(("levels", "found"), [([8, 1], "a"), ([1, 8, 32], None), ([1], None)])
def test_levels_in_another_order_are_the_same_and_more_or_fewer_are_not(levels: list[int], found: str | None) -> None:
    def asked(uid: str, concurrency: list[int]) -> Plan:
        return plan_of(uid, {"spec.load.concurrency": concurrency, "spec.load.slots": 32})

    bucket: Any = Kept({"a": (12, asked("a", [1, 8]).to_json())})
    assert newest_matching_results(bucket, ROOT, asked(UID, levels)) == found


@dataclass
class Place:
    """An API server and an S3 of which one run is asked."""

    run: dict[str, Any] = field(default_factory=lambda: operator_run(LATEST))
    found: str | StoreFailure | None = OLDER_UID
    plans: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def get(self, kind: str, _namespace: str, _name: str) -> Any:
        return self.run if kind == "SpecBenchRun" else None

    def list(self, kind: str, _namespace: str, *, labels: str = "", fields: str = "") -> list[Any]:
        labelled = {"specbench.io/role": "plan"}
        meta = {"name": "p", "uid": "p", "labels": labelled, "ownerReferences": [{"uid": UID, "controller": True}]}
        return [{"metadata": meta, "data": {"plan.json": text}} for text in self.plans] if kind == "ConfigMap" else []

    def read(self, run: SpecBenchRun, *, last_launch: bool) -> StoredResults:
        self.asked.append(run.results_uid)
        return StoredResults()

    def read_gate(self, _run: SpecBenchRun) -> GateReport | None:
        return None

    def latest(self, _run: SpecBenchRun) -> str | StoreFailure | None:
        self.asked.append("Latest")
        return self.found

    def observe(self) -> RunObservation:
        here: Any = self
        observed = RunObserver(here, here).observe("default", "demo")
        assert observed is not None
        return observed

    def adopted(self) -> str | None:
        return parse_run(self.observe().resource).spec.results.adopt


def test_what_is_found_is_carried_on_as_if_its_uid_had_been_written() -> None:
    place = Place()
    assert place.adopted() == OLDER_UID
    assert place.asked == ["Latest", OLDER_UID]


def test_where_nothing_is_found_the_run_begins_anew() -> None:
    place = Place(found=None)
    assert place.adopted() is None
    assert place.asked == ["Latest", UID]


@pytest.mark.parametrize("uid", [OLDER_UID, UID], ids=["an earlier run's", "its own"])
def test_what_was_found_once_stays_whatever_comes_to_lie_in_s3(uid: str) -> None:
    by_plan = Place(plans=(plan_of(uid).to_json(),), found="newer")
    by_status = Place(found="newer")
    by_status.run["status"] = {"results": {"uri": f"s3://results/runs/default/demo/{uid}"}}
    for place in (by_plan, by_status):
        assert place.adopted() == (None if uid == UID else uid)
        assert place.asked == [uid], "S3 is not searched again"


@pytest.mark.parametrize("plan_json", [None, "", "{", "[]", "null", "{}"])
def test_what_cannot_be_read_tells_no_uid(plan_json: str | None) -> None:
    assert known_results_uid(operator_run(LATEST), plan_json) is None


def test_while_s3_does_not_answer_nothing_is_made_and_no_place_is_told() -> None:
    place = Place(found=AWAY)
    observed = place.observe()
    assert (observed.stored, place.asked) == (AWAY, ["Latest"])
    world = ClusterWorld(operator_run(LATEST), trouble=AWAY)
    decision = world.look()
    assert (decision.apply, world.launched, world.status.results) == ((), [], None)
    assert "s3:9000 cannot be reached" in world.condition(ConditionType.RECONCILING).message
    world.trouble = None
    edit(world.run, "spec.results.adopt", OLDER_UID)
    world.plan_there = world.plan.to_json()
    world.settle()
    assert world.launched == [world.engine()]


def test_a_run_that_names_a_uid_or_none_is_as_it_was_written() -> None:
    for edits in ({}, {"spec.results.adopt": OLDER_UID}):
        place = Place(run=operator_run(edits))
        assert place.observe().resource == place.run
        assert "Latest" not in place.asked


def test_nothing_else_of_the_run_changes() -> None:
    run = operator_run(LATEST)
    changed = with_adopted_uid(run, OLDER_UID)
    assert run["spec"]["results"]["adopt"] == "Latest", "what was given stays"
    assert {**changed, "spec": {**changed["spec"], "results": run["spec"]["results"]}} == run
