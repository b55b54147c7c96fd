"""The NetworkPolicies of a run: one for its engines, and one for its clients, report and gate.

An engine accepts connections only from clients of the same run, because any other traffic would distort the
measurement. Clients accept none. No pod of a run can reach the addresses that the administrator blocks: those of
metadata services, which give the node's cloud identity to every process that asks. The policies have no effect where
the cluster does not enforce them.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.plan.names import (
    LABEL_ROLE,
    LABEL_RUN_UID,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_GATE,
    ROLE_NETWORK,
    ROLE_REPORT,
    clients_policy_name,
    engines_policy_name,
)
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.shared_fields import Manifest, metadata
from specbench_operator.settings import NetworkPolicySettings
from specbench_operator.state.objects import ChildKey

POLICY_KIND = "NetworkPolicy"
DNS_PORT = 53


def network_policies(run: SpecBenchRun, settings: NetworkPolicySettings) -> Iterator[Manifest]:
    """The policies of a run. They exist before its first pod and as long as its other children."""
    if not run.spec.engine.is_external:
        yield _engines_policy(run, settings)
    clients = _of_role(run, ROLE_CLIENT, ROLE_REPORT, ROLE_GATE)
    yield _policy(run, clients_policy_name(run.metadata.name), clients, [], settings)


def _engines_policy(run: SpecBenchRun, settings: NetworkPolicySettings) -> Manifest:
    ingress: list[Manifest] = [{"from": [{"podSelector": _of_role(run, ROLE_CLIENT)}]}]
    if run.spec.placement.nodes > 1:
        ingress.append({"from": [{"podSelector": _of_role(run, ROLE_ENGINE)}]})
    if settings.engine_from:
        ingress.append({"from": list(settings.engine_from)})
    return _policy(run, engines_policy_name(run.metadata.name), _of_role(run, ROLE_ENGINE), ingress, settings)


def _policy(
    run: SpecBenchRun, name: str, pods: Manifest, ingress: list[Manifest], settings: NetworkPolicySettings
) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": POLICY_KIND,
        "metadata": metadata(run, name, ChildKey(ROLE_NETWORK)),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [*_default_egress(settings.blocked), *settings.egress],
        },
    }


def _of_role(run: SpecBenchRun, *roles: str) -> Manifest:
    """Selects the pods of this run that have one of these roles."""
    return {
        "matchLabels": {LABEL_RUN_UID: run.metadata.uid},
        "matchExpressions": [{"key": LABEL_ROLE, "operator": "In", "values": list(roles)}],
    }


def _default_egress(blocked: tuple[str, ...]) -> list[Manifest]:
    """DNS everywhere, since a node's DNS cache may have a link-local address, and all but the blocked addresses.

    Pods are listed separately, because some network plugins do not match them by their addresses.
    """
    blocks = [
        _all_but(cidr, [each for each in blocked if (":" in each) is six])
        for cidr, six in (("0.0.0.0/0", False), ("::/0", True))
    ]
    return [
        {"ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]},
        {"to": [*blocks, {"namespaceSelector": {}}]},
    ]


def _all_but(cidr: str, blocked: list[str]) -> Manifest:
    return {"ipBlock": {"cidr": cidr, **({"except": blocked} if blocked else {})}}
