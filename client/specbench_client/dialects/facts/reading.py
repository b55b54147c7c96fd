"""How facts are read from an engine's pages: a row of a table says page, place on it, and what to make of it.

A table and no code of its own an engine: the same rows are read, documented and asked for, and every fact that is
missing says which page it was missing on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact
from specbench_client.dialects.prometheus import labels

Convert = Callable[[Any], JsonValue]
"""What a page has → the fact's value; None where that tells nothing."""
GIB = 1 << 30
_METRICS = "metrics"
_ABSENT = object()


def of_object(convert: Callable[[Mapping[str, Any]], JsonValue]) -> Convert:
    """A conversion of a whole object; what is none tells nothing."""
    return lambda found: convert(found) if isinstance(found, dict) else None


def plain(found: Any) -> JsonValue:
    """A word, a number or a flag as it is; `None` in Prometheus' labels is Python's."""
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found if isinstance(found, str | int | float | bool) and found not in ("", "None") else None


def count(found: Any) -> JsonValue:
    """A whole number, also where it is spelled as a label."""
    if isinstance(found, str):
        return int(found) if found.isdecimal() else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def flag(found: Any) -> JsonValue:
    """Yes or no, also where it is spelled as a label."""
    return {"True": True, "False": False}.get(found) if isinstance(found, str) else plain(found)


def negated(found: Any) -> JsonValue:
    """Of a flag that says what is off."""
    told = flag(found)
    return None if told is None else not told


def or_none(found: Any) -> JsonValue:
    """A word; null is an answer too: there is none."""
    return "none" if found is None else plain(found)


def gibibytes(found: Any) -> JsonValue:
    """Bytes of a number of GiB; 0 was rounded to it."""
    return round(found * GIB) if isinstance(found, int | float) and 0 < found < math.inf else None


@dataclass(frozen=True, slots=True)
class Reading:
    """A fact on a page. `keys`: the way into its JSON, or a series of a Prometheus page and one of its labels."""

    fact: FactName
    page: str
    keys: tuple[str | int, ...]
    convert: Convert = plain

    @property
    def source(self) -> str:
        """Where it stands, for a person."""
        return f"GET {self.page}" + (f": {'.'.join(map(str, self.keys))}" if self.keys else "")


def pages_of(readings: Iterable[Reading]) -> tuple[str, ...]:
    """The pages to ask for, each once."""
    return tuple(dict.fromkeys(reading.page for reading in readings))


def is_metrics(page: str) -> bool:
    """Whether a page is Prometheus' and no JSON."""
    return page.endswith(_METRICS)


def document_of(metrics: str) -> Mapping[str, Any]:
    """A Prometheus page as a document: what its series of the kind `…_info` say in their labels."""
    return {name: told for name, told in labels(metrics).items() if name.endswith("_info")}


def read_facts(readings: Sequence[Reading], documents: Mapping[str, Any]) -> dict[FactName, Fact]:
    """The facts of a table. `documents`: the JSON at each page, None where it was not answered.

    Of several rows of one fact the first one that tells it counts; where none does, all their reasons are given.
    """
    found: dict[FactName, Fact] = {}
    for reading in readings:
        before = found.get(reading.fact)
        if before is None or before.value is None:
            fact = _read(reading, documents.get(reading.page))
            found[reading.fact] = fact if before is None or fact.value is not None else _neither(before, fact)
    return found


def _read(reading: Reading, document: Any) -> Fact:
    if document is None:
        return Fact.unseen(f"GET {reading.page} was not answered")
    inside = _inside(document, reading.keys)
    if inside is _ABSENT:
        return Fact.unseen(f"{reading.source} is not there")
    value = reading.convert(inside)
    return Fact.unseen(f"{reading.source} does not tell it") if value is None else Fact.seen(value, reading.source)


def _neither(first: Fact, second: Fact) -> Fact:
    return Fact.unseen("; ".join(dict.fromkeys((str(first.reason), str(second.reason)))))


def _inside(document: Any, keys: Sequence[str | int]) -> Any:
    """What lies there; `_ABSENT` where a step of the way is missing. A null at its end is an answer."""
    for key in keys:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return document
