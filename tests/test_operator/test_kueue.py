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
class FakeLists:
    """A fake API server with these lists; any other list is refused."""

    lists: dict[str, list[dict[str, Any]] | Exception]
    requests: list[tuple[str, str]] = field(default_factory=list)

    def list(self, kind: str, namespace: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.requests.append((kind, labels or fields))
        found = self.lists.get(kind, NotFound("Missing", "404"))
        if isinstance(found, Exception):
            raise found
        return found


Ask = Callable[..., QueueWait | None]


def wait_of(lists: dict[str, list[dict[str, Any]] | Exception], job: Job = JOB) -> QueueWait | None:
    lists_api: Any = FakeLists(lists)
    return KueueReader(lists_api).wait_of("bench", job)


WORKLOAD_WAITS: dict[str, tuple[dict[str, Any], QueueWait]] = {
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
    "checks without a message": (
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


@pytest.mark.parametrize("case", WORKLOAD_WAITS)
def test_the_workload_explains_why_its_job_waits(case: str) -> None:
    given, expected = WORKLOAD_WAITS[case]
    assert wait_of({WORKLOADS[0]: [given]}) == expected


def test_the_youngest_workload_with_the_jobs_uid_counts() -> None:
    older = workload(condition("QuotaReserved", "False", "Pending", "old words"), at="2026-01-01T00:00:00Z")
    younger = workload(condition("QuotaReserved", "False", "Pending", PENDING))
    lists_api: Any = FakeLists({WORKLOADS[0]: [younger, older]})
    assert KueueReader(lists_api).wait_of("bench", JOB) == QueueWait(PENDING)
    assert lists_api.requests == [(WORKLOADS[0], "kueue.x-k8s.io/job-uid=job-uid")]


def test_falls_back_to_an_older_kueue_api_version() -> None:
    assert wait_of({WORKLOADS[1]: [workload(condition("QuotaReserved", "False", "Pending", PENDING))]}) == QueueWait(
        PENDING
    )
    assert [path_of(kind, "a") for kind in WORKLOADS] == [
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads",
        "/apis/kueue.x-k8s.io/v1beta1/namespaces/a/workloads",
    ]


def test_a_missing_kueue_or_unmanaged_namespace_is_reported() -> None:
    assert wait_of({}) == QueueWait(NO_KUEUE, inadmissible=True)
    assert wait_of({WORKLOADS[0]: []}) == QueueWait(NO_WORKLOAD)


def test_without_permission_to_read_workloads_events_are_used() -> None:
    events = [
        event("Created Workload", "2026-01-02T12:00:00Z", kind="Job", name="demo-g0-0", uid="job-uid"),
        event(PENDING, "2026-01-02T12:00:01Z", kind="Workload", name="job-demo-g0-0-1a2b3", uid="w"),
        event("of another", "2026-01-02T12:00:02Z", kind="Workload", name="job-demo-g0-0-1-1a2b3", uid="x"),
        event("of a Pod", "2026-01-02T12:00:03Z", kind="Pod", name="job-demo-g0-0-1a2b3", uid="y"),
    ]
    assert wait_of({WORKLOADS[0]: FORBIDDEN, EVENT: events}) == QueueWait(PENDING)
    assert wait_of({WORKLOADS[0]: FORBIDDEN, EVENT: []}) is None
    assert wait_of({WORKLOADS[0]: FORBIDDEN, EVENT: FORBIDDEN}) is None


def test_a_job_without_a_queue_is_not_looked_up() -> None:
    lists_api: Any = FakeLists({})
    assert KueueReader(lists_api).wait_of("bench", Job(JOB.ref, None, JOB.key, NOON, suspended=True)) is None
    assert lists_api.requests == []


@pytest.mark.parametrize("kind", [WORKLOADS[0], EVENT])
def test_an_api_server_error_is_raised(kind: str) -> None:
    lists: dict[str, list[dict[str, Any]] | Exception] = {WORKLOADS[0]: FORBIDDEN, EVENT: []}
    with pytest.raises(Retry, match="busy"):
        wait_of({**lists, kind: Retry("ApiBusy", "busy")})
