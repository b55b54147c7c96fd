"""GPU-seconds held, added up from the engine pods that are seen.

A pod holds its GPUs from being scheduled until its container ended, or until it is gone. Status keeps the sum and the
moment until which it counts; each look adds what lies after that moment, so a look may be lost, repeated or late.
Status has whole seconds, so what lies after the last whole one is left to the next look, or it would count twice.
Error: a pod that vanished between two looks is not counted from the last written look on. That is at most a minute a
launch (`EVERY_S`), a second or two as a rule, and always too little.
"""

from __future__ import annotations

from datetime import datetime

from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.status import RunStatus
from specbench_operator.reconcile.moments import from_text, to_text, whole
from specbench_operator.reconcile.scene import Scene
from specbench_operator.reconcile.telling.size import fitted
from specbench_operator.state.pods import Pod

EVERY_S = 60
"""The sum alone is written no more often than this: each write wakes every watcher of the run."""


def with_gpu_seconds(status: RunStatus, scene: Scene) -> RunStatus:
    """The status with the sum brought up to now, if it is worth writing."""
    gpus, previous = scene.run.spec.placement.devices, scene.previous
    since, until = from_text(previous.gpu_seconds_until), whole(scene.now)
    kept = status.model_copy(
        update={"gpu_seconds_held": previous.gpu_seconds_held, "gpu_seconds_until": previous.gpu_seconds_until}
    )
    pods = [pod for pod in scene.children.pods if pod.place.role == ROLE_ENGINE]
    added = gpus * sum(_seconds(pod, since, until) for pod in pods)
    stale = since is None or (until - since).total_seconds() >= EVERY_S
    if added <= 0 or (not stale and fitted(kept) == previous):  # what was written is what fitted
        return kept
    held = round(previous.gpu_seconds_held + added, 1)
    return kept.model_copy(update={"gpu_seconds_held": held, "gpu_seconds_until": to_text(until)})


def _seconds(pod: Pod, since: datetime | None, until: datetime) -> float:
    if pod.scheduled_at is None:
        return 0
    finished = pod.terminated.finished_at if pod.terminated and not pod.restarts else None
    end = finished or (until if pod.alive else pod.scheduled_at)
    begin = pod.scheduled_at if since is None else max(pod.scheduled_at, since)
    return max((min(end, until) - begin).total_seconds(), 0)
