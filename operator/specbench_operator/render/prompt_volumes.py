"""Volumes with prompts files, in the pods that read them: the clients' alone, and read only."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.spec.dataset import PVC_FOLDER
from specbench_api.spec.workload import Workload
from specbench_operator.render.child import Manifest


def with_prompts(pod: Manifest, workloads: Sequence[Workload]) -> Manifest:
    """The PodSpec with every claim that a dataset names, each once; unchanged where none does."""
    claims = dict.fromkeys(
        selection.pvc.claim_name
        for workload in workloads
        for selection in (workload.dataset, *(workload.dataset.members or []))
        if selection.pvc
    )
    if not claims:
        return pod
    names = {claim: f"prompts-{number}" for number, claim in enumerate(claims)}
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}} for claim, name in names.items()
    ]
    mounts = [{"name": name, "mountPath": f"{PVC_FOLDER}/{claim}", "readOnly": True} for claim, name in names.items()]
    (container,) = pod["containers"]
    reading = {**container, "volumeMounts": [*container["volumeMounts"], *mounts]}
    return {**pod, "volumes": [*pod["volumes"], *volumes], "containers": [reading]}
