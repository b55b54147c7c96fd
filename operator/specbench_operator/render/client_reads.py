"""What a measuring client reads beside its plan: volumes with prompts and tokenizers, and the hub's token.

In its pod alone and read only: a report needs none of it, and should not wait for a volume.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import PVC_FOLDER
from specbench_api.spec.run import RunSpec
from specbench_api.spec.target import Target
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
    """Of the datasets; and of the model where its tokenizer, or a template beside it, is read there."""
    for workload in spec.workloads:
        for selection in (workload.dataset, *(workload.dataset.members or [])):
            if selection.pvc:
                yield selection.pvc.claim_name
        template, pvc = workload.chat_template, spec.model.pvc
        if pvc and template and template.by_client and _reads(template, spec.model, pvc.claim_name):
            yield pvc.claim_name


def _reads(template: ChatTemplate, model: Target, claim: str) -> bool:
    """Whether a client needs the model's claim: for the model's own tokenizer, or for what is named below its mount."""
    tokenizer = template.tokenizer or model.tokenizer
    named = [path for path in (tokenizer, template.template) if path is not None]
    return tokenizer is None or any(PurePosixPath(path).is_relative_to(f"{PVC_FOLDER}/{claim}") for path in named)
