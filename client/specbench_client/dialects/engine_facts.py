"""Reads facts of a launch from an engine's pages. Each `FactReading` names a page, the path in it, and a conversion.

Dialects declare their readings as tables, from which the pages are requested, read and documented. A missing fact
states the page on which it was missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact, FactName
from specbench_client.dialects.metrics_page import MAX_COUNT, labels_by_series

Convert = Callable[[Any], JsonValue]
"""The value on a page → the fact's value; None if it is unusable."""
GIB = 1 << 30
MAX_FACT_CHARS = 4096
_COUNT_DIGITS = 16
_METRICS_SUFFIX = "metrics"
_ABSENT = object()


def of_object(convert: Callable[[Mapping[str, Any]], JsonValue]) -> Convert:
    """Return a conversion that applies to JSON objects only."""
    return lambda value: convert(value) if isinstance(value, dict) else None


def as_scalar(value: Any) -> JsonValue:
    """Return a string, number or flag unchanged; the string `None`, as in Python's labels, is None.

    Strings and integers that are too long for a fact are None.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > MAX_FACT_CHARS:
        return None
    if isinstance(value, int) and abs(value) > MAX_COUNT:
        return None
    return value if isinstance(value, str | int | float | bool) and value not in ("", "None") else None


def as_count(value: Any) -> JsonValue:
    """Return an integer, which may be a string, as in a label."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) <= _COUNT_DIGITS else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_COUNT else None


def as_limit(value: Any) -> JsonValue:
    """Return an integer of at least 1, which may be a string; 0 and −1 often stand for no limit."""
    count = as_count(value)
    return count if isinstance(count, int) and count >= 1 else None


def as_flag(value: Any) -> JsonValue:
    """Return a flag, which may be a string, as in a label."""
    return {"True": True, "False": False}.get(value) if isinstance(value, str) else as_scalar(value)


def as_negated_flag(value: Any) -> JsonValue:
    """Return the negation of a flag that states whether something is disabled."""
    flag = as_flag(value)
    return None if flag is None else not flag


def as_scalar_or_none(value: Any) -> JsonValue:
    """Return a scalar, or the string `none` for null, which is a valid value here."""
    return "none" if value is None else as_scalar(value)


def bytes_from_gib(value: Any) -> JsonValue:
    """Convert GiB to bytes; None for 0, which is a small number that the engine rounded."""
    return round(value * GIB) if isinstance(value, int | float) and 0 < value <= MAX_COUNT / GIB else None


@dataclass(frozen=True, slots=True)
class FactReading:
    """A fact on a page. `keys`: the path in its JSON, or a series of a Prometheus page and one of its labels.

    `unusable`: why the page may have no usable value, for the reason of a missing fact.
    """

    fact: FactName
    page: str
    keys: tuple[str | int, ...]
    convert: Convert = as_scalar
    unusable: str = ""

    @property
    def source(self) -> str:
        """The location of the fact, for users."""
        return f"GET {self.page}" + (f": {'.'.join(map(str, self.keys))}" if self.keys else "")


def pages_of(readings: Iterable[FactReading]) -> tuple[str, ...]:
    """Return the pages of these readings, each once."""
    return tuple(dict.fromkeys(reading.page for reading in readings))


def is_metrics_page(page: str) -> bool:
    """Return whether a page is a Prometheus page and not JSON."""
    return page.endswith(_METRICS_SUFFIX)


def info_labels(metrics: str) -> Mapping[str, Any]:
    """Return the labels of the `…_info` series of a Prometheus page, by name of the series."""
    return {name: labels for name, labels in labels_by_series(metrics).items() if name.endswith("_info")}


def read_facts(readings: Sequence[FactReading], documents: Mapping[str, Any]) -> dict[FactName, Fact]:
    """Read the facts of a table. `documents`: the JSON of each page, None if it was not answered.

    Of several readings of one fact, the first with a value counts; if none has a value, all their reasons are given.
    """
    facts: dict[FactName, Fact] = {}
    for reading in readings:
        previous = facts.get(reading.fact)
        if previous is None or previous.value is None:
            fact = _read_fact(reading, documents.get(reading.page))
            facts[reading.fact] = fact if previous is None or fact.value is not None else _both_missing(previous, fact)
    return facts


def _read_fact(reading: FactReading, document: Any) -> Fact:
    if document is None:
        return Fact.unknown(f"GET {reading.page} was not answered")
    raw = _value_at(document, reading.keys)
    if raw is _ABSENT:
        return Fact.unknown(f"{reading.source} is missing")
    value = reading.convert(raw)
    if value is not None:
        return Fact.observed(value, reading.source)
    why = f": {reading.unusable}" if reading.unusable else ""
    return Fact.unknown(f"{reading.source} has no usable value{why}")


def _both_missing(first: Fact, second: Fact) -> Fact:
    return Fact.unknown("; ".join(dict.fromkeys((str(first.reason), str(second.reason)))))


def _value_at(document: Any, keys: Sequence[str | int]) -> Any:
    """Return the value at a path, or `_ABSENT` if a key is missing. A null at the end of the path is a value."""
    for key in keys:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return document


MODEL_LIST_FACTS = (
    FactReading(FactName.MODEL, "/v1/models", ("data", 0, "root")),
    FactReading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), as_count),
)
"""The list of models in vLLM's form, which other engines share."""


VERSION_FACT = FactReading(FactName.ENGINE_VERSION, "/version", ("version",))
