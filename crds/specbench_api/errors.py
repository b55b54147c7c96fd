"""The error hierarchy of the API package.

    SpecbenchError                  root of every typed error of this project, client and operator included
    ├── InvalidSpec                 the resource cannot be run: lists each problem with its path and remedy
    │   ├── NotAllowed              the spec is valid, but the administrator does not allow it
    │   └── NotYaml                 the text is not one YAML document with a mapping
    └── NotStructural               a model cannot be expressed in a CustomResourceDefinition (developers only)

Client and operator each extend the root in their own `errors.py`; nothing raises a bare Exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


class SpecbenchError(Exception):
    """Base class of the errors that this project raises on purpose. Any other exception is a bug."""


@dataclass(frozen=True)
class Problem:
    """One problem in a resource: the path of the field, what is wrong, and what to write instead."""

    path: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return the problem as one line, in the format of admission errors."""
        tail = f" ({self.remedy})" if self.remedy else ""
        return f"{self.path}: {self.message}{tail}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean NAME?` with the most similar known name; `otherwise` if none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise


class InvalidSpec(SpecbenchError):
    """The resource cannot be run as written. Carries every problem found, not only the first."""

    reason: ClassVar[str] = "InvalidSpec"
    """Reason of the condition Validated."""

    def __init__(self, problems: Sequence[Problem], *, complete: bool = True) -> None:
        """`complete`: False if these problems prevented further checks, which may find others."""
        self.problems, self.complete = tuple(problems), complete
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotAllowed(InvalidSpec):
    """The spec is valid, but the administrator of the cluster does not allow what it asks for."""

    reason = "NotAllowed"


class NotYaml(InvalidSpec):
    """The text is not a single YAML document that contains a mapping."""


class NotStructural(SpecbenchError):
    """A model contains something that a CustomResourceDefinition cannot express; the message names where."""
