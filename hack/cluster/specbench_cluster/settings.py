"""The settings of a cluster, and the paths and addresses derived from them."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Whether pods and Services have IPv6 addresses only, instead of IPv4.
IPV6 = bool(os.environ.get("SPECBENCH_CLUSTER_IPV6"))
#: The usual Kubernetes address ranges; pods, Services and the bridge use them.
POD_SUBNET = "fd00:10:244::/64" if IPV6 else "10.244.0.0/16"
SERVICE_SUBNET = "fd00:10:96::/112" if IPV6 else "10.96.0.0/16"
#: The host's address on the pods' bridge, which both host and pods can reach.
HOST_IP = "fd00:10:244::1" if IPV6 else "10.244.0.1"
#: The same in URLs and before a port.
URL_HOST = f"[{HOST_IP}]" if IPV6 else HOST_IP
#: The first address of the Service range is always the API server's.
API_SERVICE_IP = "fd00:10:96::1" if IPV6 else "10.96.0.1"
API_PORT, S3_PORT, DNS_PORT = 6443, 7070, 53
BRIDGE = "specbench0"
CGROUP = "specbench-cluster"
#: A Unix socket's path has at most 107 bytes (`sun_path`); the longest path below the state folder has this many.
_LONGEST_SOCKET = len("/containerd/containerd.sock.ttrpc")


def _cache_folder(environment: Mapping[str, str]) -> Path:
    given = environment.get("SPECBENCH_CLUSTER_CACHE")
    if given:
        return Path(given).absolute()
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).absolute() / "specbench" / "cluster"


def _state_folder(environment: Mapping[str, str]) -> Path:
    given = environment.get("SPECBENCH_CLUSTER_STATE")
    return Path(given).absolute() if given else Path(tempfile.gettempdir()) / "specbench-cluster"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one cluster: its folders, its node, and the ports that pods may reach.

    `cache` outlives clusters (binaries, image layers); `state` belongs to one cluster and is removed with it.
    `pod_host_ports` are further TCP ports of the host that pods may reach, besides API server, DNS and S3.
    `audited_users` are the users whose requests to the API server are recorded in `audit_log`; without any, none are.
    """

    state: Path = field(default_factory=lambda: _state_folder(os.environ))
    cache: Path = field(default_factory=lambda: _cache_folder(os.environ))
    node: str = "specbench-node"
    gpus: int = 8
    gpu_product: str = "SPECBENCH-FAKE-GPU"
    bucket: str = "bench-results"  # the bucket in the examples
    pod_host_ports: tuple[int, ...] = ()
    audited_users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        longest = len(str(self.state).encode()) + _LONGEST_SOCKET
        if longest > 107:
            raise ValueError(
                f"the state folder {self.state} is too long for the paths of Unix sockets in it: "
                "set SPECBENCH_CLUSTER_STATE to a shorter path"
            )

    @property
    def programs(self) -> Path:
        """Links through which components are called; their paths identify the cluster's processes."""
        return self.state / "bin"

    @property
    def configuration(self) -> Path:
        return self.state / "config"

    @property
    def certificates(self) -> Path:
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.jsonl"

    @property
    def records(self) -> Path:
        """Records of started processes and requested settings, for `down` and `status`."""
        return self.state / "records"

    @property
    def host_record(self) -> Path:
        """The host's earlier state; in the cache, so that it outlives a manually deleted state folder."""
        return self.cache / "host-before.json"

    @property
    def containerd_socket(self) -> Path:
        return self.state / "containerd" / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.configuration / "admin.kubeconfig"

    @property
    def api_url(self) -> str:
        return f"https://{URL_HOST}:{API_PORT}"


@dataclass(frozen=True, slots=True)
class S3:
    """The S3 server's endpoint and keys; host and pods use the same endpoint."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
