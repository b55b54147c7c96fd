"""Leader election: never two leaders, whatever the clocks, pauses, lost answers and partitions of the replicas are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3.connection import HTTPConnection

from specbench_operator.cluster import leader_election
from specbench_operator.cluster.kubernetes_api import JOB, RUN, KubernetesApi
from specbench_operator.cluster.leader_election import (
    LEASE_DURATION_S,
    RENEW_DEADLINE_S,
    RETRY_S,
    LeaderElection,
    Leadership,
    LeaseLost,
    NotLeading,
    process_identity,
)
from specbench_operator.errors import OperatorError, Retry
from specbench_operator.telemetry import RunRow, Telemetry
from specbench_testing.fake_api import FakeApi, Raw, api_of, api_server
from specbench_testing.operator_builders import Clock

UNREACHABLE = Retry("ApiUnreachable", "connection refused")


@dataclass
class LeaseServer(FakeApi):
    """An API server with one Lease, and the true time. `lose_answer`: the next write is done but not answered."""

    time: float = 1000.0
    lose_answer: bool = False
    partitioned: set[str] = field(default_factory=set)
    """Replicas whose requests fail."""
    refused: int = 0
    """The number of further requests that fail, of any replica."""

    @property
    def lease(self) -> Raw:
        (found,) = self.objects.values()
        return found


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


@dataclass
class LeaseClient:
    """One replica's access to the server; each request takes `delay_s` before and after the server's work."""

    server: LeaseServer
    name: str
    delay_s: float = 0.0

    def get(self, *target: str | None) -> Raw | None:
        return self._answer(self.server.get, *target)

    def create(self, manifest: Raw) -> Raw | None:
        return self._answer(self.server.create, manifest)

    def merge(self, *patch: Any) -> Raw | None:
        return self._answer(self.server.merge, *patch)

    def _answer(self, request: Callable[..., Raw | None], *arguments: Any) -> Raw | None:
        self.server.time += self.delay_s
        self.server.refused -= 1
        if self.name in self.server.partitioned or self.server.refused >= 0:
            raise UNREACHABLE
        answer = request(*arguments)
        if self.server.lose_answer and self.server.verbs[-1] != "get":
            self.server.lose_answer = False
            raise UNREACHABLE
        self.server.time += self.delay_s
        return answer


def replica(server: LeaseServer, name: str, clock_offset_s: float = 0.0, delay_s: float = 0.0) -> LeaderElection:
    """A replica whose clock differs from the true time."""

    def clock() -> float:
        return server.time + clock_offset_s

    client: Any = LeaseClient(server, name, delay_s)
    return LeaderElection(client, Leadership(clock), ("system", "operator"), name, clock=clock)


def holder(server: LeaseServer) -> str:
    return str(server.lease["spec"]["holderIdentity"])


def elected(server: LeaseServer, *others: str) -> tuple[LeaderElection, ...]:
    """Replicas of which the first, `a`, leads, and which have all seen the lease."""
    replicas = tuple(replica(server, name) for name in ("a", *others))
    for each in replicas:
        each.step()
    assert replicas[0].leadership.holds()
    return replicas


@pytest.fixture
def leader(server: LeaseServer) -> LeaderElection:
    return elected(server)[0]


def test_the_first_replica_creates_the_lease_and_leads(server: LeaseServer) -> None:
    leader, standby = elected(server, "b")
    assert not standby.leadership.holds()
    spec = server.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
    assert leader.leadership.until == server.time + RENEW_DEADLINE_S


def test_a_standby_takes_over_when_it_has_seen_no_renewal_for_the_whole_duration(server: LeaseServer) -> None:
    leader, standby = elected(server, "b")
    server.time += LEASE_DURATION_S - 0.1
    standby.step()
    assert not standby.leadership.holds()
    assert standby.pause_s() == pytest.approx(0.1)
    server.time += 0.1
    standby.step()
    assert (holder(server), standby.leadership.holds(), leader.leadership.holds()) == ("b", True, False)


def test_a_replica_that_starts_waits_for_the_whole_duration_although_the_lease_looks_old(server: LeaseServer) -> None:
    elected(server)
    server.time += 3600
    late = replica(server, "b")
    late.step()
    assert holder(server) == "a"
    assert late.pause_s() == RETRY_S


def test_a_paused_leader_writes_nothing_when_it_continues_and_ends(server: LeaseServer) -> None:
    leader, standby = elected(server, "b")
    server.time += LEASE_DURATION_S
    standby.step()
    with pytest.raises(NotLeading):
        leader.leadership.check()
    with pytest.raises(LeaseLost, match="held by b"):
        leader.step()
    leader.leadership.extend(server.time + 100)
    assert not leader.leadership.holds(), "never again in this process"


def test_a_leader_stops_writing_at_its_deadline_and_continues_when_nobody_has_led_meanwhile(
    server: LeaseServer,
    leader: LeaderElection,
) -> None:
    server.partitioned.add("a")
    server.time += RENEW_DEADLINE_S
    with pytest.raises(OperatorError):
        leader.step()
    assert not leader.leadership.holds()
    server.partitioned.clear()
    server.time += 3600
    leader.step()
    assert leader.leadership.holds()


def test_the_deadline_counts_from_the_beginning_of_the_renewal(server: LeaseServer) -> None:
    leader = replica(server, "a", delay_s=3)
    leader.step()  # one request to read, one to create: three seconds before and after each
    assert leader.leadership.until == 1000.0 + 6 + RENEW_DEADLINE_S


def test_a_renewal_whose_answer_was_lost_is_recognised(server: LeaseServer, leader: LeaderElection) -> None:
    server.lose_answer = True
    with pytest.raises(OperatorError):
        leader.step()
    leader.step()
    assert leader.leadership.until == server.time + RENEW_DEADLINE_S


@pytest.mark.parametrize("deleted", [True, False])
def test_a_leader_whose_lease_was_deleted_or_emptied_ends(
    server: LeaseServer, leader: LeaderElection, deleted: bool
) -> None:
    server.lease["spec"] = {"holderIdentity": ""}
    server.touch(server.lease)
    if deleted:
        server.objects.clear()
    with pytest.raises(LeaseLost):
        leader.step()


def test_a_process_that_restarts_in_the_same_pod_leads_at_once(server: LeaseServer) -> None:
    elected(server)
    successor = replica(server, "a")
    successor.step()
    assert successor.leadership.holds()


def test_processes_without_a_pod_have_different_identities() -> None:
    assert process_identity("pod-1") == "pod-1"
    assert process_identity("") != process_identity("")


def test_a_released_lease_is_taken_at_once(server: LeaseServer) -> None:
    leader, standby = elected(server, "b")
    asyncio.run(leader.release())
    standby.step()
    assert (holder(server), leader.leadership.holds(), standby.leadership.holds()) == ("b", False, True)


def test_a_standby_that_ends_releases_nothing(server: LeaseServer) -> None:
    _, standby = elected(server, "b")
    asyncio.run(standby.release())
    assert holder(server) == "a"


def test_the_lease_is_released_after_the_answers_to_all_writes(server: LeaseServer, leader: LeaderElection) -> None:
    release = threading.Thread(target=leader.release_now)
    with leader.leadership.writing():
        release.start()
        while leader.leadership.holds():
            release.join(0.01)
        assert holder(server) == "a"
    release.join()
    assert holder(server) == ""


def test_the_lease_is_left_to_expire_while_a_write_has_no_answer(server: LeaseServer, leader: LeaderElection) -> None:
    server.time = leader.leadership.until
    with leader.leadership.writing():
        leader.release_now()
    assert holder(server) == "a"


def test_workers_wait_until_this_replica_leads() -> None:
    async def wait_and_lead() -> bool:
        server = LeaseServer()
        leader = replica(server, "a")
        waiting = asyncio.create_task(leader.leadership.wait())
        await asyncio.sleep(0)
        before = waiting.done()
        election = asyncio.create_task(leader.run())
        await waiting
        election.cancel()
        return before

    assert asyncio.run(wait_and_lead()) is False


def test_an_unreachable_server_does_not_end_the_election(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader_election, "RETRY_AFTER_ERROR_S", 0.0)

    async def run_through_an_outage() -> None:
        leader = replica(LeaseServer(refused=3), "a")
        election = asyncio.create_task(leader.run())
        await leader.leadership.wait()
        election.cancel()

    asyncio.run(run_through_an_outage())
    assert caplog.text.count("the lease system/operator cannot be read or written") == 1, "logged once per outage"


NAMES = ("a", "b")
STEP = st.tuples(st.just("step"), st.sampled_from(NAMES))
PASS = st.tuples(st.just("pass"), st.sampled_from(["1", "9.9", "14.5", "15"]))
CHANGE = st.tuples(st.sampled_from(["partition", "heal", "restart", "release", "lose answer"]), st.sampled_from(NAMES))


@settings(max_examples=100)
@given(
    events=st.lists(STEP | PASS | STEP | PASS | CHANGE, min_size=30, max_size=60),
    offsets=st.tuples(*(st.floats(-1e5, 1e5, allow_nan=False) for _ in NAMES)),
    delay_s=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_two_replicas_never_lead_at_the_same_time(
    events: list[tuple[str, str]], offsets: tuple[float, ...], delay_s: float
) -> None:
    """A replica that takes no step is paused. Each restart is a new pod."""
    server = LeaseServer()
    replicas = {name: replica(server, name, offset, delay_s) for name, offset in zip(NAMES, offsets, strict=True)}
    for number, (event, argument) in enumerate(events):
        if event == "step":
            step(server, replicas, argument)
        elif event == "restart":
            replicas[argument] = replica(server, f"{argument}-{number}", delay_s=delay_s)
        elif event == "release":
            release(replicas[argument])
        elif event == "partition":
            server.partitioned.add(replicas[argument].identity)
        elif event == "heal":
            server.partitioned.discard(replicas[argument].identity)
        elif event == "lose answer":
            server.lose_answer = True
        else:
            server.time += float(argument)
        leaders = [each.identity for each in replicas.values() if each.leadership.holds()]
        assert len(leaders) <= 1
        if leaders:
            assert holder(server) == leaders[0]


def release(leader: LeaderElection) -> None:
    with suppress(OperatorError):  # of a partitioned replica
        leader.release_now()


def step(server: LeaseServer, replicas: dict[str, LeaderElection], name: str) -> None:
    """One step of a replica, which starts again in a new pod if it lost the lease."""
    try:
        replicas[name].step()
    except LeaseLost:
        replicas[name] = replica(server, f"{name}-after-{len(server.requests)}-{server.time}")
    except OperatorError:
        pass


# Every write checks the leadership right before it is sent, and reads do not.


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


@pytest.mark.parametrize("read", READS)
def test_a_standby_reads(requests: Requests, read: str) -> None:
    READS[read](api_of(requests.url, Leadership()))
    assert requests.methods, read


@pytest.mark.parametrize("write", WRITES)
def test_a_leader_writes_until_its_time_is_over(requests: Requests, write: str) -> None:
    clock = Clock()
    leadership = Leadership(clock)
    api = api_of(requests.url, leadership)
    with pytest.raises(NotLeading):
        WRITES[write](api)
    assert requests.methods == [], "a standby sends no write"
    leadership.extend(10)
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
