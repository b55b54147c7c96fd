"""Evaluates spec.gate of a run that has ended: finds the baseline, creates the gate's Job, and sets GatePassed.

The gate has a separate Job, because its baseline may finish after the run, and because the gate may be changed after
the run; the report need not be made again for either. A gate is evaluated once, also if its baseline is deleted later.
Only a changed gate is evaluated again.

Ready stays True whatever the result of the gate, because the measurement itself has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from specbench_api.campaign.names import ANNOTATION_COMBINATION
from specbench_api.errors import InvalidSpec, NotAllowed
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.names import gate_name
from specbench_api.spec.conditions import ConditionType, GateWait, Phase
from specbench_api.spec.gate import BaselineRef, Gate, GateRequest
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.secrets import GATE_USES
from specbench_api.spec.status import Condition, GateStatus, RunStatus
from specbench_operator.render.client_jobs import gate_job
from specbench_operator.run.events import gate_events
from specbench_operator.run.launches.children import Children, is_lost
from specbench_operator.run.launches.client import judge_ended_client, start_delay
from specbench_operator.run.launches.launch_state import ClientReason, LaunchStage
from specbench_operator.run.view import secret_problems
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import (
    ConditionValue,
    join_sentences,
    no,
    read_status,
    unknown,
    with_transition_times,
    yes,
)
from specbench_operator.state.objects import Job, ObjectRef
from specbench_operator.state.run import NamespaceRun, RunDecision, RunObservation, StoreFailure, parsed_run
from specbench_operator.state.timestamps import earliest, parse_timestamp


@dataclass(frozen=True)
class PendingGate:
    """Why a gate is not evaluated yet, and what to do about it."""

    value: ConditionValue
    """The condition GatePassed meanwhile."""
    request: GateRequest | None = None
    """Evaluate the gate now with this request."""
    requeue_after_s: float | None = None
    awaits: frozenset[str] = frozenset()
    """Names of runs: the gate may be evaluated when one of them ends."""
    waits_for_others: bool = False
    """Only other objects can change this state, so the resync may skip the run."""


def find_baseline(run: SpecBenchRun, ref: BaselineRef, observed: RunObservation) -> str | PendingGate:
    """Return the URI of the baseline, or why there is none.

    The baseline is a URI, a run of this namespace, or the latest earlier run of the same combination of a campaign, of
    which `observed.earlier` contains the runs.
    """
    if ref.uri is not None:
        return ref.uri
    if ref.run is not None:
        return _baseline_run(run, ref.run, observed.earlier)
    return _baseline_of_campaign(str(ref.campaign), observed)


def _baseline_run(run: SpecBenchRun, name: str, earlier: Sequence[NamespaceRun]) -> str | PendingGate:
    if name == run.metadata.name:
        return _missing("spec.gate.baselineRef.run is the name of this run: set it to the name of an earlier run")
    found = next((each for each in earlier if each.name == name), None)
    if found is None:
        message = f"there is no SpecBenchRun {name!r} in this namespace: create it, or change spec.gate.baselineRef"
        return _no_baseline(GateWait.BASELINE_MISSING, message, name)
    return _newest_finished([found])


def _baseline_of_campaign(name: str, observed: RunObservation) -> str | PendingGate:
    meta = observed.resource["metadata"]
    combination = (meta.get("annotations") or {}).get(ANNOTATION_COMBINATION, "")
    if not combination:
        return _missing(
            f"this run has no annotation {ANNOTATION_COMBINATION}: spec.gate.baselineRef.campaign is only for runs of a"
            " campaign; use baselineRef.run or baselineRef.uri"
        )
    mine = str(meta.get("creationTimestamp", ""))
    older = [
        each
        for each in observed.earlier
        if each.uid != meta["uid"] and each.created <= mine and each.combination == combination
    ]
    if not older:
        return _missing(
            f"the campaign {name!r} has no earlier run of this combination ({combination}): it will have one in"
            " the next round"
        )
    return _newest_finished(sorted(older, key=lambda each: (each.created, each.name), reverse=True))


def _newest_finished(newest_first: Sequence[NamespaceRun]) -> str | PendingGate:
    finished = next((each for each in newest_first if each.phase == Phase.SUCCEEDED and each.uri), None)
    if finished:
        return finished.uri
    names = [each.name for each in newest_first]
    unfinished = next((each for each in newest_first if each.phase not in (Phase.FAILED, Phase.INVALID)), None)
    if unfinished:
        phase = unfinished.phase or "no phase yet"
        message = f"the SpecBenchRun {unfinished.name!r} is not finished: {phase}"
        return _no_baseline(GateWait.BASELINE_NOT_FINISHED, message, *names)
    failed = newest_first[0]
    message = f"the SpecBenchRun {failed.name!r} has no results: {failed.phase}; change spec.gate.baselineRef"
    return _no_baseline(GateWait.BASELINE_FAILED, message, *names)


def _missing(message: str) -> PendingGate:
    return _no_baseline(GateWait.BASELINE_MISSING, message)


def _no_baseline(reason: GateWait, message: str, *awaits: str) -> PendingGate:
    """`awaits`: names of the runs that may become the baseline."""
    return PendingGate(unknown(reason, message), awaits=frozenset(awaits), waits_for_others=True)


GATE_RETRY_S = 30.0
"""Wait before S3 is read again, in seconds. There is no event when S3 becomes reachable."""
BASELINE_RETRY_MAX_S = 900.0
"""Longest wait for a baseline, in seconds. The end of another run is an event; this is for events that were missed."""


@dataclass(frozen=True)
class GateCase:
    """A run that has ended and has a gate, with everything that its evaluation depends on."""

    run: SpecBenchRun
    gate: Gate
    status: RunStatus
    observed: RunObservation
    children: Children
    settings: OperatorSettings
    now: datetime

    @cached_property
    def digest(self) -> str:
        """The digest that identifies this version of the gate."""
        return digest_of_gate(self.gate)

    @property
    def job(self) -> Job | None:
        """The Job that evaluates this version of the gate; None if there is none, or it must be made again."""
        name = gate_name(self.run.metadata.name, self.digest)
        job = next((job for job in self.children.gates if job.ref.name == name), None)
        return None if is_lost(job, self.children, self.settings, self.now) else job

    @property
    def evaluated(self) -> GateStatus | None:
        """The result of this version of the gate, from status, else from gate.json; None if it is not evaluated yet."""
        if self.status.phase is not Phase.SUCCEEDED:
            message = "the run failed, so there are no results to compare"
            return GateStatus(gate_digest=self.digest, passed=False, reason=GateWait.RUN_FAILED, message=message)
        if self.status.gate is not None and self.status.gate.gate_digest == self.digest:
            return self.status.gate
        stored = self.observed.gate
        if not isinstance(stored, GateStatus) or stored.gate_digest != self.digest:
            return None
        return stored if self._is_current else None

    @property
    def _is_current(self) -> bool:
        """Whether gate.json is about the current results, and not older than what this run added to adopted ones."""
        adopted = self.run.spec.results.adopt is not None and self.status.start_time is not None
        return not adopted or (self.job is not None and self.job.complete)


def with_gate(
    decision: RunDecision, observed: RunObservation, children: Children, settings: OperatorSettings, now: datetime
) -> RunDecision:
    """Add the gate to the decision about a run that has ended."""
    try:
        run = parsed_run(observed.resource)
    except InvalidSpec:
        return decision  # this version rejects a spec that an older version ran; its final status is kept
    if run.spec.gate is None:
        status = _with_gate_status(decision.status, None, None, now)
        return replace(decision, status=status, delete=_with_stale(decision, children, None))
    case = GateCase(run, run.spec.gate, decision.status, observed, children, settings, now)
    evaluated = case.evaluated
    if evaluated is None:
        return _wait_for_gate(decision, case)
    value = yes if evaluated.passed else no
    status = _with_gate_status(decision.status, value(evaluated.reason, evaluated.message), evaluated, now)
    return replace(
        decision,
        status=status,
        delete=_with_stale(decision, children, case.job),
        events=(*decision.events, *gate_events(read_status(RunStatus, observed.resource), status)),
    )


def _wait_for_gate(decision: RunDecision, case: GateCase) -> RunDecision:
    """The decision while the gate is not evaluated. Its Job is kept until then, also after the run's TTL."""
    pending, stale = _pending_gate(case), [job for job in case.children.gates if job is not case.job]
    kept = case.job.ref if case.job else None
    # A Job of an earlier version of the gate is deleted first, because both Jobs would write gate.json.
    request = pending.request if not stale else None
    return replace(
        decision,
        status=_with_gate_status(decision.status, pending.value, None, case.now),
        delete=tuple(ref for ref in _with_stale(decision, case.children, case.job) if ref != kept),
        apply=(*decision.apply, *((gate_job(case.run, request, case.settings),) if request else ())),
        requeue_after_s=earliest(decision.requeue_after_s, pending.requeue_after_s),
        at_rest=decision.at_rest and pending.waits_for_others,
        awaits=pending.awaits,
    )


def _pending_gate(case: GateCase) -> PendingGate:
    refusals = case.settings.refusals(case.run.spec, case.run.metadata.namespace)
    if refusals and case.job is None:
        return PendingGate(unknown(NotAllowed.reason, "; ".join(str(problem) for problem in refusals)))
    problems = secret_problems(case.run.spec, case.observed, case.settings, GATE_USES)
    if problems and case.job is None:
        message = "; ".join(str(problem) for problem in problems)
        return PendingGate(unknown(NotAllowed.reason, message), requeue_after_s=GATE_RETRY_S)
    failure = case.observed.gate
    if isinstance(failure, StoreFailure):
        return PendingGate(unknown(failure.reason, failure.message), requeue_after_s=GATE_RETRY_S)
    if case.job is not None:
        return PendingGate(_gate_job_condition(case, case.job))
    return _pending_comparison(case, find_baseline(case.run, case.gate.baseline_ref, case.observed))


def _pending_comparison(case: GateCase, found: str | PendingGate) -> PendingGate:
    """Evaluate the gate against the baseline at this location, or wait for one."""
    if isinstance(found, str):
        fence = case.settings.fence_check
        if refusals := fence.problems_of_baseline(case.run.spec, found) if fence else []:
            return PendingGate(unknown(NotAllowed.reason, "; ".join(str(problem) for problem in refusals)))
        request = GateRequest(gate_digest=case.digest, gate=case.gate, baseline=found)
        return PendingGate(unknown(GateWait.EVALUATING, f"against {found}"), request=request)
    return replace(found, requeue_after_s=_baseline_retry_s(case))


def _baseline_retry_s(case: GateCase) -> float:
    """Half of the time since the run ended, within limits: a baseline missing for hours will not appear soon."""
    ended = parse_timestamp(case.status.completion_time) or case.now
    return min(max((case.now - ended).total_seconds() / 2, GATE_RETRY_S), BASELINE_RETRY_MAX_S)


def _gate_job_condition(case: GateCase, job: Job) -> ConditionValue:
    pods = case.children.pods_of(job)
    ended = judge_ended_client(job, pods, case.settings, case.now)
    if ended is None:
        return unknown(GateWait.EVALUATING, start_delay(job, pods) or "")
    remedy = f"delete Job {job.ref.name} to evaluate the gate again"
    if ended.stage is LaunchStage.FAILED:
        return unknown(ended.reason, f"{join_sentences(('the gate could not be evaluated', ended.message))}; {remedy}")
    return unknown(ClientReason.RESULTS_MISSING, f"the gate's Job succeeded, but gate.json is missing in S3; {remedy}")


def _with_stale(decision: RunDecision, children: Children, job: Job | None) -> tuple[ObjectRef, ...]:
    """The objects to delete, with the Jobs of earlier versions of the gate."""
    stale = [each.ref for each in children.gates if each is not job and not each.deleting]
    return tuple(dict.fromkeys((*decision.delete, *stale)))


def _with_gate_status(
    status: RunStatus, value: ConditionValue | None, gate: GateStatus | None, now: datetime
) -> RunStatus:
    """The status with this GatePassed condition; both are removed where the spec has no gate."""
    other = [row for row in status.conditions if row.type is not ConditionType.GATE_PASSED]
    values = {ConditionType.GATE_PASSED: value} if value else {}
    rows = [*other, *with_transition_times(Condition, values, status, status.observed_generation, now)]
    rows.sort(key=lambda row: list(ConditionType).index(row.type))
    return status.model_copy(update={"conditions": rows, "gate": gate})
