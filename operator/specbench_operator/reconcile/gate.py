"""spec.gate of a run that has ended: found its baseline, evaluated by a Job of its own, told in GatePassed.

A Job of its own, and not the report's: the baseline may end after the run does, and the gate may be changed when all
is measured; the answer to the run stands by then, and is not made again for it. What was evaluated stays evaluated,
also when the baseline is deleted later; only another gate is evaluated anew.

Ready stays True whatever the gate says: a measurement that is finished is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.gate import AskedGate, GateReport
from specbench_api.plan.asked import asked_digest
from specbench_api.plan.names import gate_name
from specbench_api.spec.conditions import ConditionType, GateReason, GateWait, Phase
from specbench_api.spec.gate import Gate
from specbench_api.spec.reading import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import GateStatus, RunStatus
from specbench_operator.reconcile.baseline import Baseline, baseline_of
from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.launches.client_side import delay, judge_ended
from specbench_operator.reconcile.launches.judgement import ClientReason, Stage, joined, soonest
from specbench_operator.reconcile.moments import from_text
from specbench_operator.reconcile.scene import status_of
from specbench_operator.reconcile.telling.conditions import Said, dated, no, unknown, yes
from specbench_operator.reconcile.telling.transitions import events_of_gate
from specbench_operator.render.gate_job import gate_job
from specbench_operator.settings import Settings
from specbench_operator.state.child import Ref
from specbench_operator.state.decision import Decision
from specbench_operator.state.jobs import Job
from specbench_operator.state.observed import Observed
from specbench_operator.state.stored import StoreTrouble

AGAIN_S = 30.0
"""Nothing tells of an S3 that is back."""
BASELINE_MAX_S = 900.0
"""The end of another run is heard of; this is for an operator that did not hear it."""
MESSAGE_MAX = 1024


@dataclass(frozen=True)
class Case:
    """A run that has ended, its gate, and all that bears on it."""

    run: SpecBenchRun
    gate: Gate
    status: RunStatus
    observed: Observed
    children: Children
    settings: Settings
    now: datetime

    @cached_property
    def digest(self) -> str:
        """Which gate it is."""
        return asked_digest(self.gate)

    @property
    def job(self) -> Job | None:
        """The Job that evaluates this very gate."""
        name = gate_name(self.run.metadata.name, self.digest)
        return next((job for job in self.children.gates if job.ref.name == name), None)

    @property
    def evaluated(self) -> GateStatus | None:
        """What became of this very gate: from status, else from gate.json."""
        if self.status.phase is not Phase.SUCCEEDED:
            return _failed_run(self.digest)
        if self.status.gate is not None and self.status.gate.asked == self.digest:
            return self.status.gate
        report = self.observed.gate
        ours = isinstance(report, GateReport) and report.asked == self.digest
        return _evaluated(report) if ours and isinstance(report, GateReport) else None


@dataclass(frozen=True)
class Awaited:
    """Why a gate is not evaluated, and what is to be done about it."""

    said: Said
    asked: AskedGate | None = None
    """Evaluate it now."""
    look_again_s: float | None = None
    awaits: frozenset[str] = frozenset()
    """Names of runs whose end may end it."""
    by_itself: bool = False
    """Nothing but the world outside of this run ends it: the relist may pass it over."""


def with_gate(
    decision: Decision, observed: Observed, children: Children, settings: Settings, now: datetime
) -> Decision:
    """The decision about a run that has ended, with its gate."""
    try:
        run = parse_run(observed.resource)
    except InvalidSpec:
        return decision  # a newer operator refuses what an older one ran: its last word stands
    if run.spec.gate is None:
        status = _told(decision.status, None, None, now)
        return replace(decision, status=status, delete=_with_stale(decision, children, None))
    case = Case(run, run.spec.gate, decision.status, observed, children, settings, now)
    evaluated = case.evaluated
    if evaluated is None:
        return _waiting(decision, case)
    status = _told(decision.status, _said(evaluated), evaluated, now)
    return replace(
        decision,
        status=status,
        delete=_with_stale(decision, children, case.job),
        events=(*decision.events, *events_of_gate(status_of(observed.resource), status)),
    )


def _waiting(decision: Decision, case: Case) -> Decision:
    """Its Job stays until it is evaluated, also beyond the time at which the run's children go."""
    awaited, stale = _awaited(case), [job for job in case.children.gates if job is not case.job]
    asked = awaited.asked if not stale else None  # one after the other: both would write gate.json
    return replace(
        decision,
        status=_told(decision.status, awaited.said, None, case.now),
        delete=tuple(ref for ref in _with_stale(decision, case.children, case.job) if not _is_of(case.job, ref)),
        apply=(*decision.apply, *((gate_job(case.run, asked, case.settings),) if asked else ())),
        look_again_s=soonest(decision.look_again_s, awaited.look_again_s),
        at_rest=decision.at_rest and awaited.by_itself,
        awaits=awaited.awaits,
    )


def _awaited(case: Case) -> Awaited:
    trouble = case.observed.gate
    if isinstance(trouble, StoreTrouble):
        return Awaited(unknown(trouble.reason, trouble.message), look_again_s=AGAIN_S)
    if case.job is not None:
        return Awaited(_at_work(case, case.job))
    found = baseline_of(case.run, case.gate.baseline_ref, case.observed)
    if isinstance(found, Baseline):
        asked = AskedGate(asked=case.digest, gate=case.gate, baseline=found.uri)
        return Awaited(unknown(GateWait.EVALUATING, f"against {found.uri}"), asked=asked)
    wait_s = _patience_s(case)
    return Awaited(unknown(found.why, found.message), look_again_s=wait_s, awaits=found.awaits, by_itself=True)


def _patience_s(case: Case) -> float:
    """Half as long again each time, since the run ended: a baseline that was not there for hours will not be soon."""
    ended = from_text(case.status.completion_time) or case.now
    return min(max((case.now - ended).total_seconds() / 2, AGAIN_S), BASELINE_MAX_S)


def _at_work(case: Case, job: Job) -> Said:
    pods = case.children.pods_of(job)
    over = judge_ended(job, pods, case.settings, case.now)
    if over is None:
        return unknown(GateWait.EVALUATING, delay(job, pods) or "")
    remedy = f"delete Job {job.ref.name} to have it evaluated again"
    if over.stage is Stage.FAILED:
        return unknown(over.reason, f"{joined(('the gate could not be evaluated', over.message))}; {remedy}")
    return unknown(ClientReason.RESULTS_MISSING, f"its Job ended well, but gate.json is not in S3; {remedy}")


def _with_stale(decision: Decision, children: Children, job: Job | None) -> tuple[Ref, ...]:
    """What is deleted, and the Jobs of gates that are asked no more."""
    stale = [each.ref for each in children.gates if each is not job and not each.deleting]
    return tuple(dict.fromkeys((*decision.delete, *stale)))


def _is_of(job: Job | None, ref: Ref) -> bool:
    return job is not None and job.ref == ref


def _failed_run(digest: str) -> GateStatus:
    return GateStatus(
        asked=digest, passed=False, reason=GateWait.RUN_FAILED, message="the run failed: there is nothing to compare"
    )


def _evaluated(report: GateReport) -> GateStatus:
    return GateStatus(
        asked=report.asked,
        passed=report.passed,
        reason=report.reason,
        message=report.message[:MESSAGE_MAX],
        baseline=report.before.uri,
    )


def _said(status: GateStatus) -> Said:
    words = status.message if status.reason != GateReason.UNTRUSTWORTHY else f"a result is doubted: {status.message}"
    return yes(status.reason, words) if status.passed else no(status.reason, words)


def _told(status: RunStatus, said: Said | None, gate: GateStatus | None, now: datetime) -> RunStatus:
    """The status with what is said; without a gate, without a trace of one."""
    kept = [row for row in status.conditions if row.type is not ConditionType.GATE_PASSED]
    told = {ConditionType.GATE_PASSED: said} if said else {}
    rows = [*kept, *dated(told, status, status.observed_generation, now)]
    rows.sort(key=lambda row: list(ConditionType).index(row.type))
    return status.model_copy(update={"conditions": rows, "gate": gate})
