"""A real Kubernetes of one node and a real S3 server, brought up and taken away.

`up` works towards a state rather than through a script: it starts what is not alive
and waits on conditions, so that it repairs as well as creates. `down` relies on what
it finds on the machine, not on `up` having ended well.
"""

import json
from contextlib import AbstractContextManager
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from specbench_cluster import binaries, certificates, configuration, host, node, requirements
from specbench_cluster.commands import SEARCH_PATH, run, tail, wait_until
from specbench_cluster.components import COMPONENTS, Component
from specbench_cluster.errors import NotUp, StartFailed, UnknownComponent
from specbench_cluster.image_archive import write_pause
from specbench_cluster.images import Build, Images
from specbench_cluster.kubernetes_api import ApiRefused, KubernetesApi
from specbench_cluster.processes import Process, called_below, end, recorded, spawn
from specbench_cluster.settings import HOST_IP, S3, S3_PORT, Settings


def to_stderr(message: str) -> None:
    """The usual progress: results alone go to stdout."""
    print(f"cluster: {message}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Status:
    """What stands; `components` maps each name to its pid, or None where it is not running."""

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
    """One cluster in one state folder; several objects, also in several processes, may speak of the same."""

    settings: Settings = field(default_factory=Settings)
    progress: Callable[[str], None] = to_stderr

    @property
    def kubeconfig(self) -> Path:
        return self.settings.kubeconfig

    @property
    def s3(self) -> S3:
        """The S3 server's address and keys; raises NotUp before `up`."""
        keys = self.settings.configuration / "s3.json"
        if not keys.exists():
            raise NotUp(f"no cluster in {self.settings.state}; `cluster up` makes one")
        return S3(f"http://{HOST_IP}:{S3_PORT}", self.settings.bucket, **json.loads(keys.read_text()))

    def up(self) -> "Cluster":
        """Bring the cluster up, or repair it, and return when pods can run; whoever comes second waits."""
        requirements.require(requirements.RUNTIME, self.progress)
        programs = binaries.build_all(self.settings.cache, self.progress)
        with self._alone():
            if self._stale():
                self.progress("an earlier cluster did not end well; removing what is left of it")
                self._down()
            if self.is_up():
                self.progress(f"is up in {self.settings.state}")
                return self
            try:
                self._prepare(programs)
                self._start_all()
            except BaseException:
                self.progress(f"not up; logs are in {self.settings.logs}, `cluster down` removes the rest")
                raise
        self.progress(f"up: {self.kubeconfig}")
        return self

    def down(self) -> None:
        """End everything of this cluster and remove every trace; works on any part of one, and on none."""
        requirements.require(requirements.REMOVAL, self.progress)
        with self._alone():
            self._down()
        self.progress("down")

    def is_up(self) -> bool:
        """Whether all components run and the node takes pods with all its GPUs."""
        found = self.status()
        return found.up

    def status(self) -> Status:
        """Look, without changing anything."""
        pids = {name: self._pid(name) for name in COMPONENTS}
        seen = None
        if pids["kube-apiserver"] is not None:
            try:
                seen = KubernetesApi(self.settings).node()
            except ApiRefused as refused:
                self.progress(f"the API server does not answer: {refused}")
        ready, gpus = (seen.ready, seen.gpus) if seen else (False, 0)
        return Status(
            up=all(pid is not None for pid in pids.values()) and ready and gpus == self.settings.gpus,
            state=str(self.settings.state),
            kubeconfig=str(self.kubeconfig),
            components=pids,
            node=self.settings.node,
            node_ready=ready,
            gpus=gpus,
            s3_endpoint=f"http://{HOST_IP}:{S3_PORT}",
        )

    def start(self, name: str) -> None:
        """Start one component, and return when it serves; one that runs is left alone."""
        component = _component(name)
        if self._process(name) is None:
            self._spawn(component)
        self._await(component)
        if name == "kubelet":
            self._equip_node()

    def kill(self, name: str) -> None:
        """End one component as a crash would: at once, without a word."""
        end(self._living(_component(name)))

    def stop(self, name: str) -> None:
        """End one component as an upgrade would: asked, with ten seconds to comply."""
        end(self._living(_component(name)), patience_s=10)

    def restart(self, name: str) -> None:
        """Stop and start one component; what depends on it reconnects by itself."""
        self.stop(name)
        self.start(name)

    def load_image(self, archive: Path) -> list[str]:
        """Load a Docker or OCI archive into the node; return its image names once pods can use them."""
        if self._process("containerd") is None:
            raise NotUp(f"no cluster in {self.settings.state}; `cluster up` makes one")
        ctr = ["ctr", "--address", str(self.settings.containerd_socket), "--namespace", "k8s.io", "images"]
        said = run([*ctr, "import", "--snapshotter", "overlayfs", str(archive)])
        names = [line.split()[1] for line in said.splitlines() if line.startswith("unpacking ")]
        # The kubelet's view follows by an event; a pod that comes before it would try to pull, and back off.
        for name in names:
            wait_until(lambda n=name: "cri-containerd.image=managed" in run([*ctr, "ls", f"name=={n}"]), f"image {name}")
        return names

    def build_image(self, build: Build) -> Path:
        """Build an image and return its archive; needs no running cluster."""
        return Images(self.settings.cache, self.progress).build(build)

    # -- what follows is how ----------------------------------------------------------------------

    def _alone(self) -> AbstractContextManager[None]:
        # In the cache, not in the state folder: that one is removed while the lock is held.
        return binaries.locked(self.settings.cache / "cluster.lock")

    def _stale(self) -> bool:
        """Whether the folder holds a cluster that cannot be repaired: half made, or of an earlier boot."""
        records = self.settings.records
        if not self.settings.state.exists():
            return False
        complete = records / "complete"
        if not complete.exists() or complete.read_text() != host.boot_id():
            return True
        return any(self._process(name) is None for name in (node.HOLDER, "containerd", "etcd"))

    def _prepare(self, programs: dict[str, Path]) -> None:
        s = self.settings
        for folder in (s.state, s.programs, s.logs, s.records, s.state / "s3" / s.bucket, s.containerd_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        s.state.chmod(0o711)
        system = {name: Path(requirements.find(name) or name) for name in ("containerd",)}
        for name, file in {**programs, **system, node.HOLDER: programs["pause"]}.items():
            link = s.programs / name
            if not link.exists():
                link.symlink_to(file)
        host.prepare(s)
        certificates.write_all(s.certificates)
        if not s.kubeconfig.exists():
            configuration.write_all(s)

    def _start_all(self) -> None:
        s = self.settings
        self.progress("starting the cluster")
        if self._process(node.HOLDER) is None:
            holder = spawn(node.holder_call(s), s.logs / "node.log", self._environment(), self._record(node.HOLDER))
            wait_until(lambda: node.is_held(s, holder), "the node's mount namespace", timeout_s=10)
        for component in COMPONENTS.values():
            for earlier in component.after:
                self._await(COMPONENTS[earlier])
            if self._process(component.name) is None:
                self._spawn(component)
        self._load_pause()
        for component in COMPONENTS.values():
            self._await(component)
        self._equip_node()
        api = KubernetesApi(s)
        wait_until(api.pods_can_be_made, "the default service account")
        (s.records / "complete").write_text(host.boot_id())

    def _load_pause(self) -> None:
        self._await(COMPONENTS["containerd"])
        archive = self.settings.state / "pause.tar"
        write_pause(self.settings.programs / "pause", configuration.PAUSE_IMAGE, archive)
        self.load_image(archive)

    def _equip_node(self) -> None:
        """Give the node its GPUs until they stay: a kubelet that registers late zeroes them once."""
        api = KubernetesApi(self.settings)

        def equipped() -> bool:
            try:
                seen = api.node()
                if seen is None:
                    return False
                if seen.gpus != self.settings.gpus:
                    api.give_gpus()
                    return False
            except ApiRefused:
                return False  # the wait's own end says what was missing
            return seen.ready

        wait_until(equipped, "the node, ready and with its GPUs", timeout_s=90, explain=lambda: self._log("kubelet"))

    def _spawn(self, component: Component) -> None:
        s = self.settings
        call = [str(s.programs / component.name), *component.arguments(s)]
        if component.in_node:
            holder = self._process(node.HOLDER)
            if holder is None:
                raise NotUp("the node's namespace is gone; take the cluster down and up")
            call = [*node.inside(holder), *call]
        env = {**self._environment(), **component.environment(s)}
        spawn(call, s.logs / f"{component.name}.log", env, self._record(component.name))

    def _environment(self) -> dict[str, str]:
        """Little on purpose: a proxy set for the shell would also catch calls within the cluster."""
        return {"PATH": SEARCH_PATH, "HOME": str(self.settings.state), "LANG": "C.UTF-8"}

    def _await(self, component: Component) -> None:
        def serves() -> bool:
            if self._process(component.name) is None:
                raise StartFailed(f"{component.name} ended at once:\n{self._log(component.name)}")
            return component.ready(self.settings)

        wait_until(serves, component.name, explain=lambda: self._log(component.name))

    def _log(self, name: str) -> str:
        log = self.settings.logs / f"{name}.log"
        return f"{log} ends:\n{tail(log)}"

    def _record(self, name: str) -> Path:
        return self.settings.records / f"{name}.json"

    def _process(self, name: str) -> Process | None:
        process = recorded(self._record(name))
        return process if process is not None and process.alive else None

    def _pid(self, name: str) -> int | None:
        process = self._process(name)
        return process.pid if process else None

    def _living(self, component: Component) -> list[Process]:
        process = self._process(component.name)
        return [process] if process else []

    def _down(self) -> None:
        s = self.settings
        self.progress(f"ending the cluster in {s.state}")
        names = [node.HOLDER, *COMPONENTS]
        known = {name: process for name in names if (process := self._process(name))}
        # The kubelet and containerd first: they would start again what is ended next.
        end([known[name] for name in ("kubelet", "containerd") if name in known])
        host.kill_pods()
        end([*known.values(), *called_below(s.programs, s.containerd_socket)])
        host.kill_pods()  # what a shim started between the two
        host.restore(s)
        if s.state.exists():
            shutil.rmtree(s.state)


def _component(name: str) -> Component:
    if name not in COMPONENTS:
        raise UnknownComponent(f"no component {name!r}; there are {', '.join(COMPONENTS)}")
    return COMPONENTS[name]
