"""What the operator decides about each attack of a tenant, under a fence and without one.

`test_tenant_attacks` has what the API server refuses, and some of these attacks against the operator process.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.fence.model import Fence
from specbench_api.spec.conditions import ConditionType, Phase
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import SETTINGS, operator_run
from specbench_testing.tenant_attacks import ATTACKS, TENANT_FENCE, Attack, Open
from specbench_testing.tenant_site import SECRETS, base_run, contains

ALL = [attack for attacks in ATTACKS for attack in attacks if not attack.by_schema]
FENCED = replace(SETTINGS, fence=Fence.model_validate(TENANT_FENCE), operator_namespace="specbench-system")
BASE = base_run("http://s3.example:9000")
USES = {name: use or "" for name, use in SECRETS.items()}


def named(attack: Attack) -> str:
    return attack.name


def world_of(settings: Any, edits: Any) -> ClusterWorld:
    return ClusterWorld(operator_run({**BASE, **edits}), settings=settings, secret_uses=USES)


def manifests(world: ClusterWorld) -> list[Any]:
    """All manifests of the engine and, once it is ready, of its client."""
    found = list(world.reconcile().apply)
    if world.launched:
        world.start_pod(world.engine(), ready=True)
        found += world.reconcile().apply
    return found


@pytest.mark.parametrize("attack", ALL, ids=named)
def test_the_fence_refuses_the_run_and_names_its_field(attack: Attack) -> None:
    world = world_of(FENCED, attack.edits)
    decision = world.reconcile()
    row = world.condition(ConditionType.VALIDATED)
    if not attack.condition:
        assert (row.status, bool(decision.apply)) == ("True", True), "only the admission policies refuse it"
        return
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert row.reason in ("NotAllowed", "InvalidSpec")
    assert f"spec.{attack.condition}: " in row.message
    assert re.search(r"\(.+\)$", row.message), "the remedy follows in brackets"


@pytest.mark.parametrize("attack", ALL, ids=named)
def test_what_happens_without_the_fence(attack: Attack) -> None:
    world = world_of(SETTINGS, attack.edits)
    found = manifests(world)
    assert bool(found) is (attack.without is not Open.REFUSED)
    if attack.without is Open.SUCCEEDS:
        assert contains(found, attack.gets)


def test_a_reference_to_a_variable_stays_text() -> None:
    found = manifests(world_of(FENCED, {"spec.engine.env": [{"name": "MODEL_NOTE", "value": "$(HF_TOKEN)"}]}))
    assert contains(found, {"name": "MODEL_NOTE", "value": "$$(HF_TOKEN)"}), "Kubernetes shows $$( as $("


def test_the_message_does_not_distinguish_missing_secrets_from_those_of_others() -> None:
    messages = {}
    for attack in ALL:
        if attack.name in ("missing-secret", "token-of-others"):
            world = world_of(FENCED, attack.edits)
            world.reconcile()
            messages[attack.name] = world.condition(ConditionType.VALIDATED).message
    assert messages["missing-secret"].replace("absent", "NAME") == messages["token-of-others"].replace(
        "prod-db", "NAME"
    )
