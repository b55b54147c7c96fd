"""GPU-seconds that a run has held."""

from __future__ import annotations

from datetime import datetime

from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.status import RunStatus
from specbench_operator.run.status import fit_to_size
from specbench_operator.run.view import RunView
from specbench_operator.state.objects import Pod
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp

GPU_SECONDS_PERIOD_S = 60
"""Minimum time between two writes of status that change nothing but the GPU-seconds, in seconds.

Each write triggers every watcher of the run.
"""


def with_gpu_seconds(status: RunStatus, run_view: RunView) -> RunStatus:
    """The status with the GPU-seconds added up to now, if that is worth a write.

    A pod holds its GPUs from being scheduled until its container ends or the pod is deleted. Status contains the sum
    and the time until which it counts. Each reconciliation adds what follows that time, so reconciliations may be
    lost, repeated or late. Times are truncated to whole seconds like those in status, otherwise fractions would count
    twice.

    Error: a pod that disappears between two reconciliations is not counted after the last written time. The sum is then
    too small, by at most GPU_SECONDS_PERIOD_S per launch and usually by a second or two.
    """
    gpus, previous = run_view.run.spec.placement.devices, run_view.previous
    since, until = parse_timestamp(previous.gpu_seconds_until), run_view.now.replace(microsecond=0)
    unchanged = status.model_copy(
        update={"gpu_seconds_held": previous.gpu_seconds_held, "gpu_seconds_until": previous.gpu_seconds_until}
    )
    pods = [pod for pod in run_view.children.pods if pod.key.role == ROLE_ENGINE]
    added = gpus * sum(_held_seconds(pod, since, until) for pod in pods)
    stale = since is None or (until - since).total_seconds() >= GPU_SECONDS_PERIOD_S
    # The previous status was shortened before it was written, so it is compared with the shortened new one.
    if added <= 0 or (not stale and fit_to_size(unchanged) == previous):
        return unchanged
    held = round(previous.gpu_seconds_held + added, 1)
    return unchanged.model_copy(update={"gpu_seconds_held": held, "gpu_seconds_until": format_timestamp(until)})


def _held_seconds(pod: Pod, since: datetime | None, until: datetime) -> float:
    if pod.scheduled_at is None:
        return 0
    finished = pod.terminated.finished_at if pod.terminated and not pod.restarts else None
    end = finished or (until if pod.alive else pod.scheduled_at)
    begin = pod.scheduled_at if since is None else max(pod.scheduled_at, since)
    return max((min(end, until) - begin).total_seconds(), 0)
