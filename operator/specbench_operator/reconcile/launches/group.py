"""Where each engine group stands: from S3 first, then from the children, and only where both are silent from status.

S3 is the truth: a group all of whose points have a manifest is done, whatever happened to its pods. Status is a hint
for what leaves no other trace, such as how often a launch was lost when the Jobs of those launches were deleted too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specbench_api.plan.plan import EngineGroup
from specbench_api.spec.conditions import EngineReason, GroupState
from specbench_api.spec.status import GroupStatus
from specbench_operator.reconcile.launches.judgement import SUSPENDED, ClientReason, Judgement, Stage, failed, lost
from specbench_operator.reconcile.moments import to_text
from specbench_operator.state.jobs import Before, Scope
from specbench_operator.state.stored import Stored

LAUNCHES_MAX = 3
"""So often an engine is launched for one group, if it is lost each time without its fault. Others are not counted."""
MESSAGE_MAX = 1024
OWN_FAULT = (
    EngineReason.IMAGE_PULL_FAILED,
    EngineReason.CONFIG_ERROR,
    EngineReason.OOM_KILLED,
    EngineReason.CRASHED,
    EngineReason.NEVER_READY,
    EngineReason.REFUSED,
)
"""What a later launch of the same arm would meet again. A full cluster (Unschedulable) is not among them."""


@dataclass(frozen=True)
class Launches:
    """The launches of a group as its children tell of them."""

    attempts: list[int]
    """In order."""
    judge: Callable[[int], Judgement]
    """Judges one of them."""
    before: Callable[[int], Before]
    """What their Jobs tell of those before one of them."""


@dataclass(frozen=True)
class Terms:
    """What the run's owner grants. `suspend`: nothing, so every launch that ends is given back, and none is lost."""

    suspend: bool
    preemption_budget: int


@dataclass(frozen=True)
class GroupView:
    """A group as it is seen now."""

    group: EngineGroup
    state: GroupState
    attempt: int
    measured: int
    reason: str = ""
    message: str = ""
    judgement: Judgement | None = None
    """Of the launch `attempt`, where one of its Jobs is there."""
    launch: int | None = None
    """The launch to be made, as soon as no engine holds GPUs."""
    given_back: int = 0
    """Launches before `attempt` that ended because the run was suspended."""
    preemptions: int = 0
    """Launches before `attempt` that were taken away."""
    past_pod: str | None = None
    """Where the last launch's Job is to start over as `attempt`: UID of the pod that is past, empty for none."""
    engine_pod: str = ""
    """Name of the pod that the launch `attempt` has."""
    ends_run: bool = False
    """It failed in a way that no group would survive."""

    @property
    def over(self) -> bool:
        """Nothing more is done for it."""
        return self.state in (GroupState.DONE, GroupState.FAILED)

    @property
    def wanted(self) -> int | None:
        """The launch whose engine is to be kept alive."""
        at_work = self.judgement and self.judgement.stage in (Stage.QUEUED, Stage.STARTING, Stage.SERVING)
        return self.attempt if at_work and not self.over and self.launch is None else None

    def to_status(self) -> GroupStatus:
        """Its row in status."""
        idle_since = self.judgement.idle_since if self.judgement else None
        return GroupStatus(
            index=self.group.index,
            arm=self.group.arm,
            state=self.state,
            points=len(self.group.points),
            measured=self.measured,
            attempt=self.attempt,
            given_back=self.given_back,
            preemptions=self.preemptions,
            engine_pod="" if self.over else self.engine_pod,
            idle_since=to_text(idle_since) if idle_since else None,
            ends_run=self.ends_run,
            reason=self.reason[:128],
            message=self.message[:MESSAGE_MAX],
        )


def view_group(
    group: EngineGroup,
    launches: Launches,
    stored: Stored | None,
    hint: GroupStatus | None,
    terms: Terms,
) -> GroupView:
    """See a group. `stored` is None while S3 does not answer."""
    attempts = launches.attempts
    known = hint or GroupStatus(index=group.index, arm=group.arm, state=GroupState.WAITING)
    measured = known.measured if stored is None else sum(point.hash in stored.measured for point in group.points)
    last = attempts[-1] if attempts else known.attempt
    done = known.state is GroupState.DONE if stored is None else measured == len(group.points)
    at = max(last, known.attempt)
    told = launches.before(at)
    seen = GroupView(
        group,
        known.state,
        last,
        measured,
        given_back=max(known.given_back, told.given_back),
        preemptions=max(known.preemptions, told.preemptions),
    )
    if done:
        return replace(seen, state=GroupState.DONE, measured=len(group.points))
    if not attempts or last < known.attempt:
        return _from_hint(replace(seen, attempt=known.attempt), known, terms)
    return _from_judgement(seen, launches.judge(last), terms, known_stored=stored is not None)


def without_hopeless(groups: Sequence[GroupView]) -> tuple[GroupView, ...]:
    """Give up what would fail again: an arm whose engine failed by its own fault is not launched for later repeats."""
    broken: dict[str, GroupView] = {}
    kept = []
    for view in groups:
        earlier = broken.get(view.group.arm)
        untouched = view.state is GroupState.WAITING and view.judgement is None and not view.reason
        if earlier and untouched:
            message = f"not launched: group {earlier.group.index + 1} of this arm failed: {earlier.message}"
            kept.append(replace(view, state=GroupState.FAILED, reason=earlier.reason, message=message, launch=None))
            continue
        if view.state is GroupState.FAILED and view.reason in OWN_FAULT:
            broken.setdefault(view.group.arm, view)
        kept.append(view)
    return tuple(kept)


def _from_hint(seen: GroupView, known: GroupStatus, terms: Terms) -> GroupView:
    """Nothing of it is left in the cluster, or only of launches that status has left behind."""
    if known.state is GroupState.FAILED:
        return replace(seen, reason=known.reason, message=known.message, ends_run=known.ends_run)
    if known.state in (GroupState.QUEUED, GroupState.STARTING, GroupState.MEASURING):
        return _again(seen, lost("its Jobs were deleted"), None, terms)
    reason, message = ("", "") if known.reason == SUSPENDED else (known.reason, known.message)
    return replace(seen, state=GroupState.WAITING, reason=reason, message=message, launch=known.attempt)


def _from_judgement(seen: GroupView, judgement: Judgement, terms: Terms, *, known_stored: bool) -> GroupView:
    if judgement.stage is Stage.FINISHED:
        if not known_stored:
            return replace(seen, state=GroupState.MEASURING, judgement=judgement)
        message = "its client ended well, but manifests of its points are not in S3"
        missing = failed(Scope.LAUNCH, ClientReason.RESULTS_MISSING, message)
        return _again(seen, missing, judgement, terms)
    if judgement.stage is Stage.FAILED and judgement.scope is Scope.LAUNCH:
        return _again(seen, judgement, judgement, terms)
    if judgement.stage is not Stage.FAILED and terms.suspend:
        return _again(seen, Judgement(judgement.stage, SUSPENDED), None, terms)
    state = {
        Stage.QUEUED: GroupState.QUEUED,
        Stage.STARTING: GroupState.STARTING,
        Stage.SERVING: GroupState.MEASURING,
        Stage.FAILED: GroupState.FAILED,
    }[judgement.stage]
    ends_run = judgement.scope is Scope.RUN
    reason, message = judgement.reason, judgement.message
    return replace(seen, state=state, reason=reason, message=message, judgement=judgement, ends_run=ends_run)


def _again(seen: GroupView, why: Judgement, judgement: Judgement | None, terms: Terms) -> GroupView:
    """A launch is over and another is due, unless too many were. A new number keeps old pods and clients out."""
    given = why.reason == SUSPENDED if why.recorded else terms.suspend
    taken = why.reason == EngineReason.PREEMPTED and not given
    given_back, preemptions = seen.given_back + given, seen.preemptions + taken
    if given and judgement:
        judgement = replace(judgement, reason=SUSPENDED)
    ended = replace(seen, reason=why.reason, message=why.message, judgement=judgement)
    if preemptions > terms.preemption_budget and taken:
        message = f"preempted {preemptions} times, with a preemptionBudget of {terms.preemption_budget}: {why.message}"
        return replace(ended, state=GroupState.FAILED, message=message)
    following = seen.attempt + 1
    if not taken and following - given_back - preemptions >= LAUNCHES_MAX:
        message = f"{LAUNCHES_MAX} launches were lost; the last one: {why.message}"
        return replace(ended, state=GroupState.FAILED, message=message)
    due = replace(ended, attempt=following, given_back=given_back, preemptions=preemptions)
    if taken and why.past_pod is not None:
        return replace(due, state=GroupState.QUEUED, past_pod=why.past_pod)
    return replace(due, state=GroupState.WAITING, launch=following)
