"""What the observer reads: the results that `adopt: Latest` finds, and a gate with its baseline runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from specbench_api.campaign.names import ANNOTATION_COMBINATION, LABEL_CAMPAIGN
from specbench_api.outcome.gate_report import GateReport
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionType
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.results import known_results_uid, newest_matching_results, with_adopted_uid
from specbench_operator.cluster.s3 import Listing
from specbench_operator.state.run import EarlierRun, StoredResults, StoreFailure
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.fake_backends import FakeBackends
from specbench_testing.gate_reports import EARLIER, GATE, digest_of, gate_report
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
class Adopting(FakeBackends):
    """A run that adopts the latest results; records which results are looked up."""

    run: dict[str, Any] = field(default_factory=lambda: operator_run(LATEST))
    found: str | StoreFailure | None = OLDER_UID
    plans: tuple[str, ...] = ()
    lookups: list[str] = field(default_factory=list)

    def list(self, kind: str, _namespace: str, /, **_selectors: str) -> list[Any]:
        labelled = {"specbench.io/role": "plan"}
        meta = {"name": "p", "uid": "p", "labels": labelled, "ownerReferences": [{"uid": UID, "controller": True}]}
        return [{"metadata": meta, "data": {"plan.json": text}} for text in self.plans] if kind == "ConfigMap" else []

    def read(self, run: SpecBenchRun, *, last_launch: bool) -> StoredResults:
        self.lookups.append(run.results_uid)
        return StoredResults()

    def latest(self, _run: SpecBenchRun) -> str | StoreFailure | None:
        self.lookups.append("Latest")
        return self.found

    def adopted(self) -> str | None:
        return parse_run(self.observe().resource).spec.results.adopt


def test_adopts_the_found_results_as_if_their_uid_were_in_the_spec() -> None:
    backends = Adopting()
    assert backends.adopted() == OLDER_UID
    assert backends.lookups == ["Latest", OLDER_UID]


def test_starts_from_scratch_when_no_results_match() -> None:
    backends = Adopting(found=None)
    assert backends.adopted() is None
    assert backends.lookups == ["Latest", UID]


@pytest.mark.parametrize("uid", [OLDER_UID, UID], ids=["earlier run", "own"])
def test_keeps_the_first_adopted_uid_when_newer_results_appear(uid: str) -> None:
    by_plan = Adopting(plans=(plan_of(uid).to_json(),), found="newer")
    by_status = Adopting(found="newer")
    by_status.run["status"] = {"results": {"uri": f"s3://results/runs/default/demo/{uid}"}}
    for backends in (by_plan, by_status):
        assert backends.adopted() == (None if uid == UID else uid)
        assert backends.lookups == [uid], "S3 is not searched again"


@pytest.mark.parametrize("plan_json", [None, "", "{", "[]", "null", "{}"])
def test_an_unreadable_plan_yields_no_known_uid(plan_json: str | None) -> None:
    assert known_results_uid(operator_run(LATEST), plan_json) is None


def test_creates_nothing_and_reports_no_uri_while_s3_is_unreachable() -> None:
    backends = Adopting(found=AWAY)
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
        backends = Adopting(run=operator_run(edits))
        assert backends.observe().resource == backends.run
        assert "Latest" not in backends.lookups


def test_adoption_changes_only_the_adopt_field() -> None:
    run = operator_run(LATEST)
    changed = with_adopted_uid(run, OLDER_UID)
    assert run["spec"]["results"]["adopt"] == "Latest", "the input is not modified"
    assert {**changed, "spec": {**changed["spec"], "results": run["spec"]["results"]}} == run


# What is read for a gate.


NIGHTLY = {"baselineRef": {"campaign": "nightly"}}


class Gated(FakeBackends):
    """A run that has ended, and its baseline; records what is read for the gate."""

    def __init__(self, gate: dict[str, Any] | None, /, **status: Any) -> None:
        super().__init__(operator_run({"spec.gate": gate} if gate else None))
        self.run["status"] = {"phase": "Succeeded", "completionTime": "2026-01-02T12:00:00Z", **status}
        self.report = gate_report(gate=gate) if gate else None
        self.requests: list[object] = []
        annotations = {ANNOTATION_COMBINATION: "c"}
        meta = {"name": "main", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}
        self.main = {"metadata": meta, "status": {"phase": "Succeeded", "results": {"uri": EARLIER}}}

    def get(self, kind: str, _namespace: str, name: str, *, bare: bool = False) -> Any:
        if kind == "SpecBenchRun" and name != "demo":
            self.requests.append(name)
        return {"demo": self.run, "main": self.main}.get(name)

    def list(self, kind: str, _namespace: str, /, **selectors: str) -> list[Any]:
        if kind == "SpecBenchRun":
            self.requests.append(selectors["labels"])
        return [self.main] if kind == "SpecBenchRun" else []

    def read(self, _run: object, *, last_launch: bool) -> StoredResults:
        assert last_launch, "no status records where the last engine ran"
        return StoredResults()

    def read_gate(self, _run: object) -> GateReport | None:
        self.requests.append("gate.json")
        return self.report


MAIN = EarlierRun("main", "u", "2026-01-01T00:00:00Z", "Succeeded", EARLIER, "c")


@pytest.mark.parametrize(
    ("gate", "requests", "earlier"),
    [
        (GATE, ["gate.json", "main"], (MAIN,)),
        (NIGHTLY, ["gate.json", f"{LABEL_CAMPAIGN}=nightly"], (MAIN,)),
        ({"baselineRef": {"uri": "s3://results/else"}}, ["gate.json"], ()),
        ({"baselineRef": {"run": "gone"}}, ["gate.json", "gone"], ()),
    ],
    ids=["run", "campaign", "uri", "gone"],
)
def test_a_finished_run_reads_its_gate_report_and_its_baseline_runs(
    gate: dict[str, Any], requests: list[object], earlier: tuple[EarlierRun, ...]
) -> None:
    cluster = Gated(gate)
    observed = cluster.observe()
    assert (observed.gate, observed.earlier, cluster.requests) == (cluster.report, earlier, requests)


@pytest.mark.parametrize(
    "cluster",
    [
        Gated(None),
        Gated(GATE, completionTime=None),
        Gated(GATE, phase="Failed"),
        Gated(GATE, gate={"gateDigest": digest_of(), "passed": True, "reason": "Passed"}),
    ],
    ids=["no gate", "not finished", "failed", "evaluated"],
)
def test_nothing_is_read_when_the_gate_needs_no_evaluation(cluster: Gated) -> None:
    observed = cluster.observe()
    assert (observed.gate, observed.earlier, cluster.requests) == (None, (), [])


def test_a_changed_gate_is_read_again() -> None:
    cluster = Gated(GATE, gate={"gateDigest": digest_of(NIGHTLY), "passed": True, "reason": "Passed"})
    assert cluster.observe().gate == cluster.report
