"""The chart on a real cluster: install, test, upgrade and uninstall, with an image of this tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from specbench_testing.api_server_runs import Runs
from specbench_testing.charts import CHART, ChartRefused, Helm
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import eventually
from specbench_testing.resources import resource
from specbench_testing.shared_cluster import program

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RUN_ENDS_WITHIN_S = 300


@dataclass(frozen=True)
class Release:
    """A release of the chart in its own namespace, and the namespace of its runs."""

    cluster: Cluster
    helm: Helm
    namespace: str
    runs_namespace: str
    image: dict[str, str]

    def helm_run(self, *arguments: str, **values: Any) -> str:
        """Call Helm for this release. Raises ChartRefused."""
        given = ["--values", "-"] if arguments[0] in {"install", "upgrade"} else []
        # Any endpoint is allowed, because the tests' S3 server is not AWS.
        fence = {"stores": [{"endpoint": "*", "bucket": "*"}], "secretsOptIn": False}
        small_node = {"clientResources": {"cpu": 1}}
        own = {"image": self.image, "watchNamespaces": [self.runs_namespace], "fence": fence, **small_node}
        stdin = json.dumps({**own, **values}) if given else ""
        command = [*arguments[:1], "bench", *arguments[1:], "--namespace", self.namespace, *given]
        return self.helm.run(*command, stdin=stdin, kubeconfig=self.cluster.kubeconfig)

    def pods(self) -> list[dict[str, Any]]:
        """The operator's pods."""
        query = {"labelSelector": "app.kubernetes.io/component=operator"}
        found = self.cluster.call("GET", f"/api/v1/namespaces/{self.namespace}/pods", query=query)
        return list(found["items"])

    def holder(self) -> str:
        """The pod that holds the operator's Lease; empty if none does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/bench-specbench"
        return str(self.cluster.call("GET", path)["spec"].get("holderIdentity") or "")

    def log(self) -> str:
        """The logs of the operator's pods."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{{}}/log"
        return "\n".join(self.cluster.text(path.format(pod["metadata"]["name"])) for pod in self.pods())

    def diagnostics(self) -> str:
        """Diagnostics of the operator: the status of its pods, and their logs."""
        return json.dumps([pod["status"] for pod in self.pods()], indent=1) + "\n" + self.log()


@pytest.fixture(scope="module")
def release(cluster: Cluster, image: str) -> Iterator[Release]:
    repository, _, tag = image.rpartition(":")
    with cluster.namespace("chart") as namespace, cluster.namespace("chart-runs") as runs_namespace:
        image_values = {"repository": repository, "tag": tag}
        found = Release(cluster, Helm(program("helm")), namespace, runs_namespace, image_values)
        # The CRDs are cluster-wide, and the `crd` fixture has installed them.
        try:
            found.helm_run("install", str(CHART), "--wait", "--timeout", "300s", crds={"install": False})
        except ChartRefused as rejected:
            pytest.fail(f"{rejected}\n{found.diagnostics()}", pytrace=False)
        yield found
        found.helm_run("uninstall", "--wait")


@pytest.fixture(scope="module", autouse=True)
def _definition(crd: object) -> None:
    """Install the CRD for every test of this module."""


def test_the_operator_runs_restricted_and_stays_up(release: Release) -> None:
    (pod,) = release.pods()
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0)
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_helm_test_succeeds(release: Release) -> None:
    assert "Phase:          Succeeded" in release.helm_run("test", "--timeout", "300s")


def test_a_run_succeeds_with_the_permissions_that_the_chart_grants(release: Release) -> None:
    ground = release.cluster.ground
    if ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    keys = {"AWS_ACCESS_KEY_ID": ground.s3.access_key, "AWS_SECRET_ACCESS_KEY": ground.s3.secret_key}
    secret = {"metadata": {"name": "bench-s3"}, "stringData": keys}
    release.cluster.call("POST", f"/api/v1/namespaces/{release.runs_namespace}/secrets", secret)
    runs = Runs(release.cluster, release.runs_namespace)
    runs.create(
        resource(
            {
                "spec.workloads[0].dataset": {
                    "source": "jsonl",
                    "uri": "/usr/share/specbench/prompts.jsonl",
                    "count": 4,
                },
                "spec.workloads[0].output": {"maxTokens": 16},
                "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
                "spec.results.s3": {
                    "bucket": ground.s3.bucket,
                    "prefix": release.runs_namespace,
                    "endpoint": ground.s3.endpoint,
                    "credentialsSecretRef": {"name": "bench-s3"},
                },
            },
            name="first",
        )
    )
    status = finished(runs, "first")
    assert (status["phase"], status["progress"]) == ("Succeeded", "2/2")
    assert {row["arm"] for row in status["arms"]} == {"none", "ngram"}
    assert "is forbidden" not in release.log()


def test_an_upgrade_replaces_the_single_operator_pod_which_then_leads(release: Release) -> None:
    release.helm_run(
        "upgrade", str(CHART), "--wait", "--timeout", "300s", crds={"install": False}, podLabels={"upgraded": "yes"}
    )
    remaining = [pod for pod in release.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["metadata"]["labels"].get("upgraded") for pod in remaining] == ["yes"]
    eventually(lambda: release.holder() == remaining[0]["metadata"]["name"], "the new pod does not lead")


def finished(runs: Runs, name: str) -> dict[str, Any]:
    """The status of the run once it is Ready. Fails with the status if the run stalls or does not finish."""
    status: dict[str, Any] = {}

    def ready() -> bool:
        status.update(runs.get(name)["status"])
        conditions = {row["type"]: row["status"] for row in status.get("conditions", [])}
        assert conditions.get("Stalled") != "True", f"the run stalls: {json.dumps(status, indent=1)}"
        return conditions.get("Ready") == "True"

    eventually(ready, "the run does not end", RUN_ENDS_WITHIN_S)
    return status
