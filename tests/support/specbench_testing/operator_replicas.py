"""Two replicas of the operator, each behind its own proxy, and the faults after which the other one takes over."""

from __future__ import annotations

import base64
import re
import selectors
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import yaml

from specbench_operator.app import LEASE_LOST
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import LEASE, OperatorProcess, OperatorSite, eventually
from specbench_testing.simulated_site import NO_IMAGE, QUICK, SimulatedSite


@dataclass(frozen=True)
class Replica:
    """One replica and its way to the API server."""

    process: OperatorProcess
    proxy: ApiServerProxy

    @property
    def name(self) -> str:
        """Its identity in the Lease."""
        return self.process.pod

    def signal(self, signal_number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        assert self.process.process is not None
        self.process.process.send_signal(signal_number)

    def restart(self) -> None:
        """Start the process again in the same pod, as the kubelet does, and do not wait."""
        self.process.process = None
        self.process.launch()


@dataclass(frozen=True)
class Replicas:
    """Both replicas."""

    site: OperatorSite
    pair: tuple[Replica, Replica]

    def holder(self) -> str:
        """The holder in the Lease; empty if there is none."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.site.namespace}/leases"
        leases = self.site.cluster.call("GET", path)["items"]
        found = [row["spec"].get("holderIdentity") for row in leases if row["metadata"]["name"] == LEASE]
        return str(found[0] or "") if found else ""

    def roles(self) -> tuple[Replica, Replica]:
        """Leader and standby."""
        first, second = self.pair
        leads = eventually(lambda: self.holder() in (first.name, second.name) and self.holder(), "no replica leads")
        return (first, second) if first.name == leads else (second, first)


@dataclass(frozen=True)
class HandOver:
    """What one fault led to. Times are in seconds after the fault."""

    fault: str
    lease_taken_s: float
    first_write_s: float


@dataclass(frozen=True)
class Fault:
    """A fault of the leader: what causes it, and what follows once the other replica leads."""

    name: str
    cause: Callable[[Replica], None]
    end: Callable[[Replica], None]
    delivers_late: bool = False
    """Requests that the leader sent while it led arrive when the fault ends."""


def _kill(leader: Replica) -> None:
    leader.process.end(signal.SIGKILL)


def _no_more(leader: Replica) -> None:
    """Nothing is left to end."""


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("killed", _kill, _no_more),
        Fault("paused", lambda leader: leader.signal(signal.SIGSTOP), lambda leader: leader.signal(signal.SIGCONT)),
        Fault("disconnected", lambda leader: leader.proxy.cut(), lambda leader: leader.proxy.heal()),
        Fault("delayed", lambda leader: leader.proxy.hold(), lambda leader: leader.proxy.heal(), True),
    )
}
"""`disconnected` and `delayed` are partitions; the latter delivers all requests when it ends."""


def hand_over(replicas: Replicas, fault: Fault, during: Callable[[], object]) -> HandOver:
    """Cause a fault of the leader, call `during`, wait until the standby acts, end the fault, and restart the replica.

    Fails if the former leader writes anything after the other replica took the Lease, or if it does not end. What
    arrives late must do no harm, which the caller checks.
    """
    leader, standby = replicas.roles()
    eventually(standby.process.ready, f"{standby.name} does not become ready")
    assert standby.proxy.writes() == [], "a standby wrote"
    fault.cause(leader)
    began = time.monotonic()
    during()
    eventually(lambda: replicas.holder() == standby.name, f"{standby.name} does not take over", 60)
    taken = time.monotonic()
    eventually(lambda: standby.proxy.writes(began), f"{standby.name} writes nothing", 60)
    fault.end(leader)
    if leader.process.process is not None:
        code = leader.process.process.wait(60)
        assert code == LEASE_LOST, f"{leader.name} ended with {code}: {leader.process.log.read_text()[-2000:]}"
    late = leader.proxy.writes(taken)
    assert late == [] or fault.delivers_late, "the former leader wrote after the hand-over"
    leader.proxy.forwarded.clear()  # it starts as a standby
    leader.restart()
    return HandOver(fault.name, taken - began, standby.proxy.writes(began)[0].at - began)


@contextmanager
def two_replicas(site: SimulatedSite, folder: Path) -> Iterator[Replicas]:
    """Start two replicas beside the site's operator, which leads until it is stopped."""
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            own = folder / name
            own.mkdir()
            proxy = stack.enter_context(ApiServerProxy(site.site.cluster))
            process = OperatorProcess(site.site, own, NO_IMAGE, QUICK, pod=name, server=proxy.url)
            stack.callback(_end, process)
            process.launch()
            pair.append(Replica(process, proxy))
        yield Replicas(site.site, (pair[0], pair[1]))
        assert [line for replica in pair for line in replica.process.bugs()] == []


def _end(process: OperatorProcess) -> None:
    if process.process:
        process.end(signal.SIGKILL)


# A proxy between one operator and the API server, which can be partitioned and records the requests that it forwards.
#
# The operator connects by plain HTTP to 127.0.0.1, and the proxy by TLS to the API server.

_REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ForwardedRequest:
    """A request that reached the API server. `at`: when it was forwarded (time.monotonic)."""

    at: float
    method: str
    path: str

    @property
    def writes_product(self) -> bool:
        """Whether it writes something other than the Lease. A question about its own rights is sent by POST."""
        return self.method != "GET" and "/leases" not in self.path and "/selfsubjectaccessreviews" not in self.path


class ApiServerProxy:
    """The proxy, within a `with` block."""

    def __init__(self, cluster: Cluster) -> None:
        given = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        authority = base64.b64decode(given["certificate-authority-data"]).decode()
        url = urlsplit(given["server"])
        self._server = (str(url.hostname), int(url.port or 443))
        self._tls = ssl.create_default_context(cadata=authority)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self.forwarded: list[ForwardedRequest] = []

    @property
    def url(self) -> str:
        """The address for the operator."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def writes(self, since: float = 0.0) -> list[ForwardedRequest]:
        """Writes forwarded since then, except those of the Lease."""
        return [request for request in list(self.forwarded) if request.at >= since and request.writes_product]

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            self._refusing = True
            for client in self._clients:
                _shut_down(client)  # its thread closes it, and the connection to the API server
            self._clients.clear()

    def hold(self) -> None:
        """Forward nothing more, in either direction, and keep all connections and what was sent."""
        with self._lock:
            self._flowing.clear()

    def heal(self) -> None:
        """Accept connections again, and deliver what was held, also from connections that the operator has given up."""
        self._refusing = False
        self._flowing.set()

    def __enter__(self) -> Self:
        self._accepting = _start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._flowing.set()
        _shut_down(self._listener)
        self._accepting.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._refusing:
                    client.close()
                else:
                    self._clients.add(client)
                    _start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        with client:
            self._flowing.wait()
            with (
                suppress(OSError),  # either side may close the connection at any time
                socket.create_connection(self._server) as connected,
                self._tls.wrap_socket(connected, server_hostname=self._server[0]) as server,
            ):
                with suppress(OSError):
                    self._forward(client, server)
                server.shutdown(socket.SHUT_WR)  # ends TLS too: what follows is not decrypted
                while server.recv(_CHUNK):
                    """If it were closed with something unread, the server could lose the last request."""
            with self._lock:
                self._clients.discard(client)

    def _forward(self, client: socket.socket, server: ssl.SSLSocket) -> None:
        """Forward in both directions until either side closes its connection, or until it is cut.

        One thread does both, because the TLS connection must not be used by two threads at once: the first request
        would be lost if it were sent while the server's session tickets are received. While nothing may be forwarded,
        nothing is received either, so the operating system keeps what was sent.
        """
        with selectors.DefaultSelector() as sides:
            sides.register(client, selectors.EVENT_READ)
            sides.register(server, selectors.EVENT_READ)
            while True:
                self._flowing.wait()
                ready = [key.fileobj for key, _ in sides.select()]
                with self._lock:
                    if client not in self._clients:
                        return
                    if not self._flowing.is_set():
                        continue
                    requests = client.recv(_CHUNK) if client in ready else None
                    answers = _receive(server) if server in ready else None
                    self._record(requests or b"")
                if requests:
                    server.sendall(requests)
                if answers:
                    with suppress(OSError):  # further requests may have been sent before it was closed
                        client.sendall(answers)
                if b"" in (requests, answers):
                    return

    def _record(self, requests: bytes) -> None:
        if request := _REQUEST.match(requests):
            method, path = (part.decode() for part in request.groups())
            self.forwarded.append(ForwardedRequest(time.monotonic(), method, path))


def _receive(server: ssl.SSLSocket) -> bytes | None:
    """What the server sent, empty at the end; None if it was part of a record, or TLS's own, such as a session ticket.

    A record is smaller than _CHUNK, so nothing decrypted is left behind, which the selector would not report.
    """
    server.setblocking(False)
    try:
        return server.recv(_CHUNK)
    except ssl.SSLWantReadError:
        return None
    finally:
        server.setblocking(True)


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that uses a socket, and end its connection."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="API server proxy", daemon=True)
    thread.start()
    return thread
