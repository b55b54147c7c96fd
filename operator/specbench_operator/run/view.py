"""RunView: the run's plan and the state of its groups, derived once per reconciliation from the observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from specbench_api.errors import Problem
from specbench_api.fence.check import repository_of
from specbench_api.outcome.layout import PLAN
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.canonical import digest, plan_digest
from specbench_api.plan.expansion import expand, flaws_of_stored, with_requested_round
from specbench_api.plan.limits import GROUPS_MAX, POINTS_MAX
from specbench_api.plan.names import plan_name
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import (
    ConditionStatus,
    ConditionType,
    EngineReason,
    GroupState,
)
from specbench_api.spec.results import LATEST
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.secrets import SecretUse, unusable_secrets
from specbench_api.spec.status import RunStatus
from specbench_operator.errors import Stop
from specbench_operator.render.client_jobs import CLIENT_IMAGE, PLAN_SHA256, engine_configs
from specbench_operator.run.launches.children import Children, holds_gpus, known_nodes, serving_nodes
from specbench_operator.run.launches.group import GroupView, build_group_view, skip_broken_arms
from specbench_operator.run.launches.launch_state import LaunchContext
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import find_condition
from specbench_operator.state.objects import Node, UnreadableNode
from specbench_operator.state.run import RunObservation, StoredResults, StoreFailure
from specbench_operator.state.timestamps import parse_timestamp


@dataclass(frozen=True)
class NamespaceWait:
    """Why a run must not begin yet. `awaits`: names of the runs of which one must end first."""

    message: str
    awaits: frozenset[str]


@dataclass(frozen=True)
class BegunPlan:
    """The plan that a run began with. `sha256`: its digest by the version that made it.

    `client_image`: the image of its clients; None if it is not stored yet. `as_written`: whether this version would
    write the same document. `unknown_field`: the first field that this version does not know, and must not ignore; None
    if it knows all. `text`: the document; None if it is not stored yet.
    """

    plan: Plan
    sha256: str
    client_image: str | None = None
    as_written: bool = True
    unknown_field: str | None = None
    text: str | None = None

    @property
    def digest(self) -> str:
        """The digest of the document that clients get."""
        return digest(self.plan.to_json() if self.text is None else self.text)


def select_plan(run: SpecBenchRun, config_map: Mapping[str, str]) -> BegunPlan:
    """The plan that the run began with, because another version of the operator might expand the spec differently.

    `config_map`: data of the run's ConfigMap; another version may have written it, or anybody: see `check_plan`. Raises
    InvalidSpec for a spec that cannot be expanded, and Stop for a plan that this version cannot read.
    """
    text = config_map.get(PLAN)
    if text is not None:
        try:
            plan = Plan.from_untrusted_json(text.encode())
        except ValueError as error:
            raise plan_of_another_version(str(error)) from error
        as_written = plan.to_json() == text
        unknown_field = None if as_written else plan.unknown_field(text.encode())
        plan = plan.model_copy(update={"placement": run.spec.placement})  # engines get that of the spec anyway
        return BegunPlan(
            plan,
            config_map.get(PLAN_SHA256) or plan_digest(plan),
            config_map.get(CLIENT_IMAGE),
            as_written,
            unknown_field,
            text,
        )
    plan = expand(run)
    return BegunPlan(plan, plan_digest(plan))


def check_plan(run: SpecBenchRun, begun: BegunPlan, data: Mapping[str, str], settings: OperatorSettings) -> None:
    """Raises Stop for a plan, a client image or engine files that no operator would have written for this run.

    `data`: of the ConfigMap, which anybody may have written. The spec cannot change, and is checked before.
    """
    plan, files = begun.plan, {key: text for key, text in data.items() if key not in (PLAN, CLIENT_IMAGE, PLAN_SHA256)}
    problems = flaws_of_stored(plan, run)
    image = begun.client_image
    if image is not None and repository_of(image) != repository_of(settings.client_image):
        problems.append(Problem(CLIENT_IMAGE, f"{image} is not of the operator's repository"))
    if len(plan.points) > POINTS_MAX or len(plan.groups) > GROUPS_MAX:
        problems.append(Problem(PLAN, "has more points or engine groups than a run may have"))
    if not problems and files != engine_configs(plan):
        problems.append(Problem("data", "has other configuration files than the arms' engines need"))
    if problems:
        name, found = plan_name(run.metadata.name, plan.added_rounds), "; ".join(map(str, problems))
        raise Stop(
            "PlanNotAllowed",
            f"the run is stopped, because ConfigMap {name} is not as the operator writes it: {found}: delete it, and"
            " the operator makes it again from the spec; points that were measured are kept",
        )


def plan_of_another_version(why: str) -> Stop:
    """The error of a plan that no engine may be launched for, because this version would measure something else."""
    return Stop(
        "PlanOfAnotherVersion",
        f"this operator cannot launch engines for this run, whose plan another version of specbench made: {why}:"
        " install that version again until the run has finished, or delete the run; results are kept",
    )


def secret_problems(
    spec: RunSpec, observed: RunObservation, settings: OperatorSettings, only: frozenset[SecretUse] | None = None
) -> list[Problem]:
    """The Secrets that the run may not use, of those for the purposes `only`; none if Secrets need no label.

    While the operator may not read Secrets at all, `observed.stored` has that failure, and nothing is launched.
    """
    if not settings.secrets_opt_in or isinstance(observed.secret_uses, StoreFailure):
        return []
    return unusable_secrets(spec, observed.secret_uses or {}, only)


def grown_plan(run: SpecBenchRun, begun: BegunPlan, stored: StoredResults) -> BegunPlan | None:
    """The plan with the next round that the results request, if it may be added; None if not.

    The results, also adopted ones, may be of a plan with more rounds than this one. A plan that this version would
    write differently does not grow: it might lose fields, or get some that the run's client does not know.
    """
    plan = begun.plan
    if not begun.as_written or begun.sha256 != plan_digest(plan):
        return None
    requested = stored.results.rounds if stored.results and stored.results.uid == plan.uid else []
    try:
        measured = Plan.from_untrusted_json((stored.plan_json or "").encode()).rounds_added
    except ValueError:  # nothing is adopted, or the reason why it cannot be is reported
        measured = []
    grown = with_requested_round(plan, max(requested, measured, key=len), run.spec.retries)
    return BegunPlan(grown, plan_digest(grown)) if grown else None


_GRACE_REASONS = (EngineReason.IMAGE_PULL_FAILED, EngineReason.CONFIG_ERROR)


@dataclass(frozen=True)
class RunView:
    """A run, its plan, and the state of its children, its groups and its results."""

    run: SpecBenchRun
    begun: BegunPlan
    previous: RunStatus
    children: Children
    nodes: tuple[Node | UnreadableNode, ...]
    groups: tuple[GroupView, ...]
    stored: StoredResults | None
    store_failure: StoreFailure | None
    settings: OperatorSettings
    now: datetime
    known_nodes: tuple[str, ...] = ()
    """Nodes of the run's last launch, for when no pod of it is left."""
    namespace_wait: NamespaceWait | None = None
    """Why the run must not begin yet."""

    @property
    def plan(self) -> Plan:
        """The plan of the run, with the rounds that were added to it."""
        return self.begun.plan

    @property
    def holds_gpus(self) -> bool:
        """Whether an engine of this run holds GPUs or may still get some, or a client may still load an endpoint."""
        return holds_gpus(self.children, self.settings, self.now)

    @property
    def fatal_group(self) -> GroupView | None:
        """The group whose failure ends the whole run; None if there is none."""
        return next((view for view in self.groups if view.ends_run), None)

    @property
    def active_group(self) -> GroupView | None:
        """The first group that is not over. Groups are measured one after another, because they need the same GPUs."""
        return None if self.fatal_group else next((view for view in self.groups if not view.over), None)

    @property
    def suspended(self) -> bool:
        """Whether spec.suspend is set while a group is left to measure."""
        return self.run.spec.suspend and self.active_group is not None

    @property
    def failed(self) -> tuple[GroupView, ...]:
        """Groups that failed."""
        return tuple(view for view in self.groups if view.state is GroupState.FAILED)

    @property
    def has_launched(self) -> bool:
        """Whether this run has launched anything. If not, everything in its results is of the run that it adopts."""
        return self.previous.start_time is not None or bool(self.children.launch_jobs)

    @property
    def measured(self) -> int:
        """Number of points that have a manifest."""
        return sum(view.measured for view in self.groups)

    @cached_property
    def results_refused(self) -> str:
        """Why status.json does not contain the results of this plan; empty if it does."""
        results = self.stored.results if self.stored else None
        if results is None:
            return "status.json is missing in S3"
        if results.uid != self.plan.uid:
            return "status.json in S3 is of another run"
        if results.plan_sha256 != self.begun.sha256:
            return "status.json in S3 is of another plan"
        if not results.points_invalid <= results.points_measured <= len(self.plan.points):
            return "status.json in S3 counts points that the plan does not have"
        return ""

    @property
    def results(self) -> StatusDocument | None:
        """The results for status, if S3 has them for this run and plan."""
        return self.stored.results if self.stored and not self.results_refused else None

    @cached_property
    def grown_plan(self) -> BegunPlan | None:
        """The plan with another round, if the results request one that may be added; None if not."""
        return None if self.stored is None or self.failed else grown_plan(self.run, self.begun, self.stored)

    @property
    def lacks_rounds(self) -> bool:
        """Whether the plan is older than status, since its ConfigMap was deleted, and S3 cannot be read."""
        return self.stored is None and len(self.plan.points) < self.previous.points.total

    @property
    def launching(self) -> int | None:
        """Number of the launch to create now; None if there is none.

        S3 must have been read, so that nothing is measured twice, and no other engine may hold GPUs.
        """
        waits = self.suspended or self.namespace_wait is not None
        blocked = self.children.leftovers or waits or self.stored is None or self.holds_gpus
        return None if self.active_group is None or blocked else self.active_group.next_launch

    @property
    def awaits_adopted_uid(self) -> bool:
        """Whether `adopt: Latest` is not resolved yet, because S3 could not be read. Nothing is created until then."""
        return self.run.spec.results.adopt == LATEST

    @property
    def served_on(self) -> tuple[str, ...]:
        """Nodes of the run's last engine that became ready."""
        return serving_nodes(self.children.pods, self.known_nodes)

    def live_launch(self, view: GroupView | None) -> int | None:
        """Number of the group's launch whose engine must keep running; None if there is none."""
        is_active = view is not None and view is self.active_group and not self.suspended
        return view.live_launch if view is not None and is_active else None


def build_run_view(
    run: SpecBenchRun,
    observed: RunObservation,
    children: Children,
    previous: RunStatus,
    *,
    settings: OperatorSettings,
    now: datetime,
) -> RunView:
    """Derive the view from the observation. Raises InvalidSpec for a spec that cannot be expanded, and Stop."""
    stored = observed.stored if isinstance(observed.stored, StoredResults) else None
    begun = select_plan(run, observed.plan_data)
    if begun.text is not None:
        check_plan(run, begun, observed.plan_data, settings)
    settings = replace(settings, client_image=begun.client_image or settings.client_image)
    # Somebody may have deleted the ConfigMap of a plan to which a round was added.
    while stored and len(begun.plan.points) < previous.points.total and (grown := grown_plan(run, begun, stored)):
        begun = grown
    if stored is not None and begun.plan.stop is None:
        stored = replace(stored, ended={})
    run = with_forced_values(run, settings)
    failure = observed.stored if isinstance(observed.stored, StoreFailure) else None
    known = {row.index: row for row in previous.groups}
    context = LaunchContext(run.spec, settings, now, _degraded_since(previous))
    groups = skip_broken_arms(
        [
            build_group_view(group, children, stored, replace(context, known=known.get(group.index)))
            for group in begun.plan.groups
        ]
    )
    created = parse_timestamp(observed.resource["metadata"].get("creationTimestamp"))
    last = stored.last_launch if stored else None
    nodes = known_nodes(previous.engine_nodes, children.clients, last, created)
    return RunView(run, begun, previous, children, observed.nodes, groups, stored, failure, settings, now, nodes)


def with_forced_values(run: SpecBenchRun, settings: OperatorSettings) -> SpecBenchRun:
    """The run with the values that the fence forces on every engine. The plan is that of the run without them."""
    if settings.fence_check is None or run.spec.engine.is_external:
        return run
    placement = settings.fence_check.fence.force.applied_to(run.spec.placement)
    return run.model_copy(update={"spec": run.spec.model_copy(update={"placement": placement})})


def _degraded_since(previous: RunStatus) -> datetime | None:
    ready = find_condition(previous, ConditionType.ENGINE_READY)
    degraded = ready and ready.status is ConditionStatus.FALSE and ready.reason in _GRACE_REASONS
    return parse_timestamp(ready.last_transition_time) if ready and degraded else None
