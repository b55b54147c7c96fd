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


FORGED = plan_of("a").to_json().replace('"args": []', '"args": ["--other"]')
"""A plan with other arguments of the engine, and unchanged hashes."""


@dataclass
class PlanBucket:
    """A bucket with plan.json by UID, each with the hour at which it was stored."""

    plans: Mapping[str, tuple[int, str]]

    def listing(self, prefix: str) -> Listing:
        if prefix == f"{ROOT}/":
            return Listing({}, tuple(f"{ROOT}/{uid}/" for uid in (*self.plans, "half-written")))
        found = self.plans.get(prefix.removeprefix(f"{ROOT}/").rstrip("/"))
        stored = {f"{prefix}plan.json": datetime(2026, 1, 2, found[0], tzinfo=UTC)} if found else {}
        return Listing({}, (), stored)

    def get(self, key: str, _max_bytes: int) -> bytes:
        return self.plans[key.split("/")[-2]][1].encode()


@pytest.mark.parametrize(
    ("plans", "found"),
    [
        ({}, None),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a").to_json())}, "a"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a", {"spec.load.repeats": 2}).to_json())}, "b"),
        ({"a": (12, plan_of("a", {"spec.placement.queueName": "elsewhere"}).to_json())}, "a"),
        ({"a": (12, '{"schemaVersion": "specbench.io/plan/v0"}')}, None),
        ({"a": (12, plan_of("a", {"spec.drafters[0].name": "renamed"}).to_json())}, None),
        ({"a": (12, plan_of("a", {"spec.load.order": "Sequential"}).to_json())}, None),
        ({"b": (9, plan_of("b").to_json()), "A_": (12, plan_of("A_").to_json())}, "b"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("b").to_json())}, "b"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, FORGED)}, "b"),
    ],
    ids=[
        "none", "newest", "same points", "other queue", "other schema version",
        "renamed arm", "other order of repeats", "not a UID", "copied", "forged",
    ],
)  # fmt: skip
def test_finds_the_newest_results_of_the_same_plan(plans: Mapping[str, tuple[int, str]], found: str | None) -> None:
    bucket: Any = PlanBucket(plans)
    assert newest_matching_results(bucket, ROOT, plan_of(UID)) == found


@dataclass
class FakeBackends:
    """A fake API server and S3 for one run; records which results are looked up."""

    run: dict[str, Any] = field(default_factory=lambda: operator_run(LATEST))
    found: str | StoreFailure | None = OLDER_UID
    plans: tuple[str, ...] = ()
    lookups: list[str] = field(default_factory=list)

    def get(self, kind: str, _namespace: str, _name: str) -> Any:
        return self.run if kind == "SpecBenchRun" else None

    def list(self, kind: str, _namespace: str, *, labels: str = "", fields: str = "") -> list[Any]:
        labelled = {"specbench.io/role": "plan"}
        meta = {"name": "p", "uid": "p", "labels": labelled, "ownerReferences": [{"uid": UID, "controller": True}]}
        return [{"metadata": meta, "data": {"plan.json": text}} for text in self.plans] if kind == "ConfigMap" else []

    def read(self, run: SpecBenchRun, *, last_launch: bool) -> StoredResults:
        self.lookups.append(run.results_uid)
        return StoredResults()

    def read_gate(self, _run: SpecBenchRun) -> GateReport | None:
        return None

    def latest(self, _run: SpecBenchRun) -> str | StoreFailure | None:
        self.lookups.append("Latest")
        return self.found

    def observe(self) -> RunObservation:
        here: Any = self
        observed = RunObserver(here, here).observe("default", "demo")
        assert observed is not None
        return observed

    def adopted(self) -> str | None:
        return parse_run(self.observe().resource).spec.results.adopt


def test_adopts_the_found_results_as_if_their_uid_were_in_the_spec() -> None:
    backends = FakeBackends()
    assert backends.adopted() == OLDER_UID
    assert backends.lookups == ["Latest", OLDER_UID]


def test_starts_from_scratch_when_no_results_match() -> None:
    backends = FakeBackends(found=None)
    assert backends.adopted() is None
    assert backends.lookups == ["Latest", UID]


@pytest.mark.parametrize("uid", [OLDER_UID, UID], ids=["earlier run", "own"])
def test_keeps_the_first_adopted_uid_when_newer_results_appear(uid: str) -> None:
    by_plan = FakeBackends(plans=(plan_of(uid).to_json(),), found="newer")
    by_status = FakeBackends(found="newer")
    by_status.run["status"] = {"results": {"uri": f"s3://results/runs/default/demo/{uid}"}}
    for backends in (by_plan, by_status):
        assert backends.adopted() == (None if uid == UID else uid)
        assert backends.lookups == [uid], "S3 is not searched again"


@pytest.mark.parametrize("plan_json", [None, "", "{", "[]", "null", "{}"])
def test_an_unreadable_plan_yields_no_known_uid(plan_json: str | None) -> None:
    assert known_results_uid(operator_run(LATEST), plan_json) is None


def test_creates_nothing_and_reports_no_uri_while_s3_is_unreachable() -> None:
    backends = FakeBackends(found=AWAY)
    observed = backends.observe()
    assert (observed.stored, backends.lookups) == (AWAY, ["Latest"])
    world = ClusterWorld(operator_run(LATEST), trouble=AWAY)
    decision = world.reconcile()
    assert (decision.apply, world.launched, world.status.results) == ((), [], None)
    assert "s3:9000 cannot be reached" in world.condition(ConditionType.RECONCILING).message
    world.trouble = None
    edit(world.run, "spec.results.adopt", OLDER_UID)
    world.plan_there = world.plan.to_json()
    world.settle()
    assert world.launched == [world.engine()]


def test_a_spec_with_a_fixed_uid_or_no_adoption_is_unchanged() -> None:
    for edits in ({}, {"spec.results.adopt": OLDER_UID}):
        backends = FakeBackends(run=operator_run(edits))
        assert backends.observe().resource == backends.run
        assert "Latest" not in backends.lookups


def test_adoption_changes_only_the_adopt_field() -> None:
    run = operator_run(LATEST)
    changed = with_adopted_uid(run, OLDER_UID)
    assert run["spec"]["results"]["adopt"] == "Latest", "the input is not modified"
    assert {**changed, "spec": {**changed["spec"], "results": run["spec"]["results"]}} == run
