"""The operator's watches on a real API server: later namespaces, objects as deep and as large as it allows, rights
that are taken and given back, and a server that ends watches or has another clock."""

from __future__ import annotations

import signal
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api import API_VERSION
from specbench_cluster import Cluster as Ground
from specbench_operator.cluster.kubernetes_api import PAGE_OF_WATCHED
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.fault_proxy import JSON, Answer, FaultProxy, Request, Writer, api_upstream
from specbench_testing.long_cases import long_after
from specbench_testing.operator_process import ACCOUNT, RULES, OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NO_IMAGE = "registry.invalid/specbench:none"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEVELS = 4_900
"""Pairs of an object and a list. The API server refuses a request with more than 10,000 levels."""
LARGE = 40
MEMORY_LIMIT_BYTES = 512 * 2**20
"""The chart's memory limit of the operator."""


@pytest.fixture
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("operator") as namespace:
        yield OperatorSite(cluster, namespace)


def suspended(name: str) -> Resource:
    """A run that the operator reconciles without creating anything."""
    return resource({"spec.suspend": True}, name=name)


def is_suspended(runs: Runs) -> bool:
    return bool(runs.get("demo")["status"].get("phase") == "Suspended")


@contextmanager
def cluster_wide_rights(site: OperatorSite) -> Iterator[None]:
    """What the chart grants with `watchAllNamespaces` and `rbac.clusterWide`."""
    name = f"specbench-{site.namespace}"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": site.namespace}
    made = {
        "clusterroles": {"metadata": {"name": name}, "rules": RULES},
        "clusterrolebindings": {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    }
    for plural, body in made.items():
        site.cluster.call("POST", f"{RBAC}/{plural}", body)
    try:
        yield
    finally:
        for plural in made:
            site.cluster.call("DELETE", f"{RBAC}/{plural}/{name}")


def test_later_namespaces_that_match_a_pattern_are_served(site: OperatorSite, tmp_path: Path) -> None:
    prefix = f"team{site.namespace.removeprefix('operator-')}"
    patterns = {"SPECBENCH_NAMESPACES": f"{prefix}-*", "SPECBENCH_RESYNC_S": "2"}
    process = OperatorProcess(site, tmp_path, NO_IMAGE, patterns)
    with cluster_wide_rights(site), ExitStack() as namespaces:
        first, other = (
            Runs(site.cluster, namespaces.enter_context(site.cluster.namespace(n))) for n in (prefix, "other")
        )
        for runs in (other, first):
            runs.create(suspended("demo"))
        with process.running() as operator:
            eventually(partial(is_suspended, first), "the first namespace is not served")
            later = Runs(site.cluster, namespaces.enter_context(site.cluster.namespace(prefix)))
            later.create(suspended("demo"))
            eventually(partial(is_suspended, later), "the later namespace is not served")
            assert not is_suspended(other)
            assert operator.healthy()


# Runs and campaigns as deep and as large as the API server allows: the operator serves all others meanwhile.


@pytest.fixture
def deep_json() -> Iterator[None]:
    """Let this process, but not the operator's, write and read JSON of that depth."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path) -> Iterator[OperatorProcess]:
    settings = {"SPECBENCH_RESYNC_S": "5"}
    process = OperatorProcess(site, tmp_path, NO_IMAGE, settings)
    try:
        yield process
    finally:
        if process.process:
            process.end(signal.SIGKILL)


def wait_until_served(site: OperatorSite, operator: OperatorProcess, name: str) -> None:
    """Create an honest run and wait until its status is written."""
    site.runs.create(suspended(name))
    eventually(lambda: site.phase(name) or operator.ended is not None, f"{name} is not reconciled", 300)
    assert operator.ended is None, operator.log.read_text()[-3000:]
    assert site.phase(name)


@pytest.mark.usefixtures("deep_json")
def test_deep_objects_do_not_stop_the_watches(site: OperatorSite, operator: OperatorProcess) -> None:
    operator.start()
    wait_until_served(site, operator, "before")
    deep: Any = 1
    for _ in range(LEVELS):
        deep = {"a": [deep]}
    run = suspended("deep")
    run["spec"]["drafters"][0]["speculativeConfig"] = {"x": deep}
    campaign = {
        "apiVersion": API_VERSION,
        "kind": "SpecBenchCampaign",
        "metadata": {"name": "deep"},
        "spec": {
            "template": {"spec": suspended("x")["spec"]},
            "axes": [{"path": "spec.engine.version", "values": [deep]}],
        },
    }
    site.runs.create(run)
    site.campaigns.create(campaign)
    wait_until_served(site, operator, "watched")
    assert site.wait_for_phase("deep", "Invalid")
    assert "nested too deeply" in site.message("deep", "Validated")
    assert operator.end() == 0
    operator.start()
    wait_until_served(site, operator, "listed")
    eventually(lambda: 'phase="Invalid"} 1.0' in operator.metric("specbench_runs{"), "the resync counts no run")
    assert operator.healthy()
    assert operator.bugs() == []


@pytest.mark.long  # the API server needs a second for each
def test_large_objects_do_not_exceed_the_operators_memory(site: OperatorSite, operator: OperatorProcess) -> None:
    run = suspended("x")
    run["spec"]["engine"]["config"] = {"x": [{}] * 340_000}
    for number in range(LARGE):
        run["metadata"]["name"] = f"large-{number}"
        site.runs.create(run)
    operator.start()
    wait_until_served(site, operator, "honest")
    eventually(lambda: f'phase="Invalid"}} {LARGE}.0' in operator.metric("specbench_runs{"), "not all are refused")
    assert "more than 50000 values" in site.message("large-0", "Validated")
    assert peak_bytes(operator) < MEMORY_LIMIT_BYTES
    assert operator.bugs() == []


def peak_bytes(operator: OperatorProcess) -> int:
    """The largest resident memory that the operator has had."""
    assert operator.process is not None
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# Rights in one of two namespaces that are taken and given back: the other one goes on.

NAMESPACES = "/api/v1/namespaces"
LOST = {
    "jobs": ["jobs"],
    "pods": ["pods"],
    "runs": ["specbenchruns"],
    "all": [name for rule in RULES for name in rule["resources"]],
}
REPORTED = "specbench_forbidden_collections{"
LATER_TRY = "Request attempt #10:"
"""kopf gives up after nine unless it is told otherwise."""


@pytest.fixture
def other(site: OperatorSite) -> Iterator[OperatorSite]:
    with site.cluster.namespace("other") as namespace:
        yield OperatorSite(site.cluster, namespace, home=site.namespace)


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    with FaultProxy(api_upstream(cluster), Writer(subject_of=str)) as running:
        yield running


@contextmanager
def operator_of_both(
    site: OperatorSite, other: OperatorSite, proxy: FaultProxy, folder: Path
) -> Iterator[OperatorProcess]:
    settings = {
        "SPECBENCH_NAMESPACES": f"{site.namespace},{other.namespace}",
        "SPECBENCH_RESYNC_S": "5",
        "SPECBENCH_LOG_LEVEL": "DEBUG",
    }
    with OperatorProcess(site, folder, NO_IMAGE, settings, server=proxy.url).running() as process:
        eventually(process.ready, "it is not ready")
        yield process


def grant(site: OperatorSite, without: list[str]) -> None:
    rules = [{**rule, "resources": kept} for rule in RULES if (kept := sorted({*rule["resources"]} - {*without}))]
    site.cluster.call("PATCH", f"{RBAC}/namespaces/{site.namespace}/roles/{ACCOUNT}", {"rules": rules}, kind=MERGE)


@pytest.mark.parametrize("lost", long_after(1, list(LOST)))
def test_a_namespace_without_rights_waits_alone_until_they_return(
    site: OperatorSite, other: OperatorSite, proxy: FaultProxy, tmp_path: Path, lost: str
) -> None:
    with operator_of_both(site, other, proxy, tmp_path) as operator:
        grant(other, without=LOST[lost])
        eventually(lambda: operator.metric(REPORTED), "the missing rights are not reported")
        proxy.cut()  # the API server checks the rights when a watch begins
        proxy.heal()
        other.runs.create(suspended("waiting"))
        if lost in ("jobs", "pods"):
            eventually(lambda: other.status("waiting").get("problem") == "Forbidden", "its run does not report them")
        if lost != "jobs":
            eventually(lambda: LATER_TRY in operator.log.read_text(), "the watch is not tried again")
        wait_until_served(site, operator, "meanwhile")
        assert (operator.healthy(), operator.ready()) == (True, True)
        grant(other, without=[])
        other.wait_for_phase("waiting", "Suspended")
        eventually(lambda: not operator.metric(REPORTED), "they are still reported as missing")
        assert operator.log.read_text().count(f"nothing is reconciled in {other.namespace}") == 1
        assert operator.end() == 0


@pytest.mark.long  # the API server needs a while to delete a namespace
def test_a_namespace_that_is_deleted_and_created_again_is_served(
    site: OperatorSite, other: OperatorSite, proxy: FaultProxy, tmp_path: Path
) -> None:
    with operator_of_both(site, other, proxy, tmp_path) as operator:
        wait_until_served(other, operator, "demo")
        site.cluster.call("DELETE", f"{NAMESPACES}/{other.namespace}")
        selected = {"fieldSelector": f"metadata.name={other.namespace}"}
        eventually(lambda: not site.cluster.call("GET", NAMESPACES, query=selected)["items"], "it still exists")
        proxy.cut()
        proxy.heal()
        eventually(lambda: operator.metric(REPORTED), "the missing rights are not reported")
        site.cluster.call("POST", NAMESPACES, {"metadata": {"name": other.namespace}})
        wait_until_served(OperatorSite(site.cluster, other.namespace, home=site.namespace), operator, "demo")


# kopf does not begin such a watch again.
WITHOUT_WATCH = """
from specbench_operator.handlers import list_watch
list_watch._LIST_AGAIN["object"]["code"] = 500
from specbench_operator.__main__ import main
main()
"""


def test_the_process_ends_and_releases_its_lease_when_kopf_ends(
    site: OperatorSite, proxy: FaultProxy, tmp_path: Path
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"

    def leader() -> str:
        return "".join(row["spec"]["holderIdentity"] for row in site.cluster.call("GET", leases)["items"])

    process = OperatorProcess(site, tmp_path, NO_IMAGE, server=proxy.url, program=("-c", WITHOUT_WATCH)).start()
    eventually(leader, "it does not lead")
    proxy.answer = lambda request: (400, [], b"") if "watch=true" in request.path else None
    proxy.cut()
    proxy.heal()
    eventually(lambda: process.ended is not None, "it goes on without a watch of the runs")
    assert (process.ended, leader()) == (1, "")


# Watches that the API server ends in every way, and its clock.

GONE = (410, JSON, b'{"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"}')
BROKEN = (200, JSON, b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "no value"}}\n')
EMPTY = (200, JSON, b"")
PAGE = (200, [("Content-Type", "text/html")], b"<html>log in</html>\n")
BUSY = (429, [*JSON, ("Retry-After", "3600")], b"{}")
BUSY_UNTIL = (429, [("Retry-After", "Mon, 30 Nov 2026 00:00:00 GMT")], b"")
BAD = (400, JSON, b'{"kind": "Status", "reason": "BadRequest", "code": 400, "message": "invalid resourceVersion"}')
ELSEWHERE = (502, [("Content-Type", "text/html")], "<html>não".encode("latin-1"))
ENDS: dict[str, tuple[Answer | None, Answer | None]] = {
    "HTTP 410 of a watch": (GONE, None),
    "an ERROR event": (BROKEN, None),
    "HTTP 410 of a list": (GONE, GONE),
    "no answer": (EMPTY, None),
    "a gateway's page": (PAGE, PAGE),
    "HTTP 400 of a watch": (BAD, None),
    "HTTP 400 of both": (BAD, BAD),
    "busy until a date": (EMPTY, BUSY_UNTIL),
    "a gateway's error": (EMPTY, ELSEWHERE),
}
"""The answers to watches and to lists."""


@pytest.mark.parametrize("end", long_after(1, list(ENDS)))
def test_a_watch_that_the_api_server_ends_lists_again(
    site: OperatorSite, proxy: FaultProxy, tmp_path: Path, end: str
) -> None:
    of_watches, of_lists = ENDS[end]
    lists: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.method != "GET":
            return None
        if "watch=true" in request.path:
            return of_watches
        if f"limit={PAGE_OF_WATCHED}" not in request.path:
            return BUSY
        lists.append(request.path)
        return of_lists

    with OperatorProcess(site, tmp_path, NO_IMAGE, {"SPECBENCH_RESYNC_S": "5"}, server=proxy.url).running() as operator:
        wait_until_served(site, operator, "before")
        proxy.answer = answer
        proxy.cut()
        proxy.heal()
        site.runs.create(suspended("meanwhile"))
        eventually(lambda: max(Counter(lists).values(), default=0) > 2, "it does not list again")
        proxy.answer = lambda _request: None
        site.wait_for_phase("meanwhile", "Suspended")
        wait_until_served(site, operator, "after")
        assert (operator.ended, operator.healthy()) == (None, True)


AHEAD_S = 90
OTHER_CLOCK = f"""
import time
from types import SimpleNamespace
from specbench_operator.cluster import kubernetes_api
kubernetes_api.time = SimpleNamespace(time=lambda: time.time() + {AHEAD_S})
from specbench_operator.__main__ import main
main()
"""


def test_a_node_with_another_clock_and_time_zone_writes_the_api_servers_time(
    site: OperatorSite, tmp_path: Path
) -> None:
    process = OperatorProcess(site, tmp_path, NO_IMAGE, {"TZ": "Asia/Tokyo"}, program=("-c", OTHER_CLOCK))
    with process.running() as operator:
        wait_until_served(site, operator, "demo")
        site.wait_for_events("Suspended")
        events = site.cluster.call("GET", f"{NAMESPACES}/{site.namespace}/events")["items"]
    run = site.runs.get("demo")
    texts = [row["lastTransitionTime"] for row in run["status"]["conditions"]]
    texts += [row["lastTimestamp"] for row in events if row["involvedObject"]["kind"] == run["kind"]]
    times = [datetime.fromisoformat(text) for text in texts]
    created = datetime.fromisoformat(run["metadata"]["creationTimestamp"])
    assert {each.tzinfo for each in times} == {UTC}
    assert max(abs(each - created) for each in times) < timedelta(seconds=AHEAD_S)
    assert "ahead of this node's: its time is used" in operator.log.read_text()


IN_POD = """
from kubernetes.config import incluster_config
incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME = "token", "ca.crt"
from specbench_operator.__main__ import main
main()
"""
"""The operator as in a pod: it reads its token from a file."""


def bound_token(site: OperatorSite, secret: str) -> str:
    core = f"{NAMESPACES}/{site.namespace}"
    uid = site.cluster.call("POST", f"{core}/secrets", {"metadata": {"name": secret}})["metadata"]["uid"]
    ref = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": uid}
    body = {"spec": {"expirationSeconds": 3600, "boundObjectRef": ref}}
    return str(site.cluster.call("POST", f"{core}/serviceaccounts/{ACCOUNT}/token", body)["status"]["token"])


@pytest.mark.alone  # it restarts the API server, which ends all watches
@pytest.mark.long
def test_an_operator_waits_for_a_new_token_when_its_own_has_expired(
    site: OperatorSite, ground: Ground, tmp_path: Path
) -> None:
    given = yaml.safe_load(site.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    host, port = given["server"].removeprefix("https://").split(":")
    (tmp_path / "ca.crt").write_bytes(b64decode(given["certificate-authority-data"]))
    (tmp_path / "token").write_text(bound_token(site, "first"))
    settings = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "SPECBENCH_RESYNC_S": "5"}
    with OperatorProcess(site, tmp_path, NO_IMAGE, settings, program=("-c", IN_POD)).running() as operator:
        wait_until_served(site, operator, "before")
        site.delete("secrets", "first")
        ground.restart("kube-apiserver")
        eventually(lambda: operator.log.read_text().count("cannot be read: get") > 3, "the token is still valid")
        (tmp_path / "token").write_text(bound_token(site, "second"))
        wait_until_served(site, operator, "after")
        assert operator.healthy()
        assert 0 < operator.log.read_text().count("Re-authentication has been initiated") < 20
