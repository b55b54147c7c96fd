"""A pod template that conflicts with what the operator sets is refused, with the path and what to do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.launch.sglang import QUIET_HEALTH
from specbench_api.plan.expansion import expand
from specbench_api.plan.template_conflicts import amount_of
from specbench_testing.resources import run_of

T = "spec.placement.template"
C = f"{T}.spec.containers[0]"
SCRATCH = {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}


(QUIET,) = QUIET_HEALTH
"""A variable that the launcher of SGLang sets."""


def labelled(key: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key: "x"}}}


def annotated(key: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: "x"}}}


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"volumes": [SCRATCH], "containers": [{"name": "engine", **fields}]}}


def mounted(path: str, volume: str = "scratch") -> dict[str, Any]:
    return container(volumeMounts=[{"name": volume, "mountPath": path}])


def variable(name: str) -> dict[str, Any]:
    return container(env=[{"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])


def resources(requests: dict[str, Any] | None = None, **limits: Any) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): amount for name, amount in limits.items()}
    return container(resources={"requests": requests or {}, "limits": named})


def problems(template: dict[str, Any], **edits: Any) -> list[tuple[str, str]]:
    try:
        expand(run_of({"spec.placement.template": template, **edits}))
    except InvalidSpec as error:
        return [(problem.path, str(problem)) for problem in error.problems]
    return []


CONFLICTS: list[tuple[dict[str, Any], str, str]] = [
    *(
        (labelled(key), f"{T}.metadata.labels[{key}]", "remove it")
        for key in (
            "specbench.io/run",
            "x.specbench.io/y",
            "app.kubernetes.io/name",
            "kubernetes.io/x",
            "leaderworkerset.sigs.k8s.io/name",
            "kueue.x-k8s.io/queue-name",
            "x-k8s.io/y",
            "job-name",
            "controller-uid",
        )
    ),
    (labelled("not a key"), f"{T}.metadata.labels[not a key]", "write a key"),
    *(
        (annotated(key), f"{T}.metadata.annotations[{key}]", "remove it")
        for key in (
            "specbench.io/verdict",
            "cluster-autoscaler.kubernetes.io/safe-to-evict",
            "karpenter.sh/do-not-disrupt",
            "container.apparmor.security.beta.kubernetes.io/engine",
        )
    ),
    *(
        ({"spec": {"volumes": [{**SCRATCH, "name": name}]}}, f"{T}.spec.volumes[0].name", "choose another name")
        for name in ("shm", "tmp", "models", "cache", "config")
    ),
    *(
        (mounted(path), f"{C}.volumeMounts[0].mountPath", "choose another folder")
        for path in (
            "/dev/shm",
            "/dev",
            "/tmp/",
            "/tmp/x",
            "//tmp",
            "/models/a/b",
            "/etc/specbench",
            "/var/cache/specbench/hub",
        )
    ),
    (mounted("/x", "absent"), f"{C}.volumeMounts[0].name", "use one of scratch"),
    (
        {"spec": {"containers": [{"name": "engine", "volumeMounts": [{"name": "y", "mountPath": "/x"}]}]}},
        f"{C}.volumeMounts[0].name",
        "the template has no volume 'y' (add it to spec.placement.template.spec.volumes)",
    ),
    (variable("HF_TOKEN"), f"{C}.env[0].name", "spec.model.tokenSecretRef"),
    (variable("HOME"), f"{C}.env[0].name", "remove"),
    (variable("HF_HOME"), f"{C}.env[0].name", "remove"),
    (variable("LWS_WORKER_INDEX"), f"{C}.env[0].name", "remove"),
    (resources(nvidia_com__gpu=1), f"{C}.resources.limits[nvidia.com/gpu]", "set gpus instead"),
    (resources(pods=1), f"{C}.resources.limits[pods]", "rdma/hca"),
    (resources(hugepages=1), f"{C}.resources.limits[hugepages]", "rdma/hca"),
    (resources(x_kubernetes_io__y=1), f"{C}.resources.limits[x.kubernetes.io/y]", "rdma/hca"),
    (resources(rdma__hca="500m"), f"{C}.resources.limits[rdma/hca]", "whole number"),
    (resources({"rdma/hca": 1}), f"{C}.resources.requests[rdma/hca]", "set only its limit"),
    (resources({"rdma/hca": 1}, rdma__hca=2), f"{C}.resources.requests[rdma/hca]", "set only its limit"),
    (resources({"cpu": "2500m"}, cpu=2), f"{C}.resources.requests[cpu]", "at most the limit"),
    (resources({"memory": "1Gi"}, memory="1G"), f"{C}.resources.requests[memory]", "at most the limit"),
]


@pytest.mark.parametrize(("template", "path", "remedy"), CONFLICTS, ids=str)
def test_a_conflict_is_refused_with_path_and_remedy(template: dict[str, Any], path: str, remedy: str) -> None:
    ((found, message),) = problems(template)
    assert found == path
    assert remedy in message


@pytest.mark.parametrize(
    "template",
    [
        labelled("team"),
        labelled("sidecar.istio.io/inject"),
        annotated("k8s.v1.cni.cncf.io/networks"),
        annotated("notkubernetes.io/x"),
        # Kueue reads it from the pods; a label of the same domain would hand the pods over to it.
        annotated("kueue.x-k8s.io/podset-preferred-topology"),
        variable("A"),
        variable(QUIET),
        mounted("/mnt/data"),
        mounted("/tmpx"),
        resources({"cpu": "1", "memory": "1Gi"}, cpu="1500m", memory="1Gi", rdma__hca=1),
        resources({"cpu": "1"}),
        resources({"rdma/hca": "1"}, rdma__hca=1),
    ],
    ids=str,
)
def test_what_does_not_conflict_is_accepted(template: dict[str, Any]) -> None:
    assert problems(template) == []


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("A", {"spec.engine.env": [{"name": "A", "value": "1"}]}),
        (QUIET, {"spec.engine": {"kind": "sglang", "version": "0.5.23"}, "spec.drafters": []}),
    ],
)
def test_a_variable_that_the_engine_has_already_is_refused(name: str, engine: dict[str, Any]) -> None:
    assert [path for path, _ in problems(variable(name), **engine)] == [f"{C}.env[0].name"]


def test_the_clients_template_and_resources_are_checked_too() -> None:
    client = {"template": labelled("specbench.io/run"), "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}
    with pytest.raises(InvalidSpec) as caught:
        expand(run_of({"spec.placement.client": client}))
    assert [problem.path for problem in caught.value.problems] == [
        "spec.placement.client.resources.requests[cpu]",
        "spec.placement.client.template.metadata.labels[specbench.io/run]",
    ]


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [("2", 2), ("500m", "0.5"), ("1.5", "1.5"), ("1k", 1000), ("1Ki", 1024), ("2Gi", 2 * 1024**3), ("1T", 10**12)],
)
def test_quantities_are_compared_by_their_amount(quantity: str, amount: Any) -> None:
    assert amount_of(quantity) == Decimal(amount)
