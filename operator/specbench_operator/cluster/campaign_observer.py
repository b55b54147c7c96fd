"""Reads everything about one campaign.

A run belongs to the campaign if it has the campaign's UID as a label and is owned by it. Of other runs that are named
like its own only the metadata is read, because their names are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specbench_api.campaign.names import ANNOTATION_COMBINATION, LABEL_CAMPAIGN_UID, LABEL_ROUND
from specbench_operator.cluster.kubernetes_api import CAMPAIGN, RUN, Raw, Reader
from specbench_operator.cluster.object_cache import CacheReader
from specbench_operator.cluster.parsing import controller_uid, whole_number
from specbench_operator.state.campaign import (
    ANNOTATION_FIRE_TIME,
    ANNOTATION_RERUN,
    ANNOTATION_SUSPEND_REASON,
    CampaignObservation,
    ObservedRun,
    OtherRunKind,
)
from specbench_operator.state.conditions import ConditionValue
from specbench_operator.state.objects import ObjectRef, RawObject
from specbench_operator.state.timestamps import api_timestamp, optional_api_timestamp


def parse_observed_run(raw: RawObject) -> ObservedRun:
    """Convert a raw SpecBenchRun of a campaign.

    Missing and unknown values are tolerated, because a newer operator or a person may have written the run. Raises
    KeyError only for fields that the API server always sets.
    """
    meta, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    annotations = meta.get("annotations", {})
    return ObservedRun(
        ref=ObjectRef(RUN, meta["name"], meta["uid"]),
        version=meta["resourceVersion"],
        number=whole_number(meta.get("labels", {}).get(LABEL_ROUND)),
        created_at=api_timestamp(meta["creationTimestamp"]),
        deleting="deletionTimestamp" in meta,
        suspended=bool(spec.get("suspend", False)),
        suspend_reason=annotations.get(ANNOTATION_SUSPEND_REASON, ""),
        rerun=annotations.get(ANNOTATION_RERUN, ""),
        fire_time=annotations.get(ANNOTATION_FIRE_TIME),
        combination=annotations.get(ANNOTATION_COMBINATION, ""),
        spec=spec,
        phase=status.get("phase", ""),
        conditions={
            row["type"]: ConditionValue(row["status"], row.get("reason", ""), row.get("message", ""))
            for row in status.get("conditions", [])
        },
        progress=status.get("progress", ""),
        measured=int(status.get("points", {}).get("measured", 0)),
        launch_measured=_launch_measured(status),
        trust=status.get("trust", ""),
        best=status.get("best", ""),
        speedup=_speedup(status.get("arms", [])),
        gpus=_gpus(spec.get("placement", {})),
        gpu_seconds=float(status.get("gpuSecondsHeld", 0)),
        gpu_seconds_until=optional_api_timestamp(status.get("gpuSecondsUntil")),
        completed_at=optional_api_timestamp(status.get("completionTime")),
    )


def other_run_kind(raw: RawObject, campaign: str) -> OtherRunKind:
    """Who owns a run that does not belong to the current campaign of this name. Needs only its metadata."""
    owners = raw["metadata"].get("ownerReferences", [])
    leftover = any(
        (owner["kind"], owner["name"]) == (CAMPAIGN, campaign) and owner.get("controller") for owner in owners
    )
    return OtherRunKind.LEFTOVER if leftover else OtherRunKind.FOREIGN


def _launch_measured(status: RawObject) -> bool:
    """Whether a group has all its points. Rows of finished groups may have been removed when the run ended."""
    finished = (0 < row.get("points", 0) == row.get("measured") for row in status.get("groups", []))
    return status.get("groupsOmitted", 0) > 0 or any(finished)


def _gpus(placement: RawObject) -> int:
    """GPUs of one launch, computed like `Placement.engine_devices` from a raw placement."""
    devices = int(placement.get("gpus", 0)) + int(placement.get("claimedGpus", 0))
    return devices * int(placement.get("nodes", 1))


def _speedup(arms: list[RawObject]) -> float | None:
    """The largest speed-up whose interval is above 1, like the run's own `best`; None if there is none."""
    intervals = [row["speedup"] for row in arms if row.get("valid", True) and row.get("speedup")]
    return max((float(row["value"]) for row in intervals if row["low"] > 1), default=None)


SINGLE_READS_MAX = 16
"""Up to this many runs that changed are read one by one; otherwise all runs of the campaign are listed."""
ParsedRuns = dict[tuple[str, str], dict[str, tuple[str, ObservedRun]]]
"""Namespace and name of a campaign → UID of a run → its resourceVersion, and the run."""


class CampaignObserver:
    """Reads campaigns and their runs. `others`: the reader of all other runs of the namespace, if it is not `api`.

    `parsed`: the runs as they were last read, by this observer or another. Only runs with another resourceVersion are
    read and parsed again, because a campaign has 256 of them and most events concern one.
    """

    def __init__(self, api: Reader, others: Reader | None = None, parsed: ParsedRuns | None = None) -> None:
        self._api = api
        self._others = others or api
        self._live = not isinstance(api, CacheReader)
        self._parsed: ParsedRuns = {} if parsed is None else parsed

    def observe(self, namespace: str, name: str) -> CampaignObservation | None:
        """Read one campaign, its runs, and the others that may have their names; None if it does not exist.

        Raises Retry.
        """
        resource = self._api.get(CAMPAIGN, namespace, name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self._parsed.pop((namespace, name), None)
            return CampaignObservation(resource, live=self._live) if resource else None
        uid = resource["metadata"]["uid"]
        marked = self._api.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN_UID}={uid}", bare=True)
        others = self._others.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN_UID}!={uid}", prefix=f"{name}-", bare=True)
        other_runs = [raw for raw in marked if controller_uid(raw) != uid] + others
        return CampaignObservation(
            resource=resource,
            runs=tuple(self._runs(resource, [raw["metadata"] for raw in marked if controller_uid(raw) == uid])),
            other_runs={raw["metadata"]["name"]: other_run_kind(raw, name) for raw in other_runs},
            live=self._live,
        )

    def _runs(self, campaign: Raw, found: list[Mapping[str, Any]]) -> list[ObservedRun]:
        """The campaign's runs, given their metadata. A run that was deleted since is left out."""
        meta = campaign["metadata"]
        known = self._parsed.get((meta["namespace"], meta["name"]), {})
        parsed = {
            each["uid"]: known[each["uid"]]
            for each in found
            if each["uid"] in known and known[each["uid"]][0] == each["resourceVersion"]
        }
        changed = [each for each in found if each["uid"] not in parsed]
        for raw in self._read(meta, changed):
            if controller_uid(raw) == meta["uid"]:
                parsed[raw["metadata"]["uid"]] = (raw["metadata"]["resourceVersion"], parse_observed_run(raw))
        self._parsed[meta["namespace"], meta["name"]] = parsed
        return [parsed[each["uid"]][1] for each in found if each["uid"] in parsed]

    def _read(self, campaign: Mapping[str, Any], changed: list[Mapping[str, Any]]) -> Iterator[Raw]:
        if self._live and len(changed) > SINGLE_READS_MAX:
            yield from self._api.each(RUN, campaign["namespace"], labels=f"{LABEL_CAMPAIGN_UID}={campaign['uid']}")
            return
        for each in changed:
            raw = self._api.get(RUN, each["namespace"], each["name"])
            if raw is not None and raw["metadata"]["uid"] == each["uid"]:
                yield raw
