"""A person who may only create runs and campaigns in one namespace attacks, on a real cluster, in three installations.

Guarded: the chart's admission policies and fence. Fenced: the operator's fence, without the policies. Open: neither,
and Secrets need no label. Every attack of specbench_testing.tenant_attacks is tried in each of them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api.plan.names import LABEL_RUN
from specbench_testing.admission_policies import grant, installed_policies
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.campaigns import campaign
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.fenced_runs import OWN_REPOSITORY
from specbench_testing.operator_process import eventually
from specbench_testing.resources import Resource, resource
from specbench_testing.tenant_attacks import (
    ATTACKS,
    DIRECT_REQUESTS,
    OPERATOR_ACCOUNT,
    TENANT_FENCE,
    UNSENT,
    Attack,
    Open,
)
from specbench_testing.tenant_site import (
    CREATE_RUNS,
    MARKER,
    SECRETS,
    TenantSite,
    base_run,
    contains,
    in_template,
    tenant_of,
    tenant_site,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ALL = [attack for attacks in ATTACKS for attack in attacks]
BY_AXIS = [attack for attack in ALL if attack.axis]
BY_INCLUDE = [each for attacks in ATTACKS for each in [row for row in attacks if row.axis][:1]]
"""One of each kind: the operator expands include rows and axes to the same runs."""
ACCEPTED_BY_OPERATOR = {attack.name for attack in ALL if not (attack.condition or attack.by_schema)}
EXPANSION = {"spec.engine.env": [{"name": "MODEL_NOTE", "value": "$(HF_TOKEN)"}]}
BENCHMARKER: list[dict[str, Any]] = [
    CREATE_RUNS,
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["bench-s3"]},
]
"""The Role of docs/how-to/shared-clusters.md."""


def named(attack: Attack) -> str:
    return attack.name


each_attack = pytest.mark.parametrize("attack", ALL, ids=named)


# Guarded: policies and fence


@dataclass(frozen=True)
class GuardedSite:
    """A namespace to which the chart's admission policies apply."""

    cluster: Cluster
    namespace: str

    def runs(self, account: str, plural: str = RUN.plural) -> Runs:
        """Runs or campaigns, with the rights of a service account."""
        return Runs(self.cluster.acting_as(f"system:serviceaccount:{self.namespace}:{account}"), self.namespace, plural)

    def refusal(self, made: Resource, account: str = "benchmarker") -> str:
        """The message with which the API server refuses the resource, or an empty text if it accepts it."""
        plural = CAMPAIGN.plural if made["kind"] == "SpecBenchCampaign" else RUN.plural
        here = {**made, "metadata": {**made["metadata"], "namespace": self.namespace}}
        return self._refusal("POST", plural, here, account)

    def refusal_of_change(self, plural: str, made: Resource) -> str:
        """The message with which the API server refuses to change the existing resource into this one."""
        whole = [{"op": "replace", "path": "/spec", "value": made["spec"]}]
        return self._refusal("PATCH", f"{plural}/existing", whole, "benchmarker", "application/json-patch+json")

    def _refusal(self, method: str, path: str, body: Any, account: str, kind: str = "application/json") -> str:
        user = self.cluster.acting_as(f"system:serviceaccount:{self.namespace}:{account}")
        full = f"/apis/specbench.io/v1alpha1/namespaces/{self.namespace}/{path}"
        try:
            user.call(method, full, body, query={"dryRun": "All", "fieldValidation": "Strict"}, kind=kind)
        except ApiError as error:
            return str(error)
        return ""


BASE = base_run("http://s3.example:9000")


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[GuardedSite]:
    values = {"fence": TENANT_FENCE, "image": {"repository": OWN_REPOSITORY}}
    with cluster.namespace("guarded") as namespace, installed_policies(cluster, namespace, values):
        grant(cluster, namespace, tenant_of(namespace), "tenant", [CREATE_RUNS])
        benchmarker = f"system:serviceaccount:{namespace}:benchmarker"
        grant(cluster, namespace, benchmarker, "benchmarker", BENCHMARKER)
        site = GuardedSite(cluster, namespace)
        eventually(lambda: not site.refusal(resource(BASE)), "the rights are not granted")
        denied = resource({**BASE, "spec.engine.command": ["sh"]})
        eventually(lambda: site.refusal(denied), "the policies are not enforced")
        eventually(lambda: "may not create Jobs" in site.refusal(resource(BASE), "tenant"), "no rights of the tenant")
        site.runs("benchmarker").create(resource(BASE, name="existing"))
        site.runs("benchmarker", CAMPAIGN.plural).create(campaign(in_template(BASE), name="existing"))
        yield site


def names_field(message: str, base: str, path: str) -> bool:
    """Whether the message names the field. The fence's policy writes lists without row numbers."""
    short = re.sub(r"\[\d+\]", "[]", re.sub(r"\[[^\]]*[a-z][^\]]*\]", "", path))
    short = re.sub(r"(\[\]|podAffinityTerm)\.namespace\w*$", r"\1", short)
    unknown = f'unknown field "{base}.{path}"'
    return unknown in message or any(f"{base}.{each}: " in message for each in (path, short))


def names_any_field(message: str, base: str, attack: Attack) -> bool:
    """Whether the message names a field of the attack. If both policies refuse it, the API server reports either."""
    edited = (path.removeprefix("spec.") for path in attack.edits)
    return any(names_field(message, base, path) for path in (attack.admission, *edited))


@each_attack
def test_the_api_server_refuses_the_run(guarded: GuardedSite, attack: Attack) -> None:
    message = guarded.refusal(resource({**BASE, **attack.edits}))
    assert bool(message) is bool(attack.admission), message
    if attack.admission:
        assert names_any_field(message, "spec", attack), message
        assert attack.by_schema or re.search(r"ask (for|the administrator)|remove (it|them)", message), message
    alone = guarded.refusal(resource({**BASE, **attack.edits}), "tenant")
    assert attack.by_schema or "ValidatingAdmissionPolicy" in alone, "who may not create Jobs may create no run at all"


@each_attack
def test_the_api_server_refuses_the_campaign(guarded: GuardedSite, attack: Attack) -> None:
    made = campaign(in_template({**BASE, **attack.edits}))
    for message in (guarded.refusal(made), guarded.refusal_of_change(CAMPAIGN.plural, made)):
        assert bool(message) is bool(attack.admission), message
        assert not message or names_any_field(message, "spec.template.spec", attack), message


@each_attack
def test_a_run_cannot_become_the_attack_after_it_was_accepted(guarded: GuardedSite, attack: Attack) -> None:
    """Most fields cannot change at all; the policies check the others."""
    assert guarded.refusal_of_change(RUN.plural, resource({**BASE, **attack.edits}))


@pytest.mark.parametrize("request_", DIRECT_REQUESTS, ids=lambda each: each.name)
def test_the_rights_allow_nothing_beside_runs(guarded: GuardedSite, request_: Any) -> None:
    user = guarded.cluster.acting_as(tenant_of(guarded.namespace))
    path = request_.path.format(namespace=guarded.namespace)
    kind = MERGE if request_.method == "PATCH" else "application/json"
    with pytest.raises(ApiError) as caught:
        user.call(request_.method, path, request_.body, kind=kind)
    assert caught.value.status == 403


def test_a_status_in_a_new_run_is_dropped(guarded: GuardedSite) -> None:
    forged = {**resource(BASE), "status": {"phase": "Succeeded", "trust": "Trustworthy"}}
    assert guarded.runs("benchmarker").try_out(forged).get("status", {}).keys().isdisjoint(forged["status"])


# Fenced: the operator alone


@pytest.fixture(scope="module")
def fenced(
    cluster: Cluster, crd: Definition, campaign_crd: Definition, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TenantSite]:
    with tenant_site(cluster, tmp_path_factory.mktemp("fenced"), TENANT_FENCE) as site:
        for attack in ALL:
            site.attack(attack)
        site.create_run("expansion", EXPANSION)
        site.create_run("changed", {})
        for attack in BY_AXIS:
            assert attack.axis
            path, value = attack.axis
            site.create_campaign(f"a-{attack.name}", {"spec.axes": [{"path": path, "name": "x", "values": [value]}]})
        for attack in BY_INCLUDE:
            assert attack.axis
            path, value = attack.axis
            seed = {"path": "workloads[0].sampling.seed", "name": "seed", "values": [1]}
            include = {"spec.axes": [seed], "spec.include": [{"seed": 1, "set": {path: value}}]}
            site.create_campaign(f"i-{attack.name}", include)
        yield site
        assert site.operator.bugs() == []


@each_attack
def test_the_operator_refuses_the_run(fenced: TenantSite, attack: Attack) -> None:
    if attack.by_schema:
        assert names_field(fenced.refused[attack.name], "spec", attack.admission)
        return
    row = fenced.validated(attack.name)
    assert row["status"] == ("False" if attack.condition else "True"), row
    if attack.condition:
        assert row["reason"] in ("NotAllowed", "InvalidSpec")
        assert f"spec.{attack.condition}: " in row["message"], row
        assert re.search(r"\(.+\)$", row["message"]), "the remedy follows in brackets"


@pytest.mark.parametrize(
    ("form", "attack"),
    [*(("a", each) for each in BY_AXIS), *(("i", each) for each in BY_INCLUDE)],
    ids=lambda given: given if isinstance(given, str) else given.name,
)
def test_the_operator_refuses_the_campaign(fenced: TenantSite, form: str, attack: Attack) -> None:
    assert attack.axis
    path, _ = attack.axis
    message = fenced.campaign_refusal(f"{form}-{attack.name}")
    names_secret = re.search("credentialsSecretRef|tokenSecretRef|imagePullSecrets|placement.*template", path)
    by_secret = "spec.axes[0]" if form == "a" else "spec.include[0].set"
    wanted = by_secret if names_secret else f"spec.{attack.condition or attack.admission}"
    assert wanted in message


def test_a_refused_run_has_no_child(fenced: TenantSite) -> None:
    """Without the policies, nothing checks that the person may read a Secret whose label allows the use."""
    for attack in ALL:
        if not attack.by_schema:
            fenced.validated(attack.name)
    accepted = {*ACCEPTED_BY_OPERATOR, "expansion", "changed"}
    eventually(lambda: fenced.jobs().keys() >= accepted, "the accepted runs have no Jobs")
    assert fenced.runs_with_children() == accepted


def test_an_engine_is_stopped_when_its_run_is_changed_into_an_attack(fenced: TenantSite) -> None:
    """A deadline is one of the few fields that may change after the start."""

    def pods() -> list[Resource]:
        return [pod for pod in fenced.children("pods") if pod["metadata"]["labels"][LABEL_RUN] == "changed"]

    eventually(pods, "no engine")
    Runs(fenced.tenant, fenced.namespace).patch("changed", {"spec": {"activeDeadlineSeconds": 864_000}})
    message = fenced.site.wait_for_condition("changed", "Validated", "False", "NotAllowed")
    assert message.startswith("spec.activeDeadlineSeconds: ")
    eventually(lambda: not pods(), "the engine keeps running")


def test_a_reference_to_a_variable_stays_text(fenced: TenantSite) -> None:
    jobs = eventually(lambda: fenced.jobs().get("expansion"), "no Job")
    assert contains(jobs, {"name": "MODEL_NOTE", "value": "$$(HF_TOKEN)"}), "Kubernetes shows $$( as $("


def test_the_status_does_not_distinguish_missing_secrets_from_those_of_others(fenced: TenantSite) -> None:
    missing, of_others = (fenced.validated(name)["message"] for name in ("missing-secret", "token-of-others"))
    assert missing.replace("absent", "NAME") == of_others.replace("prod-db", "NAME")


def test_the_operator_sends_nothing_to_its_own_machine(fenced: TenantSite) -> None:
    assert fenced.validated("loopback")["status"] == "False"
    assert not fenced.was_contacted()


# Open: neither fence nor policies


@pytest.fixture(scope="module")
def unfenced(
    cluster: Cluster, crd: Definition, campaign_crd: Definition, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TenantSite]:
    with tenant_site(cluster, tmp_path_factory.mktemp("open"), None) as site:
        for attack in ALL:
            if attack.name not in UNSENT:
                site.attack(attack)
        yield site
        assert site.operator.bugs() == []


@pytest.mark.parametrize("attack", [each for each in ALL if each.name not in UNSENT], ids=named)
def test_what_happens_without_the_fence(unfenced: TenantSite, attack: Attack) -> None:
    if attack.by_schema:
        assert attack.name in unfenced.refused
        return
    row = unfenced.validated(attack.name)
    assert (row["status"] == "False") is (attack.without is Open.REFUSED), row
    if attack.without is Open.SUCCEEDS:

        def obtained() -> bool:
            unfenced.serve()
            return contains(unfenced.jobs().get(attack.name, []), attack.gets)

        eventually(obtained, "no Job has what the attack asks for")
    elif attack.name == "loopback":
        eventually(unfenced.was_contacted, "the operator does not connect")


# After all attacks


def test_no_value_of_a_secret_is_written(fenced: TenantSite, unfenced: TenantSite) -> None:
    assert fenced.cluster.ground is not None
    for value in (MARKER, fenced.cluster.ground.s3.secret_key):
        for form in (value, base64.b64encode(value.encode()).decode()):
            for site in (fenced, unfenced):
                assert form not in site.written()


def test_nothing_runs_elsewhere_or_with_an_account_of_others(fenced: TenantSite, unfenced: TenantSite) -> None:
    names = {attack.name for attack in ALL}
    for path in ("/apis/batch/v1/jobs", "/api/v1/pods"):
        found = fenced.cluster.call("GET", path, query={"labelSelector": LABEL_RUN})["items"]
        places = {row["metadata"]["namespace"] for row in found if row["metadata"]["labels"][LABEL_RUN] in names}
        own = {fenced.namespace, unfenced.namespace}
        # Another test process may have tenants of its own, whose namespaces have the same prefix.
        assert {place for place in places - own if not place.startswith("tenant-")} == set()
    accounts = [job["spec"]["template"]["spec"].get("serviceAccountName") for job in fenced.children("jobs")]
    assert not {OPERATOR_ACCOUNT, "admin"} & set(accounts)
    secrets = {name for name in (*SECRETS, "absent") if contains(fenced.children("jobs"), {"name": name})}
    assert secrets <= {"bench-s3", "team-s3", "team-hub"}
