"""Fields of a drafter for which an engine has no word: an error, because what is ignored passes for measured."""

from __future__ import annotations

from collections.abc import Iterable

from specbench_api.errors import Problem
from specbench_api.spec.drafter import Drafter


def unheard(drafter: Drafter, path: str, fields: Iterable[str], engine: str, remedy: str) -> list[Problem]:
    """A problem for each of these fields that is set; fields by their name in Python."""
    given = [name for name in fields if getattr(drafter, name)]
    return [
        Problem(f"{path}.{Drafter.model_fields[name].alias}", f"{engine} has no word for it", remedy) for name in given
    ]
