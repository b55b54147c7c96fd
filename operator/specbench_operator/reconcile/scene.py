"""Everything that one reconciliation knows, sorted once; the other modules ask it and never the raw observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionStatus, ConditionType, EngineReason, GroupState
from specbench_api.spec.results import LATEST
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import Condition, GroupStatus, RunStatus
from specbench_operator.reconcile.launches.children import Children, children_of, holding
from specbench_operator.reconcile.launches.engine_side import Idle, Patience, current
from specbench_operator.reconcile.launches.group import GroupView, Launches, Terms, view_group, without_hopeless
from specbench_operator.reconcile.launches.judgement import Judgement
from specbench_operator.reconcile.launches.launch import judge
from specbench_operator.reconcile.launches.nodes import known_nodes, served_on
from specbench_operator.reconcile.launches.numbers import unused
from specbench_operator.reconcile.moments import from_text
from specbench_operator.reconcile.planned import plan_of
from specbench_operator.settings import Settings
from specbench_operator.state.nodes import Node, NodeUnread
from specbench_operator.state.observed import Observed
from specbench_operator.state.stored import Stored, StoreTrouble

_GRACED = (EngineReason.IMAGE_PULL_FAILED, EngineReason.CONFIG_ERROR)


@dataclass(frozen=True)
class Scene:
    """A run, its plan, and where everything stands."""

    run: SpecBenchRun
    plan: Plan
    previous: RunStatus
    children: Children
    nodes: tuple[Node | NodeUnread, ...]
    groups: tuple[GroupView, ...]
    stored: Stored | None
    trouble: StoreTrouble | None
    settings: Settings
    now: datetime
    known_nodes: tuple[str, ...] = ()
    """Nodes of the run's last launch, where no pod tells them."""

    @property
    def holding(self) -> bool:
        """Whether an engine of this run holds GPUs or may come to."""
        return holding(self.children, self.settings, self.now)

    @property
    def ended_by(self) -> GroupView | None:
        """The group whose failure ends the whole run."""
        return next((view for view in self.groups if view.ends_run), None)

    @property
    def open(self) -> GroupView | None:
        """The group whose turn it is. Groups go strictly one after the other: they compete for the same GPUs."""
        return None if self.ended_by else next((view for view in self.groups if not view.over), None)

    @property
    def suspended(self) -> bool:
        """Whether the user asked for the GPUs back while there is still something to measure."""
        return self.run.spec.suspend and self.open is not None

    @property
    def failed(self) -> tuple[GroupView, ...]:
        """Groups that were given up."""
        return tuple(view for view in self.groups if view.state is GroupState.FAILED)

    @property
    def measured(self) -> int:
        """Points with a manifest."""
        return sum(view.measured for view in self.groups)

    @property
    def launching(self) -> int | None:
        """The launch that is made now: S3 has said what is missing, and nothing else can hold GPUs."""
        blocked = self.children.strangers or self.suspended or self.stored is None or self.holding
        return None if self.open is None or blocked else self.open.launch

    @property
    def placeless(self) -> bool:
        """Whether the newest earlier results are carried on, and S3 has not said which those are: nothing is made."""
        return self.run.spec.results.adopt == LATEST

    @property
    def served_on(self) -> tuple[str, ...]:
        """Nodes of the run's last engine that got ready."""
        return served_on(self.children.pods, self.known_nodes)

    def wanted(self, view: GroupView | None) -> int | None:
        """The launch of a group whose engine is to live on."""
        at_work = view is not None and view is self.open and not self.suspended
        return view.wanted if view is not None and at_work else None


def scene_of(run: SpecBenchRun, observed: Observed, previous: RunStatus, settings: Settings, now: datetime) -> Scene:
    """Sort what was observed. Raises InvalidSpec for a run that has no plan."""
    children = children_of(observed, run.metadata.uid, settings, now)
    stored = observed.stored if isinstance(observed.stored, Stored) else None
    plan = plan_of(run, observed.plan_json, stored.plan_json if stored else None)
    trouble = observed.stored if isinstance(observed.stored, StoreTrouble) else None
    hints = {row.index: row for row in previous.groups}
    patience = Patience.of(run.spec, settings, _troubled_since(previous), now)
    terms = Terms(run.spec.suspend, run.spec.placement.preemption_budget)
    groups = without_hopeless(
        [
            _with_pod(
                unused(
                    view_group(
                        group,
                        _launches(children, patience, settings, group.index, hints.get(group.index)),
                        stored,
                        hints.get(group.index),
                        terms,
                    ),
                    stored.launches.get(group.index) if stored else None,
                ),
                children,
            )
            for group in plan.groups
        ]
    )
    created = from_text(observed.resource["metadata"].get("creationTimestamp"))
    last = stored.last_launch if stored else None
    nodes = known_nodes(previous.engine_nodes, children.clients, last, created)
    return Scene(run, plan, previous, children, observed.nodes, groups, stored, trouble, settings, now, nodes)


def _launches(
    children: Children, patience: Patience, settings: Settings, group: int, hint: GroupStatus | None
) -> Launches:
    judge_one = partial(_judge, children, patience, settings, group, hint=hint)
    return Launches(children.attempts(group), judge_one, partial(children.before, group))


def _with_pod(view: GroupView, children: Children) -> GroupView:
    """The view with the pod that its launch has, if it has one."""
    engine = children.engine(view.group.index, view.attempt)
    pod = None if engine is None or engine.suspended else current(children.pods_of(engine))
    return replace(view, engine_pod=pod.ref.name) if pod else view


def _judge(
    children: Children, patience: Patience, settings: Settings, group: int, attempt: int, *, hint: GroupStatus | None
) -> Judgement:
    """Judge a launch with what status still knows of this very one."""
    known = hint if hint and hint.attempt == attempt else None
    since = from_text(known.idle_since) if known else None
    idle = Idle(since, known.message) if known and since else None
    known_pod = known.engine_pod if known else ""
    return judge(children, group, replace(patience, idle=idle, known_pod=known_pod), settings, attempt)


def status_of(resource: Mapping[str, Any]) -> RunStatus:
    """The status as it was last written, or an empty one where it cannot be read: it is a cache."""
    try:
        return RunStatus.model_validate(resource.get("status") or {})
    except ValidationError:
        return RunStatus()


def condition_of(status: RunStatus, kind: ConditionType) -> Condition | None:
    """One condition."""
    return next((row for row in status.conditions if row.type is kind), None)


def _troubled_since(previous: RunStatus) -> datetime | None:
    ready = condition_of(previous, ConditionType.ENGINE_READY)
    troubled = ready and ready.status is ConditionStatus.FALSE and ready.reason in _GRACED
    return from_text(ready.last_transition_time) if ready and troubled else None
