"""Carries out a decision about a run (relaunch, resume, stop, delete, apply) or a campaign; then events; then status.

Events are derived from the change of the status, so they are posted before it: if the operator dies in between, the
next reconciliation finds the same earlier status and posts the same events under the same names.

Every step can be repeated without harm, also by another replica that has taken over meanwhile: see
`docs/concepts/high-availability.md`. An object that has the name of a child is never changed, whoever owns it.

The operator uses no finalizers. Children have an owner reference, so the garbage collector removes them when a run is
deleted, also while the operator is down.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from specbench_api import API_VERSION
from specbench_api.api_model import ApiModel
from specbench_api.plan.names import LABEL_MANAGED, MANAGER
from specbench_operator.cluster.kubernetes_api import (
    EVENT,
    FIELD_MANAGER,
    JOB,
    LEADER_WORKER_SET,
    RUN,
    TRANSIENT,
    UNREACHABLE,
    Forbidden,
    KubernetesApi,
    NotFound,
)
from specbench_operator.cluster.parsing import controller_uid
from specbench_operator.errors import Changed, OperatorError, Retry
from specbench_operator.render.job_annotations import (
    ANNOTATION_ENGINE_POD,
    ANNOTATION_RELAUNCH,
    ANNOTATION_VERDICT,
    format_relaunch,
    format_verdict,
)
from specbench_operator.state.campaign import CampaignDecision, RunPatch
from specbench_operator.state.objects import REPAIRED_KINDS, fulfils
from specbench_operator.state.run import KubernetesEvent, RelaunchJob, ResumeJob, RunDecision, StopJob
from specbench_operator.state.timestamps import format_timestamp

STOPPED_AFTER_S = 1
"""activeDeadlineSeconds of a stopped Job: Kubernetes fails the Job and removes its pods, and keeps the Job itself."""
EVENT_MESSAGE_MAX = 1000
EVENT_RETRY_S = 1.0
_log = logging.getLogger(__name__)


class Writer:
    """Writes children of runs, runs of campaigns, statuses and events."""

    def __init__(self, api: KubernetesApi, pause_s: Callable[[float], object] = time.sleep) -> None:
        self._api = api
        self._pause_s = pause_s

    def act_on_run(self, resource: Mapping[str, Any], decision: RunDecision) -> None:
        """Carry out everything except status and events. Raises Retry or Stop at the first step that is rejected."""
        namespace = resource["metadata"]["namespace"]
        for relaunch in decision.relaunch:
            self._relaunch(namespace, relaunch)
        for resume in decision.resume:
            self._resume(namespace, resume)
        for stop in decision.stop:
            self._stop(namespace, stop)
        for ref in decision.delete:
            self._api.delete(ref.kind, namespace, ref.name, ref.uid)
        for manifest in decision.apply:
            self._apply(manifest)

    def act_on_campaign(self, resource: Mapping[str, Any], decision: CampaignDecision) -> None:
        """Carry out everything except status and events.

        A rejected write does not prevent the others. The first Retry or Stop is raised afterwards; if there is none,
        Changed if a name was taken meanwhile, or a run is not as it was observed.
        """
        namespace = resource["metadata"]["namespace"]
        writes: list[Callable[[], object]] = [
            *(partial(self._patch_run, namespace, patch) for patch in decision.patch),
            *(
                partial(self._api.delete, RUN, namespace, row.ref.name, row.ref.uid, row.version)
                for row in decision.delete
            ),
            # Runs are created and not applied, so that an existing run of the same name is never changed.
            *(partial(self._api.create, manifest) for manifest in decision.create),
        ]
        errors: list[OperatorError] = []
        for write in writes:
            try:
                write()
            except OperatorError as error:
                errors.append(error)
                if error.reason == UNREACHABLE:
                    break  # each further request would run into the same timeout
        if errors:
            raise next((error for error in errors if not isinstance(error, Changed)), errors[0])

    def report(
        self, resource: Mapping[str, Any], status: ApiModel, now: datetime, events: Sequence[KubernetesEvent] = ()
    ) -> bool:
        """Post the events of a changed status of a run or a campaign, then write it; returns whether it changed.

        Raises Changed if the resource was written since it was read: the status was then computed from outdated data.
        """
        meta, content = resource["metadata"], status.to_dict()
        if content == (resource.get("status") or {}):
            return False  # every write would trigger another reconciliation
        self.post_events(resource, events, now)
        fence = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        self._api.apply(
            {"apiVersion": API_VERSION, "kind": resource["kind"], "metadata": fence, "status": content}, "status"
        )
        return True

    def post_events(self, resource: Mapping[str, Any], events: Sequence[KubernetesEvent], now: datetime) -> None:
        """Post events. They are only for people, so a rejected event is logged and does not fail the reconciliation."""
        for event in events:
            try:
                self._post(_event_manifest(resource, event, now))
            except Changed:
                continue  # the event exists: its name is derived from its content, and the decision was repeated
            except OperatorError as error:
                _log.warning("the event %s could not be posted: %s", event.reason, error)

    def _post(self, manifest: Mapping[str, Any]) -> None:
        """Create an Event; once more after an error that may be over by then."""
        try:
            self._api.create(manifest)
        except (Changed, Retry) as error:
            if error.reason not in TRANSIENT:
                raise
            self._pause_s(EVENT_RETRY_S)
            self._api.create(manifest)

    def _patch_run(self, namespace: str, patch: RunPatch) -> None:
        meta = {"uid": patch.ref.uid, "resourceVersion": patch.version, **patch.change.get("metadata", {})}
        self._api.merge(RUN, namespace, patch.ref.name, {**patch.change, "metadata": meta})

    def _relaunch(self, namespace: str, job: RelaunchJob) -> None:
        annotations = {ANNOTATION_RELAUNCH: format_relaunch(job.relaunch)}
        self._api.merge(JOB, namespace, job.ref.name, {"metadata": {"uid": job.ref.uid, "annotations": annotations}})

    def _resume(self, namespace: str, job: ResumeJob) -> None:
        meta = {"uid": job.ref.uid, "annotations": {ANNOTATION_ENGINE_POD: job.leader_pod}}
        self._api.merge(JOB, namespace, job.ref.name, {"metadata": meta, "spec": {"suspend": False}})

    def _stop(self, namespace: str, stop: StopJob) -> None:
        """Stop a Job by a deadline. `suspend` would not do: a queue controller may resume a suspended Job."""
        deadline = {} if stop.ended else {"activeDeadlineSeconds": STOPPED_AFTER_S}
        patch: dict[str, Any] = {
            "metadata": {"uid": stop.ref.uid, "annotations": {ANNOTATION_VERDICT: format_verdict(stop.verdict)}},
            # The TTL is removed, because the Job is the record of its launch.
            "spec": {"ttlSecondsAfterFinished": None, **deadline},
        }
        self._api.merge(JOB, namespace, stop.ref.name, patch)

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        try:
            # Created and not applied: a request that arrives late, after another replica has created the child, is
            # then refused. Applying it would suspend a Job again that its queue has resumed.
            self._api.create(manifest)
        except (Changed, Forbidden):  # a quota or an admission policy may refuse it before the name is looked up
            if not self._exists(manifest):
                raise
        except NotFound as error:
            if manifest["kind"] != LEADER_WORKER_SET:
                raise
            message = (
                "spec.placement.nodes needs LeaderWorkerSet in the cluster:"
                f" install it (leaderworkerset.x-k8s.io/v1), or set nodes to 1: {error}"
            )
            raise Retry("LeaderWorkerSetMissing", message) from error

    def _exists(self, manifest: Mapping[str, Any]) -> bool:
        """Whether the run has this child; a Service or a policy that somebody edited is repaired.

        Raises Retry if the object with its name belongs to somebody else.
        """
        meta = manifest["metadata"]
        present = self._api.get(manifest["kind"], meta["namespace"], meta["name"])
        if present is None:
            return False
        _check_owner(present, manifest)
        # Other children are not applied again: a Job's template is immutable, and its `suspend` field belongs to its
        # queue, which may have resumed it.
        if manifest["kind"] in REPAIRED_KINDS and not fulfils(present["spec"], manifest["spec"]):
            self._api.apply(manifest)
        return True


def _check_owner(present: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    if controller_uid(present) != controller_uid(manifest):
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise Retry("NameTaken", f"{name} exists and does not belong to this run: delete it, or rename the run")


def _event_manifest(resource: Mapping[str, Any], event: KubernetesEvent, now: datetime) -> dict[str, Any]:
    meta = resource["metadata"]
    stamp = format_timestamp(now)
    # Without an occasion, the earlier status tells equal events apart. It is not the resourceVersion, because an edit
    # of the run does not repeat the events of a status.
    before = f"{json.dumps(resource.get('status') or {}, sort_keys=True)} {event.message}"
    content = f"{meta['uid']} {event.occasion or before} {event.type} {event.reason}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
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
