"""How one launch is judged by its Jobs and pods: tables of single judgements."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.spec.parsing import parse_run
from specbench_api.spec.status import GroupStatus
from specbench_operator.run.launches.children import Children
from specbench_operator.run.launches.engine import preempted_by_queue
from specbench_operator.run.launches.group import judge_launch
from specbench_operator.run.launches.launch_state import LaunchContext
from specbench_operator.state.objects import (
    ChildKey,
    ContainerTerminated,
    FailureScope,
    Job,
    JobFailure,
    LaunchVerdict,
    ObjectRef,
    Pod,
)
from specbench_testing.operator_builders import NOON, SETTINGS, UID, operator_run

MINUTE = timedelta(minutes=1)
ENGINE = Job(ObjectRef("Job", "engine", "job"), UID, ChildKey("engine", 0, 0), NOON, started_at=NOON)
CLIENT = Job(ObjectRef("Job", "client", "c"), UID, ChildKey("client", 0, 0), NOON + MINUTE, engine_pod="p1")
P1 = Pod(ObjectRef("Pod", "pod-1", "p1"), UID, ENGINE.key, "engine", "job", "Running", NOON, ready=True)
P2 = replace(P1, ref=ObjectRef("Pod", "pod-2", "p2"))
FAILED = JobFailure("BackoffLimitExceeded", "", NOON)
SUSPENDED = replace(ENGINE, suspended=True)
RESUMED = replace(ENGINE, started_at=CLIENT.created_at + MINUTE)
UNMARKED = replace(CLIENT, engine_pod="")
LOST_NODE = {"worker": 1, "disrupted": "preempted by a release", "phase": "Failed"}
VERDICT = LaunchVerdict(FailureScope.GROUP, "NeverReady", "too late", NOON)


@pytest.mark.parametrize(
    ("engine", "client", "known_pod", "pods", "previous_pod"),
    [
        (replace(SUSPENDED, failure=FAILED), CLIENT, "pod-1", (), None),
        (replace(RESUMED, complete=True), CLIENT, "", (), None),
        (SUSPENDED, CLIENT, "", (P2,), "p1"),
        (SUSPENDED, UNMARKED, "pod-1", (P2, P1), "p1"),
        (SUSPENDED, None, "pod-1", (P2, P1), "p1"),
        (SUSPENDED, None, "pod-1", (P2,), ""),
        (SUSPENDED, UNMARKED, "", (P1,), ""),
        (SUSPENDED, None, "", (P1,), None),
        (RESUMED, None, "pod-1", (P2,), None),
        (RESUMED, UNMARKED, "pod-1", (P2,), None),
        (ENGINE, CLIENT, "", (P1,), None),
        (ENGINE, CLIENT, "", (P2,), "p1"),
        (ENGINE, CLIENT, "", (P1, P2), None),
        (ENGINE, CLIENT, "", (replace(P1, deleted_at=NOON), P2), "p1"),
        (ENGINE, CLIENT, "", (replace(P1, phase="Failed"), P2), "p1"),
        (ENGINE, CLIENT, "", (replace(P2, deleted_at=NOON),), None),
        (ENGINE, CLIENT, "", (), None),
        (RESUMED, CLIENT, "", (), "p1"),
        (RESUMED, CLIENT, "", (P1,), None),
        (replace(ENGINE, started_at=CLIENT.created_at), CLIENT, "", (), None),
        (replace(ENGINE, started_at=None), CLIENT, "", (), None),
    ],
)
def test_a_queue_has_preempted_a_launch_if_its_job_has_lost_the_launchs_own_pod(
    engine: Job, client: Job | None, known_pod: str, pods: tuple[Pod, ...], previous_pod: str | None
) -> None:
    found = preempted_by_queue(engine, pods, client, known_pod=known_pod)
    assert (found.reason, found.previous_pod) == ("Preempted", previous_pod) if found else previous_pod is None


@pytest.mark.parametrize(
    ("engine", "pod", "reason", "scope"),
    [
        ({}, LOST_NODE, "Preempted", FailureScope.LAUNCH),
        ({"verdict": VERDICT}, LOST_NODE, "NeverReady", FailureScope.GROUP),
        ({"deleting": True}, LOST_NODE, "EngineLost", FailureScope.LAUNCH),
        ({"failure": JobFailure("DeadlineExceeded", "", NOON)}, LOST_NODE, "DeadlineExceeded", FailureScope.GROUP),
        ({}, {**LOST_NODE, "reason": "Evicted"}, "EngineLost", FailureScope.LAUNCH),
        ({}, {**LOST_NODE, "phase": "Running"}, "Serving", None),
        ({}, {**LOST_NODE, "phase": "Running", "deleted_at": NOON}, "Preempted", FailureScope.LAUNCH),
        ({}, {**LOST_NODE, "phase": "Running", "terminated": ContainerTerminated(1)}, "Preempted", FailureScope.LAUNCH),
        ({}, {"worker": 1, "phase": "Failed"}, "EngineLost", FailureScope.LAUNCH),
        ({}, {"worker": 1, "deleted_at": NOON}, "EngineLost", FailureScope.LAUNCH),
    ],
)
def test_the_loss_of_a_node_is_a_preemption_unless_the_job_has_ended_otherwise(
    engine: dict[str, Any], pod: dict[str, Any], reason: str, scope: FailureScope | None
) -> None:
    run = parse_run(operator_run({"spec.placement": {"gpus": 1, "nodes": 2}}))
    pods = (replace(P1, worker=0), replace(P2, **pod))
    children = Children((replace(ENGINE, **engine), CLIENT), pods, (), ())
    found = judge_launch(children, 0, 0, LaunchContext(run.spec, SETTINGS, NOON + MINUTE))
    assert (found.reason, found.scope) == (reason, scope)


@pytest.mark.parametrize(("known", "launch"), [(True, "Preempted"), (False, "Queued")])
def test_the_pod_in_status_shows_that_a_suspended_job_had_started(known: bool, launch: str) -> None:
    row = GroupStatus(index=0, arm="none", state="Starting", engine_pod="pod-1") if known else None
    run = parse_run(operator_run())
    found = judge_launch(Children((SUSPENDED,), (), (), ()), 0, 0, LaunchContext(run.spec, SETTINGS, NOON, known=row))
    assert (found.stage if launch == "Queued" else found.reason) == launch
