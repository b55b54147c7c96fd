"""Changes that a cluster makes on its host outside its own folder, and their removal.

Bridge, firewall chains, kernel settings, cgroup: each is either identified by its name or
recorded before the first change, so `restore` can run after any crash, and repeatedly.
"""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from specbench_cluster import firewall
from specbench_cluster.commands import run, wait_until
from specbench_cluster.errors import ForeignCluster
from specbench_cluster.settings import BRIDGE, CGROUP, HOST_IP, IPV6, POD_SUBNET, Settings

#: Kernel settings that kubelet, kube-proxy, the CNI plugins or this tool write.
_SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
#: Folders whose paths are fixed in kubelet, containerd or the CNI library. The node mounts its own
#: folders there (see `node`), but each mount point must exist.
FIXED_FOLDERS = ("/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/run/containerd")


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name


def boot_id() -> str:
    """The id of this boot. It changes with every boot, which also removes earlier pids and bridges."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def prepare(settings: Settings) -> None:
    """Record the host's state, then prepare it. Raises ForeignCluster before changing anything."""
    refuse_foreign(settings)
    if _recorded(settings) is None:
        settings.host_record.parent.mkdir(parents=True, exist_ok=True)
        settings.host_record.write_text(json.dumps(_observe(), indent=2))
    for folder in FIXED_FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for mount in cgroup_mounts():
        (mount / CGROUP).mkdir(exist_ok=True)
    _make_bridge(settings)
    _sysctl("net/ipv6/conf/all/forwarding" if IPV6 else "net/ipv4/ip_forward").write_text("1")
    with suppress(FileNotFoundError):  # without a bridge filter in the kernel, bridged packets need no rule
        _sysctl(f"net/bridge/bridge-nf-call-{firewall.FAMILY}").write_text("1")
    firewall.confine_pods(settings)


def _recorded(settings: Settings) -> dict[str, Any] | None:
    """The host's state before the cluster; None without a record, or if it is of an earlier boot, which reset it."""
    if not settings.host_record.exists():
        return None
    before: dict[str, Any] = json.loads(settings.host_record.read_text())
    return before if before["boot_id"] == boot_id() else None


def _observe() -> dict[str, object]:
    return {
        "boot_id": boot_id(),
        "sysctls": {name: _sysctl(name).read_text().strip() for name in _SYSCTLS if _sysctl(name).exists()},
        "missing_folders": [folder for folder in FIXED_FOLDERS if not Path(folder).exists()],
        "firewall_tables": firewall.tables(),
    }


def bridge_owner() -> str | None:
    """The state folder of the cluster that owns the bridge on this machine; None without a bridge."""
    folder = Path("/sys/class/net") / BRIDGE
    return (folder / "ifalias").read_text().strip() if folder.exists() else None


def refuse_foreign(settings: Settings) -> None:
    """Raise ForeignCluster if another test cluster or any other Kubernetes runs on this machine."""
    owner = bridge_owner()
    if owner not in (None, str(settings.state)):
        raise ForeignCluster(
            f"another test cluster is on this machine, in {owner}: use it, or stop it with "
            f"SPECBENCH_CLUSTER_STATE={owner} hack/cluster/cluster down"
        )
    if owner is None and firewall.foreign_chains():
        raise ForeignCluster(
            "another Kubernetes runs on this machine (it has KUBE-* iptables chains): use another machine"
        )


def _make_bridge(settings: Settings) -> None:
    if bridge_owner() is not None:
        return
    # A fixed hardware address; otherwise the bridge takes the first pod's, which invalidates ARP caches.
    run(["ip", "link", "add", BRIDGE, "address", "0a:58:0a:f4:00:01", "type", "bridge"])
    run(["ip", "link", "set", BRIDGE, "alias", str(settings.state)])
    ipv6 = _sysctl(f"net/ipv6/conf/{BRIDGE}/disable_ipv6")
    if ipv6.exists():
        # With IPv4, link-local addresses would bypass the firewall.
        ipv6.write_text("0" if IPV6 else "1")
    # Without duplicate address detection, which would end only with the first pod on the bridge.
    address = [f"{HOST_IP}/{POD_SUBNET.partition('/')[2]}", *(["nodad"] if IPV6 else [])]
    run(["ip", "address", "add", *address, "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])


def restore(settings: Settings) -> None:
    """Revert everything that `prepare` and the components changed; skip what does not exist."""
    owner = bridge_owner()
    if owner not in (None, str(settings.state)):
        return  # the bridge belongs to another cluster, so this one has left nothing
    before = _recorded(settings)
    if owner is not None or before is not None:
        firewall.remove_chains(before["firewall_tables"] if before else firewall.ALL_TABLES)
    if owner is not None:
        run(["ip", "link", "delete", BRIDGE])
    remove_cgroups()
    if before is not None:
        _restore_recorded(before["sysctls"], before["missing_folders"])
    settings.host_record.unlink(missing_ok=True)


def _restore_recorded(sysctls: dict[str, str], folders: list[str]) -> None:
    for name, value in sysctls.items():
        if _sysctl(name).read_text().strip() != value:
            _sysctl(name).write_text(value)
    for folder in folders:
        path = Path(folder)
        if path.exists() and not any(path.iterdir()):
            path.rmdir()


def cgroup_mounts() -> list[Path]:
    """Mount points of every cgroup hierarchy, version 1 or 2."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split() for line in lines]
    return [Path(f[4]) for f in fields if f[f.index("-") + 1] in {"cgroup", "cgroup2"}]


def _cgroups() -> list[Path]:
    """The cgroups of this cluster, children before parents."""
    roots = [mount / CGROUP for mount in cgroup_mounts()]
    return [Path(folder) for root in roots for folder, _, _ in os.walk(root, topdown=False)]


def kill_pods(settings: Settings) -> None:
    """End every process in the cluster's cgroups, and return when none is left."""
    if bridge_owner() not in (None, str(settings.state)):
        return  # the pods belong to another cluster

    def none_left() -> bool:
        pids = set()
        for cgroup in _cgroups():
            with suppress(OSError):  # it may disappear before it is read
                pids.update((cgroup / "cgroup.procs").read_text().split())
        # 0 is a process of another pid namespace; killing pid 0 would kill this process group.
        pids.discard("0")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not pids

    wait_until(none_left, "end of the pods", timeout_s=30, interval_s=0.05)


def remove_cgroups() -> None:
    """Remove the cluster's cgroups; the kernel releases an empty one with a short delay."""

    def none_left() -> bool:
        for cgroup in _cgroups():
            with suppress(OSError):
                cgroup.rmdir()
        return not _cgroups()

    wait_until(none_left, f"removal of the cgroups {CGROUP}", timeout_s=20, interval_s=0.05)
