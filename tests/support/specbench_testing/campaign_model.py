"""The model of one campaign of three runs, of which two may be active: the operator decides with `decide_campaign`.

A run is reduced to what its campaign depends on: its phase, and who suspended it. Runs and campaign may lag behind in
the operator's cache, but after a write of its own the operator sees that kind up to this write. Patching or deleting a
run that is not as it was observed is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from specbench_api.spec.campaign_status import CampaignPhase, CampaignStatus
from specbench_operator.campaign import decide
from specbench_operator.cluster.campaign_observer import parse_observed_run
from specbench_operator.state.campaign import (
    ANNOTATION_SUSPEND_REASON,
    CampaignDecision,
    CampaignObservation,
    ObservedRun,
)
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.campaign_world import conditions
from specbench_testing.model_checker import Model, Step
from specbench_testing.operator_builders import NOON
from specbench_testing.resources import campaign
from specbench_testing.run_model import RunModel

CAMPAIGN_UID = "7d0f6bd8-3333-4c4b-9d53-000000000003"
PARALLELISM = 2
AXIS = {"path": "workloads[0].sampling.temperature", "values": [0, 0.7, 1.0]}
NEW, RUNNING, SUCCEEDED, FAILED = "New", "Running", "Succeeded", "Failed"
OVER = (SUCCEEDED, FAILED)


class CampaignRun(NamedTuple):
    """A run. `text` is its manifest as JSON; `reason` is the annotation of a campaign that suspended it."""

    name: str
    uid: str
    text: str
    phase: str = NEW
    suspend: bool = False
    reason: str = ""


Runs = tuple[CampaignRun, ...]


class CampaignSettings(NamedTuple):
    """What users edit of the campaign, and its status as JSON."""

    suspend: bool = False
    parallelism: int = PARALLELISM
    rerun: str = ""
    status: str = "{}"


class CampaignWrite(NamedTuple):
    """One request of the operator: patch, delete, create or status."""

    verb: str
    name: str
    seen: CampaignRun | None = None
    """The run as it was observed, of a patch or a deletion."""
    value: Any = None


class CampaignState(NamedTuple):
    """A state of the campaign model."""

    settings: CampaignSettings
    runs: Runs = ()
    seen_settings: CampaignSettings | None = None
    """What the operator's cache contains if it lags behind; None if it is up to date."""
    seen_runs: Runs | None = None
    writes: tuple[CampaignWrite, ...] = ()
    current: bool = True
    """Whether the campaign is unchanged since the last decision's observation."""


CampaignStep = Step[CampaignState]


class CampaignModel:
    """The model for `model_checker.explore`. `stop`: one failed run stops the campaign (failurePolicy: Stop)."""

    def __init__(self, *, stop: bool = False) -> None:
        edits: dict[str, Any] = {"spec.axes": [AXIS], "spec.template.spec.placement": {"gpus": 2}}
        if stop:
            edits |= {"spec.failurePolicy": "Stop", "spec.maxFailedRuns": 1}
        self._campaign = campaign(edits)
        self._campaign["metadata"] |= {"uid": CAMPAIGN_UID, "generation": 1, "resourceVersion": "1"}
        self._decided: dict[tuple[CampaignSettings, Runs], tuple[tuple[CampaignWrite, ...], str]] = {}

    def initial(self) -> CampaignState:
        """The campaign was just created."""
        return CampaignState(CampaignSettings())

    def steps(self, state: CampaignState) -> Iterable[CampaignStep]:
        """All steps from this state without a fault."""
        return [*self._recovery(state), *self._operator(state), *self._progress(state)]

    def fair_step(self, state: CampaignState) -> CampaignStep | None:
        """Caches catch up and users resume, then the operator acts, then runs progress."""
        return next(iter(self.steps(state)), None)

    def broken(self, state: CampaignState) -> str:
        """The invariant that this state breaks: a settled campaign that is suspended has no active runs."""
        if state.settings.suspend and state.seen_runs is None and state.seen_settings is None and not state.writes:
            active = [run.name for run in state.runs if run.phase not in OVER and not run.suspend]
            if active and not list(self._operator(state)):
                return f"the campaign is suspended, and {active[0]} is not"
        return ""

    def has_ended(self, state: CampaignState) -> bool:
        """Whether the round is over."""
        status = status_of(state.settings.status)
        return status.phase in (CampaignPhase.SUCCEEDED, CampaignPhase.FAILED)

    # The operator.

    def _operator(self, state: CampaignState) -> Iterator[CampaignStep]:
        if state.writes:
            yield self._write(state)
            return
        seen = (
            state.settings if state.seen_settings is None else state.seen_settings,
            state.runs if state.seen_runs is None else state.seen_runs,
        )
        if seen not in self._decided:
            self._decided[seen] = self._decide(*seen)
        writes, broken = self._decided[seen]
        if writes or broken:
            current = seen[0] == state.settings
            yield Step("operator decides", state._replace(writes=writes, current=current), broken)

    def _decide(self, settings: CampaignSettings, runs: Runs) -> tuple[tuple[CampaignWrite, ...], str]:
        resource = copy.deepcopy(self._campaign)
        resource["spec"] |= {"suspend": settings.suspend, "parallelism": settings.parallelism}
        resource["spec"] |= {"rerun": settings.rerun} if settings.rerun else {}
        resource["status"] = json.loads(settings.status)
        decision = decide.decide_campaign(CampaignObservation(resource, tuple(map(to_observed, runs))), NOON)
        status, seen = status_text(decision.status), {run.uid: run for run in runs}
        writes = (
            *(
                CampaignWrite("patch", row.ref.name, seen[row.ref.uid], json.dumps(row.change))
                for row in decision.patch
            ),
            *(CampaignWrite("delete", row.ref.name, seen[row.ref.uid]) for row in decision.delete),
            *(CampaignWrite("create", raw["metadata"]["name"], value=json.dumps(raw)) for raw in decision.create),
            *((CampaignWrite("status", "", value=status),) if status != settings.status else ()),
        )
        return writes, broken_decision(settings, runs, decision)

    def _write(self, state: CampaignState) -> CampaignStep:  # noqa: PLR0911 -- one per kind of request
        """Carry out one request. A rejected one lets the others proceed, but status is not written then."""
        write, after = state.writes[0], state._replace(writes=state.writes[1:])
        action = f"operator writes: {write.verb} {write.name}".rstrip()
        if write.verb == "status":
            if not state.current:
                return Step(action, after)
            broken = backwards(status_of(state.settings.status), status_of(write.value))
            settings = state.settings._replace(status=write.value)
            return Step(action, after._replace(settings=settings, seen_settings=None), broken)
        run = next((run for run in state.runs if run.name == write.name), None)
        if write.verb == "create":
            if run is not None:
                return Step(action, after._replace(current=False))
            uid = next(uid for n in range(100) if f"'{(uid := f'{write.name}#{n}')}'" not in repr(state))
            created = CampaignRun(write.name, uid, write.value)
            return Step(action, after._replace(runs=tuple(sorted((*state.runs, created))), seen_runs=None))
        if run is None or write.seen is None or (write.verb == "delete" and run.uid != write.seen.uid):
            return Step(action, after)
        if run != write.seen:
            return Step(action, after._replace(current=False))
        if write.verb == "delete":
            return Step(action, after._replace(runs=without(state.runs, run), seen_runs=None))
        changed, broken = patched(run, json.loads(write.value))
        return Step(action, with_run(after, run, changed)._replace(seen_runs=None), broken)

    # The runs and the user.

    @staticmethod
    def _progress(state: CampaignState) -> Iterator[CampaignStep]:
        for run in state.runs:
            if run.phase == NEW and not run.suspend:
                yield Step(f"{run.name} launches", with_run(state, run, run._replace(phase=RUNNING)))
            elif run.phase == RUNNING and run.suspend:
                yield Step(f"{run.name} releases its GPUs", with_run(state, run, run._replace(phase=NEW)))
            elif run.phase == RUNNING:
                yield Step(f"{run.name} succeeds", with_run(state, run, run._replace(phase=SUCCEEDED)))

    @staticmethod
    def _recovery(state: CampaignState) -> Iterator[CampaignStep]:
        if state.seen_runs is not None:
            yield Step("cache of runs catches up", state._replace(seen_runs=None))
        if state.seen_settings is not None:
            yield Step("cache of the campaign catches up", state._replace(seen_settings=None))
        if state.settings.suspend:
            yield Step("user resumes the campaign", edited(state, suspend=False))
        for run in state.runs:
            if run.suspend and not run.reason and run.phase not in OVER:
                yield Step(f"user resumes {run.name}", with_run(state, run, run._replace(suspend=False)))

    def faults(self, state: CampaignState) -> Iterator[CampaignStep]:
        """All faults and user edits that may occur in this state."""
        for run in state.runs:
            yield Step(f"user deletes {run.name}", state._replace(runs=without(state.runs, run)))
            if run.phase in OVER:
                continue
            yield Step(f"{run.name} fails", with_run(state, run, run._replace(phase=FAILED)))
            if not run.suspend:
                yield Step(f"user suspends {run.name}", with_run(state, run, run._replace(suspend=True)))
            else:
                yield Step(f"user resumes {run.name}", with_run(state, run, run._replace(suspend=False)))
        yield from self._operator_faults(state)
        yield from self._edits(state)

    @staticmethod
    def _operator_faults(state: CampaignState) -> Iterator[CampaignStep]:
        if state.writes:
            killed = state._replace(writes=(), seen_runs=None, seen_settings=None, current=True)
            yield Step("operator is killed", killed)
        if state.seen_runs is None:
            yield Step("cache of runs lags behind", state._replace(seen_runs=state.runs))
        if state.seen_settings is None:
            yield Step("cache of the campaign lags behind", state._replace(seen_settings=state.settings))

    @staticmethod
    def _edits(state: CampaignState) -> Iterator[CampaignStep]:
        settings = state.settings
        if not settings.suspend:
            yield Step("user suspends the campaign", edited(state, suspend=True))
        if settings.parallelism == PARALLELISM:
            yield Step("user lowers parallelism", edited(state, parallelism=1))
        if not settings.rerun:
            yield Step("user asks for another round", edited(state, rerun="again"))
        if settings.status != "{}":
            yield Step("status is lost", edited(state, status="{}"))


def edited(state: CampaignState, **fields: Any) -> CampaignState:
    """The state after somebody else changed the campaign."""
    current = state.current and not state.writes
    return state._replace(settings=state.settings._replace(**fields), current=current)


def with_run(state: CampaignState, run: CampaignRun, changed: CampaignRun) -> CampaignState:
    """The state with a changed run."""
    return state._replace(runs=tuple(changed if other.uid == run.uid else other for other in state.runs))


def without(runs: Runs, run: CampaignRun) -> Runs:
    """The runs without this one."""
    return tuple(other for other in runs if other.uid != run.uid)


def patched(run: CampaignRun, change: Mapping[str, Any]) -> tuple[CampaignRun, str]:
    """The run after a merge patch, and the invariant that the patch breaks, or empty."""
    annotations = change.get("metadata", {}).get("annotations", {})
    reason = annotations.get(ANNOTATION_SUSPEND_REASON, run.reason) or ""
    suspend = change.get("spec", {}).get("suspend", run.suspend)
    by_hand = run.suspend and not run.reason
    broken = f"{run.name} was suspended by hand, and the campaign resumes it" if by_hand and not suspend else ""
    return run._replace(suspend=suspend, reason=reason), broken


@lru_cache(maxsize=100_000)
def to_observed(run: CampaignRun) -> ObservedRun:
    """The run as the operator observes it."""
    raw = json.loads(run.text)
    raw["metadata"] |= {"uid": run.uid, "creationTimestamp": format_timestamp(NOON), "resourceVersion": "1"}
    raw["spec"]["suspend"] = run.suspend
    if run.reason:
        raw["metadata"]["annotations"][ANNOTATION_SUSPEND_REASON] = run.reason
    if run.phase in OVER:
        ready, stalled = ("True", "False") if run.phase == SUCCEEDED else ("False", "True")
        rows = {"Ready": ready, "Reconciling": "False", "Stalled": stalled, "ResultsStored": "True"}
        ended = format_timestamp(NOON)
        raw["status"] = {"phase": run.phase, "conditions": conditions(rows), "completionTime": ended}
    elif run.phase == RUNNING:
        raw["status"] = {"phase": RUNNING}
    return parse_observed_run(raw)


def occupied(runs: Iterable[CampaignRun]) -> int:
    """The number of runs that count against `parallelism`: not those that ended or that the campaign suspended."""
    return sum(run.phase not in OVER and not (run.suspend and bool(run.reason)) for run in runs)


def broken_decision(settings: CampaignSettings, runs: Runs, decision: CampaignDecision) -> str:
    """The invariant that a decision breaks, judged by what the operator has seen; empty if it breaks none."""
    by_name = {run.name: run for run in runs}
    resumed = [row for row in decision.patch if row.change.get("spec", {}).get("suspend") is False]
    begun = len(decision.create) + sum(by_name[row.ref.name].phase not in OVER for row in resumed)
    if begun and settings.suspend:
        return "a run begins while the campaign is suspended"
    if begun and occupied(runs) + begun > settings.parallelism:
        return f"{occupied(runs)} runs are active and {begun} more begin: more than parallelism"
    if twice := [raw["metadata"]["name"] for raw in decision.create if raw["metadata"]["name"] in by_name]:
        return f"{twice[0]} is created twice"
    round_number = decision.status.round.number if decision.status.round else 0
    deleted = [row.ref.name for row in decision.delete]
    current = [name for name in deleted if to_observed(by_name[name]).number == round_number]
    return f"{current[0]} belongs to the round and is deleted" if current else ""


def backwards(before: CampaignStatus, after: CampaignStatus) -> str:
    """Which field of the status goes backwards; empty if none does."""
    if before.round and (after.round is None or after.round.number < before.round.number):
        return f"status goes backwards: round {before.round.number} had begun"
    return ""


def status_text(status: CampaignStatus) -> str:
    """The status as JSON without messages and times of conditions, which no decision depends on."""
    content = status.to_dict()
    for row in content.get("conditions", []):
        row |= {"message": "", "lastTransitionTime": format_timestamp(NOON)}
    return json.dumps(content, sort_keys=True)


@lru_cache(maxsize=100_000)
def status_of(text: str) -> CampaignStatus:
    """The status whose text this is."""
    return CampaignStatus.model_validate(json.loads(text))


MODELS: Mapping[str, Callable[[], Model[Any]]] = {
    "RunModel()": RunModel,
    "RunModel(queued=True)": lambda: RunModel(queued=True),
    "RunModel(external=True)": lambda: RunModel(external=True),
    "RunModel(retried=True)": lambda: RunModel(retried=True),
    "RunModel(stale=True)": lambda: RunModel(stale=True),
    "CampaignModel()": CampaignModel,
    "CampaignModel(stop=True)": lambda: CampaignModel(stop=True),
}
"""What `make test` and `make test-model` explore, by the expression that creates each model."""
