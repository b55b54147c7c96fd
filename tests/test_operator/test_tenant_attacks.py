"""A person who may only create runs and campaigns in one namespace attacks, on a real cluster.

The API server tries every attack of specbench_testing.tenant_attacks against the chart's admission policies and fence.
Through the operator's process, with its fence but without the policies, `make test` sends one attack of each kind, and
`make test-long` all of them. `test_tenant_decisions` has what the operator decides about each, with and without the
fence.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from generators.custom_resources import CAMPAIGN, RUN
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.charts import grant, installed_policies
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.fenced_runs import OWN_REPOSITORY
from specbench_testing.operator_process import eventually
from specbench_testing.resources import Resource, campaign, resource
from specbench_testing.tenant_attacks import (
    ATTACKS,
    DIRECT_REQUESTS,
    TENANT_FENCE,
    Attack,
)
from specbench_testing.tenant_site import (
    CREATE_RUNS,
    MARKER,
    TenantSite,
    base_run,
    in_template,
    tenant_of,
    tenant_site,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ALL = [attack for attacks in ATTACKS for attack in attacks]
ONE_OF_EACH_KIND = [
    *(next(attack for attack in attacks if attack.condition) for attacks in ATTACKS),
    *(attack for attack in ALL if attack.name in ("loopback", "labelled-token", "missing-secret")),
]
BENCHMARKER: list[dict[str, Any]] = [
    CREATE_RUNS,
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["bench-s3"]},
]
"""The Role of docs/how-to/shared-clusters.md."""

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
        here = {**made, "metadata": {**made["metadata"], "namespace": self.namespace}}
        return self._refusal("POST", plural_of(made), here, account)

    def refusal_of_change(self, made: Resource) -> str:
        """The message with which the API server refuses to change the existing resource into this one."""
        whole = [{"op": "replace", "path": "/spec", "value": made["spec"]}]
        path = f"{plural_of(made)}/existing"
        return self._refusal("PATCH", path, whole, "benchmarker", "application/json-patch+json")

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


def plural_of(made: Resource) -> str:
    return CAMPAIGN.plural if made["kind"] == "SpecBenchCampaign" else RUN.plural


def test_the_api_server_refuses_each_attack_and_names_its_field(guarded: GuardedSite) -> None:
    """Of the fields of a run that exists, most cannot change at all; the policies check the others."""
    wrong = {}
    for attack in ALL:
        made = resource({**BASE, **attack.edits})
        template = campaign(in_template({**BASE, **attack.edits}))
        for way, message, base in (
            ("new run", guarded.refusal(made), "spec"),
            ("new campaign", guarded.refusal(template), "spec.template.spec"),
            ("changed campaign", guarded.refusal_of_change(template), "spec.template.spec"),
        ):
            is_named = not message or names_any_field(message, base, attack)
            if bool(message) is not bool(attack.admission) or not is_named:
                wrong[attack.name, way] = message
        if not guarded.refusal_of_change(made):
            wrong[attack.name, "changed run"] = "accepted"
    assert wrong == {}


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


SETS = [
    pytest.param(ONE_OF_EACH_KIND, id="one of each kind"),
    pytest.param(ALL, id="all", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=SETS)
def attacks(request: pytest.FixtureRequest) -> list[Attack]:
    return list(request.param)


@pytest.fixture(scope="module")
def fenced(
    cluster: Cluster,
    crd: Definition,
    campaign_crd: Definition,
    attacks: list[Attack],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TenantSite]:
    """A run of each attack, and a campaign whose axis has it."""
    with tenant_site(cluster, tmp_path_factory.mktemp("fenced")) as site:
        for attack in attacks:
            site.attack(attack)
            if attack.axis:
                path, value = attack.axis
                axis = {"path": path, "name": "x", "values": [value]}
                site.create_campaign(f"a-{attack.name}", {"spec.axes": [axis]})
        yield site
        assert site.operator.bugs() == []


def test_the_operator_refuses_each_run_and_creates_no_child_of_it(fenced: TenantSite, attacks: list[Attack]) -> None:
    """Without the policies, nothing checks that the person may read a Secret whose label allows the use."""
    accepted: set[str] = set()
    for attack in attacks:
        if attack.by_schema:
            assert names_field(fenced.refused[attack.name], "spec", attack.admission)
            continue
        row = fenced.validated(attack.name)
        assert row["status"] == ("False" if attack.condition else "True"), row
        assert not attack.condition or f"spec.{attack.condition}: " in row["message"], row
        accepted |= set() if attack.condition else {attack.name}
    eventually(lambda: fenced.runs_with_children() >= accepted, "the accepted runs have no children")
    assert fenced.runs_with_children() == accepted


def test_the_operator_refuses_each_campaign(fenced: TenantSite, attacks: list[Attack]) -> None:
    for attack in attacks:
        if attack.axis:
            path, _ = attack.axis
            names_secret = re.search("credentialsSecretRef|tokenSecretRef|imagePullSecrets|placement.*template", path)
            wanted = "spec.axes[0]" if names_secret else f"spec.{attack.condition or attack.admission}"
            assert wanted in fenced.campaign_refusal(f"a-{attack.name}")


def test_the_operator_sends_nothing_to_its_own_machine_and_reveals_no_secret(fenced: TenantSite) -> None:
    assert fenced.validated("loopback")["status"] == "False"
    assert not fenced.was_contacted()
    assert fenced.cluster.ground is not None
    for value in (MARKER, fenced.cluster.ground.s3.secret_key):
        for form in (value, base64.b64encode(value.encode()).decode()):
            assert form not in fenced.written()
