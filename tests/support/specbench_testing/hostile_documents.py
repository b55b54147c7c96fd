"""Documents that a stranger may have written: every free text hostile, or mutated at random but reproducibly."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

Path = tuple[int | str, ...]


def leaves(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield (path, value) of every scalar."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from leaves(value, (*path, index))
    else:
        yield path, document


def nodes(document: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below the root, containers included."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from nodes(value, (*path, key))


def replace_at(document: Any, path: Path, value: Any) -> None:
    """Replace the value at a path."""
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


def value_at(document: Any, path: Path) -> Any:
    """Return the value at a path."""
    for step in path:
        document = document[step]
    return document


def with_hostile_texts(document: Any, model: type[BaseModel], payload: str, keep: set[str]) -> Any:
    """Append the payload to every text that may be any text according to the model, except fields named in `keep`."""
    changed = copy.deepcopy(document)
    texts = [path for path, value in leaves(document) if isinstance(value, str) and not keep & set(map(str, path))]
    for path in texts:
        replace_at(changed, path, value_at(document, path) + payload)
    while True:
        try:
            model.model_validate(changed)
        except ValidationError as error:
            rejected = [tuple(details["loc"]) for details in error.errors()]
            for path in texts:
                if any(path[: len(where)] == where or where[: len(path)] == path for where in rejected):
                    replace_at(changed, path, value_at(document, path))
        else:
            return changed


_NUMBERS = (0, -1, 1, 2**31, 2**63, 2**70, -(2**63), 0.5, -0.0, 1e308, 1e-308, float("nan"), float("inf"))
_TEXTS = (
    "",
    " ",
    "x" * 5000,
    "../../etc/passwd",
    "/etc/passwd",
    "\x1b]0;x\x07",
    "\u202e\u200b",
    "\x00",
    "=1+1",
    "é",
    "$x",
    "1e999",
)
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": None})


def mutate(document: Any, draw: random.Random, others: list[Any]) -> Any:
    """Return a copy with one to three random changes, mostly one. `others`: documents from which values are copied."""
    changed = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        paths = list(nodes(changed))
        if not paths:
            return changed
        _mutate_at(changed, draw.choice(paths), draw, others)
    return changed


def _mutate_at(document: Any, path: Path, draw: random.Random, others: list[Any]) -> None:
    """Change the value at a path, or remove, repeat or replace it."""
    parent, key = value_at(document, path[:-1]), path[-1]
    match draw.randrange(4):
        case 0:
            del parent[key]
        case 1:
            _repeat(parent, key, draw)
        case 2:
            parent[key] = _edited(parent[key], draw)
        case _:
            parent[key] = _other_value(draw, others)


def _other_value(draw: random.Random, others: list[Any]) -> Any:
    match draw.randrange(5):
        case 0:
            return draw.choice(_NUMBERS)
        case 1:
            return draw.choice(_TEXTS)
        case 2:
            return copy.deepcopy(draw.choice(_OTHERS))
        case 3:
            return _nested(draw.choice((3, 70, 300)), draw)
    other = draw.choice(others)
    return copy.deepcopy(value_at(other, draw.choice(list(nodes(other)))))


def _repeat(parent: Any, key: Any, draw: random.Random) -> None:
    if isinstance(parent, dict):
        parent[draw.choice(_TEXTS)] = copy.deepcopy(parent[key])
    else:
        parent.extend(copy.deepcopy(parent[key]) for _ in range(draw.choice((1, 3, 100))))


def _edited(value: Any, draw: random.Random) -> Any:
    if isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        return value[:at] + draw.choice(_TEXTS)[:20] + value[at + draw.randrange(3) :]
    if isinstance(value, int | float):
        return value * draw.choice((-1, 0, 2, 10**9, 0.1))
    return [value]


def _nested(levels: int, draw: random.Random) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value
