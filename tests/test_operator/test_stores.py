"""Reading from hostile and from honest stores over real sockets: in time, within little memory, with a reason."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import specbench_operator.cluster.results
from specbench_api.fence.model import Fence, StoreRule
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.results import ResultsReader
from specbench_operator.state.run import StoredResults, StoreFailure
from specbench_testing.hostile_stores import BEHAVIOURS, HostileStore, head, hostile_store, page
from specbench_testing.http_server import AnsweringHandler, Reply, Request, http_server
from specbench_testing.operator_builders import operator_run
from specbench_testing.ports import free_port

DEADLINE_S = 1.0
UNREACHED_S = 120.0
"""The deadline of a look at a store that is not slow: far above what it takes, also on a loaded machine."""


def run_at(endpoint: str, **s3: Any) -> SpecBenchRun:
    """A run with its results at this endpoint."""
    return parse_run(operator_run({"spec.results": {"s3": {"bucket": "results", "endpoint": endpoint, **s3}}}))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


def reader(fence: Fence | None = None, deadline_s: float = UNREACHED_S) -> ResultsReader:
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

    store, results = HostileStore(behave), reader()
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
        reader(fence_of(store.url) if listed else None).read(run_at(store.url))
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
    "giant status",
    "gzip bomb",
    "many values",
    "XML entities",
    "long chunk size",
    "pages of long keys",
    "page of many elements",
    "large error",
)
_MEASURED = """
import resource, sys
sys.path[:0] = {path!r}
from test_stores import reader, run_at
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from specbench_testing.ports import free_port
reader().read(run_at("http://127.0.0.1:%d" % free_port()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for url in {urls!r}:
    reason = reader(deadline_s=60).read(run_at(url)).reason
    print(reason, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, flush=True)
"""


@pytest.mark.process
def test_a_look_takes_little_memory() -> None:
    """One process looks at all of these stores, so each row shows the most memory of this and the earlier ones."""
    with ExitStack() as stack:
        urls = [stack.enter_context(hostile_store(name)).url for name in LARGE]
        program = _MEASURED.format(path=[*sys.path, str(__file__).rpartition("/")[0]], urls=urls)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [reason for reason, _ in rows] == [BEHAVIOURS[name][1] for name in LARGE]
    assert [name for name, (_, taken) in zip(LARGE, rows, strict=True) if int(taken) >= MEMORY_MAX_MIB] == [], rows


def test_opening_a_bucket_delays_no_other_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a cloud identity may take seconds."""
    opening, found = threading.Event(), threading.Event()
    open_bucket = specbench_operator.cluster.results._open_bucket

    def slowly(s3: Any, *rest: Any, **named: Any) -> Any:
        if s3.bucket == "slow":
            opening.set()
            assert found.wait(UNREACHED_S)
        return open_bucket(s3, *rest, **named)

    monkeypatch.setattr("specbench_operator.cluster.results._open_bucket", slowly)
    with hostile_store("nothing stored") as store, ThreadPoolExecutor(2) as pool:
        results = reader()
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
        dripping = reader(deadline_s=DEADLINE_S).read(run_at(store.url))
    with hostile_store("nothing stored", context) as store:
        honest = reader().read(run_at(store.url))
    assert isinstance(untrusted, StoreFailure)
    assert isinstance(dripping, StoreFailure)
    assert (untrusted.reason, dripping.reason, honest) == ("S3Away", "S3Slow", StoredResults())


def test_an_unreachable_store_names_the_cause_without_the_servers_words() -> None:
    found = reader().read(run_at(f"http://127.0.0.1:{free_port()}"))
    assert isinstance(found, StoreFailure)
    assert (found.reason, "Connection refused" in found.message) == ("S3Away", True), found


# Stores of honest installations, which the limits of hostile ones must not break.
#
# Covers regions, proxies, cloud identities and ways to write an endpoint.

EMPTY = b"<ListBucketResult></ListBucketResult>"


@dataclass
class Server:
    """A running HTTP server. `answer`: host and target of a request → status, headers and body."""

    answer: Callable[[str, str], Reply]
    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Host header and target of every request."""
    server_names: list[str | None] = field(default_factory=list)
    """Server name (SNI) of every TLS connection."""
    authorizations: list[str] = field(default_factory=list)


@contextmanager
def serving(server: Server, tls: ssl.SSLContext | None = None, family: int = socket.AF_INET) -> Iterator[Server]:
    """Run a server on a loopback address; it is also a proxy for TLS."""

    def reply(request: Request) -> Reply:
        host = request.headers["Host"]
        server.requests.append((host, request.target))
        server.authorizations.append(request.headers.get("Authorization", ""))
        return server.answer(host, request.target)

    class Proxy(AnsweringHandler):
        def do_CONNECT(self) -> None:  # noqa: N802 -- the name that the base class looks for
            server.requests.append(("CONNECT", self.path))
            with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as upstream:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_copy, args=(upstream, self.connection), daemon=True)
                back.start()
                _copy(self.connection, upstream)
                back.join()
            self.close_connection = True

    if tls:
        tls.sni_callback = lambda _socket, name, _context: server.server_names.append(name)
    with http_server(reply, handler=Proxy, tls=tls, family=family) as server.port:
        yield server


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other direction was closed


def nothing_stored(_host: str, _target: str) -> Reply:
    """Answer every listing with nothing."""
    return 200, {}, EMPTY


def look(run: SpecBenchRun) -> StoredResults | StoreFailure:
    """Look at the store under a fence that lists its endpoint."""
    rule = StoreRule(endpoint=run.spec.results.store.endpoint, bucket="*", operator_identity=True)
    api: Any = None  # no Secret is read
    return ResultsReader(api, timeout_s=5, deadline_s=30, fence=Fence(stores=(rule,))).read(run)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the S3 hosts of AWS and for store.test; its key is beside it."""
    folder = tmp_path_factory.mktemp("tls")
    names = "DNS:*.amazonaws.com,DNS:*.s3.amazonaws.com,DNS:*.s3.eu-central-1.amazonaws.com,DNS:store.test"
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    call = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run(
        [*call, *files, "-subj", "/CN=store", "-addext", f"subjectAltName={names}"], check=True, capture_output=True
    )
    return folder / "tls.crt"


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def resolve_to(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """Resolve every name to the server."""
    where = (2, 1, 6, "", ("127.0.0.1", server.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [where])


ELSEWHERE = "eu-central-1"
_HOME = "results.s3.amazonaws.com"
_REDIRECTS: dict[str, Reply] = {
    "301 PermanentRedirect": (
        301,
        {"x-amz-bucket-region": ELSEWHERE},
        b"<Error><Code>PermanentRedirect</Code><Endpoint>results.s3-eu-central-1.amazonaws.com</Endpoint></Error>",
    ),
    "307 of a new bucket": (
        307,
        {"x-amz-bucket-region": ELSEWHERE, "Location": "https://results.s3.eu-central-1.amazonaws.com/?marker="},
        b"<Error><Code>TemporaryRedirect</Code><Endpoint>results.s3.eu-central-1.amazonaws.com</Endpoint></Error>",
    ),
    "400 with the region": (
        400,
        {"x-amz-bucket-region": ELSEWHERE},
        b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>",
    ),
}


@pytest.mark.parametrize("name", _REDIRECTS)
def test_a_bucket_in_another_region_of_aws_is_read(
    name: str, certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    server = Server(lambda host, _: (200, {}, EMPTY) if ELSEWHERE in host else _REDIRECTS[name])
    with serving(server, tls):
        resolve_to(monkeypatch, server)
        found = look(run_at(""))
    assert found == StoredResults(), server.requests
    hosts = [host for host, _ in server.requests]
    assert hosts[0] == _HOME
    assert hosts[-1] == f"results.s3.{ELSEWHERE}.amazonaws.com"
    assert set(server.server_names) == set(hosts), "each host is the name in its TLS handshake"


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_the_name_and_not_the_checked_address_is_verified(
    variable: str, certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(nothing_stored)
    monkeypatch.setenv(variable, str(certificate))
    with serving(server, tls):
        resolve_to(monkeypatch, server)
        known = look(run_at(f"https://store.test:{server.port}"))
        unknown = look(run_at(f"https://other.test:{server.port}"))
    assert known == StoredResults()
    assert isinstance(unknown, StoreFailure)
    assert unknown.reason == "S3Away"
    assert "store.test" in server.server_names


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_store_behind_a_proxy_is_read(
    scheme: str, certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator cannot resolve the store's name; the proxy can."""
    store, proxy = Server(nothing_stored), Server(nothing_stored)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with ExitStack() as stack:
        stack.enter_context(serving(store, tls if scheme == "https" else None))
        stack.enter_context(serving(proxy))
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://127.0.0.1:{proxy.port}")
        found = look(run_at(f"{scheme}://store.test:{store.port}"))
    assert found == StoredResults()
    assert proxy.requests
    if scheme == "https":
        assert ("CONNECT", f"store.test:{store.port}") in proxy.requests
        assert store.requests
        assert set(store.server_names) == {"store.test"}
    else:
        assert all(target.startswith("http://store.test") for _, target in proxy.requests)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1:{port}/s3",
        "http://LOCALHOST:{port}",
        "http://store.test.:{port}",
        "http://store.test",
        "http://store.test:80",
        "http://Store.Test:80/",
    ],
)
def test_ways_to_write_an_endpoint(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server(nothing_stored)) as server:
        resolve_to(monkeypatch, server)
        found = look(run_at(endpoint.format(port=server.port)))
    assert found == StoredResults()
    assert all("/results" in target for _, target in server.requests), "the bucket is in the path"


def test_an_ipv6_endpoint() -> None:
    with serving(Server(nothing_stored), family=socket.AF_INET6) as server:
        assert look(run_at(f"http://[::1]:{server.port}")) == StoredResults()


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an IPv6 address in a cluster that has only IPv4."""
    with serving(Server(nothing_stored)) as server:
        rows = [(10, 1, 6, "", ("::1", server.port, 0, 0)), (2, 1, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
        assert look(run_at(f"http://store.test:{server.port}")) == StoredResults()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ((403, {}, b"<Error><Code>AccessDenied</Code><Message>PathStyleDomainForbidden</Message></Error>"), None),
        ((400, {}, b"<Error><Code>SecondLevelDomainForbidden</Code></Error>"), None),
        ((301, {"Location": "http://results.store.test:{port}/"}, b""), None),
        ((301, {"Location": "http://results.elsewhere.test/"}, b""), "RedirectRefused"),
        ((403, {}, b"<Error><Code>AccessDenied</Code></Error>"), "CredentialsRefused"),
    ],
    ids=["403", "400", "301", "301 elsewhere", "403 for another reason"],
)
def test_a_store_without_path_style_is_read_by_the_buckets_host(
    refusal: Reply, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(host: str, _: str) -> Reply:
        if host.startswith("results."):
            return 200, {}, EMPTY
        status, headers, body = refusal
        return status, {name: value.format(port=server.port) for name, value in headers.items()}, body

    with serving(Server(answer)) as server:
        resolve_to(monkeypatch, server)
        found = look(run_at(f"http://store.test:{server.port}"))
    assert (found.reason if isinstance(found, StoreFailure) else None) == reason
    assert {host.partition(":")[0] for host, _ in server.requests} == {
        "store.test",
        *([] if reason else ["results.store.test"]),
    }


@pytest.mark.draws
def test_a_run_of_many_points_is_read_in_several_looks() -> None:
    """After a restart of the operator, the manifests of a large run take longer than one look may."""
    points = [f"{number:064x}" for number in range(60)]

    def answer(_host: str, target: str) -> Reply:
        if "marker=" not in target:
            time.sleep(0.02)
            return 200, {}, b""
        prefix = unquote(target.partition("prefix=")[2].partition("&")[0])
        rows = "".join(f"<CommonPrefixes><Prefix>{prefix}{point}/</Prefix></CommonPrefixes>" for point in points)
        return 200, {}, f"<ListBucketResult>{rows if prefix.endswith('/points/') else ''}</ListBucketResult>".encode()

    with serving(Server(answer)) as server:
        run = run_at(f"http://127.0.0.1:{server.port}")
        api: Any = None  # no Secret is read
        reader = ResultsReader(api, timeout_s=5, deadline_s=0.5)
        found = [reader.read(run)]
        while isinstance(found[-1], StoreFailure) and len(found) < 50:
            found.append(reader.read(run))
    assert {each.reason for each in found if isinstance(each, StoreFailure)} == {"S3Slow"}
    assert found[-1] == StoredResults(measured=frozenset(points))


STS = b"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
POD_IDENTITY = {
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "s",
    "Token": "t",
    "Expiration": "2099-01-01T00:00:00Z",
}


@pytest.mark.parametrize("identity", ["web identity", "pod identity"])
def test_a_cloud_identity_of_the_operator(identity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server is not a store: it is neither in the fence nor restricted to the endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    token = tmp_path / "token"
    token.write_text("a-token")

    def credentials(_host: str, target: str) -> Reply:
        return (200, {}, json.dumps(POD_IDENTITY).encode()) if "v1/credentials" in target else (200, {}, STS)

    with serving(Server(credentials)) as provider, serving(Server(nothing_stored)) as store:
        if identity == "web identity":
            monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/specbench")
            monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{provider.port}")
        else:
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{provider.port}/v1/credentials")
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        found = look(run_at(f"http://127.0.0.1:{store.port}"))
    assert found == StoredResults()
    assert len(provider.requests) == 1
    assert all("ASIAEXAMPLE" in sent for sent in store.authorizations)
