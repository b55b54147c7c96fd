"""The print column that names what is wrong, and says nothing where nothing is."""

from __future__ import annotations

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.spec.conditions import Phase
from specbench_operator.errors import Retry
from specbench_operator.reconcile.refused import hindered
from specbench_testing.operator import NOON, operator_run, summary_of, waiting
from specbench_testing.world import AWAY, World, finish_the_other_arm, finished

DOUBT = Finding(check="WarmupNotSteady", severity=Severity.DOUBT, message="step times still fell")


def test_nothing_is_wrong_with_a_run_that_goes_well() -> None:
    world = World()
    world.settle()
    assert world.status.problem == ""
    world.serve()
    world.look()
    assert world.status.problem == ""
    world.finish_client()
    assert finished(World()).status.problem == ""


def test_an_engine_that_waits_for_a_node_is_named_and_then_no_more() -> None:
    world = World()
    world.settle()
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes have a GPU")
    world.look()
    assert world.status.problem == "Unschedulable"
    world.change_pod(world.engine(), phase="Running", unschedulable=None, scheduled_at=world.now, ready=True)
    world.look()
    assert world.status.problem == ""


def test_an_arm_that_failed_is_named_with_its_reason_to_the_end() -> None:
    world = World()
    world.settle()
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    assert world.status.problem == "OOMKilled (none)"
    finish_the_other_arm(world)
    assert world.status.phase is Phase.SUCCEEDED
    assert world.status.problem == "OOMKilled (none)"


def test_where_every_arm_failed_each_is_named_once() -> None:
    world = World()
    world.settle()
    for group in (0, 1):
        world.start_pod(world.engine(group), **waiting("InvalidImageName"))
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.status.problem == "ImagePullFailed (none), ImagePullFailed (ngram)"


def test_what_the_client_says_of_s3_and_of_prompts_is_named() -> None:
    away = World(trouble=AWAY)
    away.look()
    assert away.status.problem == "S3Away"
    world = World()
    world.settle()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput")
    world.settle()
    assert world.status.problem == "BadInput (none)"


def test_numbers_that_cannot_be_trusted_say_which_check_speaks_against_them() -> None:
    world = World()
    world.settle()
    world.measure(0)
    world.measure(1)
    world.finish_report(summary_of(world.plan, 2, finding=DOUBT))
    world.settle()
    assert world.status.problem == "WarmupNotSteady"


def test_a_spec_that_cannot_be_run_and_a_step_that_was_refused_are_named() -> None:
    world = World(operator_run({"spec.engine.args": ["--no-such-flag"]}))
    world.look()
    assert world.status.problem == "InvalidSpec"
    good = World()
    decision = good.look()
    assert hindered(good.run, decision.status, Retry("Forbidden", "quota"), NOON).problem == "Forbidden"
