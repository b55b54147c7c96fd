"""The print column PROBLEM names everything that is wrong, and is empty otherwise."""

from __future__ import annotations

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.termination import Exit
from specbench_api.spec.conditions import Phase
from specbench_operator.errors import Retry
from specbench_operator.run.decide import status_after_error
from specbench_testing.cluster_world import AWAY, ClusterWorld, finish_other_arm, finished
from specbench_testing.operator_builders import NOON, operator_run, summary_of, waiting

DOUBT = Finding(check="WarmupNotSteady", severity=Severity.WARNING, message="step times still fell")


def test_a_healthy_run_has_no_problem() -> None:
    world = ClusterWorld()
    world.settle()
    assert world.status.problem == ""
    world.serve()
    world.reconcile()
    assert world.status.problem == ""
    world.finish_client()
    assert finished(ClusterWorld()).status.problem == ""


def test_an_unschedulable_engine_is_a_problem_until_it_is_scheduled() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes have a GPU")
    world.reconcile()
    assert world.status.problem == "Unschedulable"
    world.change_pod(world.engine(), phase="Running", unschedulable=None, scheduled_at=world.now, ready=True)
    world.reconcile()
    assert world.status.problem == ""


def test_a_failed_arm_stays_a_problem_with_its_reason() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    assert world.status.problem == "OOMKilled (none)"
    finish_other_arm(world)
    assert world.status.phase is Phase.SUCCEEDED
    assert world.status.problem == "OOMKilled (none)"


def test_each_failed_arm_is_named_once() -> None:
    world = ClusterWorld()
    world.settle()
    for group in (0, 1):
        world.start_pod(world.engine(group), **waiting("InvalidImageName"))
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.status.problem == "ImagePullFailed (none), ImagePullFailed (ngram)"


def test_s3_failures_and_bad_input_are_problems() -> None:
    away = ClusterWorld(trouble=AWAY)
    away.reconcile()
    assert away.status.problem == "S3Away"
    world = ClusterWorld()
    world.settle()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput")
    world.settle()
    assert world.status.problem == "BadInput (none)"


def test_untrustworthy_results_name_the_failed_check() -> None:
    world = ClusterWorld()
    world.settle()
    world.measure(0)
    world.measure(1)
    world.finish_report(summary_of(world.plan, 2, finding=DOUBT))
    world.settle()
    assert world.status.problem == "WarmupNotSteady"


def test_an_invalid_spec_and_a_refused_step_are_problems() -> None:
    world = ClusterWorld(operator_run({"spec.engine.args": ["--no-such-flag"]}))
    world.reconcile()
    assert world.status.problem == "InvalidSpec"
    good = ClusterWorld()
    decision = good.reconcile()
    assert status_after_error(good.run, decision.status, Retry("Forbidden", "quota"), NOON).problem == "Forbidden"
