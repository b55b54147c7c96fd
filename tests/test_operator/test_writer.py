"""The writer: children, events and conflicts, and what a kill or an error at one write must not change."""

from __future__ import annotations

import copy
import json
from contextlib import AbstractContextManager, nullcontext
from itertools import combinations, pairwise
from typing import Any

import pytest

from specbench_api.spec.conditions import ConditionStatus, GroupState
from specbench_api.spec.status import GroupStatus, RunStatus
from specbench_operator.cluster.kubernetes_api import (
    EVENT,
    EXISTS,
    JOB,
    LEADER_WORKER_SET,
    RUN,
    TRANSIENT,
    Forbidden,
    NotFound,
)
from specbench_operator.cluster.parsing import parse_job
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import Changed, OperatorError, Retry
from specbench_operator.run.events import run_events
from specbench_operator.state.objects import ObjectRef
from specbench_operator.state.run import NORMAL, KubernetesEvent, ResumeJob, RunDecision
from specbench_testing.fake_api import FakeApi, api_of, api_server
from specbench_testing.operator_builders import NOON, operator_run

EVENTS = (KubernetesEvent(NORMAL, "EngineStarting", "group 0"), KubernetesEvent(NORMAL, "EngineReady", "group 0"))
STATUS = RunStatus(phase="Running")


def run_with(status: dict[str, Any], **meta: str) -> dict[str, Any]:
    run = operator_run()
    return {**run, "metadata": {**run["metadata"], **meta}, "status": status}


def writer_of(api: FakeApi, run: dict[str, Any]) -> Writer:
    """A writer, and its server in the state of this run."""
    api.objects[RUN, "demo"] = copy.deepcopy(run)
    unchecked: Any = api
    return Writer(unchecked, pause_s=lambda _: None)


def report(api: FakeApi, run: dict[str, Any]) -> bool:
    return writer_of(api, run).report(run, STATUS, NOON, EVENTS)


def writes(api: FakeApi) -> list[str]:
    return [f"{verb} {kind}" for verb, kind, _ in api.requests]


EVENT_WRITE, STATUS_WRITE = "create Event", f"apply {RUN}"


def test_events_are_posted_before_the_status_and_only_if_it_changes() -> None:
    api = FakeApi()
    assert report(api, run_with({"phase": "Starting"}))
    assert writes(api) == [EVENT_WRITE, EVENT_WRITE, STATUS_WRITE]
    assert [raw["reason"] for raw in api.named(EVENT).values()] == ["EngineStarting", "EngineReady"]
    assert not report(api, run_with(STATUS.to_dict()))
    assert len(api.requests) == 3


def test_a_job_is_resumed_with_its_leaders_pod() -> None:
    run, api = run_with({}), FakeApi()
    ref = ObjectRef(JOB, "c", api.put(child(JOB, OWNER, suspend=True))["metadata"]["uid"])
    writer_of(api, run).act_on_run(run, RunDecision(STATUS, resume=(ResumeJob(ref, "leader"),)))
    job = parse_job(api.objects[JOB, "c"])
    assert (job.suspended, job.engine_pod) == (False, "leader")


def test_events_of_a_repeated_decision_exist_already() -> None:
    """The operator was killed before the status, and somebody edited the run meanwhile."""
    api = FakeApi()
    post_events(api, run_with({"phase": "Starting"}, resourceVersion="1"), EVENTS)
    report(api, run_with({"phase": "Starting"}, resourceVersion="2"))
    assert len(api.named(EVENT)) == len(EVENTS)
    assert writes(api)[-1] == STATUS_WRITE
    post_events(api, run_with({"phase": "Running"}, resourceVersion="3"), EVENTS)
    assert len(api.named(EVENT)) == 2 * len(EVENTS), "equal events of another change are further events"


@pytest.mark.parametrize("reason", TRANSIENT)
def test_an_event_is_posted_again_after_a_transient_error(reason: str) -> None:
    api = FakeApi(outcomes=iter([(Changed if reason == "Conflict" else Retry)(reason, "away")]))
    report(api, run_with({}))
    assert len(api.named(EVENT)) == len(EVENTS)
    assert writes(api) == [EVENT_WRITE] * 3 + [STATUS_WRITE]


def test_an_event_that_stays_refused_does_not_keep_the_status_from_being_written() -> None:
    api = FakeApi(refuse={("create", EVENT): Retry("ApiFailing", "away")})
    report(api, run_with({}))
    assert (api.named(EVENT), writes(api)[-1]) == ({}, STATUS_WRITE)


OWNER, STRANGER = ({"controller": True, "uid": uid} for uid in ("run", "stranger"))
QUOTA, TAKEN = Forbidden("Forbidden", "exceeded quota"), Changed(EXISTS, "exists")


def child(kind: str, owner: Any, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "n", "name": "c", "ownerReferences": [owner]}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "refusal", "present", "requests", "reason"),
    [
        ("Service", None, None, ["create"], ""),
        ("Service", TAKEN, child("Service", OWNER, port=1, more=2), ["create", "get"], ""),
        ("Service", TAKEN, child("Service", OWNER, port=3), ["create", "get", "apply"], ""),
        ("Job", TAKEN, child("Job", OWNER, port=3), ["create", "get"], ""),
        ("Job", TAKEN, child("Job", STRANGER, port=1), ["create", "get"], "NameTaken"),
        ("Job", TAKEN, None, ["create", "get"], EXISTS),
        ("Service", QUOTA, child("Service", OWNER, port=3), ["create", "get", "apply"], ""),
        ("Service", QUOTA, None, ["create", "get"], "Forbidden"),
        ("Job", NotFound("Missing", "no"), None, ["create"], "Missing"),
        (LEADER_WORKER_SET, NotFound("Missing", "no"), None, ["create"], "LeaderWorkerSetMissing"),
        ("Job", Retry("ApiBusy", "busy"), None, ["create"], "ApiBusy"),
    ],
)  # fmt: skip
def test_a_child_is_read_only_if_its_creation_is_refused(
    kind: str, refusal: OperatorError | None, present: Any, requests: list[str], reason: str
) -> None:
    objects = {(kind, "c"): present} if present else {}
    api: Any = FakeApi(objects=objects, refuse={("create", "c"): refusal} if refusal else {})
    decision = RunDecision(STATUS, apply=(child(kind, OWNER, port=1),))
    with pytest.raises(OperatorError) if reason else nullcontext() as refused:
        Writer(api).act_on_run(run_with({}), decision)
    assert (api.verbs, refused.value.reason if refused else "") == (requests, reason)
    if "apply" in requests:
        assert api.objects[kind, "c"]["spec"] == {"port": 1}


WAITING, STARTING, MEASURING, DONE = GroupState.WAITING, GroupState.STARTING, GroupState.MEASURING, GroupState.DONE
STARTS, READY, MEASURED = "EngineStarting", "EngineReady", "GroupMeasured"


def status_of(state: GroupState | None, attempt: int = 0, suspensions: int = 0) -> RunStatus:
    row = GroupStatus(index=0, arm="none", state=state or WAITING, attempt=attempt, suspensions=suspensions)
    return RunStatus(groups=[row] if state else [])


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (status_of(WAITING), status_of(STARTING), [STARTS]),
        (status_of(STARTING), status_of(MEASURING), [READY]),
        (status_of(MEASURING), status_of(DONE), [MEASURED]),
        # The operator was away meanwhile.
        (status_of(None), status_of(MEASURING), [STARTS, READY]),
        (status_of(WAITING), status_of(MEASURING), [STARTS, READY]),
        (status_of(GroupState.QUEUED), status_of(MEASURING), [STARTS, READY]),
        (status_of(STARTING), status_of(DONE), [READY, MEASURED]),
        # Another launch.
        (status_of(STARTING), status_of(MEASURING, 1, 1), [STARTS, READY]),
        (status_of(MEASURING), status_of(MEASURING, 1), ["EngineLost", STARTS, READY]),
        # The engine is not ready any more; its launch started before.
        (status_of(MEASURING), status_of(STARTING), []),
        # Nothing was launched: the points were found in the store.
        (status_of(None), status_of(DONE), []),
        (status_of(WAITING), status_of(DONE), []),
        (status_of(DONE), status_of(DONE), []),
    ],
)
def test_each_step_of_a_launch_has_its_event_also_if_no_status_reported_it(
    before: RunStatus, after: RunStatus, reasons: list[str]
) -> None:
    assert [event.reason for event in run_events(before, after)] == reasons


@pytest.mark.parametrize(
    ("state", "reason", "lost"),
    [
        (WAITING, "OOMKilled", ("OOMKilled", "group 0 (arm none, launch 1): gone")),
        (GroupState.QUEUED, "Preempted", ("Preempted", "group 0 (arm none, launch 1): gone")),
        (STARTING, "EngineLost", ("EngineLost", "group 0 (arm none, launch 1): gone")),  # launched again at once
        (GroupState.QUEUED, "Crashed", ("Crashed", "group 0 (arm none, launch 1): gone")),
        (GroupState.QUEUED, "WaitingForQuota", ("EngineLost", "group 0 (arm none, launch 1)")),
        (STARTING, "Unschedulable", ("EngineLost", "group 0 (arm none, launch 1)")),
        (MEASURING, "Serving", ("EngineLost", "group 0 (arm none, launch 1)")),
    ],
)
def test_a_loss_has_its_own_reason_and_never_that_of_the_next_launch(
    state: GroupState, reason: str, lost: tuple[str, str]
) -> None:
    row = GroupStatus(index=0, arm="none", state=state, attempt=1, reason=reason, message="gone")
    event, *_ = run_events(status_of(MEASURING), RunStatus(groups=[row]))
    assert (event.reason, event.message) == lost


@pytest.mark.parametrize(("before", "after"), list(combinations((WAITING, STARTING, MEASURING, DONE), 2)))
def test_a_replica_that_saw_fewer_statuses_posts_the_same_events(before: GroupState, after: GroupState) -> None:
    """The former leader saw one change of the status, and its successor saw the same in several changes."""
    api, states = FakeApi(), [WAITING, STARTING, MEASURING, DONE]
    seen = states[states.index(before) : states.index(after) + 1]
    for old, new in pairwise(seen):
        post(api, status_of(old), status_of(new))
    posted = set(api.named(EVENT))
    post(api, status_of(before), status_of(after))
    assert set(api.named(EVENT)) == posted


def test_a_condition_that_flips_has_one_event_whichever_status_its_flip_was_seen_from() -> None:
    api = FakeApi()
    early, later = (condition_status(text, ConditionStatus.FALSE) for text in ("0/2", "1/2"))
    complete = condition_status("2/2", ConditionStatus.TRUE, "2026-01-02T00:00:00Z")
    post(api, early, complete)
    post(api, later, complete)
    assert len(api.named(EVENT)) == 1
    again = condition_status("1/2", ConditionStatus.FALSE, "2026-01-03T00:00:00Z")
    post(api, again, condition_status("2/2", ConditionStatus.TRUE, "2026-01-04T00:00:00Z"))
    assert len(api.named(EVENT)) == 2, "the condition flipped a second time"


def post(api: FakeApi, before: RunStatus, after: RunStatus) -> None:
    post_events(api, run_with(before.to_dict()), run_events(before, after))


def post_events(api: FakeApi, run: dict[str, Any], events: tuple[KubernetesEvent, ...]) -> None:
    writer_of(api, run).post_events(run, events, NOON)


def condition_status(progress: str, value: ConditionStatus, since: str = "2026-01-01T00:00:00Z") -> RunStatus:
    row = {"type": "MeasurementComplete", "status": value, "reason": "R", "lastTransitionTime": since}
    return RunStatus.model_validate({"progress": progress, "conditions": [row]})


@pytest.mark.parametrize(("uid", "raised"), [("the-uid", pytest.raises(Changed)), ("another-uid", nullcontext())])
def test_a_deletion_refused_by_a_conflict_is_tried_again_while_the_object_exists(
    uid: str, raised: AbstractContextManager[object]
) -> None:
    job = json.dumps({"kind": "Job", "metadata": {"name": "demo", "uid": uid, "resourceVersion": "1"}}).encode()
    conflict = b'{"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}'
    with api_server(lambda method, *_: (200, job) if method == "GET" else (409, conflict)) as url, raised:
        api_of(url).delete(JOB, "default", "demo", "the-uid")
