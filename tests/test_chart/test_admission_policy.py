"""The chart's ValidatingAdmissionPolicies on a real API server, as people with different rights meet them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from generators.custom_resources import CAMPAIGN, RUN
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.campaign_secrets import ACCEPTED, REFUSED, TEMPLATE
from specbench_testing.charts import ADMISSION, POLICIES, grant, installed_policies
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.fenced_runs import (
    ALLOWED,
    BASE,
    FENCE,
    FORCED_QUEUE,
    INVALID_ENDPOINTS,
    OWN_REPOSITORY,
    REFUSED_BY_QUEUE,
    Edits,
)
from specbench_testing.fenced_runs import REFUSED as REFUSED_BY_FENCE
from specbench_testing.operator_process import eventually
from specbench_testing.resources import MISSING, Resource, campaign, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ADMIN = ""
RUNS = {"apiGroups": ["specbench.io"], "resources": ["*"], "verbs": ["create", "patch", "get"]}
JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
SECRETS = {
    "apiGroups": [""],
    "resources": ["secrets"],
    "verbs": ["get"],
    "resourceNames": ["mine", "hub", "registry", "engine"],
}
RIGHTS = {"tenant": [RUNS], "no-jobs": [RUNS, SECRETS], "no-secrets": [RUNS, JOBS], "full": [RUNS, JOBS, SECRETS]}


@dataclass(frozen=True)
class PolicySite:
    """The chart's policies, and a namespace with service accounts of different rights to which they apply."""

    cluster: Cluster
    namespace: str
    operator: str

    def runs(self, account: str = "", *, plural: str = RUN.plural, user: str = "") -> Runs:
        """SpecBenchRuns, or another kind, as a service account of the namespace or another user."""
        name = f"system:serviceaccount:{self.namespace}:{account}" if account else user
        return Runs(self.cluster.acting_as(name), self.namespace, plural)

    def refusal(self, made: Resource, account: str = "full", *, user: str | None = None) -> str:
        """The message with which the API server refuses the resource, or an empty text if it accepts it."""
        plural = {"SpecBenchRun": RUN.plural, "SpecBenchCampaign": CAMPAIGN.plural}[made["kind"]]
        return self.runs(account if user is None else "", plural=plural, user=user or ADMIN).refusal_of(made)


@pytest.fixture(scope="module")
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[PolicySite]:
    values = {"fence": {"enabled": False}}
    with cluster.namespace("policy") as namespace, installed_policies(cluster, namespace, values) as operator:
        for account, rules in RIGHTS.items():
            grant(cluster, namespace, f"system:serviceaccount:{namespace}:{account}", account, rules)
        grant(cluster, namespace, operator, "operator", [RUNS])
        found = PolicySite(cluster, namespace, operator)
        eventually(lambda: found.refusal(run({"credentialsSecretRef": "other"})), "the policy is not enforced")
        eventually(lambda: not found.refusal(run(ALL)), "the rights are not granted")
        yield found


@pytest.fixture(scope="module")
def fenced(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[PolicySite]:
    default = {"bucket": "results", "credentialsSecretRef": {"name": "no-secret-of-the-author"}}
    values = {"fence": {**FENCE, "defaultStore": default}, "image": {"repository": OWN_REPOSITORY}}
    with cluster.namespace("fence") as namespace, installed_policies(cluster, namespace, values) as operator:
        grant(cluster, namespace, operator, "operator", [RUNS])
        found = PolicySite(cluster, namespace, operator)
        wait_for(found, run({}, {"spec.engine.command": ["sh"]}), refused=True)
        wait_for(found, run({"credentialsSecretRef": "mine"}), refused=False)
        yield found


def wait_for(site: PolicySite, made: Resource, *, refused: bool) -> None:
    """Wait until the API server has loaded the policies, which takes a moment after a change."""
    eventually(lambda: bool(site.refusal(made, user=ADMIN)) is refused, f"refused is not {refused}")


ALL = {"credentialsSecretRef": "mine", "tokenSecretRef": "hub", "imagePullSecrets": [{"name": "registry"}]}


def run(secrets: Mapping[str, Any], edits: Mapping[str, Any] | None = None) -> Resource:
    """A run that names Secrets."""
    return resource({**named("spec", secrets), **(edits or {})})


def with_template(secrets: Mapping[str, Any], edits: Mapping[str, Any] | None = None) -> Resource:
    """A campaign whose template names Secrets."""
    return campaign({**named("spec.template.spec", secrets), **(edits or {})})


def named(base: str, secrets: Mapping[str, Any]) -> dict[str, Any]:
    paths = {
        "credentialsSecretRef": f"{base}.results.s3.credentialsSecretRef.name",
        "tokenSecretRef": f"{base}.model.tokenSecretRef.name",
        "imagePullSecrets": f"{base}.placement.imagePullSecrets",
    }
    return {paths[field]: value for field, value in secrets.items()}


NEEDED: list[tuple[str, dict[str, Any], str, str]] = [
    ("tenant", {}, "metadata.namespace", "may not create Jobs in the namespace"),
    ("no-jobs", ALL, "metadata.namespace", "may not create Jobs in the namespace"),
    ("no-secrets", {"credentialsSecretRef": "mine"}, ".results.s3.credentialsSecretRef.name", "Secret mine"),
    ("no-secrets", {"tokenSecretRef": "hub"}, ".model.tokenSecretRef.name", "Secret hub"),
    (
        "no-secrets",
        {"imagePullSecrets": [{"name": "registry"}]},
        ".placement.imagePullSecrets[0].name",
        "Secret registry",
    ),
    ("full", {"credentialsSecretRef": "other"}, ".results.s3.credentialsSecretRef.name", "Secret other"),
    ("full", {**ALL, "tokenSecretRef": "other"}, ".model.tokenSecretRef.name", "Secret other"),
    (
        "full",
        {"imagePullSecrets": [*[{"name": "registry"}] * 7, {"name": "other"}]},
        ".placement.imagePullSecrets[7].name",
        "Secret other",
    ),
]
"""Account, Secrets of the run, the field that the message names, and text of it."""


def test_requires_the_rights_that_the_operator_uses(site: PolicySite) -> None:
    for account, secrets, path, expected in NEEDED:
        for made, base in ((run(secrets), "spec"), (with_template(secrets), "spec.template.spec")):
            message = site.refusal(made, account)
            assert f" {base}{path}: " in message if path.startswith(".") else f" {path}: " in message
            assert expected in message
            assert "ask for a Role that allows" in message


def test_accepts_what_the_requester_may_use(site: PolicySite) -> None:
    assert site.refusal(run({**ALL, "imagePullSecrets": [{"name": "registry"}] * 8})) == ""
    assert site.refusal(with_template(ALL)) == ""
    assert site.refusal(run({}), "no-secrets") == ""


def template_with(names: list[str]) -> dict[str, Any]:
    """A pod template that names these Secrets, every other one as a volume."""
    volumes = [{"name": f"v{at}", "secret": {"secretName": name}} for at, name in enumerate(names) if at % 2]
    env = [
        {"name": f"A{at}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
        for at, name in enumerate(names)
        if not at % 2
    ]
    return {"spec": {"volumes": volumes, "containers": [{"name": "engine", "env": env}]}}


def test_requires_the_right_to_each_secret_of_the_pod_template(site: PolicySite) -> None:
    secrets = {**ALL, "imagePullSecrets": [{"name": "registry"}] * 8}
    for other in (None, 0, 1, 6, 7):
        names = ["other" if at == other else "mine" for at in range(8)]
        for make, base in ((run, "spec"), (with_template, "spec.template.spec")):
            message = site.refusal(make(secrets, {f"{base}.placement.template": template_with(names)}))
            if other is None:
                assert message == "", "also within the limit of costs: no run names more Secrets"
            else:
                assert f" {base}.placement.template: " in message
                assert "may not get the Secret other" in message


def test_the_operator_may_create_the_runs_of_campaigns(site: PolicySite) -> None:
    """It has no right to get these Secrets here, and does not need it: the policy has checked the campaign."""
    assert site.refusal(run(ALL), user=site.operator) == ""


def test_a_change_of_the_spec_needs_the_rights_again_but_a_label_does_not(site: PolicySite) -> None:
    made = run(ALL)
    made["metadata"]["name"] = "changed"
    site.runs("full").create(made)
    tenant = site.runs("no-secrets")
    tenant.patch("changed", {"metadata": {"labels": {"team": "a"}}})
    with pytest.raises(ApiError, match=r"spec\.model\.tokenSecretRef\.name: .* may not get the Secret hub"):
        tenant.patch("changed", {"spec": {"suspend": True}})
    site.runs("full").patch("changed", {"spec": {"suspend": True}})


def test_a_campaign_cannot_name_other_secrets_than_its_template(site: PolicySite) -> None:
    for edits, path in REFUSED:
        message = site.refusal(campaign(edits))
        row = re.match(r"spec\.\w+\[\d+\]", path)
        assert row is not None
        assert row[0] in message, edits
        assert "name it in spec.template.spec" in message
    assert [edits for edits in ACCEPTED if site.refusal(campaign(edits))] == []


def test_the_largest_campaign_is_within_the_cost_limits(site: PolicySite) -> None:
    """Otherwise the API server would refuse a valid campaign: an expression that costs too much fails."""
    value = {"name": "m", "tokenSecretRef": {"name": "hub"}}
    axes = [{"path": f"load.x{at}", "values": [value] * 64} for at in range(8)]
    rows = [{**{f"x{at}": value for at in range(8)}, "set": {"model": value}}] * 256
    assert site.refusal(campaign({**TEMPLATE, "spec.axes": axes, "spec.include": rows})) == ""


def test_the_fence_refuses_what_the_operator_refuses(fenced: PolicySite) -> None:
    """The tables are those of the operator's check. Paths have no row numbers here."""
    wrong = []
    for edits, path in [*((edits, "") for edits in ALLOWED), *REFUSED_BY_FENCE]:
        pattern = re.sub(r"\[\d+\]", "[]", re.sub(r"\[[^\]]*[a-z][^\]]*\]", "", path))
        shown = re.sub(r"(\[\]|podAffinityTerm)\.namespace\w*$", r"\1", pattern)
        given = {**BASE, **edits}
        for made, base in ((resource(given), "spec"), (campaign(in_template(given)), "spec.template.spec")):
            message = fenced.refusal(made, user=ADMIN)
            remedy = re.search("this cluster|operator's own identity", message)
            right = f": {base}.{shown}: " in message and remedy is not None if path else message == ""
            wrong += [] if right else [(edits, base, message)]
    assert wrong == []


def test_a_run_without_a_store_has_the_default_of_the_chart(fenced: PolicySite) -> None:
    assert fenced.refusal(resource({"spec.results": MISSING}), user=ADMIN) == ""
    elsewhere = {"spec.results": MISSING, "spec.workloads[0].dataset.uri": "s3://elsewhere/chat.jsonl"}
    assert ": spec.workloads[].dataset.uri: " in fenced.refusal(resource(elsewhere), user=ADMIN)


def test_a_forced_queue_refuses_what_it_does_not_support(cluster: Cluster, fenced: PolicySite) -> None:
    queued = {"fence": FORCED_QUEUE, "image": {"repository": OWN_REPOSITORY}}
    first = resource({**BASE, **REFUSED_BY_QUEUE[0][0]})
    assert [fenced.refusal(resource({**BASE, **edits}), user=ADMIN) for edits, _ in REFUSED_BY_QUEUE] == [""]
    with installed_policies(cluster, fenced.namespace, queued, name=f"{fenced.namespace}-queue"):
        wait_for(fenced, first, refused=True)
        assert ": spec.results.s3: is not set" in fenced.refusal(resource({"spec.results": MISSING}), user=ADMIN)
        for edits, path in REFUSED_BY_QUEUE:
            message = fenced.refusal(resource({**BASE, **edits}), user=ADMIN)
            assert f": spec.{path}: " in message
            assert "admitted by the queue shared" in message
            in_campaign = fenced.refusal(campaign(in_template({**BASE, **edits})), user=ADMIN)
            assert f": spec.template.spec.{path}: " in in_campaign
        assert fenced.refusal(run({"credentialsSecretRef": "mine"}), user=ADMIN) == ""
    wait_for(fenced, first, refused=False)


def test_the_api_server_refuses_invalid_endpoints_without_a_policy(site: PolicySite) -> None:
    for endpoint in INVALID_ENDPOINTS:
        message = site.refusal(run({}, {"spec.results.s3.endpoint": endpoint}), user=ADMIN)
        assert "spec.results.s3.endpoint: Invalid value" in message, endpoint


def test_the_fence_applies_to_runs_that_the_operator_creates(fenced: PolicySite) -> None:
    """They come from campaigns, whose axes the policy does not expand."""
    edits, path = REFUSED_BY_FENCE[0]
    assert f"spec.{path}" in fenced.refusal(resource({**BASE, **edits}), user=fenced.operator)


def test_the_operator_can_suspend_a_run_that_is_no_longer_allowed(cluster: Cluster, fenced: PolicySite) -> None:
    made = resource(BASE, name="tightened")
    fenced.runs(user=ADMIN).create(made)
    stricter = {"fence": {**FENCE, "stores": []}, "image": {"repository": OWN_REPOSITORY}}
    with installed_policies(cluster, fenced.namespace, stricter, name=f"{fenced.namespace}-stricter"):
        wait_for(fenced, run({"credentialsSecretRef": "mine"}), refused=True)
        with pytest.raises(ApiError, match=r"spec\.results\.s3: bucket results .*allowed: none"):
            fenced.runs(user=ADMIN).patch("tightened", {"spec": {"suspend": True}})
        fenced.runs(user=fenced.operator).patch("tightened", {"spec": {"suspend": True}})
    wait_for(fenced, run({"credentialsSecretRef": "mine"}), refused=False)


def test_the_largest_run_is_within_the_cost_limits(fenced: PolicySite) -> None:
    env = [{"name": f"VLLM_{'X' * 100}{at}"} for at in range(64)]
    members = [
        {"name": f"m{at}", "weight": 1, "source": "jsonl", "pvc": {"claimName": "prompts-" + "x" * 240, "path": "x"}}
        if at % 2
        else {"name": f"m{at}", "weight": 1, "source": "jsonl", "uri": "s3://results/" + "x" * 1000}
        for at in range(16)
    ]
    dataset = {"source": "mix", "count": 16, "members": members}
    edits = {
        **BASE,
        "spec.engine.env": env,
        "spec.workloads": [{"name": f"w{at}", "dataset": dataset} for at in range(16)],
        "spec.placement.nodeSelector": {f"nvidia.com/{'x' * 50}{at}": "" for at in range(32)},
        "spec.placement.tolerations": [{"key": "nvidia.com/gpu", "value": str(at)} for at in range(32)],
        "spec.placement.template": {
            "metadata": {
                "labels": {"team": "x" * 63},
                "annotations": {f"example.com/{at}": "x" * 4096 for at in range(16)},
            },
            "spec": {
                "volumes": [{"name": f"v{at}", "configMap": {"name": f"nccl-{'x' * 240}"}} for at in range(16)],
                "containers": [
                    {
                        "name": "engine",
                        "env": [
                            {"name": f"VLLM_T{at}", "valueFrom": {"configMapKeyRef": {"name": "nccl-a", "key": "k"}}}
                            for at in range(16)
                        ],
                        "resources": {"limits": {"cpu": 64, "memory": "512Gi", "rdma/hca": 1}},
                    }
                ],
            },
        },
    }
    assert fenced.refusal(resource(edits), user=ADMIN) == ""


@pytest.mark.parametrize("fixture", ["site", "fenced"])
def test_the_api_server_has_no_warnings_about_the_expressions(fixture: str, request: pytest.FixtureRequest) -> None:
    site: PolicySite = request.getfixturevalue(fixture)

    def checked() -> list[dict[str, Any]]:
        found = site.cluster.call("GET", f"{ADMISSION}/{POLICIES['ValidatingAdmissionPolicy']}")["items"]
        own = [row["status"] for row in found if site.namespace in row["metadata"]["name"]]
        return own if all("typeChecking" in status for status in own) else []

    found = [status["typeChecking"] for status in eventually(checked)]
    assert found == [{} for _ in found]


def in_template(edits: Edits) -> dict[str, Any]:
    """The same edits of a campaign's template."""
    return {path.replace("spec.", "spec.template.spec.", 1): value for path, value in edits.items()}
