"""Where the run as a whole stands: one phase with one reason, from which the conditions for tools are read off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.spec.conditions import GroupState, Phase, QueueReason
from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.launches.client_side import delay, judge_ended
from specbench_operator.reconcile.launches.judgement import ClientReason, Stage, joined
from specbench_operator.reconcile.scene import Scene
from specbench_operator.state.child import Ref
from specbench_operator.state.jobs import Job
from specbench_operator.state.stored import StoreTrouble

TERMINAL = (Phase.SUCCEEDED, Phase.FAILED)
STALLED = (Phase.FAILED, Phase.INVALID)
AT_WORK = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ANALYSING)


@dataclass(frozen=True)
class Course:
    """`report_due`: the report Job is to be made. `mendable`: it failed and has not ended, for it can be made good."""

    phase: Phase
    reason: str
    message: str
    report_due: bool = False
    mendable: bool = False


def course_of(scene: Scene) -> Course:
    """Determine it."""
    fatal = scene.ended_by
    if fatal:
        return Course(Phase.FAILED, fatal.reason, fatal.message)
    if scene.suspended:
        return Course(Phase.SUSPENDED, "Suspended", "spec.suspend is true: the GPUs are given back, results are kept")
    if scene.open:
        return _measuring(scene)
    if scene.measured == 0:
        first = scene.failed[0]
        return Course(Phase.FAILED, first.reason, f"nothing was measured; arm {first.group.arm}: {first.message}")
    return _concluding(scene)


def _measuring(scene: Scene) -> Course:
    view = scene.open
    assert view is not None
    begun = scene.launching is not None or scene.previous.start_time
    phase = {
        GroupState.WAITING: Phase.STARTING if begun else Phase.PENDING,
        GroupState.QUEUED: Phase.QUEUED,
        GroupState.STARTING: Phase.STARTING,
        GroupState.MEASURING: Phase.RUNNING,
    }[view.state]
    if scene.children.strangers:
        return _blocked(scene.children, phase)
    if scene.stored is None and view.wanted is None:
        said = scene.trouble.message if scene.trouble else ""
        reason = scene.trouble.reason if scene.trouble else "WaitingForS3"
        return Course(phase, reason, joined(("no engine is launched while S3 does not answer", said)))
    if view.launch is not None and scene.holding:
        return Course(phase, "WaitingForRelease", "the next engine is launched when the last one has released its GPUs")
    where = f"arm {view.group.arm}: group {view.group.index + 1} of {len(scene.groups)}"
    if view.state is GroupState.QUEUED:
        return Course(phase, view.reason, joined((where, view.message)))
    if scene.launching is not None and scene.run.spec.placement.queue_name:
        return Course(Phase.QUEUED, QueueReason.WAITING, where)
    return Course(phase, str(phase), where)


def _blocked(children: Children, phase: Phase) -> Course:
    what = "waiting for Kubernetes to remove them"
    if children.orphans:
        what = f"nobody owns {_named(children.orphans)}: delete them by hand (kubectl delete), or rename the run"
    message = f"an earlier run of this name left {_named(children.strangers)}: {what}"
    return Course(phase, "WaitingForRemoval", message)


def _named(refs: Sequence[Ref]) -> str:
    return ", ".join(f"{ref.kind} {ref.name}" for ref in refs[:5])


def _concluding(scene: Scene) -> Course:
    if scene.holding:
        return Course(Phase.ANALYSING, "WaitingForRelease", "the last engine has not released its GPUs yet")
    if scene.stored is None:
        trouble = scene.trouble or StoreTrouble("WaitingForS3", "", refused=False)
        return Course(Phase.ANALYSING, trouble.reason, trouble.message)
    report = scene.children.report
    return _with_report_job(scene, report) if report else _without_report_job(scene)


def _with_report_job(scene: Scene, report: Job) -> Course:
    """No engine holds GPUs by now, so it has all the time that it needs, and may be made again."""
    pods = scene.children.pods_of(report)
    over = judge_ended(report, pods, scene.settings, scene.now)
    if over is None:
        return Course(Phase.ANALYSING, "Analysing", joined(("the report is being made", delay(report, pods) or "")))
    if over.stage is Stage.FAILED:
        return _unreported(report, over.reason, joined(("the report failed", over.message)))
    if scene.stored is None or scene.stored.summary is None:
        message = "the report ended well, but summary.json is not in S3"
        return _unreported(report, ClientReason.RESULTS_MISSING, message)
    return _succeeded(scene)


def _unreported(report: Job, reason: str, message: str) -> Course:
    remedy = f"all results are kept: delete Job {report.ref.name} to have the report made again"
    return Course(Phase.FAILED, reason, f"{message}; {remedy}", mendable=True)


def _without_report_job(scene: Scene) -> Course:
    summary = scene.stored.summary if scene.stored else None
    if summary and summary.points_measured == scene.measured:
        return _succeeded(scene)
    return Course(Phase.ANALYSING, "Analysing", "the report is being made", report_due=True)


def _succeeded(scene: Scene) -> Course:
    summary = scene.stored.summary if scene.stored else None
    return Course(Phase.SUCCEEDED, "Finished", summary.verdict if summary else "")
