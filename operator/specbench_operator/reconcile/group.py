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
from specbench_operator.reconcile.judgement import ClientReason, Judgement, Stage, failed, lost
from specbench_operator.state import Scope, Stored

LAUNCHES_MAX = 3
"""So often an engine is launched for one group, if it is lost each time without its fault."""
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

    @property
    def over(self) -> bool:
        """Nothing more is done for it."""
        return self.state in (GroupState.DONE, GroupState.FAILED)

    @property
    def wanted(self) -> int | None:
        """The launch whose engine is to be kept alive."""
        at_work = self.judgement and self.judgement.stage in (Stage.STARTING, Stage.SERVING)
        return self.attempt if at_work and not self.over and self.launch is None else None

    @property
    def ends_run(self) -> bool:
        """It failed in a way that no group would survive."""
        return self.state is GroupState.FAILED and self.judgement is not None and self.judgement.scope is Scope.RUN

    def to_status(self) -> GroupStatus:
        """Its row in status."""
        return GroupStatus(
            index=self.group.index,
            arm=self.group.arm,
            state=self.state,
            points=len(self.group.points),
            measured=self.measured,
            attempt=self.attempt,
            reason=self.reason[:128],
            message=self.message[:MESSAGE_MAX],
        )


def view_group(
    group: EngineGroup,
    attempts: list[int],
    stored: Stored | None,
    hint: GroupStatus | None,
    judge: Callable[[int], Judgement],
) -> GroupView:
    """See a group. `stored` is None while S3 does not answer; `judge` judges one of the attempts."""
    known = hint or GroupStatus(index=group.index, arm=group.arm, state=GroupState.WAITING)
    measured = known.measured if stored is None else sum(point.hash in stored.measured for point in group.points)
    last = attempts[-1] if attempts else known.attempt
    done = known.state is GroupState.DONE if stored is None else measured == len(group.points)
    if done:
        return GroupView(group, GroupState.DONE, last, len(group.points))
    if not attempts:
        return _from_hint(group, known, measured)
    return _from_judgement(group, last, measured, judge(last), known_stored=stored is not None)


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


def _from_hint(group: EngineGroup, known: GroupStatus, measured: int) -> GroupView:
    """Nothing of it is left in the cluster."""
    if known.state is GroupState.FAILED:
        return GroupView(group, GroupState.FAILED, known.attempt, measured, known.reason, known.message)
    if known.state in (GroupState.STARTING, GroupState.MEASURING):
        return _again(group, known.attempt, measured, lost("its Jobs were deleted"), None)
    return GroupView(group, GroupState.WAITING, known.attempt, measured, launch=known.attempt)


def _from_judgement(
    group: EngineGroup, attempt: int, measured: int, judgement: Judgement, *, known_stored: bool
) -> GroupView:
    reason, message = judgement.reason, judgement.message
    if judgement.stage is Stage.FINISHED:
        if not known_stored:
            return GroupView(group, GroupState.MEASURING, attempt, measured, judgement=judgement)
        message = "its client ended well, but manifests of its points are not in S3"
        missing = failed(Scope.LAUNCH, ClientReason.RESULTS_MISSING, message)
        return _again(group, attempt, measured, missing, judgement)
    if judgement.stage is Stage.FAILED and judgement.scope is Scope.LAUNCH:
        return _again(group, attempt, measured, judgement, judgement)
    state = {
        Stage.STARTING: GroupState.STARTING,
        Stage.SERVING: GroupState.MEASURING,
        Stage.FAILED: GroupState.FAILED,
    }[judgement.stage]
    return GroupView(group, state, attempt, measured, reason, message, judgement)


def _again(group: EngineGroup, attempt: int, measured: int, why: Judgement, judgement: Judgement | None) -> GroupView:
    reason, message, following = why.reason, why.message, attempt + 1
    if following < LAUNCHES_MAX:
        return GroupView(group, GroupState.WAITING, following, measured, reason, message, judgement, launch=following)
    message = f"{LAUNCHES_MAX} launches were lost; the last one: {message}"
    return GroupView(group, GroupState.FAILED, attempt, measured, reason, message, judgement)
