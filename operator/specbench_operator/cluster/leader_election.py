"""Leader election among the operator's replicas by a Lease (coordination.k8s.io/v1).

It follows client-go's leaderelection. The leader renews the Lease every RETRY_S. Another replica takes over when it has
seen no change of the Lease for LEASE_DURATION_S by its own clock; the timestamps in the Lease are for people, so the
clocks of the nodes may differ. The leader writes only within RENEW_DEADLINE_S after it *began* its last successful
renewal. That ends LEASE_DURATION_S - RENEW_DEADLINE_S before another replica can take over.

Each write of the Lease carries the resourceVersion of the Lease that it replaces. A late renewal that succeeds
therefore proves that no other replica has led meanwhile, and this replica continues. One that finds another holder
raises LeaseLost: the process ends, because what it remembers is outdated.

`kubernetes.leaderelection` and `kubernetes.aio.leaderelection` of client 37 are not used, because they

- send requests without a timeout: a partitioned leader waits in its renewal and never notices that its lease is over;
- have no deadline that a write can check: a paused leader works on until its renewals have failed for ten seconds;
- measure with the wall clock, so a correction of the time lets a standby take over from a healthy leader;
- handle only errors with an HTTP status: a refused connection ends the election while the work continues;
- cannot release the lease, so each rollout would wait for it to expire.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from specbench_operator.errors import Changed, OperatorError, Retry

LEASE_DURATION_S = 15
"""A replica takes over if it has seen no renewal for this long, in seconds. The defaults of Kubernetes' components."""
RENEW_DEADLINE_S = 10
"""The leader stops writing this long after it began its last successful renewal, in seconds."""
RETRY_S = 2.0
"""Time between two renewals, or between two looks of a standby, in seconds."""
RETRY_AFTER_ERROR_S = 1.0
REQUEST_TIMEOUT_S = 3.0
"""Timeout of each request, in seconds: two renewals in a row can time out before the deadline."""
LEASE = "Lease"
Raw = dict[str, Any]
_API_VERSION = "coordination.k8s.io/v1"
_log = logging.getLogger(__name__)


# The API client checks it for each write after the connection is open, right before the request is sent. A replica that
# was paused or partitioned therefore writes nothing once its time is over, whatever its threads were about to do.
# `docs/concepts/high-availability.md` explains what remains between the check and the arrival of a request.


class NotLeading(Retry):
    """This replica does not hold the lease, so the write was not sent."""


def elapsed_clock() -> float:
    """Seconds since the node started, including the time during which the node or this process was suspended."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # only Linux has CLOCK_BOOTTIME


class Leadership:
    """Until when this replica may write. Safe for use from several threads, except `wait` and `wake`."""

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        self._until = -math.inf
        self._ended = False
        self._writes = 0
        self._changed = threading.Condition()
        self._extended = asyncio.Event()

    @property
    def until(self) -> float:
        """The local time at which this replica stops writing, unless it renews the lease before."""
        return self._until

    def holds(self) -> bool:
        """Whether this replica leads."""
        return self._clock() < self._until

    def extend(self, until: float) -> None:
        """Allow writes until this local time. Ignored after `end`."""
        with self._changed:
            if not self._ended:
                self._until = until

    def end(self) -> None:
        """Refuse all further writes, for good."""
        with self._changed:
            self._ended = True
            self._until = -math.inf

    def await_writes(self, until: float) -> bool:
        """Wait for the answers to all writes in progress, at most until this local time; returns whether all came."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writes, max(until - self._clock(), 0.0))

    async def wait(self) -> None:
        """Wait until this replica leads. `wake` ends the wait, from the same event loop."""
        while not self.holds():
            self._extended.clear()
            await self._extended.wait()

    def wake(self) -> None:
        """Let what waits check again."""
        self._extended.set()

    def check(self) -> None:
        """Raise NotLeading unless this replica leads."""
        if not self.holds():
            raise NotLeading("NotLeading", "this replica does not hold the lease, so it writes nothing")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count a write as in progress, so that the lease is not released before its answer."""
        with self._changed:
            self._writes += 1
        try:
            yield
        finally:
            with self._changed:
                self._writes -= 1
                self._changed.notify_all()


class LeaseLost(OperatorError):
    """Another replica leads, or the Lease was deleted. The process must end."""

    kind = "LeaseLost"


class LeaseApi(Protocol):
    """What leader election needs of the API server."""

    def get(self, kind: str, namespace: str | None, name: str) -> Raw | None:
        """Read one object; None if it does not exist."""
        ...

    def create(self, manifest: Raw) -> Raw:
        """Create an object. Raises Changed if the name is taken."""
        ...

    def merge(self, kind: str, namespace: str, name: str, patch: Raw) -> Raw | None:
        """Merge-patch an object; None if it does not exist. Raises Changed for another resourceVersion."""
        ...


def process_identity(pod_name: str) -> str:
    """The holder's name in the Lease.

    A process that restarts in the same pod leads again at once, because its predecessor has ended.
    """
    return pod_name or f"{socket.gethostname()}-{uuid.uuid4()}"


class LeaderElection:
    """One replica's part in the election. `lease`: namespace and name of the Lease.

    `api` must have its own connections, short timeouts and no check.
    """

    def __init__(
        self,
        api: LeaseApi,
        leadership: Leadership,
        lease: tuple[str, str],
        identity: str,
        *,
        clock: Callable[[], float] = elapsed_clock,
    ) -> None:
        self.leadership = leadership
        self.identity = identity
        self._api = api
        self._namespace, self._name = lease
        self._clock = clock
        self._lease: Raw | None = None
        """As last written or read by this replica."""
        self._changed_at = 0.0
        """The local time at which this replica first saw the Lease like this."""
        self._elected = False
        # Threads that wait for the API server must not delay renewals.
        self._thread = ThreadPoolExecutor(1, "leader election")

    async def run(self) -> None:
        """Acquire the lease, and renew it forever. Raises LeaseLost."""
        loop = asyncio.get_running_loop()
        failing = False
        while True:
            try:
                await loop.run_in_executor(self._thread, self.step)
            except LeaseLost:
                raise
            except OperatorError as error:
                if not failing:
                    _log.error("the lease %s/%s cannot be read or written: %s", self._namespace, self._name, error)
                failing = True
            else:
                failing = False
                self.leadership.wake()
            await asyncio.sleep(RETRY_AFTER_ERROR_S if failing else self.pause_s())

    def step(self) -> None:
        """Renew the lease, or acquire it if it is free. Raises LeaseLost, or OperatorError if a request fails."""
        if self._elected:
            self._renew()
        else:
            self._acquire()

    def pause_s(self) -> float:
        """How long to wait before the next step, in seconds. A standby takes over as soon as the lease expires."""
        left_s = RETRY_S if self._elected or self._lease is None else self._expires_at() - self._clock()
        return min(max(left_s, 0.0), RETRY_S)

    async def release(self) -> None:
        """Refuse further writes, wait for those in progress, and give up the lease: another replica leads at once.

        If a write is not answered in time, the lease is left to expire.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.release_now)
        except OperatorError as error:
            _log.warning("the lease %s/%s was not released and will expire: %s", self._namespace, self._name, error)

    def release_now(self) -> None:
        """The same, waiting in this thread. Raises OperatorError if the request fails."""
        until = self.leadership.until
        self.leadership.end()
        if self._elected and self._lease is not None and self.leadership.await_writes(until):
            self._elected = False
            self._replace(self._lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _timestamp()})

    def _acquire(self) -> None:
        lease = self._api.get(LEASE, self._namespace, self._name)
        if lease is None:
            self._try_to_take(None)
            return
        if self._lease is None or _version(lease) != _version(self._lease):
            self._lease, self._changed_at = lease, self._clock()
        holder = _spec(lease).get("holderIdentity")
        if not holder or holder == self.identity or self._clock() >= self._expires_at():
            self._try_to_take(lease)

    def _try_to_take(self, lease: Raw | None) -> None:
        try:
            self._write(lease)
        except Changed:
            _log.info("another replica was faster to take the lease %s/%s", self._namespace, self._name)

    def _renew(self) -> None:
        assert self._lease is not None
        try:
            self._write(self._lease)
        except Changed:
            lease = self._api.get(LEASE, self._namespace, self._name)
            holder = _spec(lease or {}).get("holderIdentity")
            if lease is None or holder != self.identity:
                self._lose(f"the lease {self._namespace}/{self._name} is held by {holder or 'nobody'}")
            # This replica's own write, whose answer was lost. The resourceVersions show that nobody has led meanwhile.
            self._lease = lease
            self._write(lease)

    def _write(self, previous: Raw | None) -> None:
        """Write the Lease as its holder. Raises Changed if somebody else has written it."""
        began, stamp = self._clock(), _timestamp()
        spec = {"holderIdentity": self.identity, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": stamp}
        if previous is None:
            meta = {"name": self._name, "namespace": self._namespace}
            spec |= {"acquireTime": stamp, "leaseTransitions": 0}
            written: Raw | None = self._api.create(
                {"apiVersion": _API_VERSION, "kind": LEASE, "metadata": meta, "spec": spec}
            )
        else:
            if _spec(previous).get("holderIdentity") != self.identity:
                transitions = int(_spec(previous).get("leaseTransitions") or 0) + 1
                spec |= {"acquireTime": stamp, "leaseTransitions": transitions}
            written = self._replace(previous, spec)
        if written is None:
            if self._elected:
                self._lose(f"the lease {self._namespace}/{self._name} was deleted")
            return
        if not self._elected:
            _log.info("%s leads: it holds the lease %s/%s", self.identity, self._namespace, self._name)
        self._lease, self._changed_at, self._elected = written, began, True
        self.leadership.extend(began + RENEW_DEADLINE_S)

    def _replace(self, previous: Raw, spec: dict[str, Any]) -> Raw | None:
        patch = {"metadata": {"resourceVersion": _version(previous)}, "spec": spec}
        return self._api.merge(LEASE, self._namespace, self._name, patch)

    def _lose(self, why: str) -> NoReturn:
        self.leadership.end()
        self._elected = False
        raise LeaseLost("LeaseLost", f"{why}: this replica ends, and starts again as a standby")

    def _expires_at(self) -> float:
        given = _spec(self._lease or {}).get("leaseDurationSeconds") or 0
        return self._changed_at + max(given, LEASE_DURATION_S)


def _spec(lease: Raw) -> dict[str, Any]:
    return lease.get("spec") or {}


def _version(lease: Raw) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
