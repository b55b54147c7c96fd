"""The error tree of the API package.

    SpecbenchError                  root of every typed error of this project, on both sides
    ├── InvalidSpec                 what the user wrote cannot be run: where, what, what instead
    │   └── NotYaml                 it could not even be read as one resource
    └── NotStructural               a model of ours says what a CustomResourceDefinition cannot (developers only)

Client and operator each extend the root in their own `errors.py`; nothing raises a bare Exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SpecbenchError(Exception):
    """Root of the errors that this project raises on purpose. Anything else is a bug of ours."""


@dataclass(frozen=True)
class Problem:
    """One fault in what the user wrote: the path to it, what is wrong, and what to write instead."""

    path: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Render as one line, the way admission errors read."""
        tail = f" ({self.remedy})" if self.remedy else ""
        return f"{self.path}: {self.message}{tail}"


class InvalidSpec(SpecbenchError):
    """The resource cannot be run as written; carries every problem found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotYaml(InvalidSpec):
    """The file is not a single YAML document with a mapping in it."""


class NotStructural(SpecbenchError):
    """A model holds what has no form in a CustomResourceDefinition; the message names the place."""
