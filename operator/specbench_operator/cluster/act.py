"""A decision carried out: relaunch, stop, delete, apply; then status, fenced; then events, which may fail.

Every step may be repeated. Whoever has the name of a child and is not the run's own is never written to: the apply is
preceded by a look, and the API server itself refuses a second controller in ownerReferences.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specbench_api import API_VERSION
from specbench_api.model import ApiModel
from specbench_api.plan.names import LABEL_MANAGED, MANAGER
from specbench_operator.cluster.api import FIELD_MANAGER, Api, Missing
from specbench_operator.cluster.kinds import EVENT, JOB, LEADER_WORKER_SET
from specbench_operator.cluster.views import RELAUNCH, VERDICT, owner_of, relaunch_text, verdict_text
from specbench_operator.errors import Changed, OperatorError, Retry
from specbench_operator.state.decision import Decision, Event, RelaunchJob, StopJob

STOPPED_AFTER_S = 1
"""The deadline that a stopped Job is given: Kubernetes ends it for good and takes its pods, and the Job stays."""
EVENT_MESSAGE_MAX = 1000
_log = logging.getLogger(__name__)


class Actor:
    """Writes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def act(self, resource: Mapping[str, Any], decision: Decision) -> None:
        """Carry out everything but status and events. Raises Retry or Stop at the first step that is refused."""
        namespace = resource["metadata"]["namespace"]
        for relaunch in decision.relaunch:
            self._relaunch(namespace, relaunch)
        for stop in decision.stop:
            self._stop(namespace, stop)
        for ref in decision.delete:
            self._api.delete(ref.kind, namespace, ref.name, ref.uid)
        for manifest in decision.apply:
            self._apply(manifest)

    def tell(self, resource: Mapping[str, Any], status: ApiModel) -> bool:
        """Write the status of a run or a campaign if it says something new.

        Raises Changed where the resource was written since it was read.
        """
        said = status.to_dict()
        if said == (resource.get("status") or {}):
            return False
        meta = resource["metadata"]
        named = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        self._api.apply(
            {"apiVersion": API_VERSION, "kind": resource["kind"], "metadata": named, "status": said}, "status"
        )
        return True

    def announce(self, resource: Mapping[str, Any], events: tuple[Event, ...], now: datetime) -> None:
        """Post events. They are for people: one that is refused is logged, and nothing waits for it."""
        for event in events:
            try:
                self._api.create(_event(resource, event, now))
            except Changed:
                continue  # said already, by this very decision made twice
            except OperatorError as error:
                _log.warning("the event %s could not be posted: %s", event.reason, error)

    def _relaunch(self, namespace: str, job: RelaunchJob) -> None:
        annotations = {RELAUNCH: relaunch_text(job.relaunch)}
        self._api.merge(JOB, namespace, job.ref.name, {"metadata": {"uid": job.ref.uid, "annotations": annotations}})

    def _stop(self, namespace: str, stop: StopJob) -> None:
        """A deadline and not `suspend`: who owns the Job's queue might resume what is suspended."""
        deadline = {} if stop.ended else {"activeDeadlineSeconds": STOPPED_AFTER_S}
        patch: dict[str, Any] = {
            "metadata": {"uid": stop.ref.uid, "annotations": {VERDICT: verdict_text(stop.verdict)}},
            "spec": {"ttlSecondsAfterFinished": None, **deadline},  # it stays as the record of its launch
        }
        self._api.merge(JOB, namespace, stop.ref.name, patch)

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        meta = manifest["metadata"]
        present = self._api.get(manifest["kind"], meta["namespace"], meta["name"])
        if present is not None:
            _refuse_foreign(present, manifest)
            return  # ours already: a Job's template cannot change, and its `suspend` belongs to its queue
        try:
            self._api.apply(manifest)
        except Missing as error:
            if manifest["kind"] != LEADER_WORKER_SET:
                raise
            message = f"placement.nodes needs LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) in the cluster: {error}"
            raise Retry("LeaderWorkerSetMissing", message) from error


def _refuse_foreign(present: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    wanted = owner_of(manifest)
    if owner_of(present) != wanted:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise Retry("NameTaken", f"{name} is there and does not belong to this run: delete it, or rename the run")


def _event(resource: Mapping[str, Any], event: Event, now: datetime) -> dict[str, Any]:
    meta = resource["metadata"]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    told = f"{meta['uid']} {meta['resourceVersion']} {event.type} {event.reason} {event.message}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": EVENT,
        "metadata": {
            "name": f"{meta['name']}.{digest}",
            "namespace": meta["namespace"],
            "labels": {LABEL_MANAGED: MANAGER},
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": resource["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": event.type,
        "reason": event.reason[:128],
        "message": event.message[:EVENT_MESSAGE_MAX],
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
