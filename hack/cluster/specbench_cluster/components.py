"""The table of components: the command line and the readiness check of each."""

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster.configuration import DNS_READY_PORT
from specbench_cluster.settings import API_PORT, HOST_IP, S3_PORT, SERVICE_SUBNET, URL_HOST, Settings

ETCD_PORT, ETCD_PEER_PORT = 23790, 23800


@dataclass(frozen=True, slots=True)
class Component:
    """One daemon. `in_node` ones share the node's mount namespace; `after` names must be ready before it starts."""

    name: str
    arguments: Callable[[Settings], list[str]]
    ready: Callable[[Settings], bool]
    after: tuple[str, ...] = ()
    in_node: bool = False
    environment: Callable[[Settings], Mapping[str, str]] = lambda _: {}


def answers(url: str, *, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a URL answers with 200; a refused or reset connection counts as False."""
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310  our own addresses
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def listens(host: str, port: int) -> bool:
    """Return whether something accepts connections at this address."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def accepts(path: Path) -> bool:
    """Return whether something accepts connections at a Unix socket; its file alone may be stale."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _etcd(s: Settings) -> list[str]:
    client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    return [
        f"--data-dir={s.state}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data are not needed after the cluster ends
        "--log-level=warn",
    ]


def _api_server(s: Settings) -> list[str]:
    pki = s.certificates
    return [
        f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
        # One address for host and pods; Kubernetes rejects loopback as endpoint of the `kubernetes` Service.
        f"--bind-address={HOST_IP}",
        f"--advertise-address={HOST_IP}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--token-auth-file={s.configuration}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/serviceaccount.key",
        f"--service-account-signing-key-file={pki}/serviceaccount.key",
        f"--service-cluster-ip-range={SERVICE_SUBNET}",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        # The default supports several API servers; without it, a single one restarts faster.
        "--shutdown-delay-duration=0s",
        *_audit(s),
    ]


def _audit(s: Settings) -> list[str]:
    if not s.audited_users:
        return []
    # A file that is never rotated, so that a reader can count the lines between two times.
    return [
        f"--audit-policy-file={s.configuration}/audit-policy.json",
        f"--audit-log-path={s.audit_log}",
        "--audit-log-maxsize=65536",
    ]


def _controller_manager(s: Settings) -> list[str]:
    return [
        f"--kubeconfig={s.configuration}/controller-manager.kubeconfig",
        "--bind-address=127.0.0.1",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={s.certificates}/serviceaccount.key",
        f"--root-ca-file={s.certificates}/ca.crt",
        "--leader-elect=false",
    ]


def _scheduler(s: Settings) -> list[str]:
    kubeconfig = f"--kubeconfig={s.configuration}/scheduler.kubeconfig"
    return [kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=false"]


def _kubelet(s: Settings) -> list[str]:
    return [
        f"--config={s.configuration}/kubelet.json",
        f"--kubeconfig={s.configuration}/kubelet.kubeconfig",
        f"--hostname-override={s.node}",
        f"--node-ip={HOST_IP}",
        f"--root-dir={s.state}/kubelet",
        f"--cert-dir={s.state}/kubelet/pki",
    ]


def _s3(s: Settings) -> list[str]:
    # Without --quiet, one line per request would make the log the largest file of a long test.
    # AWS and MinIO keep connections open too.
    return ["--port", f"{URL_HOST}:{S3_PORT}", "--quiet", "--keep-alive", "posix", f"{s.state}/s3"]


def _s3_environment(s: Settings) -> dict[str, str]:
    keys = json.loads((s.configuration / "s3.json").read_text())
    return {"ROOT_ACCESS_KEY": keys["access_key"], "ROOT_SECRET_KEY": keys["secret_key"]}


def _api_ready(s: Settings) -> bool:
    context = ssl.create_default_context(cafile=str(s.certificates / "ca.crt"))
    return answers(f"{s.api_url}/readyz", context=context)


COMPONENTS: Mapping[str, Component] = {
    component.name: component
    for component in (
        Component(
            "containerd",
            lambda s: ["--config", f"{s.configuration}/containerd.toml"],
            lambda s: accepts(s.containerd_socket),
            in_node=True,
        ),
        Component("etcd", _etcd, lambda _: answers(f"http://127.0.0.1:{ETCD_PORT}/health")),
        Component("versitygw", _s3, lambda _: listens(HOST_IP, S3_PORT), environment=_s3_environment),
        Component("kube-apiserver", _api_server, _api_ready, after=("etcd",)),
        Component(
            "kube-controller-manager",
            _controller_manager,
            lambda _: listens("127.0.0.1", 10257),
            after=("kube-apiserver",),
        ),
        Component("kube-scheduler", _scheduler, lambda _: listens("127.0.0.1", 10259), after=("kube-apiserver",)),
        Component(
            "kubelet",
            _kubelet,
            lambda _: answers("http://127.0.0.1:10248/healthz"),
            after=("kube-apiserver", "containerd"),
            in_node=True,
        ),
        Component(
            "kube-proxy",
            lambda s: [f"--config={s.configuration}/proxy.json"],
            lambda _: answers("http://127.0.0.1:10256/livez"),
            after=("kube-apiserver",),
        ),
        Component(
            "coredns",
            lambda s: ["-conf", f"{s.configuration}/Corefile"],
            lambda _: answers(f"http://127.0.0.1:{DNS_READY_PORT}/ready"),
            after=("kube-apiserver",),
        ),
    )
}
