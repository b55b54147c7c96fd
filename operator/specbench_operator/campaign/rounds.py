"""The rounds of a campaign: when its cron schedule fires, which round is current, and which runs a round has.

With daylight saving time, a time that does not exist fires at the next time that does, and a time that exists twice
fires once. The library `cronsim` implements this like Debian's cron.

Status contains the current round, and so do the labels and annotations of runs. The newest of them counts, so a lost
status is restored from the runs. Only the announced next firing is in status alone: if status is lost, a firing that
came due in between is skipped.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from specbench_api import API_VERSION
from specbench_api.campaign.expansion import PlannedRun, campaign_refusals, expand_campaign
from specbench_api.campaign.matrix import short_combination_text
from specbench_api.campaign.names import ANNOTATION_COMBINATION
from specbench_api.errors import InvalidSpec, NotAllowed, Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.plan.canonical import NOT_MEASURED
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign
from specbench_api.spec.campaign_status import CampaignRound, CampaignStatus
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.state.campaign import ANNOTATION_FIRE_TIME, ANNOTATION_RERUN, ObservedRun
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp

CRON_MACROS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)


def next_firing(spec: CampaignSpec, after: datetime) -> datetime | None:
    """The first firing after a time; None without a schedule, or for one that never fires (31 February)."""
    return _firing(spec, after, reverse=False)


def last_firing(spec: CampaignSpec, until: datetime) -> datetime | None:
    """The latest firing up to and including a time; None if there is none."""
    return _firing(spec, until.replace(microsecond=0) + _SECOND, reverse=True)


def fires_at(spec: CampaignSpec, moment: datetime) -> bool:
    """Whether the schedule fires at exactly this time."""
    return last_firing(spec, moment) == moment


def _firing(spec: CampaignSpec, moment: datetime, *, reverse: bool) -> datetime | None:
    if not spec.schedule:
        return None
    local = moment.replace(microsecond=0).astimezone(ZoneInfo(spec.time_zone or "UTC"))
    try:
        found = next(CronSim(CRON_MACROS.get(spec.schedule, spec.schedule), local, reverse=reverse))
    except (CronSimError, StopIteration):
        return None
    return found.astimezone(UTC)


TOKEN_MAX = 64


@dataclass(frozen=True)
class Firing:
    """A firing of the schedule that is due. `missed`: why it starts no round; empty if it may start one."""

    at: datetime
    missed: str = ""


def current_round(previous: CampaignStatus, runs: Sequence[ObservedRun], token: str, now: datetime) -> CampaignRound:
    """The round in progress, else the last one, else the first round, from status or from the runs."""
    known = previous.round if previous.round and previous.round.number >= 1 else None
    newest = max((run.number for run in runs if run.number), default=0)
    if known and known.number >= newest:
        return known
    if newest == 0:
        return CampaignRound(number=1, token=token, start_time=format_timestamp(now))
    oldest = min((run for run in runs if run.number == newest), key=lambda run: (run.created_at, run.name))
    fired = parse_timestamp(oldest.fire_time)  # annotations may have been edited by hand
    return CampaignRound(
        number=newest,
        token=oldest.rerun[:TOKEN_MAX],
        fire_time=format_timestamp(fired) if fired else None,
        start_time=format_timestamp(oldest.created_at),
    )


def due_firing(
    spec: CampaignSpec, previous: CampaignStatus, current: CampaignRound, now: datetime, *, at_rest: bool
) -> Firing | None:
    """The firing to handle now; None if no firing is due. If several were missed, only the latest is handled."""
    announced = parse_timestamp(previous.next_schedule_time)
    if announced is None or announced > now or not fires_at(spec, announced):
        return None
    latest = last_firing(spec, now) or announced
    if (handled := parse_timestamp(current.fire_time)) and latest <= handled:
        return None
    deadline = spec.starting_deadline_seconds
    if spec.suspend:
        return Firing(latest, "the campaign is suspended (spec.suspend)")
    if not at_rest:
        return Firing(latest, f"round {current.number} is still running")
    if deadline is not None and now - latest > timedelta(seconds=deadline):
        return Firing(latest, f"it could not start within spec.startingDeadlineSeconds ({deadline})")
    return Firing(latest)


def next_round(
    spec: CampaignSpec, current: CampaignRound, firing: Firing | None, now: datetime, *, at_rest: bool
) -> CampaignRound | None:
    """The round that starts now, because of the schedule or a new `rerun` token; None if none does."""
    if spec.suspend or not at_rest:
        return None
    fired = firing if firing and not firing.missed else None
    requested = spec.rerun not in ("", current.token)
    if not (requested or fired):
        return None
    return CampaignRound(
        number=current.number + 1,
        token=spec.rerun or current.token,
        fire_time=format_timestamp(fired.at) if fired else None,
        start_time=format_timestamp(now),
    )


# The runs of a round, expanded from the campaign's spec as `specbench plan` does it.
#
# The result is cached, because a large matrix takes a second to expand and every event of a run reconciles its
# campaign. The resources of the runs are kept compressed: they are needed once, when their run is created. A refusal is
# cached too, because an invalid matrix may take longer. All are pure functions of the campaign's text, the fence and
# this program, so the caches are safe to lose.

PROPAGATED = tuple(field for field in NOT_MEASURED if field not in ("suspend", "results", "placement"))
"""Fields of the template that are applied to existing runs. Placement and the location of results never change."""
PLANS_CACHED = 4096
"""Maximum number of cached plans; there is one per campaign, generation and round."""
BYTES_CACHED = 64 << 20
"""Maximum size of all cached plans in bytes, about. A plan of 256 runs takes 0.4 MB."""
RUN_BYTES = 1000
"""Size of a planned run beside its compressed resource, about."""
REFUSALS_CACHED = 4096
"""Maximum number of cached refusals. There are more than plans, because many invalid campaigns cost their author
nothing. They are kept apart, so that they do not evict the plans of others."""


@dataclass(frozen=True)
class RequiredRun:
    """One run of the round: its name, its combination as text, and its resource without the owner."""

    name: str
    combination: str
    """The value of the combination's annotation."""
    short_combination: str
    points: int
    """Number of its points."""
    gpus: int
    """Number of GPUs of one launch of its engine."""
    propagated: Mapping[str, Any]
    """The fields of its spec that are applied to an existing run."""
    packed: bytes

    @property
    def resource(self) -> dict[str, Any]:
        """The resource to create, without its owner."""
        found: dict[str, Any] = json.loads(zlib.decompress(self.packed))
        return found


@dataclass(frozen=True)
class RoundPlan:
    """All runs of a round in the order of the matrix."""

    campaign: SpecBenchCampaign
    runs: tuple[RequiredRun, ...]
    warnings: tuple[str, ...]
    refusals: tuple[Problem, ...] = ()
    """What the fence does not allow."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the runs."""
        return frozenset(run.name for run in self.runs)


def plan_round(resource: Mapping[str, Any], number: int, fence: FenceCheck | None = None) -> RoundPlan:
    """Expand a campaign for the round with this number.

    Raises InvalidSpec with all problems of all combinations, and NotAllowed with everything that the fence does not
    allow.
    """
    meta = resource["metadata"]
    identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    data = {"apiVersion": API_VERSION, "kind": "SpecBenchCampaign", "metadata": identity, "spec": resource["spec"]}
    text = json.dumps(data)
    digest = hashlib.sha256(f"{number} {text}".encode()).digest()
    refused = _refusal(digest)
    if refused.problems:
        raise InvalidSpec(refused.problems)
    try:
        plan = _PLANS.get((digest, fence), lambda: _plan_round(text, number, fence))
    except InvalidSpec as error:
        refused.problems = error.problems
        raise
    if plan.refusals:
        raise NotAllowed(plan.refusals)
    return plan


@dataclass
class _Refusal:
    """The problems of a campaign that cannot be expanded; empty if it can, or if it was not tried yet."""

    problems: tuple[Problem, ...] = ()


@lru_cache(maxsize=REFUSALS_CACHED)
def _refusal(_digest: bytes) -> _Refusal:
    return _Refusal()


class _PlanCache:
    """The plans used last, as far as the limits allow. One is made at a time, because a large one takes 100 MB."""

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[bytes, FenceCheck | None], tuple[RoundPlan, int]] = OrderedDict()
        self._bytes = 0
        self._making, self._lock = threading.Lock(), threading.Lock()

    def get(self, key: tuple[bytes, FenceCheck | None], make: Callable[[], RoundPlan]) -> RoundPlan:
        """The cached plan, or the one that `make` returns. Raises what it raises."""
        found = self._known(key)
        if found is None:
            with self._making:  # plans that are known are returned meanwhile
                found = self._known(key)
                if found is None:
                    found = make()
                    self._keep(key, found)
        return found

    def _known(self, key: tuple[bytes, FenceCheck | None]) -> RoundPlan | None:
        with self._lock:
            if key not in self._plans:
                return None
            self._plans.move_to_end(key)
            return self._plans[key][0]

    def _keep(self, key: tuple[bytes, FenceCheck | None], plan: RoundPlan) -> None:
        size = sum(RUN_BYTES + len(run.packed) for run in plan.runs)
        with self._lock:
            self._plans[key] = (plan, size)
            self._bytes += size
            while len(self._plans) > 1 and (len(self._plans) > PLANS_CACHED or self._bytes > BYTES_CACHED):
                _, (_, dropped) = self._plans.popitem(last=False)
                self._bytes -= dropped


_PLANS = _PlanCache()


def _plan_round(text: str, number: int, fence: FenceCheck | None) -> RoundPlan:
    campaign = parse_campaign(json.loads(text))
    plan = expand_campaign(campaign, number)
    combinations = [(run.combination_text, run.run.spec) for run in plan.runs]
    refusals = campaign_refusals(campaign, combinations, fence) if fence is not None else []
    shared: dict[str, Mapping[str, Any]] = {}
    runs = tuple(_required_run(run, shared) for run in plan.runs)
    return RoundPlan(campaign, runs, plan.warnings, tuple(refusals))


def _required_run(run: PlannedRun, shared: dict[str, Mapping[str, Any]]) -> RequiredRun:
    """The planned run; those with equal propagated fields share them."""
    spec = run.resource["spec"]
    propagated = {field: spec[field] for field in PROPAGATED if field in spec}
    return RequiredRun(
        name=run.name,
        combination=str(run.resource["metadata"]["annotations"][ANNOTATION_COMBINATION]),
        short_combination=short_combination_text(run.combination),
        points=len(run.plan.points),
        gpus=run.plan.placement.engine_devices,
        propagated=shared.setdefault(json.dumps(propagated, sort_keys=True), propagated),
        packed=zlib.compress(json.dumps(run.resource).encode(), 1),
    )


def run_manifest(plan: RoundPlan, planned: RequiredRun, token: str, fire_time: str | None) -> dict[str, Any]:
    """The SpecBenchRun to create: owned by the campaign, and annotated with what started its round."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": plan.campaign.kind,
        "name": plan.campaign.metadata.name,
        "uid": plan.campaign.metadata.uid,
        "controller": True,
    }
    resource = planned.resource
    meta = resource["metadata"]
    cause = {ANNOTATION_RERUN: token} | ({ANNOTATION_FIRE_TIME: fire_time} if fire_time else {})
    annotations = {**meta["annotations"], **cause}
    return {**resource, "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]}}
