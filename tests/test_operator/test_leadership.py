"""Every write checks the leadership right before it is sent, and reads do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from urllib3.connection import HTTPConnection

from specbench_operator.cluster.api import JOB, RUN, KubernetesApi
from specbench_operator.cluster.leadership import Leadership, NotLeading
from specbench_operator.telemetry import RunRow, Telemetry
from specbench_testing.fake_api_server import api_of, api_server

NAMED = {"kind": JOB, "metadata": {"name": "j", "namespace": "n"}}
WRITES: dict[str, Callable[[KubernetesApi], object]] = {
    "create": lambda api: api.create(NAMED),
    "apply": lambda api: api.apply(NAMED),
    "status": lambda api: api.apply(NAMED, "status"),
    "merge": lambda api: api.merge(JOB, "n", "j", {}),
    "delete": lambda api: api.delete(JOB, "n", "j", "u"),
}
READS: dict[str, Callable[[KubernetesApi], object]] = {
    "get": lambda api: api.get(RUN, "n", "r"),
    "list": lambda api: api.list(RUN, "n"),
    "each": lambda api: list(api.each(RUN, "n")),
    "access": lambda api: api.may_watch(RUN, "n"),
}


@dataclass
class Requests:
    """The methods of the requests that a server got. `delay` is called before each answer."""

    url: str = ""
    methods: list[str] = field(default_factory=list)
    delay: Callable[[], None] = lambda: None

    def answer(self, method: str, _path: str, _query: object) -> tuple[int, bytes]:
        self.methods.append(method)
        self.delay()
        return 200, b'{"kind": "Status", "items": [], "metadata": {}, "status": {"allowed": true}}'


@pytest.fixture
def requests() -> Iterator[Requests]:
    found = Requests()
    with api_server(found.answer) as found.url:
        yield found


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("write", WRITES)
def test_a_standby_sends_no_write(requests: Requests, write: str) -> None:
    api = api_of(requests.url, Leadership())
    with pytest.raises(NotLeading):
        WRITES[write](api)
    assert requests.methods == []


@pytest.mark.parametrize("read", READS)
def test_a_standby_reads(requests: Requests, read: str) -> None:
    READS[read](api_of(requests.url, Leadership()))
    assert requests.methods, read


@pytest.mark.parametrize("write", WRITES)
def test_a_leader_writes_until_its_time_is_over(requests: Requests, write: str) -> None:
    clock = Clock()
    leadership = Leadership(clock)
    leadership.extend(10)
    api = api_of(requests.url, leadership)
    clock.now = 9.9
    WRITES[write](api)
    assert len(requests.methods) == 1
    clock.now = 10
    with pytest.raises(NotLeading):
        WRITES[write](api)
    assert len(requests.methods) == 1, "also on a connection that is open"


@pytest.mark.parametrize("write", WRITES)
def test_the_time_to_connect_counts(requests: Requests, write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    connect = HTTPConnection.connect

    def connect_slowly(connection: HTTPConnection) -> None:
        connect(connection)
        clock.now += 11

    monkeypatch.setattr(HTTPConnection, "connect", connect_slowly)
    leadership = Leadership(clock)
    leadership.extend(10)
    with pytest.raises(NotLeading):
        WRITES[write](api_of(requests.url, leadership))
    assert requests.methods == []


def test_a_write_is_not_sent_a_second_time_after_the_time_is_over(requests: Requests) -> None:
    """urllib3 repeats a deletion whose connection broke."""
    clock = Clock()
    leadership = Leadership(clock)
    leadership.extend(10)

    def break_connection() -> None:
        clock.now += 11
        raise ConnectionAbortedError

    requests.delay = break_connection
    with pytest.raises(NotLeading):
        api_of(requests.url, leadership).delete(JOB, "n", "j", "u")
    assert requests.methods == ["DELETE"]


def test_a_write_is_in_progress_until_its_answer(requests: Requests) -> None:
    leadership = Leadership(Clock())
    leadership.extend(10)
    answered: list[bool] = []
    requests.delay = lambda: answered.append(leadership.await_writes(0))
    api = api_of(requests.url, leadership)
    api.create(NAMED)
    api.get(JOB, "n", "j")
    assert answered == [False, True], "a read is not a write"
    assert leadership.await_writes(0)


def metrics(telemetry: Telemetry) -> dict[str, float]:
    """Values of the metrics without labels, and of those of running runs."""
    samples = [sample for family in telemetry.registry.collect() for sample in family.samples]
    return {sample.name: sample.value for sample in samples if sample.labels in ({}, {"phase": "Running"})}


def test_only_the_leader_reports_runs_so_that_a_sum_over_replicas_is_right() -> None:
    leads, running = False, RunRow("n", "r", "Running", "2026-01-01T00:00:00Z")
    telemetry = Telemetry()
    telemetry.follow_leadership(lambda: leads)
    telemetry.counted_runs([running], lambda _namespace, _name: None)
    telemetry.counted_campaigns([])
    standby = metrics(telemetry)
    leads = True
    telemetry.counted_runs([running], lambda _namespace, _name: None)
    assert (standby["specbench_leader"], "specbench_runs" in standby) == (0, False)
    assert (metrics(telemetry)["specbench_leader"], metrics(telemetry)["specbench_runs"]) == (1, 1)
