"""A run in every phase, as stored by the API server, with statuses from the operator's own `decide_run`.

Conditions that the tests cannot produce here are added by hand: a gate, a queue, and campaigns, which
follow the same rules for Ready, Reconciling and Stalled. Those names end with `(vocabulary)`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from specbench_client.documents.finding import Finding, Severity
from specbench_operator.errors import OperatorError, Retry, Stop
from specbench_operator.run.decide import status_after_error
from specbench_testing.cluster_world import AWAY, ClusterWorld, launched
from specbench_testing.operator_builders import operator_run, summary_of

Item = dict[str, Any]


def just_created() -> Item:
    """The response to a create: its status contains only the default of the definition."""
    return ClusterWorld().run | {"status": {"observedGeneration": -1}}


def accepted() -> Item:
    """The operator has validated the spec and created the first engine."""
    return _settled().run


def invalid() -> Item:
    """A spec that this operator cannot run."""
    drafter = {"name": "e", "method": "eagle", "model": "m"}
    world = ClusterWorld(operator_run({"spec.engine.kind": "llama-cpp", "spec.drafters[0]": drafter}))
    world.reconcile()
    return world.run


def unschedulable() -> Item:
    """No node has room for the engine."""
    world = _settled()
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes are available")
    world.reconcile()
    return world.run


def running() -> Item:
    """The client measures."""
    return _running().run


def s3_away() -> Item:
    """The client measures, and S3 does not respond."""
    world = _running()
    world.trouble = AWAY
    world.reconcile()
    return world.run


def retryable_error() -> Item:
    """The API server fails during the run."""
    return _with_error(Retry("ApiFailing", "the API server answered 503"))


def permanent_error() -> Item:
    """The API server refuses a child."""
    return _with_error(Stop("Forbidden", "jobs.batch is forbidden"))


def suspended() -> Item:
    """The user suspends the run halfway."""
    world = _running()
    world.suspend()
    return world.run


def resumed() -> Item:
    """The user resumes the run; the operator has not seen it yet."""
    item = copy.deepcopy(suspended())
    item["spec"]["suspend"] = False
    item["metadata"]["generation"] = 2
    return item


def analysing() -> Item:
    """All points are measured, and the report is in progress."""
    return _measured().run


def report_failed() -> Item:
    """All points are measured, and the report fails."""
    world = _measured()
    world.start_pod(world.report)
    world.crash(world.report, 1, message="no space left")
    world.settle()
    return world.run


def engines_failed() -> Item:
    """No engine starts: nothing is measured."""
    world = _settled()
    for group in (0, 1):
        world.fail_engine(1, group=group, message="no CUDA device")
    return world.run


def trustworthy() -> Item:
    """Finished without findings."""
    return _finished().run


def untrustworthy() -> Item:
    """Finished, and a check reports that the drafter never drafted."""
    return _finished(Finding(check="NeverDrafted", severity=Severity.INVALID, message="0 tokens were drafted")).run


def finished_and_suspended() -> Item:
    """Suspending a finished run changes nothing."""
    world = _finished()
    world.run["spec"]["suspend"] = True
    world.run["metadata"]["generation"] = 2
    world.settle()
    return world.run


def deleting() -> Item:
    """The run is deleted halfway."""
    world = _running()
    world.run["metadata"]["deletionTimestamp"] = "2026-01-02T12:30:00Z"
    world.reconcile()
    return world.run


def with_condition(item: Item, kind: str, status: str, reason: str, message: str = "") -> Item:
    """The item with one more condition, and with a gate if the condition is about one."""
    item = copy.deepcopy(item)
    row = {"type": kind, "status": status, "reason": reason, "message": message}
    if kind == "GatePassed" and reason != "NoGate":
        item["spec"]["gate"] = {"baselineRef": {"run": "main-1"}}
    item["status"]["conditions"].append(row | {"lastTransitionTime": "2026-01-02T12:00:00Z", "observedGeneration": 1})
    return item


def as_campaign(item: Item) -> Item:
    """A campaign with the same status."""
    campaign = copy.deepcopy(item) | {"kind": "SpecBenchCampaign"}
    campaign["spec"] = {"template": {"spec": campaign["spec"]}, "suspend": campaign["spec"].pop("suspend", False)}
    return campaign


RUNS: dict[str, Callable[[], Item]] = {
    "just created": just_created,
    "accepted": accepted,
    "invalid": invalid,
    "unschedulable": unschedulable,
    "queued (vocabulary)": lambda: with_condition(accepted(), "Queued", "True", "WaitingForQuota", "no quota left"),
    "running": running,
    "S3 away": s3_away,
    "retryable error": retryable_error,
    "permanent error": permanent_error,
    "suspended": suspended,
    "resumed": resumed,
    "analysing": analysing,
    "report failed": report_failed,
    "engines failed": engines_failed,
    "trustworthy": trustworthy,
    "untrustworthy": untrustworthy,
    "finished and suspended": finished_and_suspended,
    "deleting": deleting,
    "gate passed (vocabulary)": lambda: with_condition(trustworthy(), "GatePassed", "True", "Passed"),
    "gate failed (vocabulary)": lambda: with_condition(trustworthy(), "GatePassed", "False", "Regressed", "TPOT +9 %"),
    "gate inconclusive (vocabulary)": lambda: with_condition(trustworthy(), "GatePassed", "False", "Inconclusive"),
    "gate undecided (vocabulary)": lambda: with_condition(
        trustworthy(), "GatePassed", "Unknown", "BaselineNotFinished", "main-1 is still running"
    ),
    "no gate (vocabulary)": lambda: with_condition(trustworthy(), "GatePassed", "Unknown", "NoGate"),
    "gate of an untrustworthy run (vocabulary)": lambda: with_condition(
        untrustworthy(), "GatePassed", "Unknown", "NotYet"
    ),
}
"""A run in every phase, by name."""

CAMPAIGNS: dict[str, Callable[[], Item]] = {
    "just created": lambda: as_campaign(just_created()),
    "running": lambda: as_campaign(running()),
    "suspended": lambda: as_campaign(suspended()),
    "failed": lambda: as_campaign(engines_failed()),
    "done": lambda: as_campaign(trustworthy()),
    "untrustworthy": lambda: as_campaign(untrustworthy()),
    "gate failed": lambda: as_campaign(with_condition(trustworthy(), "GatePassed", "False", "Regressed")),
    "gate undecided": lambda: as_campaign(with_condition(trustworthy(), "GatePassed", "Unknown", "NotYet")),
    "no gate": lambda: as_campaign(with_condition(trustworthy(), "GatePassed", "Unknown", "NoGate")),
    "done, with failed runs": lambda: _with_failed_runs(as_campaign(trustworthy())),
    "budget spent": lambda: as_campaign(with_condition(trustworthy(), "BudgetExhausted", "True", "Spent", "40 of 40")),
}
"""A campaign in every phase, with the conditions that it shares with runs."""


def _with_failed_runs(campaign: Item) -> Item:
    campaign["status"]["counts"] = {"total": 12, "succeeded": 10, "failed": 2}
    return campaign


def _settled() -> ClusterWorld:
    return launched()


def _running() -> ClusterWorld:
    world = _settled()
    world.serve()
    world.answering = (0, 0)
    world.reconcile()
    return world


def _with_error(error: OperatorError) -> Item:
    world = _running()
    status = status_after_error(world.run, world.status, error, world.now)
    return world.run | {"status": status.to_dict()}


def _measured() -> ClusterWorld:
    world = _settled()
    world.measure_all()
    return world


def _finished(finding: Finding | None = None) -> ClusterWorld:
    world = _measured()
    world.finish_report(summary_of(world.plan, len(world.measured), finding=finding))
    return world
