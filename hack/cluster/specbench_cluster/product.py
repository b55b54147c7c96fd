"""Installs the product on the cluster as a user would: images, the Helm chart, a namespace, S3 and its Secret.

The demonstration and the tests share this code, so that both use the same installation.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench_cluster.cluster import Cluster
from specbench_cluster.commands import run, wait_until
from specbench_cluster.images import Build
from specbench_cluster.settings import HOST_IP, IPV6, S3_PORT, URL_HOST

ROOT = Path(__file__).resolve().parents[3]
BASE_IMAGE = "docker.io/library/python:3.11-slim-bookworm"
IMAGE = "docker.io/library/specbench:demo"
LLAMA_IMAGE = "docker.io/library/specbench-llama-cpp:demo"
S3_ENDPOINT = f"http://s3.default.svc:{S3_PORT}"
_STORES = [(f"endpoint={endpoint}", "bucket=*") for endpoint in (S3_ENDPOINT, f"http://{URL_HOST}:{S3_PORT}")]
"""Rows of the chart's fence.stores for the cluster's S3 server: by its Service's name, and by its address."""
RELEASE, SYSTEM = "specbench", "specbench-system"


def builds(image: str, source: Path = ROOT) -> list[Build]:
    """The images of client Jobs and of the operator, the latter under the name that the chart derives."""
    targets = {"specbench": image, "operator": operator_image(image)}
    arguments = {"BASE_IMAGE": BASE_IMAGE}
    return [Build(source, source / "Dockerfile", tag, BASE_IMAGE, target, arguments) for target, tag in targets.items()]


def operator_image(image: str) -> str:
    """The chart's default name of the operator's image."""
    repository, tag = image.rsplit(":", 1)
    return f"{repository}-operator:{tag}"


@dataclass(frozen=True)
class Product:
    """The product on a running cluster: one release of the chart, in its own namespace."""

    cluster: Cluster
    release: str = RELEASE
    system: str = SYSTEM
    image: str = IMAGE
    source: Path = ROOT
    """The checkout with the chart and the Dockerfile."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl. Raises CommandFailed with its output."""
        return run([str(self.program("kubectl")), *arguments], stdin=stdin, env=self.environment)

    def kubectl_json(self, *arguments: str) -> Any:
        """Run kubectl with `-o json` and parse its output."""
        return json.loads(self.kubectl(*arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any], namespace: str = "default") -> None:
        """Apply objects server-side."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("-n", namespace, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=document)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of kubectl and helm."""
        return {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}

    def program(self, name: str) -> Path:
        """The path of one of the cluster's own programs, whose version matches the cluster's."""
        return self.cluster.settings.programs / name

    def load_images(self, *, engine: bool) -> None:
        """Build and load the product's images; with `engine`, also llama.cpp's with the demonstration's models."""
        for build in builds(self.image, self.source):
            self._image(build)
        if engine:
            bare = f"{LLAMA_IMAGE}-bare"
            stages = Build(ROOT, ROOT / "Dockerfile", bare, BASE_IMAGE, "llama-cpp", {"BASE_IMAGE": BASE_IMAGE})
            self.cluster.build_image(stages)
            folder = ROOT / "examples" / "llama-cpp-image"
            self._image(Build(self._models(), folder / "Dockerfile", LLAMA_IMAGE, None, None, {"LLAMA_IMAGE": bare}))

    def install(self, *values: str) -> None:
        """Install or upgrade the chart with Helm, and wait until the operator is ready."""
        repository, tag = self.image.rsplit(":", 1)
        # The tag stays the same when the image changes, so a digest of the archive triggers the rollout.
        archive = self.cluster.image_archive(operator_image(self.image))
        built = hashlib.sha256(archive.read_bytes()).hexdigest()[:16] if archive.exists() else "unknown"
        # Clients request no CPU, because two whole cores are all that some machines have.
        settings = [f"image.repository={repository}", f"image.tag={tag}", "clientResources.cpu=0", *values]
        settings.append(f"podAnnotations.built={built}")
        settings += [f"fence.stores[{n}].{setting}" for n, row in enumerate(_STORES) for setting in row]
        chosen = [word for setting in settings for word in ("--set", setting)]
        how = ["--create-namespace", "--take-ownership", "--wait", "--timeout", "3m"]
        self.helm("upgrade", self.release, str(self.source / "helm/specbench"), "--install", *how, *chosen)

    def uninstall(self) -> None:
        """Remove the release and its namespace. The CRDs stay, as the chart's annotation requests."""
        self.helm("uninstall", self.release, "--wait", "--ignore-not-found")
        self.kubectl("delete", "namespace", self.system, "--ignore-not-found", "--wait=false")

    def helm_test(self) -> str:
        """Return the output of `helm test`. Raises CommandFailed if it fails."""
        return self.helm("test", self.release)

    def helm(self, *arguments: str) -> str:
        """Run helm in the release's namespace. Raises CommandFailed with its output."""
        return run([str(self.program("helm")), *arguments, "--namespace", self.system], env=self.environment)

    def prepare_namespace(self, name: str) -> None:
        """Create a namespace with the S3 Secret, and a Service for S3 that specs can refer to."""
        keys = self.cluster.s3
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.apply(*_s3_service())
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "bench-s3", "labels": {"specbench.io/use": "s3"}},
                "data": {
                    "AWS_ACCESS_KEY_ID": base64.b64encode(keys.access_key.encode()).decode(),
                    "AWS_SECRET_ACCESS_KEY": base64.b64encode(keys.secret_key.encode()).decode(),
                },
            },
            namespace=name,
        )
        (self.cluster.settings.state / "s3" / "bench-results").mkdir(
            exist_ok=True
        )  # a bucket of the S3 server is a folder

    def gpus(self) -> tuple[int, int]:
        """GPUs that are allocatable on the node, and GPUs that its pods request."""
        node = self.kubectl_json("get", "node", self.cluster.settings.node)
        pods = self.kubectl_json("get", "pods", "--all-namespaces")["items"]
        living = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        containers = [container for pod in living for container in pod["spec"]["containers"]]
        requested = sum(int(c.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for c in containers)
        return int(node["status"]["allocatable"]["nvidia.com/gpu"]), requested

    def run_of(self, namespace: str, name: str) -> dict[str, Any]:
        """The current SpecBenchRun."""
        found: dict[str, Any] = self.kubectl_json("-n", namespace, "get", "sbr", name)
        return found

    def wait_finished(self, namespace: str, name: str, patience_s: float) -> dict[str, Any]:
        """Wait until a run has finished or failed, and return it. Raises StartFailed with its last status."""

        def ended() -> bool:
            return self.run_of(namespace, name).get("status", {}).get("phase") in ("Succeeded", "Failed", "Invalid")

        wait_until(ended, f"the end of {namespace}/{name}", timeout_s=patience_s, interval_s=0.5)
        return self.run_of(namespace, name)

    def follow(self, namespace: str, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a kubectl that prints to this terminal until the caller ends it."""
        return subprocess.Popen([str(self.program("kubectl")), "-n", namespace, *arguments], env=self.environment)

    def _image(self, build: Build) -> None:
        self.cluster.load_image(self.cluster.build_image(build))

    def _models(self) -> Path:
        """A build context that contains only the demonstration's models."""
        made = run([sys.executable, str(ROOT / "hack/models/demo_model")]).splitlines()
        context = self.cluster.settings.cache / "images" / "llama-cpp-context"
        context.mkdir(parents=True, exist_ok=True)
        for model in made:
            target = context / Path(model).name
            if not target.exists():
                shutil.copyfile(model, target)
        return context


def _s3_service() -> tuple[dict[str, Any], ...]:
    port = {"name": "s3", "port": S3_PORT, "protocol": "TCP"}
    labels = {"kubernetes.io/service-name": "s3"}
    return (
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s3"}, "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "s3-host", "labels": labels},
            "addressType": "IPv6" if IPV6 else "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [HOST_IP]}],
        },
    )
