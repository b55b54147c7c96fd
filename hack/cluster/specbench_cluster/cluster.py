"""Starts and stops a real Kubernetes cluster of one node with a real S3 server.

`up` is declarative: it starts what is not running and waits for conditions, so it also repairs a cluster. `down` uses
only the state of the machine, so it also works after an `up` that failed.
"""

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from specbench_cluster import binaries, certificates, configuration, host, requirements
from specbench_cluster.commands import locked, run, wait_until
from specbench_cluster.components import COMPONENTS
from specbench_cluster.daemons import NAMESPACE_HOLDER, Daemons, component_named
from specbench_cluster.errors import ForeignCluster, NotUp
from specbench_cluster.images import Build, Images, write_pause
from specbench_cluster.kubernetes_api import ApiRefused, KubernetesApi
from specbench_cluster.settings import S3, S3_PORT, URL_HOST, Settings


def to_stderr(message: str) -> None:
    """Print progress to stderr, because only results go to stdout."""
    print(f"cluster: {message}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a cluster; `components` maps each name to its pid, or None if it is not running."""

    up: bool
    state: str
    kubeconfig: str
    components: dict[str, int | None]
    node: str
    node_ready: bool
    gpus: int
    s3_endpoint: str


@dataclass(frozen=True)
class Cluster:
    """A cluster in a state folder. Several objects, also in several processes, may refer to the same cluster."""

    settings: Settings = field(default_factory=Settings)
    progress: Callable[[str], None] = to_stderr

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, which is self-contained and may be copied."""
        return self.settings.kubeconfig

    @property
    def s3(self) -> S3:
        """The S3 server's address and keys. Raises NotUp before `up`."""
        keys = self.settings.configuration / "s3.json"
        if not keys.exists():
            raise NotUp(f"no cluster in {self.settings.state}: start one with `cluster up`")
        return S3(f"http://{URL_HOST}:{S3_PORT}", self.settings.bucket, **json.loads(keys.read_text()))

    def up(self) -> "Cluster":
        """Start or repair the cluster and return when pods can run. Concurrent calls wait for each other."""
        requirements.require(requirements.RUNTIME, self.progress)
        programs = binaries.build(self.settings.cache, self.progress)
        with self._alone():
            self._refuse_foreign_folder()
            if self._beyond_repair():
                self.progress("removing the remains of an earlier cluster that was not stopped properly")
                self._down()
            self._record_requested_gpus()
            if self.status().up:
                self.progress(f"already running in {self.settings.state}")
                return self
            self.progress("starting the cluster")
            self._prepare(programs)
            self._start_all()
        self.progress("the cluster is running")
        return self

    def down(self) -> None:
        """Stop the cluster and remove all its traces; also works for an incomplete or missing cluster."""
        requirements.require(requirements.REMOVAL, self.progress)
        with self._alone():
            self._refuse_foreign_folder()
            self._down()
        self.progress("the cluster is stopped and removed")

    def status(self) -> Status:
        """Return the status. `up`: all components run and the node has the configured number of GPUs."""
        living = {name: self._daemons.process(name) for name in COMPONENTS}
        seen = None
        if living["kube-apiserver"] is not None:
            try:
                seen = KubernetesApi(self.settings).node()
            except ApiRefused as refused:
                self.progress(f"the API server does not answer: {refused}")
        ready, gpus = (seen.ready, seen.gpus) if seen else (False, 0)
        return Status(
            up=all(living.values()) and ready and gpus == self._requested_gpus()[0],
            state=str(self.settings.state),
            kubeconfig=str(self.kubeconfig),
            components={name: process.pid if process else None for name, process in living.items()},
            node=self.settings.node,
            node_ready=ready,
            gpus=gpus,
            s3_endpoint=f"http://{URL_HOST}:{S3_PORT}",
        )

    def start(self, name: str) -> None:
        """Start a component unless it is running, and return when it is ready."""
        self._launch(name)
        self._daemons.wait_for(name)
        if name == "kubelet":
            self._equip_node()

    def kill(self, name: str) -> None:
        """Kill a component immediately, like a crash."""
        self._daemons.end(name, patience_s=0)

    def stop(self, name: str) -> None:
        """Stop a component as an upgrade does: SIGTERM, with ten seconds to end."""
        self._daemons.end(name, patience_s=10)

    def restart(self, name: str) -> None:
        """Stop and start a component; its clients reconnect by themselves."""
        self.stop(name)
        self.start(name)

    def load_image(self, archive: Path) -> list[str]:
        """Load a Docker or OCI archive into the node; return its image names once pods can use them."""
        if self._daemons.process("containerd") is None:
            raise NotUp(f"no cluster in {self.settings.state}: start one with `cluster up`")
        ctr = ["ctr", "--address", str(self.settings.containerd_socket), "--namespace", "k8s.io", "images"]
        output = run([*ctr, "import", "--snapshotter", "overlayfs", str(archive)])
        names = [line.split()[1] for line in output.splitlines() if line.startswith("unpacking ")]

        # The kubelet learns of an image by an event; a pod created earlier would try to pull it, and back off.
        def seen_by_kubelet(name: str) -> bool:
            return "cri-containerd.image=managed" in run([*ctr, "ls", f"name=={name}"])

        for name in names:
            wait_until(partial(seen_by_kubelet, name), f"image {name}")
        return names

    def build_image(self, build: Build) -> Path:
        """Build an image and return its archive; needs no running cluster."""
        return Images(self.settings.cache, self.progress).build(build)

    def image_archive(self, tag: str) -> Path:
        """Return the path at which `build_image` stores the archive of this tag."""
        return Images(self.settings.cache, self.progress).archive(tag)

    # Implementation of the methods above.

    @property
    def _daemons(self) -> Daemons:
        return Daemons(self.settings)

    def _alone(self) -> AbstractContextManager[None]:
        # In the cache, because the state folder is removed while the lock is held.
        return locked(self.settings.cache / "cluster.lock")

    def _refuse_foreign_folder(self) -> None:
        """Raise ForeignCluster for a folder that `up` has not created, because `down` removes the state folder."""
        state = self.settings.state
        ours = self.settings.records.exists() or host.bridge_owner() == str(state)
        if state.exists() and any(state.iterdir()) and not ours:
            raise ForeignCluster(
                f"{state} is not empty and not a cluster's folder: set SPECBENCH_CLUSTER_STATE to another"
            )

    def _beyond_repair(self) -> bool:
        """Return whether the folder has a cluster that is incomplete, of an earlier boot, or without its namespace."""
        if not self.settings.state.exists():
            return False
        complete = self.settings.records / "complete"
        if not complete.exists() or complete.read_text() != host.boot_id():
            return True
        return any(self._daemons.process(name) is None for name in (NAMESPACE_HOLDER, "containerd", "etcd"))

    def _record_requested_gpus(self) -> None:
        self.settings.records.mkdir(parents=True, exist_ok=True)
        requested = {"gpus": self.settings.gpus, "product": self.settings.gpu_product}
        (self.settings.records / "gpus").write_text(json.dumps(requested))

    def _requested_gpus(self) -> tuple[int, str]:
        """Return the settings that `up` was called with, so that `restart` and `status` do not need them."""
        record = self.settings.records / "gpus"
        if not record.exists():
            return self.settings.gpus, self.settings.gpu_product
        requested = json.loads(record.read_text())
        return requested["gpus"], requested["product"]

    def _prepare(self, programs: dict[str, Path]) -> None:
        s = self.settings
        for folder in (s.programs, s.logs, s.state / "s3" / s.bucket, s.containerd_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        containerd = Path(requirements.find("containerd") or "containerd")
        for name, file in {**programs, "containerd": containerd, NAMESPACE_HOLDER: programs["pause"]}.items():
            if not (s.programs / name).exists():
                (s.programs / name).symlink_to(file)
        host.prepare(s)
        certificates.write_all(s.certificates)
        if not s.kubeconfig.exists():
            configuration.write_all(s)

    def _start_all(self) -> None:
        daemons = self._daemons
        daemons.hold_namespace()
        for name in COMPONENTS:
            for earlier in component_named(name).after:
                daemons.wait_for(earlier)
            self._launch(name)
        archive = self.settings.state / "pause.tar"
        write_pause(self.settings.programs / "pause", configuration.PAUSE_IMAGE, archive)
        self.load_image(archive)
        for name in COMPONENTS:
            daemons.wait_for(name)
        self._equip_node()
        wait_until(KubernetesApi(self.settings).pods_can_be_made, "the default service account")
        (self.settings.records / "complete").write_text(host.boot_id())

    def _launch(self, name: str) -> None:
        """Start a component unless it runs; for a kubelet, discard earlier node reports."""
        if name == "kubelet" and self._daemons.process(name) is None and self.kubeconfig.exists():
            KubernetesApi(self.settings).await_report()
        self._daemons.start(name)

    def _equip_node(self) -> None:
        """Set the node's GPUs after the kubelet has registered, because registration resets them to zero."""
        api = KubernetesApi(self.settings)
        gpus, product = self._requested_gpus()

        def equipped() -> bool:
            try:
                seen = api.node()
                if seen is None or not seen.reported:
                    return False
                if seen.gpus != gpus:
                    api.give_gpus(gpus, product)
                    return False
            except ApiRefused:
                return False  # it may be restarting too; a timeout of this wait reports what was missing
            return seen.ready

        wait_until(
            equipped, "the node, ready and with its GPUs", timeout_s=90, explain=lambda: self._daemons.log("kubelet")
        )

    def _down(self) -> None:
        s = self.settings
        self._daemons.end("kubelet", patience_s=0)  # it would restart the processes that end next
        host.kill_pods(s)
        self._daemons.end_all()
        host.kill_pods(s)  # processes that a shim started between the two calls
        host.restore(s)
        if s.state.exists():
            shutil.rmtree(s.state)
