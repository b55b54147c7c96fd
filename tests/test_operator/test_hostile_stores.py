"""Reading from hostile stores over real sockets: every look ends in time, within little memory, with a reason."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import specbench_operator.cluster.results
from specbench_api.fence.model import Fence, StoreRule
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.results import ResultsReader
from specbench_operator.cluster.store_session import LARGE_AT_A_TIME, Look, StoreError
from specbench_operator.state.run import StoredResults, StoreFailure
from specbench_testing.hostile_stores import BEHAVIOURS, HostileStore, head, hostile_store, page
from specbench_testing.operator_builders import operator_run
from specbench_testing.ports import free_port

DEADLINE_S = 1.0
UNREACHED_S = 120.0
"""The deadline of a look at a store that is not slow: far above what it takes, also on a loaded machine."""


def run_at(endpoint: str, **s3: Any) -> SpecBenchRun:
    """A run with its results at this endpoint."""
    return parse_run(operator_run({"spec.results": {"s3": {"bucket": "results", "endpoint": endpoint, **s3}}}))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


def reader(fence: Fence | None = None, deadline_s: float = DEADLINE_S) -> ResultsReader:
    api: Any = None  # no Secret is read
    return ResultsReader(api, timeout_s=5, deadline_s=deadline_s, fence=fence)


def fence_of(endpoint: str, *, operator_identity: bool = True) -> Fence:
    """A fence that allows one endpoint, or several by a wildcard."""
    return Fence(stores=(StoreRule(endpoint=endpoint, bucket="*", operator_identity=operator_identity),))


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_a_look_at_a_hostile_store_ends_with_a_reason(name: str) -> None:
    """A look that reaches its deadline has the reason S3Slow."""
    with hostile_store(name) as store:
        deadline_s = DEADLINE_S if BEHAVIOURS[name][1] == "S3Slow" else UNREACHED_S
        found = reader(deadline_s=deadline_s).read(run_at(store.url))
    assert store.requests
    if not BEHAVIOURS[name][1]:
        assert isinstance(found, StoredResults | StoreFailure)
        return
    assert isinstance(found, StoreFailure), found
    assert found.reason == BEHAVIOURS[name][1], found
    assert "SECRET" not in found.message, "an answer of another service must not get into a status"


def test_the_next_look_does_not_continue_with_an_unfinished_answer() -> None:
    answers = iter([head(200, "Content-Length: 100000000").replace(b"close", b"keep-alive") + b"<" * 5_000_000])

    def behave(target: str, send: Any, _stopped: Any) -> None:
        send(next(answers, page("")))

    store, results = HostileStore(behave), reader(deadline_s=UNREACHED_S)
    try:
        first = results.read(run_at(store.url))
        assert isinstance(first, StoreFailure)
        assert results.read(run_at(store.url)) == StoredResults()
    finally:
        store.stop()


@pytest.mark.parametrize(
    ("endpoint", "literally", "words"),
    [
        ("http://127.0.0.1:{port}", False, "loopback"),
        ("http://localhost:{port}", False, "loopback"),
        ("http://127.1:{port}", False, "spelling"),
        ("http://2130706433:{port}", False, "spelling"),
        ("http://169.254.169.254", True, "metadata"),
        ("http://[::ffff:169.254.169.254]", True, "metadata"),
    ],
)
def test_a_refused_address_is_never_connected_to(endpoint: str, literally: bool, words: str) -> None:
    with hostile_store("repeats its token") as store:
        url = endpoint.format(port=store.url.rpartition(":")[2])
        found = reader(fence_of(url if literally else "*")).read(run_at(url))
    assert isinstance(found, StoreFailure)
    assert (found.reason, words in found.message) == ("EndpointRefused", True), found
    assert store.requests == []


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: a second lookup would return another address."""
    with hostile_store("repeats its token") as store:
        port = int(store.url.rpartition(":")[2])
        answers = iter(["192.0.2.1", "127.0.0.1", "127.0.0.1"])
        asked: list[str] = []

        def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
            asked.append(host)
            return [(2, 1, 6, "", (next(answers), port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        found = reader(fence_of("*")).read(run_at(f"http://store.test:{port}"))
    assert isinstance(found, StoreFailure)
    assert found.reason in ("S3Slow", "S3Away", "EndpointRefused"), found
    assert asked
    assert store.requests == []


@pytest.mark.parametrize(
    ("address", "literally"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("169.254.1.1", False),
        ("169.254.169.254", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("fd20:ce::254", True),
    ],
)
def test_a_name_with_a_refused_address_is_never_connected_to(
    monkeypatch: pytest.MonkeyPatch, address: str, literally: bool
) -> None:
    """Also if the name has an allowed address besides it."""
    connected: list[Any] = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    rows = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", 80)), (family, 1, 6, "", (address, 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    monkeypatch.setattr(socket.socket, "connect", lambda _, where: connected.append(where))
    url = "http://store.test"
    found = reader(fence_of(url if literally else "*")).read(run_at(url))
    assert isinstance(found, StoreFailure)
    assert (found.reason, address in found.message, connected) == ("EndpointRefused", True, [])


@pytest.mark.parametrize("listed", [False, True], ids=["no fence", "listed literally"])
def test_a_local_store_is_read_without_a_fence_or_if_it_is_listed(listed: bool) -> None:
    with hostile_store("repeats its token") as store:
        reader(fence_of(store.url) if listed else None, UNREACHED_S).read(run_at(store.url))
    assert store.requests


@pytest.mark.parametrize(
    ("fence", "reason"),
    [(Fence(), "StoreNotAllowed"), (fence_of("*", operator_identity=False), "CredentialsMissing")],
)
def test_a_store_that_the_admin_does_not_allow_gets_no_request(fence: Fence, reason: str) -> None:
    with hostile_store("repeats its token") as store:
        found = reader(fence).read(run_at(store.url))
    assert isinstance(found, StoreFailure)
    assert (found.reason, found.refused) == (reason, True)
    assert "fence.stores" in found.message
    assert store.requests == []


MEMORY_MAX_MIB = 256
LARGE = (
    "giant listing",
    "giant summary",
    "gzip bomb",
    "millions of values",
    "XML entities",
    "long chunk size",
    "pages of long keys",
    "page of many elements",
    "large error",
)
_MEASURED = """
import resource, sys
sys.path[:0] = {path!r}
from test_hostile_stores import reader, run_at
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from specbench_testing.ports import free_port
reader().read(run_at("http://127.0.0.1:%d" % free_port()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(reader(deadline_s=60).read(run_at({url!r})).reason)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.process
@pytest.mark.parametrize("name", LARGE)
def test_a_look_takes_little_memory(name: str) -> None:
    with hostile_store(name) as store:
        program = _MEASURED.format(path=[*sys.path, str(__file__).rpartition("/")[0]], url=store.url)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    reason, taken = done.stdout.split()
    assert reason == BEHAVIOURS[name][1]
    assert int(taken) < MEMORY_MAX_MIB, f"{taken} MiB"


def test_a_large_document_waits_until_another_is_read() -> None:
    """A namespace whose looks always hold large documents must not refuse those of the others."""
    held = [Look(UNREACHED_S) for _ in range(LARGE_AT_A_TIME)]
    for look in held:
        look.hold_large()
    with ThreadPoolExecutor(1) as pool:
        waiting = Look(UNREACHED_S)
        done = pool.submit(waiting.hold_large)
        assert not done.done()
        held.pop().close()
        done.result(UNREACHED_S)
    with pytest.raises(StoreError) as caught:
        Look(0.01).hold_large()
    assert (caught.value.failure.reason, caught.value.failure.refused) == ("S3Slow", False)
    for look in (*held, waiting):
        look.close()


def test_opening_a_bucket_delays_no_other_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a cloud identity may take seconds."""
    opening, found = threading.Event(), threading.Event()
    open_bucket = specbench_operator.cluster.results._open_bucket

    def slowly(s3: Any, *rest: Any) -> Any:
        if s3.bucket == "slow":
            opening.set()
            assert found.wait(UNREACHED_S)
        return open_bucket(s3, *rest)

    monkeypatch.setattr("specbench_operator.cluster.results._open_bucket", slowly)
    with hostile_store("nothing stored") as store, ThreadPoolExecutor(2) as pool:
        results = reader(deadline_s=UNREACHED_S)
        slow = pool.submit(results.read, run_at(store.url, bucket="slow"))
        assert opening.wait(UNREACHED_S)
        try:
            other = pool.submit(results.read, run_at(store.url)).result(UNREACHED_S / 3)
        finally:
            found.set()
        assert (other, slow.result(UNREACHED_S)) == (StoredResults(), StoredResults())


def test_a_store_with_tls_is_read_until_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt"))
    names = ("-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-nodes", "-days", "2")
    call = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    subprocess.run([*call, *files, *names], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with hostile_store("drips a body", context) as store:
        untrusted = reader().read(run_at(store.url))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "tls.crt"))
        dripping = reader().read(run_at(store.url))
    with hostile_store("nothing stored", context) as store:
        honest = reader(deadline_s=UNREACHED_S).read(run_at(store.url))
    assert isinstance(untrusted, StoreFailure)
    assert isinstance(dripping, StoreFailure)
    assert (untrusted.reason, dripping.reason, honest) == ("S3Away", "S3Slow", StoredResults())


def test_an_unreachable_store_names_the_cause_without_the_servers_words() -> None:
    found = reader(deadline_s=UNREACHED_S).read(run_at(f"http://127.0.0.1:{free_port()}"))
    assert isinstance(found, StoreFailure)
    assert (found.reason, "Connection refused" in found.message) == ("S3Away", True), found
