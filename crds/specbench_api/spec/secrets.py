"""The Secrets that a run uses, each for one purpose, and whether they may be used for it.

A Secret opts in with a label. Otherwise whoever may create a run could have any Secret of the namespace passed to a
program of his choice. The operator checks the label before it reads a Secret and before it creates a child of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from specbench_api import GROUP
from specbench_api.errors import Problem
from specbench_api.spec.run import RunSpec

LABEL_USE = f"{GROUP}/use"
"""Label of a Secret: what runs may use it for."""


class SecretUse(StrEnum):
    """What a run uses a Secret for: the value of the Secret's label `specbench.io/use`."""

    S3 = "s3"
    """The keys of `spec.results.s3`, for the operator and the clients."""
    HUB = "hub"
    """The hub token of `spec.model`, for engines and clients."""
    IMAGE_PULL = "image-pull"
    """Pulling images, by the kubelet."""


GATE_USES = frozenset({SecretUse.S3, SecretUse.IMAGE_PULL})
"""What the gate of a run that has ended needs Secrets for."""


@dataclass(frozen=True)
class SecretReference:
    """One Secret that a run names."""

    path: str
    """The field that names it."""
    name: str
    use: SecretUse


def secret_references(spec: RunSpec) -> Iterator[SecretReference]:
    """All Secrets that a run names, in the order of its fields."""
    if spec.model.token_secret:
        yield SecretReference("spec.model.tokenSecret", spec.model.token_secret.name, SecretUse.HUB)
    for index, name in enumerate(spec.placement.image_pull_secrets):
        yield SecretReference(f"spec.placement.imagePullSecrets[{index}]", name, SecretUse.IMAGE_PULL)
    if spec.results.s3.credentials_secret:
        path = "spec.results.s3.credentialsSecret"
        yield SecretReference(path, spec.results.s3.credentials_secret, SecretUse.S3)


def unusable_secrets(spec: RunSpec, uses: Mapping[str, str], only: frozenset[SecretUse] | None = None) -> list[Problem]:
    """The Secrets that a run may not use, each with its remedy.

    `uses`: Secret → value of its label, of those Secrets that exist and have it. `only`: the purposes to check.
    """
    return [
        not_usable(reference)
        for reference in secret_references(spec)
        if (only is None or reference.use in only) and uses.get(reference.name) != reference.use
    ]


def not_usable(reference: SecretReference) -> Problem:
    """The problem of a Secret that is missing or may not be used.

    It is the same for both, because a user who may not list Secrets must not learn their names from a run.
    """
    name, use = reference.name, reference.use
    message = f"the Secret {name!r} does not exist in this namespace, or may not be used here"
    remedy = f"create it if it is missing, and allow its use: kubectl label secret {name} {LABEL_USE}={use}"
    return Problem(reference.path, message, remedy)
