"""`down` leaves nothing on the machine, however the cluster ended (takes a minute; requires that no cluster is up)."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from specbench_cluster import Cluster, Settings, host, processes
from specbench_cluster.commands import run
from specbench_cluster.configuration import PAUSE_IMAGE

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Traces:
    """Everything that a cluster changes outside its cache."""

    links: str
    firewall: str
    mounts: frozenset[str]
    cgroups: tuple[bool, ...]
    folders: tuple[bool, ...]
    settings: tuple[str, ...]


def traces(cluster: Cluster) -> Traces:
    settings = ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "vm/overcommit_memory", "kernel/panic")
    firewall = [line for family in ("iptables", "ip6tables") for line in run([f"{family}-save"]).splitlines()]
    return Traces(
        links=run(["ip", "-brief", "link"]),
        firewall="\n".join(line for line in firewall if not line.startswith("#")),
        # Other processes may build images meanwhile, so only mounts that contain this cluster's folders count.
        mounts=frozenset(
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if str(cluster.settings.state) in line or "kubelet" in line or "/run/netns" in line
        ),
        cgroups=tuple((mount / "specbench-cluster").exists() for mount in host.cgroup_mounts()),
        folders=tuple(Path(f).exists() for f in (*host.FIXED_FOLDERS, "/opt/containerd", str(cluster.settings.state))),
        settings=tuple((Path("/proc/sys") / name).read_text() for name in settings),
    )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    owner = host.bridge_owner()
    if owner is not None:
        pytest.skip(f"a cluster is up in {owner}, and a machine can run only one")
    created = Cluster(Settings(state=Path(f"/tmp/specbench-traces-{os.getpid()}")))
    yield created
    created.down()


def with_a_pod(cluster: Cluster) -> None:
    kubectl = [str(cluster.settings.programs / "kubectl"), f"--kubeconfig={cluster.kubeconfig}"]
    run([*kubectl, "run", "left", f"--image={PAUSE_IMAGE}", "--image-pull-policy=IfNotPresent", "--port=80"])
    run([*kubectl, "expose", "pod", "left"])
    run([*kubectl, "wait", "pod/left", "--for=condition=Ready", "--timeout=60s"])


def no_fault(_: Cluster) -> None:
    """No fault: the cluster is healthy when `down` runs."""


def kill_everything(cluster: Cluster) -> None:
    s = cluster.settings
    for process in processes.called_below(s.programs, s.containerd_socket):
        os.kill(process.pid, signal.SIGKILL)


def remove_the_folder(cluster: Cluster) -> None:
    shutil.rmtree(cluster.settings.state, ignore_errors=True)  # its processes continue to write


@pytest.mark.parametrize("fault", [no_fault, kill_everything, remove_the_folder])
def test_down_leaves_nothing(cluster: Cluster, fault: Callable[[Cluster], None]) -> None:
    """Links, firewall, mounts, cgroups, folders, kernel settings and processes are the same as before `up`."""
    before = traces(cluster)
    cluster.up()
    with_a_pod(cluster)
    fault(cluster)
    cluster.down()
    assert traces(cluster) == before
    assert processes.called_below(cluster.settings.programs, cluster.settings.containerd_socket) == []


def test_up_succeeds_after_an_interrupted_up(cluster: Cluster) -> None:
    """The next `up` removes a partial cluster and starts a new one."""
    before = traces(cluster)
    environment = {**os.environ, "SPECBENCH_CLUSTER_STATE": str(cluster.settings.state)}
    executable = Path(host.__file__).parents[1] / "cluster"
    with subprocess.Popen([str(executable), "up"], env=environment, stdout=subprocess.DEVNULL) as interrupted:
        while not (cluster.settings.records / "kube-apiserver.json").exists():
            assert interrupted.poll() is None
        interrupted.kill()
    assert cluster.up().status().up
    cluster.down()
    assert traces(cluster) == before
