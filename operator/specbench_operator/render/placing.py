"""Which nodes an engine's pod may go to: what the run asks for, and the node on which its last engine served.

Arms are compared with each other, so the machine is better the same: clocks, cooling and neighbours differ between
nodes of one kind by more than many a speed-up. A node is named by `matchFields`, since its label kubernetes.io/hostname
need not be its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api.plan.names import LABEL_MANAGED, LABEL_ROLE, MANAGER, ROLE_ENGINE
from specbench_api.plan.placing import PREFERRED, REQUIRED, TERMS
from specbench_api.spec.affinity import PinNode, TopologySpread
from specbench_api.spec.placement import Placement
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest

CLAIM = "devices"
"""Name of the pod's resource claim."""
WEIGHT = 100
"""The most that Kubernetes takes: of two nodes that fit, the same one as before."""


def placing(run: SpecBenchRun, near: Sequence[str]) -> Manifest:
    """The part of a PodSpec that chooses nodes and what is given there."""
    placement = run.spec.placement
    claim = placement.resource_claim_template_name
    fields: Mapping[str, Any] = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [toleration.to_dict() for toleration in placement.tolerations],
        "affinity": affinity(placement, near),
        "topologySpreadConstraints": [_spread(row) for row in placement.topology_spread_constraints],
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "schedulerName": placement.scheduler_name,
        "serviceAccountName": placement.engine_service_account_name,
        "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": claim}] if claim else None,
    }
    return {name: value for name, value in fields.items() if value}


def affinity(placement: Placement, near: Sequence[str]) -> Manifest:
    """The run's own affinity, joined with the nodes to stay on. Empty where neither says anything."""
    asked = placement.affinity.to_dict() if placement.affinity else {}
    pin = placement.pin_node if near else PinNode.NONE
    if pin is not PinNode.NONE:
        asked["nodeAffinity"] = _PINNED[pin](asked.get("nodeAffinity", {}), near)
    return {name: terms for name, terms in asked.items() if terms}


def _preferred(asked: Manifest, near: Sequence[str]) -> Manifest:
    here = [{"weight": WEIGHT, "preference": {"matchFields": [_named(node)]}} for node in near]
    return {**asked, PREFERRED: [*asked.get(PREFERRED, ()), *here]}


def _required(asked: Manifest, near: Sequence[str]) -> Manifest:
    """Terms are alternatives, and what stands in one must hold together: each of the run's own is met on each node."""
    terms = asked.get(REQUIRED, {}).get(TERMS) or [{}]
    here = [{**term, "matchFields": [*term.get("matchFields", ()), _named(node)]} for term in terms for node in near]
    return {**asked, REQUIRED: {TERMS: here}}


_PINNED = {PinNode.PREFER: _preferred, PinNode.REQUIRE: _required}


def _named(node: str) -> Manifest:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _spread(row: TopologySpread) -> Manifest:
    engines = {"matchLabels": {LABEL_MANAGED: MANAGER, LABEL_ROLE: ROLE_ENGINE}}
    return {"labelSelector": engines, **row.to_dict()}
