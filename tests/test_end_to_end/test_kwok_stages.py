"""The kwok stages of fake nodes use the product's labels and the simulator's faults, so one spec serves both."""

from __future__ import annotations

import pytest

from peers.kwok.stages import CRASHES, ENGINE, NEVER_READY, OUT_OF_MEMORY, ROLE, Document, configuration
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import LABEL_ROLE, ROLE_ENGINE
from specbench_api.spec.parsing import parse_run
from specbench_client.simulator.faults import Fault, parse_faults
from specbench_operator.render.client_jobs import CLIENT_GRACE_S
from specbench_operator.render.engine_job import engine_job
from specbench_testing.kwok_nodes import placement
from specbench_testing.operator_builders import SETTINGS, operator_run

FAULTS = (NEVER_READY, OUT_OF_MEMORY, CRASHES)


def test_faults_of_fake_engines_are_faults_of_the_simulator() -> None:
    faults = parse_faults(tuple(fault.removeprefix("--fault=") for fault in FAULTS))
    assert set(faults.values) == {Fault.NEVER_READY, Fault.OOM, Fault.CRASH_AFTER}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_arm_is_in_the_arguments_that_the_stages_read(fault: str) -> None:
    run = parse_run(operator_run({"spec.drafters[0].args": [fault], "spec.placement": placement(4)}))
    plan = expand(run)
    arms = {group.arm: engine_job(run, plan, group, 0, SETTINGS) for group in plan.groups}
    args_by_arm = {arm: job["spec"]["template"]["spec"]["containers"][0]["args"] for arm, job in arms.items()}
    assert {arm for arm, args in args_by_arm.items() if fault in args} == {"ngram"}
    assert all(".spec.containers[0].args[]" in str(stage) for stage in _stages("engine-gets-ready", "engine-crashes"))


def test_stages_match_the_labels_and_the_grace_period_of_the_pods() -> None:
    assert (ROLE, ENGINE) == (LABEL_ROLE, ROLE_ENGINE)
    (killed,) = _stages("other-is-killed")
    assert killed["spec"]["delay"]["durationMilliseconds"] == CLIENT_GRACE_S * 1000


def _stages(*names: str) -> list[Document]:
    return [document for document in configuration() if document["metadata"]["name"] in names]
