"""The Secrets of its namespace that a run names, each for one purpose, and whether they may be used for it.

A Secret opts in with a label. Otherwise whoever may create a run could have any Secret of the namespace passed to a
program of his choice. The operator checks the label before it reads a Secret and before it creates a child of the run.

SECRET_FIELDS and TEMPLATE_SECRETS are the only lists of the fields: the operator checks runs with them, campaigns are
checked with them, and hack/generate makes the admission policy of the chart from them. A test compares them with the
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specbench_api import GROUP
from specbench_api.errors import Problem
from specbench_api.spec.field_paths import values_at
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
    ENGINE = "engine"
    """Variables and volumes of `spec.placement.template`, for engines. Whoever applies the run can read them there."""

    ENDPOINT = "endpoint"
    """The API key of `spec.engine`, which clients send to the run's endpoints."""


GATE_USES = frozenset({SecretUse.S3, SecretUse.IMAGE_PULL})
"""What the gate of a run that has ended needs Secrets for."""


@dataclass(frozen=True)
class SecretField:
    """A field of a run's spec that names Secrets.

    `steps`: its path, of which the last step occurs in no other path of a run's spec.
    """

    steps: tuple[str, ...]
    use: SecretUse
    names_max: int = 1
    """Maximum number of Secrets that it refers to. More than 1: the field is a list of references."""

    @property
    def path(self) -> str:
        """Its path in a run's spec."""
        return ".".join(self.steps)

    @property
    def word(self) -> str:
        """The field's own name."""
        return self.steps[-1]

    def names_in(self, holder: Any, steps: tuple[str, ...]) -> Iterator[Any]:
        """Yield the names at a path below an object. A value that is no valid name is yielded as it is."""
        for step in steps:
            holder = holder.get(step) if isinstance(holder, Mapping) else None
        if holder is None:
            return
        several = self.names_max > 1 and isinstance(holder, list)
        for reference in holder if several else [holder]:
            yield reference.get("name") if isinstance(reference, Mapping) else reference


SECRET_FIELDS = (
    SecretField(("engine", "apiKeySecretRef"), SecretUse.ENDPOINT),
    SecretField(("model", "tokenSecretRef"), SecretUse.HUB),
    SecretField(("placement", "imagePullSecrets"), SecretUse.IMAGE_PULL, names_max=8),
    SecretField(("results", "s3", "credentialsSecretRef"), SecretUse.S3),
)


TEMPLATE_SECRETS = (
    "placement.template.spec.volumes[].secret.secretName",
    "placement.template.spec.containers[].env[].valueFrom.secretKeyRef.name",
)
"""Names of Secrets in the pod template, with the notation of `field_paths.values_at`."""
TEMPLATE_WORDS = ("secretName", "secretKeyRef")
"""A path of a campaign's axis that contains one of these names a Secret of the pod template."""


@dataclass(frozen=True)
class SecretReference:
    """One Secret that a run names."""

    path: str
    """The field that names it."""
    name: str
    use: SecretUse


def secret_references(spec: RunSpec) -> Iterator[SecretReference]:
    """All Secrets that a run names, in the order of its fields."""
    data = spec.to_dict()
    for field in SECRET_FIELDS:
        for index, name in enumerate(field.names_in(data, field.steps)):
            row = f"[{index}]" if field.names_max > 1 else ""
            yield SecretReference(f"spec.{field.path}{row}.name", name, field.use)
    for path, name in _names_in_template(data):
        yield SecretReference(f"spec.{path}", name, SecretUse.ENGINE)


def _names_in_template(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return (found for path in TEMPLATE_SECRETS for found in values_at(data, path.split(".")))


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


def secrets_named(spec: Mapping[str, Any]) -> set[str]:
    """Return the names of all Secrets that a run's spec (in its serialised form) names."""
    named = [name for field in SECRET_FIELDS for name in field.names_in(spec, field.steps)]
    return {str(name) for name in (*named, *(name for _, name in _names_in_template(spec)))}


def is_in_pod_template(path: str) -> bool:
    """Return whether the path of an axis may be below `placement.template`, however it is spelled."""
    return "placement" in path and "template" in path


def may_add_to_template(value: Any, *, below: bool) -> bool:
    """Return whether a value of an axis or include row could add a Secret to the pod template.

    A single value cannot, because only the paths with TEMPLATE_WORDS name a Secret. `below`: whether the value's path
    may be below `placement.template`.
    """
    if below and isinstance(value, Mapping | list):
        return True
    return isinstance(value, Mapping) and isinstance(value.get("template"), Mapping)


def secrets_in_value(value: Any) -> Iterator[tuple[SecretField, Any]]:
    """Yield each Secret name in a value that an axis assigns to a field or object of a run's spec.

    The value's own path is not considered: an object is searched as if it were each of the objects on the way to such a
    field, so that no spelling of the path can hide a name.
    """
    for field in SECRET_FIELDS:
        for start in range(1, len(field.steps)):
            yield from ((field, name) for name in field.names_in(value, field.steps[start:]))
