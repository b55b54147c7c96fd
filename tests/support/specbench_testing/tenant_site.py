"""A namespace in which a person who may only create runs and campaigns attacks an operator process."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_RUN
from specbench_testing.api_server_runs import Runs
from specbench_testing.charts import grant
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, campaign, resource
from specbench_testing.tenant_attacks import BUCKET, TENANT_FENCE, Attack

CREATE_RUNS: dict[str, Any] = {
    "apiGroups": ["specbench.io"],
    "resources": [RUN.plural, CAMPAIGN.plural],
    "verbs": ["create", "get", "list", "watch", "patch", "delete"],
}
"""All rights of the tenant."""
SECRETS: Mapping[str, str | None] = {
    "bench-s3": "s3",
    "team-s3": "s3",
    "team-hub": "hub",
    "team-engine": "engine",
    "prod-s3": None,
    "prod-db": None,
}
"""Secrets of the namespace, with their label specbench.io/use."""
MARKER = "known-value-of-a-secret-4711"
"""Value in every Secret of the namespace that is not a key of S3."""
_NOWHERE = {"nvidia.com/gpu.product": "none"}
"""Labels of no node: pods are created, but not scheduled."""
_CHILDREN = {"jobs": "/apis/batch/v1", "pods": "/api/v1", "services": "/api/v1", "configmaps": "/api/v1"}


def base_run(endpoint: str) -> dict[str, Any]:
    """Edits of a run that the fence allows, and whose pods are not scheduled."""
    return {
        "spec.load": {"concurrency": [1], "repeats": 1},
        "spec.workloads[0].dataset.uri": "/usr/share/specbench/prompts.jsonl",
        "spec.placement": {"nodeSelector": _NOWHERE, "client": {"nodeSelector": _NOWHERE}},
        "spec.results.s3": {"bucket": BUCKET, "endpoint": endpoint, "credentialsSecretRef": {"name": "bench-s3"}},
        "spec.startupDeadlineSeconds": 3600,
    }


def in_template(edits: Mapping[str, Any]) -> dict[str, Any]:
    """The same edits of a campaign's template. A campaign has no other metadata."""
    return {
        path.replace("spec.", "spec.template.spec.", 1): value
        for path, value in edits.items()
        if path.startswith("spec.")
    }


def contains(found: Any, wanted: Any) -> bool:
    """Whether a part of the found document has all that is wanted."""
    if _matches(found, wanted):
        return True
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return any(contains(each, wanted) for each in inner)


def _matches(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, dict) and all(key in found and _matches(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_matches, found, wanted))
    return bool(found == wanted)


@dataclass
class TenantSite:
    """The namespace, its operator, and what the tenant has created."""

    cluster: Cluster
    namespace: str
    operator: OperatorProcess
    site: OperatorSite
    base: Mapping[str, Any]
    listener: socket.socket
    """A port on the operator's own machine, which no request must reach."""
    refused: dict[str, str] = field(default_factory=dict)
    """Messages of the API server for runs that it refused."""

    @property
    def tenant(self) -> Cluster:
        """The cluster with the tenant's rights."""
        return self.cluster.acting_as(tenant_of(self.namespace))

    def attack(self, attack: Attack) -> None:
        """Create the run of an attack with the tenant's rights."""
        edits = dict(attack.edits)
        if attack.name == "loopback":
            edits["spec.results.s3.endpoint"] = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.create_run(attack.name, edits)

    def create_run(self, name: str, edits: Mapping[str, Any]) -> None:
        """Create a run with the tenant's rights."""
        try:
            Runs(self.tenant, self.namespace).create(resource({**self.base, **edits}, name=name))
        except ApiError as error:
            self.refused[name] = str(error)

    def create_campaign(self, name: str, edits: Mapping[str, Any]) -> None:
        """Create a campaign with the tenant's rights, whose template is allowed unless the edits change it."""
        given = campaign({**in_template(self.base), **edits}, name=name)
        Runs(self.tenant, self.namespace, CAMPAIGN.plural).create(given)

    def validated(self, name: str) -> dict[str, str]:
        """The condition Validated of a run, once the operator has decided."""
        return _validated(lambda: self.site.runs.get(name))

    def campaign_refusal(self, name: str) -> str:
        """Why the operator refuses a campaign, or all its runs. Fails if it refuses neither."""
        row = _validated(lambda: self.site.campaigns.get(name))
        if row["status"] == "False":
            return row["message"]
        path = f"/apis/specbench.io/v1alpha1/namespaces/{self.namespace}/{RUN.plural}"
        query = {"labelSelector": f"{LABEL_CAMPAIGN}={name}"}
        found = eventually(lambda: self.cluster.call("GET", path, query=query)["items"], f"{name} has no run")
        rows = [self.validated(run["metadata"]["name"]) for run in found]
        assert {each["status"] for each in rows} == {"False"}, rows
        return "; ".join(each["message"] for each in rows)

    def children(self, kind: str) -> list[Resource]:
        """All children of runs in the namespace."""
        query = {"labelSelector": LABEL_RUN}
        path = f"{_CHILDREN[kind]}/namespaces/{self.namespace}/{kind}"
        return list(self.cluster.call("GET", path, query=query)["items"])

    def runs_with_children(self) -> set[str]:
        """Names of the runs that have a child."""
        return {row["metadata"]["labels"][LABEL_RUN] for kind in _CHILDREN for row in self.children(kind)}

    def was_contacted(self) -> bool:
        """Whether a program has connected to the listener."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def written(self) -> str:
        """Everything that the operator has written: runs, campaigns, events and its log."""
        root = f"/apis/specbench.io/v1alpha1/namespaces/{self.namespace}"
        paths = (f"{root}/{RUN.plural}", f"{root}/{CAMPAIGN.plural}", f"/api/v1/namespaces/{self.namespace}/events")
        return "\n".join(
            [*(json.dumps(self.cluster.call("GET", path)) for path in paths), self.operator.log.read_text()]
        )


def _validated(read: Any) -> dict[str, str]:
    def decided() -> dict[str, str]:
        rows = read().get("status", {}).get("conditions", [])
        return next((row for row in rows if row["type"] == "Validated" and row["status"] != "Unknown"), {})

    return eventually(decided, "the operator does not decide")


def tenant_of(namespace: str) -> str:
    """The user name of the tenant's service account."""
    return f"system:serviceaccount:{namespace}:tenant"


@contextmanager
def tenant_site(cluster: Cluster, folder: Path) -> Iterator[TenantSite]:
    """A namespace with an operator under TENANT_FENCE, and a tenant who may only create runs and campaigns."""
    assert cluster.ground is not None, "the S3 server of hack/cluster is needed"
    s3 = cluster.ground.s3
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    with cluster.namespace("tenant") as namespace, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        site = OperatorSite(cluster, namespace)
        for name, use in SECRETS.items():
            site.secret(name, **keys, password=MARKER, HF_TOKEN=MARKER)
            labels = {"metadata": {"labels": {"specbench.io/use": use}}}
            cluster.call("PATCH", f"/api/v1/namespaces/{namespace}/secrets/{name}", labels, kind=MERGE)
        grant(cluster, namespace, tenant_of(namespace), "tenant", [CREATE_RUNS])
        # The keys are the operator's own identity, which a run without a Secret would use.
        settings = {
            **keys,
            "SPECBENCH_OPERATOR_NAMESPACE": f"{namespace}-operator",
            "SPECBENCH_FENCE": str(folder / "fence.json"),
        }
        (folder / "fence.json").write_text(json.dumps(TENANT_FENCE))
        operator = OperatorProcess(site, folder, "registry.invalid/specbench:none", settings).start()
        found = TenantSite(cluster, namespace, operator, site, base_run(s3.endpoint), listener)
        eventually(lambda: _may_create(found), "the tenant has no rights")
        try:
            yield found
        finally:
            if operator.process:
                operator.end(signal.SIGKILL)


def _may_create(site: TenantSite) -> bool:
    try:
        Runs(site.tenant, site.namespace).try_out(resource(site.base))
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True
