"""Operator and client are killed at their writes: every run ends like an uninterrupted one.

`make test` kills them after one write of each kind in one life each. `make test-long` tries every
write of every life with every fault: also killed before it, with error answers, lost answers and stale reads. What a
kill before a write leaves is what a kill after the previous write leaves.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from specbench_cluster import Cluster as Ground
from specbench_cluster import Settings, certificates, configuration
from specbench_cluster.binaries import build
from specbench_cluster.cluster import to_stderr
from specbench_cluster.components import COMPONENTS, ETCD_PEER_PORT, ETCD_PORT, answers, listens
from specbench_cluster.settings import API_PORT, HOST_IP, S3
from specbench_testing.api_server_runs import install_definition
from specbench_testing.client_crash_points import LIVES as CLIENT_LIVES
from specbench_testing.client_crash_points import MEASURE, ClientLife, enumerate_client
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.crash_points import (
    API_FAULTS,
    STORE_FAULTS,
    CrashPoint,
    Enumeration,
    Select,
    every_write,
    one_of_each_kind,
)
from specbench_testing.fault_proxy import FaultKind, WriteKey
from specbench_testing.operator_crash_points import LIVES, MEASURED, RETRIED, Life, enumerate_operator
from specbench_testing.operator_process import eventually
from specbench_testing.ports import LOCALHOST, free_port
from specbench_testing.s3 import S3Server
from specbench_testing.s3_results import BUCKET
from specbench_testing.shared_cluster import skip_without_cluster

_READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class LightGround(Ground):
    """What `Cluster.ground` provides of a light cluster: its settings and its S3 server."""

    server: S3Server | None = None

    @property
    def s3(self) -> S3:
        assert self.server is not None
        access = self.server.access
        return S3(access.endpoint, BUCKET, access.key, access.secret)


@contextmanager
def light_cluster() -> Iterator[Cluster]:
    """The control plane, within a `with` block; nothing of it is left afterwards."""
    settings = Settings(state=Path(tempfile.mkdtemp(prefix="specbench-light-")))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, settings.state, ignore_errors=True)
        _link_programs(settings)
        (settings.state / "s3-server").mkdir()
        server = S3Server(settings.state / "s3-server")
        (server.folder / "objects" / BUCKET).mkdir(parents=True)
        server.start()
        stack.callback(server.stop)
        ports = _Ports()
        certificates.write_all(settings.certificates)
        configuration.write_all(settings)
        for file in settings.configuration.glob("*.kubeconfig"):
            file.write_text(ports.localized(file.read_text()))
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            stack.callback(_end, _start(name, settings, ports))
        cluster = Cluster.at(settings.kubeconfig, LightGround(settings, server=server))
        eventually(lambda: _serves(cluster), "the API server does not serve its namespaces", _READY_WITHIN_S)
        yield cluster


class _Ports:
    """Free ports instead of those of hack/cluster."""

    def __init__(self) -> None:
        self._of = {port: free_port() for port in (ETCD_PORT, ETCD_PEER_PORT, API_PORT)}
        self.secure = {name: free_port() for name in ("kube-controller-manager", "kube-scheduler")}
        self.etcd, self.api = self._of[ETCD_PORT], self._of[API_PORT]

    def localized(self, text: str) -> str:
        text = text.replace(HOST_IP, LOCALHOST).replace(f"--secure-port={API_PORT}", f"--secure-port={self.api}")
        for given, used in self._of.items():
            text = text.replace(f":{given}", f":{used}")
        return text


def _link_programs(settings: Settings) -> None:
    settings.programs.mkdir(parents=True)
    for name, program in build(settings.cache, to_stderr).items():
        (settings.programs / name).symlink_to(program)
    settings.logs.mkdir()


def _start(name: str, settings: Settings, ports: _Ports) -> subprocess.Popen[bytes]:
    arguments = [ports.localized(argument) for argument in COMPONENTS[name].arguments(settings)]
    ready: Callable[[], bool]
    match name:
        case "etcd":
            ready = lambda: answers(f"http://{LOCALHOST}:{ports.etcd}/health")  # noqa: E731
        case "kube-apiserver":
            # Nothing in this cluster uses the `kubernetes` Service, and its endpoint must not be a loopback address.
            arguments = [row for row in arguments if not row.startswith("--advertise-address")]
            arguments.append("--endpoint-reconciler-type=none")
            ready = lambda: listens(LOCALHOST, ports.api)  # noqa: E731
        case _:
            arguments.append(f"--secure-port={ports.secure[name]}")
            ready = lambda: listens(LOCALHOST, ports.secure[name])  # noqa: E731
    log = settings.logs / f"{name}.log"
    with log.open("wb") as stderr:
        call = [str(settings.programs / name), *arguments]
        process = subprocess.Popen(call, stdout=stderr, stderr=stderr, cwd=settings.state)

    def there() -> bool:
        assert process.poll() is None, f"{name} ended: {log.read_text()[-3000:]}"
        return ready()

    try:
        eventually(there, f"{name} does not start", _READY_WITHIN_S)
    except BaseException:
        _end(process)
        raise
    return process


def _serves(cluster: Cluster) -> bool:
    try:
        cluster.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    except ApiError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


OPERATOR_WRITES = {
    *("create ConfigMap RUN-plan", "create Service RUN-gN", "create Job RUN-gN", "create Job RUN-gN-client"),
    *("create Job RUN-report", "delete Job RUN-gN", "delete Service RUN-gN", "event", "status"),
}
"""Of a run without failures."""
WRITES_OF_A_MEASUREMENT = {
    *("put plan.json", "put progress.json", "put launches/0-ATTEMPT.json"),
    *("put points/POINT/records/0-ATTEMPT.parquet", "put points/POINT/summary.json", "put points/POINT/manifest.json"),
}
CLIENT_WRITES = WRITES_OF_A_MEASUREMENT | {
    "put points/POINT/schedule-ATTEMPT.parquet",
    *(f"put {name}" for name in ("provenance.json", "results.csv", "report.html", "summary.json", "status.json")),
    "put gate.json",
}
KILLED_AFTER = (FaultKind.KILL_AFTER,)


@pytest.fixture(autouse=True)
def servers() -> None:
    skip_without_cluster()


def operator_enumeration(folder: Path, select: Select, lives: Sequence[Life]) -> Enumeration:
    """The operator's crash points, on a new control plane."""
    with light_cluster() as cluster:
        install_definition(cluster)
        return enumerate_operator(cluster, folder, select, lives=lives)


def client_enumeration(folder: Path, select: Select, lives: Sequence[ClientLife] = CLIENT_LIVES) -> Enumeration:
    """The client's crash points, with a new S3 server."""
    server = S3Server(folder / "s3")
    server.folder.mkdir(parents=True)
    server.start()
    try:
        return enumerate_client(server.access, folder / "lives", select, lives)
    finally:
        server.stop()


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_of_the_operator_after_one_write_of_each_kind(tmp_path: Path) -> None:
    found = operator_enumeration(tmp_path, one_of_each_kind(KILLED_AFTER), (MEASURED,))
    assert found.kinds_of_writes >= OPERATOR_WRITES
    assert len(found.results) >= len(OPERATOR_WRITES)
    assert found.failures == []


@pytest.mark.s3
@pytest.mark.process
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_of_the_client_after_one_write_of_each_kind(tmp_path: Path) -> None:
    found = client_enumeration(tmp_path, one_of_each_kind(KILLED_AFTER), (MEASURE,))
    assert found.kinds_of_writes >= WRITES_OF_A_MEASUREMENT
    assert len(found.results) >= len(WRITES_OF_A_MEASUREMENT)
    assert found.failures == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_of_the_operator_while_a_round_is_added(tmp_path: Path) -> None:
    """From the report that requests it to the launch of its first client."""

    def around_the_round(life: str, writes: Sequence[WriteKey]) -> list[CrashPoint]:
        kinds = [key.kind for key in writes]
        first, last = kinds.index("create Job RUN-report"), kinds.index("create Job RUN-g4-0-client")
        return [CrashPoint(life, FaultKind.KILL_AFTER, key) for key in writes[first : last + 1]]

    found = operator_enumeration(tmp_path, around_the_round, (RETRIED,))
    assert found.kinds_of_writes >= {*OPERATOR_WRITES, "create ConfigMap RUN-plan-1", "delete Job RUN-report"}
    assert found.failures == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(10_800)
def test_a_run_survives_every_fault_at_every_write_of_the_operator(tmp_path: Path) -> None:
    found = operator_enumeration(tmp_path, every_write(API_FAULTS), LIVES)
    assert found.kinds_of_writes >= {*OPERATOR_WRITES, "patch verdict of Job RUN-gN"}
    assert found.failures == []


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(10_800)
def test_a_run_survives_every_fault_at_every_write_of_the_client(tmp_path: Path) -> None:
    found = client_enumeration(tmp_path, every_write(STORE_FAULTS))
    assert found.kinds_of_writes >= CLIENT_WRITES
    assert found.failures == []
