"""Why Kueue does not admit a Job, from its Workload, or from events if Workloads may not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from specbench_operator.cluster.api import EVENT, WORKLOADS, Forbidden, NotFound, path_of
from specbench_operator.cluster.kueue import NO_KUEUE, NO_WORKLOAD, KueueReader
from specbench_operator.errors import Retry
from specbench_operator.state.objects import ChildKey, Job, ObjectRef, QueueWait
from specbench_testing.operator_builders import NOON

JOB = Job(
    ObjectRef("Job", "demo-g0-0", "job-uid"), "run-uid", ChildKey("engine", 0, 0), NOON, suspended=True, queue="bench"
)
PENDING = "couldn't assign flavors to pod set main: insufficient unused quota"
FORBIDDEN = Forbidden("Forbidden", "workloads is forbidden")


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def workload(*conditions: dict[str, str], at: str = "2026-01-02T12:00:00Z", **spec: Any) -> dict[str, Any]:
    meta = {"name": "job-demo-g0-0-1a2b3", "creationTimestamp": at}
    return {"metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


def event(message: str, at: str, **target: str) -> dict[str, Any]:
    return {"message": message, "lastTimestamp": at, "involvedObject": target}


@dataclass
class Shelf:
    """An API server that has these lists, and refuses others."""

    lists: dict[str, list[dict[str, Any]] | Exception]
    asked: list[tuple[str, str]] = field(default_factory=list)

    def list(self, kind: str, namespace: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.asked.append((kind, labels or fields))
        found = self.lists.get(kind, NotFound("Missing", "404"))
        if isinstance(found, Exception):
            raise found
        return found


Ask = Callable[..., QueueWait | None]


def ask(lists: dict[str, list[dict[str, Any]] | Exception], job: Job = JOB) -> QueueWait | None:
    shelf: Any = Shelf(lists)
    return KueueReader(shelf).wait_of("bench", job)


SAID: dict[str, tuple[dict[str, Any], QueueWait]] = {
    "no quota": (
        workload(condition("QuotaReserved", "False", "Pending", PENDING)),
        QueueWait(PENDING),
    ),
    "no queue": (
        workload(condition("QuotaReserved", "False", "Inadmissible", "LocalQueue bench doesn't exist")),
        QueueWait("LocalQueue bench doesn't exist", inadmissible=True),
    ),
    "checks": (
        workload(
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus"),
            condition("Admitted", "False", "NoChecks", "The workload waits for its checks"),
        ),
        QueueWait("The workload waits for its checks"),
    ),
    "checks of which nothing is said": (
        workload(condition("QuotaReserved", "True", "QuotaReserved", "")),
        QueueWait("its quota is reserved; waiting for its admission checks"),
    ),
    "given up": (
        workload(condition("Evicted", "True", "Deactivated", "exceeded the requeue limit"), active=False),
        QueueWait(
            "Kueue has deactivated the Workload job-demo-g0-0-1a2b3: exceeded the requeue limit", inadmissible=True
        ),
    ),
    "switched off": (
        workload(active=False),
        QueueWait(
            "Kueue has deactivated the Workload job-demo-g0-0-1a2b3: its spec.active is false",
            inadmissible=True,
        ),
    ),
    "nothing yet": (workload(active=True), QueueWait("waiting for Kueue to evaluate it")),
}


@pytest.mark.parametrize("case", SAID)
def test_a_workload_says_why_its_job_waits(case: str) -> None:
    given, wanted = SAID[case]
    assert ask({WORKLOADS[0]: [given]}) == wanted


def test_the_workload_is_found_by_the_jobs_uid_and_the_youngest_counts() -> None:
    older = workload(condition("QuotaReserved", "False", "Pending", "old words"), at="2026-01-01T00:00:00Z")
    younger = workload(condition("QuotaReserved", "False", "Pending", PENDING))
    shelf: Any = Shelf({WORKLOADS[0]: [younger, older]})
    assert KueueReader(shelf).wait_of("bench", JOB) == QueueWait(PENDING)
    assert shelf.asked == [(WORKLOADS[0], "kueue.x-k8s.io/job-uid=job-uid")]


def test_an_older_kueue_is_asked_in_its_own_version() -> None:
    assert ask({WORKLOADS[1]: [workload(condition("QuotaReserved", "False", "Pending", PENDING))]}) == QueueWait(
        PENDING
    )
    assert [path_of(kind, "a") for kind in WORKLOADS] == [
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads",
        "/apis/kueue.x-k8s.io/v1beta1/namespaces/a/workloads",
    ]


def test_a_cluster_without_kueue_is_said_to_be_one_and_so_is_one_that_passes_the_namespace_over() -> None:
    assert ask({}) == QueueWait(NO_KUEUE, inadmissible=True)
    assert ask({WORKLOADS[0]: []}) == QueueWait(NO_WORKLOAD)


def test_without_the_right_to_read_workloads_events_tell() -> None:
    events = [
        event("Created Workload", "2026-01-02T12:00:00Z", kind="Job", name="demo-g0-0", uid="job-uid"),
        event(PENDING, "2026-01-02T12:00:01Z", kind="Workload", name="job-demo-g0-0-1a2b3", uid="w"),
        event("of another", "2026-01-02T12:00:02Z", kind="Workload", name="job-demo-g0-0-1-1a2b3", uid="x"),
        event("of a Pod", "2026-01-02T12:00:03Z", kind="Pod", name="job-demo-g0-0-1a2b3", uid="y"),
    ]
    assert ask({WORKLOADS[0]: FORBIDDEN, EVENT: events}) == QueueWait(PENDING)
    assert ask({WORKLOADS[0]: FORBIDDEN, EVENT: []}) is None
    assert ask({WORKLOADS[0]: FORBIDDEN, EVENT: FORBIDDEN}) is None


def test_a_job_that_no_queue_holds_is_not_asked_for() -> None:
    shelf: Any = Shelf({})
    assert KueueReader(shelf).wait_of("bench", Job(JOB.ref, None, JOB.key, NOON, suspended=True)) is None
    assert shelf.asked == []


@pytest.mark.parametrize("kind", [WORKLOADS[0], EVENT])
def test_an_api_server_that_fails_is_no_answer(kind: str) -> None:
    lists: dict[str, list[dict[str, Any]] | Exception] = {WORKLOADS[0]: FORBIDDEN, EVENT: []}
    with pytest.raises(Retry, match="busy"):
        ask({**lists, kind: Retry("ApiBusy", "busy")})
