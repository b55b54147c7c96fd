"""The labels by which Kueue takes charge of an engine's Job.

The Job is created suspended and never resumed by us: it has no pod, and so holds nothing, before it is admitted. Only
the engine is queued: the client asks for no GPU and follows an engine that has been admitted.
"""

from __future__ import annotations

from specbench_api.spec.run import SpecBenchRun

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


def queue_labels(run: SpecBenchRun) -> dict[str, str]:
    """None where no queue is named."""
    placement = run.spec.placement
    if placement.queue_name is None:
        return {}
    priority = placement.queue_priority_class
    return {QUEUE: placement.queue_name, **({PRIORITY: priority} if priority else {})}
