"""What a measuring client reads beside its plan: volumes with prompts and tokenizers, and the hub's token.

In its pod alone and read only: a report needs none of it, and should not wait for a volume.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.spec.dataset import PVC_FOLDER
from specbench_api.spec.run import RunSpec
from specbench_operator.render.child import Manifest, hub_token


def with_what_it_reads(pod: Manifest, spec: RunSpec) -> Manifest:
    """The PodSpec with every claim that the client reads, each once, and the token by reference."""
    names = {claim: f"prompts-{number}" for number, claim in enumerate(dict.fromkeys(_claims(spec)))}
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}} for claim, name in names.items()
    ]
    mounts = [{"name": name, "mountPath": f"{PVC_FOLDER}/{claim}", "readOnly": True} for claim, name in names.items()]
    (container,) = pod["containers"]
    reading = {
        **container,
        "env": [*container["env"], *hub_token(spec)],
        "volumeMounts": [*container["volumeMounts"], *mounts],
    }
    return {**pod, "volumes": [*pod["volumes"], *volumes], "containers": [reading]}


def _claims(spec: RunSpec) -> Iterator[str]:
    """Of the datasets; and of the model where its tokenizer is read there."""
    for workload in spec.workloads:
        for selection in (workload.dataset, *(workload.dataset.members or [])):
            if selection.pvc:
                yield selection.pvc.claim_name
        template, pvc = workload.chat_template, spec.model.pvc
        if pvc and template and template.by_client and not (template.tokenizer or spec.model.tokenizer):
            yield pvc.claim_name
