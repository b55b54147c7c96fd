"""A client Job with several pods (load.clients): what the operator reads from them together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.termination import CLIENT_LOST, Exit, Termination
from specbench_api.plan.names import LABEL_ROLE, ROLE_CLIENT
from specbench_operator.cluster.parsing import kept_fields, parse_job, parse_pod
from specbench_operator.run.launches.client import start_delay, termination_of
from specbench_operator.state.objects import ChildKey, ContainerTerminated, Job, ObjectRef, Pod
from specbench_testing.operator_builders import NOON, SETTINGS

KEY = ChildKey(ROLE_CLIENT, 0, 0)
JOB = Job(ObjectRef("Job", "run-g0-0-client", "job-uid"), "run-uid", KEY, NOON, pods_wanted=3)


def pod(client: int, age_s: float = 0, phase: str = "Running", **fields: Any) -> Pod:
    name = f"run-g0-0-client-{client}-{age_s:g}"
    ref, created = ObjectRef("Pod", name, f"uid-{name}"), NOON - timedelta(seconds=age_s)
    return Pod(ref, "run-uid", KEY, JOB.ref.name, JOB.ref.uid, phase, created, index=client, **fields)


def ended(client: int, code: int, reason: str, age_s: float = 0, **fields: Any) -> Pod:
    message = Termination(code=code, reason=reason, message=f"of client {client}").to_message()
    return pod(client, age_s, "Failed", terminated=ContainerTerminated(code, "Error", message), **fields)


LOST = (int(Exit.BUG), CLIENT_LOST)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((ended(0, *LOST), ended(1, Exit.ENGINE_FAILED, "EngineLost", 5), ended(2, *LOST)), "EngineLost"),
        ((ended(0, *LOST), ended(1, Exit.INTERRUPTED, "Interrupted")), "Interrupted"),
        ((ended(0, *LOST), ended(1, 0, "Measured")), CLIENT_LOST),
        ((ended(0, *LOST), pod(1, terminated=ContainerTerminated(137, "OOMKilled"))), "ClientFailed"),
        ((ended(0, *LOST), ended(1, Exit.BAD_INPUT, "BadInput", disrupted="evicted")), CLIENT_LOST),
        ((ended(0, *LOST, 0), ended(0, Exit.RESULTS_NOT_STORED, "Away", 60), ended(1, *LOST, 0)), CLIENT_LOST),
        ((pod(0), pod(1)), None),
    ],
    ids=["its-cause", "interrupted", "one-succeeded", "killed", "disrupted", "an-earlier-try", "running"],
)
def test_job_fails_with_the_reason_of_the_client_that_failed_first(pods: tuple[Pod, ...], expected: str | None) -> None:
    for given in (pods, pods[::-1]):
        found = termination_of(given, SETTINGS)
        assert (found.reason if found else None) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((pod(0), pod(1), pod(2)), None),
        ((pod(0), pod(1)), "2 of its 3 pods are created"),
        ((pod(0), pod(1), pod(2, phase="Pending", unschedulable="0/3 nodes")), "0/3 nodes"),
        ((pod(0), pod(1), pod(2, 60, "Failed"), pod(2, phase="Pending")), "its pod is starting"),
        ((pod(0), pod(1, phase="Succeeded"), pod(2, 60, "Pending"), pod(2)), None),
        ((), "its pod is not created yet"),
    ],
)
def test_load_waits_for_the_pods_of_all_clients(pods: tuple[Pod, ...], expected: str | None) -> None:
    assert start_delay(JOB, pods) == expected


def meta(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "uid": "u", "creationTimestamp": "2026-11-23T12:00:00Z", "labels": {**labels}}


def test_number_of_a_client_is_its_completion_index() -> None:
    labels = {LABEL_ROLE: ROLE_CLIENT, "batch.kubernetes.io/job-completion-index": "2"}
    raw = {"metadata": meta("c-2-abcde", labels), "spec": {"containers": [{"name": "client"}]}, "status": {}}
    assert parse_pod(kept_fields("Pod", raw)).index == 2
    del raw["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
    assert parse_pod(kept_fields("Pod", raw)).index == 0


def test_number_of_pods_is_that_of_the_completions() -> None:
    raw = {"metadata": meta("c", {}), "spec": {"completions": 3, "parallelism": 3, "suspend": False}}
    assert parse_job(kept_fields("Job", raw)).pods_wanted == 3
    assert parse_job(kept_fields("Job", {**raw, "spec": {}})).pods_wanted == 1
