"""The fields of a run's spec that name Secrets of the run's namespace.

The only list of them: campaigns are checked with it, and hack/generate makes the admission policy of the chart from it.
A test compares it with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SecretField:
    """One such field. `steps`: its path, of which the last step occurs in no other path of a run's spec."""

    steps: tuple[str, ...]
    names_max: int = 1
    """Maximum number of Secrets that it names. More than 1: the field is a list of names."""
    is_object: bool = False
    """Whether the field is an object with the Secret's name in `name`."""

    @property
    def path(self) -> str:
        """Path of the name, or of the list of names, in a run's spec."""
        return ".".join((*self.steps, *(["name"] if self.is_object else [])))

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
        if self.names_max > 1 and isinstance(holder, list):
            yield from holder
        elif self.is_object and isinstance(holder, Mapping):
            yield holder.get("name")
        else:
            yield holder


SECRET_FIELDS = (
    SecretField(("results", "s3", "credentialsSecret")),
    SecretField(("model", "tokenSecret"), is_object=True),
    SecretField(("placement", "imagePullSecrets"), names_max=8),
)


def secrets_named(spec: Mapping[str, Any]) -> set[str]:
    """Return the names of all Secrets that a run's spec (in its serialised form) names."""
    return {str(name) for field in SECRET_FIELDS for name in field.names_in(spec, field.steps)}


def secrets_in_value(value: Any) -> Iterator[tuple[SecretField, Any]]:
    """Yield each Secret name in a value that an axis assigns to a field or object of a run's spec.

    The value's own path is not considered: an object is searched as if it were each of the objects on the way to such a
    field, so that no spelling of the path can hide a name.
    """
    for field in SECRET_FIELDS:
        for start in range(1, len(field.steps)):
            yield from ((field, name) for name in field.names_in(value, field.steps[start:]))
