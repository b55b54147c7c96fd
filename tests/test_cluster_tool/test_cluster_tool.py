"""The cluster tool with a real cluster that it starts (about a minute once the programs are built).

Uses the cluster shared by all tests.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from specbench_cluster import Build, Cluster, cli

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BASE = "docker.io/library/python:3.11-slim-bookworm"
IMAGE = "docker.io/library/cluster-tool-probe:1"
#: Resolves a Service, sends a request to the API server and to S3, and checks that outside addresses are unreachable.
PROBE = """
import socket, ssl, sys, urllib.error, urllib.request
assert socket.gethostbyname("kubernetes.default.svc.cluster.local") == "10.96.0.1"
trust = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
assert urllib.request.urlopen("https://kubernetes.default.svc/version", context=trust).status == 200
try:
    urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as refused:
    assert refused.code == 403, refused.code
for address in (("192.0.2.1", 80), ("10.244.0.1", 10250)):
    try:
        socket.create_connection(address, timeout=5)
    except ConnectionRefusedError:
        continue
    raise SystemExit(f"reached {address}")
print("all well")
"""


@pytest.fixture(scope="module")
def kubectl(ground: Cluster) -> Callable[..., str]:
    def call(*arguments: str, stdin: str | None = None) -> str:
        argv = [str(ground.settings.programs / "kubectl"), f"--kubeconfig={ground.kubeconfig}", *arguments]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def pod(name: str, endpoint: str, gpus: int) -> str:
    container = {
        "name": "probe",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-c", PROBE, endpoint],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def test_a_second_up_changes_nothing_and_the_node_has_its_gpus(
    ground: Cluster, kubectl: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = ground.status().components
    assert ground.up().status().components == before
    assert cli.main(["status", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["up"], found["kubeconfig"]) == (True, str(ground.kubeconfig))
    node = json.loads(kubectl("get", "nodes", ground.settings.node, "-o", "json"))
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(ground.settings.gpus)
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "SPECBENCH-FAKE-GPU"


def test_a_pod_of_a_built_image_reaches_only_the_allowed_addresses(
    ground: Cluster, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    """Builds and loads an image, and runs PROBE in a pod with GPUs."""
    (tmp_path / "Dockerfile").write_text('ARG BASE\nFROM ${BASE}\nUSER 65532\nENTRYPOINT ["python"]\n')
    build = Build(tmp_path, tmp_path / "Dockerfile", IMAGE, base_image=BASE, arguments={"BASE": BASE})
    assert ground.load_image(ground.build_image(build)) == [IMAGE]
    try:
        kubectl("apply", "-f", "-", stdin=pod("cluster-tool-probe", ground.s3.endpoint, 1))
        kubectl("wait", "pod/cluster-tool-probe", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=240s")
        assert kubectl("logs", "cluster-tool-probe") == "all well\n"
    finally:
        kubectl("delete", "pod", "cluster-tool-probe", "--ignore-not-found", "--now")


@pytest.mark.alone
def test_killed_components_start_again_and_s3_keeps_its_objects(ground: Cluster) -> None:
    """The kubelet is included because it sets the GPUs to zero when it registers a node again."""
    s3 = ground.s3
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name=s3.region,
    )
    client.put_object(Bucket=s3.bucket, Key="cluster-tool/a", Body=b"kept", ChecksumAlgorithm="SHA256")
    before = ground.status().components
    killed = ("versitygw", "kubelet", "kube-apiserver")
    for name in killed:
        ground.kill(name)
    assert not ground.status().up
    for name in reversed(killed):
        ground.start(name)
    found = ground.status()
    assert found.up
    assert {name for name, pid in found.components.items() if pid != before[name]} == set(killed)
    assert client.get_object(Bucket=s3.bucket, Key="cluster-tool/a")["Body"].read() == b"kept"
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3.bucket, Key="cluster-tool/a", Body=b"again", IfNoneMatch="*")
    client.close()
