"""A control plane and an S3 server on free ports, for enumerations that need no kubelet and many restarts."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster import Cluster as Ground
from specbench_cluster import Settings, certificates, configuration
from specbench_cluster.binaries import build
from specbench_cluster.cluster import to_stderr
from specbench_cluster.components import COMPONENTS, ETCD_PEER_PORT, ETCD_PORT, answers, listens
from specbench_cluster.settings import API_PORT, HOST_IP, S3
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.operator_process import eventually
from specbench_testing.ports import LOCALHOST, free_port
from specbench_testing.s3 import S3Server
from specbench_testing.s3_results import BUCKET

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
