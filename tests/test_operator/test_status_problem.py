"""The print column PROBLEM names everything that is wrong, and is empty otherwise."""

from __future__ import annotations

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.termination import Exit
from specbench_api.spec.conditions import Phase
from specbench_operator.errors import Retry
from specbench_operator.reconcile.decide import status_after_error
from specbench_testing.cluster_world import AWAY, ClusterWorld, finish_the_other_arm, finished
from specbench_testing.operator_builders import NOON, operator_run, summary_of, waiting

DOUBT = Finding(check="WarmupNotSteady", severity=Severity.WARNING, message="step times still fell")


def test_nothing_is_wrong_with_a_run_that_goes_well() -> None:
    world = ClusterWorld()
    world.settle()
    assert world.status.problem == ""
    world.serve()
    world.look()
    assert world.status.problem == ""
    world.finish_client()
    assert finished(ClusterWorld()).status.problem == ""


def test_an_engine_that_waits_for_a_node_is_named_and_then_no_more() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes have a GPU")
    world.look()
    assert world.status.problem == "Unschedulable"
    world.change_pod(world.engine(), phase="Running", unschedulable=None, scheduled_at=world.now, ready=True)
    world.look()
    assert world.status.problem == ""


def test_an_arm_that_failed_is_named_with_its_reason_to_the_end() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    assert world.status.problem == "OOMKilled (none)"
    finish_the_other_arm(world)
    assert world.status.phase is Phase.SUCCEEDED
    assert world.status.problem == "OOMKilled (none)"


def test_where_every_arm_failed_each_is_named_once() -> None:
    world = ClusterWorld()
    world.settle()
    for group in (0, 1):
        world.start_pod(world.engine(group), **waiting("InvalidImageName"))
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.status.problem == "ImagePullFailed (none), ImagePullFailed (ngram)"


def test_what_the_client_says_of_s3_and_of_prompts_is_named() -> None:
    away = ClusterWorld(trouble=AWAY)
    away.look()
    assert away.status.problem == "S3Away"
    world = ClusterWorld()
    world.settle()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput")
    world.settle()
    assert world.status.problem == "BadInput (none)"


def test_numbers_that_cannot_be_trusted_say_which_check_speaks_against_them() -> None:
    world = ClusterWorld()
    world.settle()
    world.measure(0)
    world.measure(1)
    world.finish_report(summary_of(world.plan, 2, finding=DOUBT))
    world.settle()
    assert world.status.problem == "WarmupNotSteady"


def test_a_spec_that_cannot_be_run_and_a_step_that_was_refused_are_named() -> None:
    world = ClusterWorld(operator_run({"spec.engine.args": ["--no-such-flag"]}))
    world.look()
    assert world.status.problem == "InvalidSpec"
    good = ClusterWorld()
    decision = good.look()
    assert status_after_error(good.run, decision.status, Retry("Forbidden", "quota"), NOON).problem == "Forbidden"
