"""The print column PROBLEM names everything that is wrong, and is empty otherwise."""

from __future__ import annotations

import pytest

from specbench_api.outcome.termination import Exit
from specbench_testing.cluster_world import finish_other_arm, launched
from specbench_testing.run_phases import RUNS

PROBLEMS = {
    "accepted": "",
    "running": "",
    "trustworthy": "",
    "unschedulable": "Unschedulable",
    "S3 away": "S3Away",
    "invalid": "InvalidSpec",
    "retryable error": "ApiFailing",
    "engines failed": "Crashed (none), Crashed (ngram)",
    "untrustworthy": "NeverDrafted",
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_problem_of_a_phase(name: str) -> None:
    assert RUNS[name]()["status"].get("problem", "") == PROBLEMS[name]


def test_a_failed_arm_stays_a_problem_with_its_reason() -> None:
    world = launched()
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    finish_other_arm(world)
    assert (world.status.phase, world.status.problem) == ("Succeeded", "OOMKilled (none)")


def test_bad_input_is_a_problem() -> None:
    world = launched()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput")
    world.settle()
    assert world.status.problem == "BadInput (none)"
