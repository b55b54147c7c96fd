"""Renders every configuration file of a cluster; pure, the files are written by `write_all`.

Kubernetes reads JSON wherever it reads YAML, so the standard library suffices.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from specbench_cluster.requirements import CNI_FOLDERS
from specbench_cluster.settings import BRIDGE, CGROUP, DNS_PORT, HOST_IP, IPV6, POD_SUBNET, Settings

PAUSE_IMAGE = "localhost/specbench-pause:1"
#: Loopback port on which CoreDNS reports that it has loaded the cluster's Services.
DNS_READY_PORT = 18181


def users(node: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """User name and groups behind each kubeconfig; the API server's own RBAC rules name these users."""
    return {
        "admin": ("specbench-admin", ("system:masters",)),
        "controller-manager": ("system:kube-controller-manager", ()),
        "scheduler": ("system:kube-scheduler", ()),
        "kubelet": (f"system:node:{node}", ("system:nodes",)),
        "proxy": ("system:kube-proxy", ()),
        "dns": ("specbench-dns", ("system:masters",)),
    }


def kubeconfig(settings: Settings, user: str, token: str, authority_pem: str) -> dict[str, Any]:
    """A self-contained kubeconfig: it may be copied anywhere, also into a Secret."""
    cluster = {
        "server": settings.api_url,
        "certificate-authority-data": base64.b64encode(authority_pem.encode()).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "specbench", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "specbench", "context": {"cluster": "specbench", "user": user}}],
        "current-context": "specbench",
    }


def kubelet(settings: Settings) -> dict[str, Any]:
    """The kubelet's configuration for a node that is also a build machine."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": HOST_IP,
        "healthzBindAddress": "127.0.0.1",
        "containerRuntimeEndpoint": f"unix://{settings.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(settings.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [HOST_IP],
        "clusterDomain": "cluster.local",
        "cgroupDriver": "cgroupfs",
        # A cgroup root of this tool: `down` ends every process below it, and no others.
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # cAdvisor often does not recognise the root device of a virtual machine; without its size no pod starts.
        "localStorageCapacityIsolation": False,
        # Images come from archives and cannot be pulled again: never collect them, never evict for disk.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "podLogsDir": str(settings.logs / "pods"),
        "makeIPTablesUtilChains": False,
        "shutdownGracePeriod": "0s",
    }


def proxy(settings: Settings) -> dict[str, Any]:
    """kube-proxy's configuration; 0 leaves conntrack's limits unchanged, because they may not be writable."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_SUBNET,
        "hostnameOverride": settings.node,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(settings.configuration / "proxy.kubeconfig")},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def containerd(settings: Settings) -> str:
    """Configuration of containerd (format version 2, which 1.6 reads and newer releases convert)."""
    home = settings.state / "containerd"
    plugins = next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), CNI_FOLDERS[0])
    return f"""version = 2
root = "{home}/root"
state = "{home}/state"
[grpc]
  address = "{settings.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE runc may not lower its OOM score, and every pod fails with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{settings.configuration}/cni"
"""


def pod_network(settings: Settings) -> dict[str, Any]:
    """The CNI chain: pods on one bridge, without masquerading, because pods need no outside addresses."""
    ranges = [[{"subnet": POD_SUBNET, "rangeStart": str(ip_address(HOST_IP) + 9), "gateway": HOST_IP}]]
    addresses = {
        "type": "host-local",
        "dataDir": str(settings.state / "cni"),
        "ranges": ranges,
        "routes": [{"dst": "::/0" if IPV6 else "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "specbench", "plugins": [bridge, portmap]}


def dns(settings: Settings) -> str:
    """CoreDNS: resolves the cluster's names and answers NXDOMAIN to all others, because there is no upstream."""
    return f"""cluster.local:{DNS_PORT} {{
    bind {HOST_IP}
    errors
    ready 127.0.0.1:{DNS_READY_PORT}
    kubernetes cluster.local {{
        kubeconfig {settings.configuration}/dns.kubeconfig specbench
        ttl 5
    }}
}}
.:{DNS_PORT} {{
    bind {HOST_IP}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def audit_policy(settings: Settings) -> dict[str, Any]:
    """The API server's audit policy: one line per request of the audited users, without bodies."""
    audited = {"level": "Metadata", "users": list(settings.audited_users), "omitStages": ["RequestReceived"]}
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [audited, {"level": "None"}]}


def write_all(settings: Settings) -> None:
    """Write every file, with fresh tokens and S3 keys; certificates must exist already."""
    folder = settings.configuration
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = (settings.certificates / "ca.crt").read_text()
    lines = []
    for file, (user, groups) in users(settings.node).items():
        token = secrets.token_hex(16)
        lines.append(f'{token},{user},{user},"{",".join(groups)}"')
        _write(folder / f"{file}.kubeconfig", kubeconfig(settings, user, token, authority))
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
    _write(folder / "kubelet.json", kubelet(settings))
    _write(folder / "proxy.json", proxy(settings))
    _write(folder / "cni" / "10-specbench.conflist", pod_network(settings))
    (folder / "containerd.toml").write_text(containerd(settings))
    (folder / "Corefile").write_text(dns(settings))
    _write(folder / "audit-policy.json", audit_policy(settings))
    _write(folder / "s3.json", {"access_key": f"specbench{secrets.token_hex(4)}", "secret_key": secrets.token_hex(20)})


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
