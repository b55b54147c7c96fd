"""RunState: the run's phase with its reason and message, from which Ready, Reconciling and Stalled are derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.conditions import GroupState, Phase, QueueReason
from specbench_operator.run.launches.children import Children
from specbench_operator.run.launches.client import judge_ended_client, start_delay
from specbench_operator.run.launches.launch_state import ClientReason, LaunchStage
from specbench_operator.run.run_view import RunView
from specbench_operator.state.conditions import join_sentences
from specbench_operator.state.objects import Job, ObjectRef
from specbench_operator.state.run import StoreFailure

TERMINAL_PHASES = (Phase.SUCCEEDED, Phase.FAILED)
STALLED_PHASES = (Phase.FAILED, Phase.INVALID)
_NEXT_AFTER = {
    False: "the next engine is launched when the last one has released its GPUs",
    True: "the next client starts when the last one has ended",
}
_NOT_YET_ENDED = {
    False: "the last engine has not released its GPUs yet",
    True: "the last client has not ended yet",
}
"""Messages, by whether the run measures servers that are already running."""
_NOT_READ = StoreFailure("WaitingForS3", "", refused=False)
ACTIVE_PHASES = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ANALYZING)


@dataclass(frozen=True)
class RunState:
    """The phase of a run, with its reason and message.

    `report_due`: create the report Job. `retryable`: the run has failed but not ended, because it can still be
    repaired.
    """

    phase: Phase
    reason: str
    message: str
    report_due: bool = False
    retryable: bool = False


def run_state_of(run_view: RunView) -> RunState:
    """Determine the state of a run."""
    fatal = run_view.fatal_group
    if fatal:
        return RunState(Phase.FAILED, fatal.reason, fatal.message)
    if run_view.suspended:
        message = "spec.suspend is true: GPUs are released and results are kept; set it to false to continue"
        return RunState(Phase.SUSPENDED, "Suspended", message)
    if run_view.namespace_wait:
        return RunState(Phase.PENDING, run_view.namespace_wait.reason, run_view.namespace_wait.message)
    if run_view.active_group:
        return _measuring(run_view)
    if run_view.measured == 0:
        first = run_view.failed[0]
        message = f"no point was measured; arm {first.group.arm}: {first.message}"
        return RunState(Phase.FAILED, first.reason, message)
    return _analyzing(run_view)


def _measuring(run_view: RunView) -> RunState:
    view = run_view.active_group
    assert view is not None
    has_started = run_view.launching is not None or run_view.previous.start_time
    phase = {
        GroupState.WAITING: Phase.STARTING if has_started else Phase.PENDING,
        GroupState.QUEUED: Phase.QUEUED,
        GroupState.STARTING: Phase.STARTING,
        GroupState.MEASURING: Phase.RUNNING,
    }[view.state]
    if run_view.children.leftovers:
        return _blocked(run_view.children, phase)
    if run_view.stored is None and view.live_launch is None:
        failure = run_view.store_failure or _NOT_READ
        message = join_sentences(("no engine is launched while S3 cannot be read", failure.message))
        return RunState(phase, failure.reason, message)
    if view.next_launch is not None and run_view.holds_gpus:
        return RunState(phase, "WaitingForRelease", _NEXT_AFTER[run_view.children.running_already])
    where = f"arm {view.group.arm}: group {view.group.index + 1} of {len(run_view.groups)}"
    if view.state is GroupState.QUEUED:
        return RunState(phase, view.reason, join_sentences((where, view.message)))
    if run_view.launching is not None and run_view.run.spec.placement.queue_name:
        return RunState(Phase.QUEUED, QueueReason.WAITING, where)
    return RunState(phase, str(phase), where)


def _blocked(children: Children, phase: Phase) -> RunState:
    remedy = "waiting for Kubernetes to remove them"
    if children.orphans:
        orphans = _list_refs(children.orphans)
        remedy = (
            f"Kubernetes does not remove {orphans}, because nobody owns them: delete them by hand (kubectl delete),"
            " or rename the run"
        )
    message = f"an earlier run of this name left {_list_refs(children.leftovers)}: {remedy}"
    return RunState(phase, "WaitingForRemoval", message)


def _list_refs(refs: Sequence[ObjectRef]) -> str:
    return ", ".join(f"{ref.kind} {ref.name}" for ref in refs[:5])


def _analyzing(run_view: RunView) -> RunState:
    if run_view.holds_gpus:
        return RunState(Phase.ANALYZING, "WaitingForRelease", _NOT_YET_ENDED[run_view.children.running_already])
    if run_view.stored is None:
        failure = run_view.store_failure or _NOT_READ
        return RunState(Phase.ANALYZING, failure.reason, failure.message)
    report, summary = run_view.children.report, run_view.stored.summary
    return _with_report_job(run_view, report, summary) if report else _without_report_job(run_view, summary)


def _with_report_job(run_view: RunView, report: Job, summary: RunSummary | None) -> RunState:
    """The state while a report Job exists. No engine holds GPUs by now, so the Job may wait and may be repeated."""
    pods = run_view.children.pods_of(report)
    ended = judge_ended_client(report, pods, run_view.settings, run_view.now)
    if ended is None:
        message = join_sentences(("the report is being made", start_delay(report, pods) or ""))
        return RunState(Phase.ANALYZING, "Analyzing", message)
    if ended.stage is LaunchStage.FAILED:
        return _report_failed(report, ended.reason, join_sentences(("the report failed", ended.message)))
    if summary is None:
        message = "the report Job succeeded, but summary.json is missing in S3"
        return _report_failed(report, ClientReason.RESULTS_MISSING, message)
    return RunState(Phase.SUCCEEDED, "Finished", summary.headline)


def _report_failed(report: Job, reason: str, message: str) -> RunState:
    remedy = f"all measurements are kept; delete Job {report.ref.name} to make the report again"
    return RunState(Phase.FAILED, reason, f"{message}; {remedy}", retryable=True)


def _without_report_job(run_view: RunView, summary: RunSummary | None) -> RunState:
    """The state without a report Job. Only adopted results to which this run adds nothing need no new report.

    The number of points in an older summary is no proof: a point may have been removed and measured again.
    """
    if summary and summary.points_measured == run_view.measured and not run_view.has_launched:
        return RunState(Phase.SUCCEEDED, "Finished", summary.headline)
    return RunState(Phase.ANALYZING, "Analyzing", "the report is being made", report_due=True)
