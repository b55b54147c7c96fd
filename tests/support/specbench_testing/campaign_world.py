"""A store of campaigns and runs; the tests set the status of runs as the run controller would.

A run holds its GPUs from `launch` until it ends or is released after a suspension. Its status reports this once a
minute, as the real one does; `held` contains the true amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.cluster.campaign_observer import CampaignObserver
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import Changed
from specbench_operator.handlers.reconcilers import CampaignReconciler, ReconcileResult
from specbench_operator.handlers.work_queue import ResourceKey
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp
from specbench_operator.telemetry import Telemetry
from specbench_testing.fake_api import FakeApi, Raw
from specbench_testing.resources import campaign, edit

NAME = "nightly"
KEY = ResourceKey("SpecBenchCampaign", "default", NAME)
GPUS = 2
WRITTEN_EVERY_S = 60


@dataclass
class CampaignWorld:
    """A campaign of six runs (two engines at three temperatures), edited by path."""

    edits: Mapping[str, Any] = field(default_factory=dict)
    store: FakeApi = field(default_factory=FakeApi)

    def __post_init__(self) -> None:
        self.telemetry = Telemetry()
        api: Any = self.store
        observer = CampaignObserver(api)
        self.reconciler = CampaignReconciler(observer, observer, Writer(api), self.telemetry, lambda: self.now)
        self.store.put(campaign({"spec.template.spec.placement": {"gpus": GPUS}, **self.edits}, name=NAME))
        self.held: dict[str, float] = {}
        """UID of a run → GPU-seconds that its engines held."""
        self.requeue_after_s: float | None = None

    @property
    def planned(self) -> list[str]:
        """Names of the first round's runs, in the plan's order."""
        return [run.name for run in expand_campaign(parse_campaign(self.resource)).runs]

    @property
    def now(self) -> datetime:
        """The current time."""
        return self.store.now

    @property
    def resource(self) -> Raw:
        """The campaign."""
        return self.store.objects["SpecBenchCampaign", NAME]

    @property
    def status(self) -> CampaignStatus:
        """The status of the campaign."""
        return CampaignStatus.model_validate(self.resource.get("status") or {})

    @property
    def runs(self) -> dict[str, Raw]:
        """All SpecBenchRuns in order of creation."""
        return self.store.named("SpecBenchRun")

    @property
    def owned_runs(self) -> dict[str, Raw]:
        """The runs that the campaign owns."""
        owner = self.resource["metadata"]["uid"]
        return {
            name: run
            for name, run in self.runs.items()
            if [row["uid"] for row in run["metadata"].get("ownerReferences", [])] == [owner]
        }

    @property
    def events(self) -> list[str]:
        """Reasons of all events so far."""
        return [raw["reason"] for raw in self.store.named("Event").values()]

    def status_and_reason(self, kind: CampaignConditionType) -> tuple[ConditionStatus, str]:
        """Status and reason of a condition."""
        row = {row.type: row for row in self.status.conditions}[kind]
        return row.status, row.reason

    def message(self, kind: CampaignConditionType) -> str:
        """A condition's message."""
        return {row.type: row for row in self.status.conditions}[kind].message

    def reconcile(self) -> ReconcileResult:
        """Reconcile once."""
        outcome = self.reconciler.reconcile(KEY)
        self.requeue_after_s = outcome.requeue_after_s
        return outcome

    def settle(self) -> None:
        """Reconcile until nothing changes."""
        for _ in range(6):
            before = dict(self.store.objects), self.resource["metadata"]["resourceVersion"]
            try:
                self.reconcile()
            except Changed:
                continue
            if before == (dict(self.store.objects), self.resource["metadata"]["resourceVersion"]):
                return

    def edit(self, path: str, value: Any) -> None:
        """Edit a field of the campaign."""
        edit(self.resource, path, value)
        self.resource["metadata"]["generation"] += 1
        self.store.touch(self.resource)

    def change(self, path: str, value: Any) -> None:
        """Edit a field of the campaign, and settle."""
        self.edit(path, value)
        self.settle()

    def lose_status(self) -> None:
        """Delete the campaign's status."""
        self.resource.pop("status", None)
        self.store.touch(self.resource)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock; active engines hold their GPUs."""
        self.store.now += timedelta(seconds=seconds)
        for run in self.runs.values():
            if holds_gpus(run):
                uid = run["metadata"]["uid"]
                self.held[uid] = self.held.get(uid, 0.0) + GPUS * seconds
                self._write_held(run)

    def launch(self, name: str) -> None:
        """The run's engine serves, and its client measures."""
        self._set_status(name, phase="Running", gpuSecondsUntil=format_timestamp(self.now), gpuSecondsHeld=0.0)

    def release(self, name: str) -> None:
        """The run controller sees the suspension and releases the GPUs."""
        self._write_held(self.runs[name], at_once=True)
        self._set_status(name, phase="Suspended")

    def finish(self, name: str, *, trustworthy: bool = True, speedup: float = 1.5, gate: str = "") -> None:
        """The run ends with results."""
        self._write_held(self.runs[name], at_once=True)
        rows = {"Ready": "True", "Reconciling": "False", "Stalled": "False", "ResultsStored": "True"}
        rows |= {"Trustworthy": str(trustworthy)} | ({"GatePassed": gate} if gate else {})
        interval = {"value": speedup, "low": speedup - 0.1, "high": speedup + 0.1}
        self._set_status(
            name,
            phase="Succeeded",
            progress="6/6",
            points={"total": 6, "measured": 6},
            groups=[{"points": 2, "measured": 2}] * 3,
            completionTime=format_timestamp(self.now),
            trust="Trustworthy" if trustworthy else "Untrustworthy",
            best=f"ngram {speedup:.2f}x at 1",
            arms=[{"arm": "ngram", "speedup": interval}],
            conditions=conditions(rows),
        )

    def fail(self, name: str, reason: str = "OOMKilled", phase: str = "Failed", *, recoverable: bool = False) -> None:
        """The run ends without results; if `recoverable`, it has failed but can be fixed by hand and has not ended."""
        self._write_held(self.runs[name], at_once=True)
        rows = conditions({"Ready": "False", "Reconciling": "False", "Stalled": "True"}, reason)
        ended = {} if recoverable else {"completionTime": format_timestamp(self.now)}
        self._set_status(name, phase=phase, conditions=rows, **ended)

    def queue(self, name: str) -> None:
        """The run waits for quota."""
        self._set_status(name, phase="Pending", conditions=conditions({"Queued": "True"}, "WaitingForQuota"))

    def delete(self, name: str) -> None:
        """Delete the run."""
        del self.store.objects["SpecBenchRun", name]

    def suspend_by_hand(self, name: str, *, suspend: bool = True) -> None:
        """Suspend or resume the run by hand."""
        self.runs[name]["spec"]["suspend"] = suspend
        self.store.touch(self.runs[name])

    def finish_all(self) -> None:
        """Finish every run that the campaign creates, until it creates no more."""
        for _ in range(20):
            self.settle()
            unfinished = [
                name for name, run in self.owned_runs.items() if not has_ended(run) and not run["spec"]["suspend"]
            ]
            if not unfinished:
                return
            for name in unfinished:
                self.finish(name)

    def _set_status(self, name: str, **fields: Any) -> None:
        run = self.runs[name]
        run["status"] = {**run.get("status", {}), **fields}
        self.store.touch(run)

    def _write_held(self, run: Raw, *, at_once: bool = False) -> None:
        status = run.setdefault("status", {})
        until = parse_timestamp(status.get("gpuSecondsUntil"))
        if until and (at_once or (self.now - until).total_seconds() >= WRITTEN_EVERY_S):
            held = self.held.get(run["metadata"]["uid"], 0.0)
            status |= {"gpuSecondsHeld": round(held, 1), "gpuSecondsUntil": format_timestamp(self.now)}
            self.store.touch(run)


def conditions(rows: Mapping[str, str], reason: str = "Because") -> list[dict[str, str]]:
    """Conditions as in the status of a run."""
    return [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T12:00:00Z"}
        for kind, status in rows.items()
    ]


def holds_gpus(run: Raw) -> bool:
    """Whether the run's engine holds GPUs."""
    return bool(run.get("status", {}).get("phase") == "Running")


def has_ended(run: Raw) -> bool:
    """Whether the run has ended."""
    return bool(run.get("status", {}).get("completionTime"))
