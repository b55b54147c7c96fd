"""Annotations of Jobs: the state that must survive the loss of status or a failed write of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import TypeAdapter

from specbench_api import GROUP
from specbench_operator.render.shared_fields import Manifest
from specbench_operator.state.objects import FailureScope, LaunchVerdict, PriorLaunches, RawObject, Relaunch
from specbench_operator.state.timestamps import api_timestamp

ANNOTATION_PRIOR_LAUNCHES = f"{GROUP}/launches-before"
"""On an engine's Job: how many earlier launches were suspended and how many were preempted, as JSON."""
ANNOTATION_ENGINE_NODES = f"{GROUP}/engine-nodes"
"""On a client's Job: names of the nodes on which its engine became ready, separated by commas."""
ANNOTATION_ENGINE_POD = f"{GROUP}/engine-pod"
"""On a client's Job: UID of the engine's pod that it measures. On the Job of an engine on several nodes that a queue
has admitted: UID of the leader's pod. Another pod is another launch."""
ANNOTATION_QUEUE = f"{GROUP}/queue"
"""On the Job of an engine on several nodes: the queue of its LeaderWorkerSet. If this were Kueue's label, Kueue would
manage the Job too."""
ANNOTATION_VERDICT = f"{GROUP}/verdict"
"""On an engine's Job: why its launch is over, as JSON."""
ANNOTATION_RELAUNCH = f"{GROUP}/relaunch"
"""On an engine's Job: the launch that it continues as, as JSON."""


_VERDICT, _RELAUNCH, _PRIOR = TypeAdapter(LaunchVerdict), TypeAdapter(Relaunch), TypeAdapter(PriorLaunches)


def with_prior_launches(job: Manifest, prior_launches: PriorLaunches) -> Manifest:
    """The engine's Job, annotated with the counts of earlier launches unless they are zero."""
    if prior_launches == PriorLaunches():
        return job
    return _with_annotation(job, ANNOTATION_PRIOR_LAUNCHES, _PRIOR.dump_json(prior_launches).decode())


def with_engine_nodes(job: Manifest, nodes: Sequence[str]) -> Manifest:
    """The client's Job, annotated with the nodes of its engine if they are known."""
    return _with_annotation(job, ANNOTATION_ENGINE_NODES, ",".join(nodes)) if nodes else job


def parse_prior_launches(meta: RawObject) -> PriorLaunches:
    """The counts of earlier launches from an engine's Job; zero if the annotation is missing or invalid."""
    try:
        return _PRIOR.validate_json(_annotation(meta, ANNOTATION_PRIOR_LAUNCHES))
    except ValueError:
        return PriorLaunches()


def parse_engine_nodes(meta: RawObject) -> tuple[str, ...]:
    """The nodes from a client's Job. Names of nodes contain no commas."""
    return tuple(name for name in _annotation(meta, ANNOTATION_ENGINE_NODES).split(",") if name)


def _annotation(meta: RawObject, key: str) -> str:
    return str(meta.get("annotations", {}).get(key, ""))


def _with_annotation(job: Manifest, key: str, value: str) -> Manifest:
    meta = job["metadata"]
    return {**job, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), key: value}}}


def parse_verdict(meta: RawObject) -> LaunchVerdict | None:
    """The verdict from an engine's Job; None if it has none.

    An invalid verdict ends the launch too, because somebody wrote it to end the launch.
    """
    if ANNOTATION_VERDICT not in meta.get("annotations", {}):
        return None
    text = _annotation(meta, ANNOTATION_VERDICT)
    try:
        return _VERDICT.validate_json(text)
    except ValueError:
        return LaunchVerdict(FailureScope.GROUP, "Stopped", text, api_timestamp(meta["creationTimestamp"]))


def format_verdict(verdict: LaunchVerdict) -> str:
    """The value of the annotation."""
    return _VERDICT.dump_json(replace(verdict, at=verdict.at.replace(microsecond=0))).decode()


def parse_relaunch(meta: RawObject) -> Relaunch | None:
    """The launch that an engine's Job continues as; None if the annotation is missing or invalid."""
    try:
        return _RELAUNCH.validate_json(_annotation(meta, ANNOTATION_RELAUNCH))
    except ValueError:
        return None


def format_relaunch(relaunch: Relaunch) -> str:
    """The value of the annotation."""
    return _RELAUNCH.dump_json(relaunch).decode()
