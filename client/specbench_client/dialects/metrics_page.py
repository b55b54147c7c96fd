"""Reads engines' metrics pages in Prometheus' text format with the parser of `prometheus_client`.

An engine with several workers (label `engine`) exposes one series for each of them; totals are sums over all label sets
of a name, or over those of one model. Collectors rename series (OpenTelemetry: `vllm_generation_tokens`), so a counter
is also found with other separators and without `_total`. Exemplars and timestamps are accepted and ignored. Lines that
are longer than any engine's are left out, because the parser's time grows with the square of a line's length. A page
with more than MAX_SAMPLES samples has no totals, because sums over a part of an engine's workers would be wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

MAX_LINE_CHARS = 8192
MAX_SAMPLES = 50_000
"""Most samples of a page: an engine has some hundreds for each of its workers."""
MAX_COUNT = 2**53
"""A larger number is no valid count: JSON readers do not represent it exactly, and records cannot store it."""


_MODEL_LABELS = ("model_name", "model")


def totals_by_model(page: str) -> dict[str | None, dict[str, float]]:
    """Return the sum of the samples of each series name, by the model in their labels; None: samples without one.

    NaN and infinite values are left out.
    """
    found: dict[str | None, dict[str, float]] = {}
    for sample in _samples(page):
        if abs(sample.value) <= sys.float_info.max:  # Not math.isfinite, which fails for an integer of 400 digits.
            model = next((sample.labels[label] for label in _MODEL_LABELS if label in sample.labels), None)
            totals = found.setdefault(model, {})
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return found


def add_totals(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums over several models."""
    sums: dict[str, float] = {}
    for name, value in chain.from_iterable(totals.items() for totals in parts):
        sums[name] = sums.get(name, 0.0) + value
    return sums


def labels_by_series(page: str) -> dict[str, dict[str, str]]:
    """Return the labels of the first sample of each labelled series: of several workers, those of the first."""
    labels: dict[str, dict[str, str]] = {}
    for sample in _samples(page):
        if sample.labels:
            labels.setdefault(sample.name, dict(sample.labels))
    return labels


def label_values(page: str, series: str, label: str) -> frozenset[str]:
    """Return the values of a label of a series."""
    return frozenset(
        sample.labels[label] for sample in _samples(page) if sample.name == series and label in sample.labels
    )


def first_start_s(page: str) -> float | None:
    """Return when the first of the server's processes started; None where the page does not have it."""
    return min(
        (value for value in _values(page, "process_start_time_seconds") if 0 <= value <= MAX_COUNT), default=None
    )


def fraction_value(page: str, name: str) -> float | None:
    """Return the mean of a gauge over its label sets; None where the page does not have it, or it is no fraction."""
    values = _values(page, name)
    return sum(values) / len(values) if values and all(0 <= value <= 1 for value in values) else None


def _values(page: str, name: str) -> list[float]:
    """Return the value of each label set of a series; only its lines are parsed."""
    lines = "\n".join(line for line in page.split("\n") if line.startswith(name))
    return [sample.value for sample in _samples(lines) if sample.name == name]


def counter_value(totals: Mapping[str, float], name: str) -> int | None:
    """Return one counter as an integer; None where the page does not have it, or its value is not a valid count.

    A page that does not have this name may have it as a collector renames it.
    """
    value = totals.get(name)
    if value is None:
        value = next((total for series, total in totals.items() if _plain(series) == _plain(name)), None)
    return round(value) if value is not None and 0 <= value <= MAX_COUNT else None


def _plain(series: str) -> str:
    """Return the name of a series without what collectors change."""
    return re.sub(r"[^a-z0-9]", "_", series.lower()).removesuffix("_total")


def _samples(page: str) -> Iterator[Sample]:
    # Each line is parsed on its own: the parser raises at the first malformed line (ValueError, or IndexError within
    # labels), and one such line of an engine's page must not hide all its counters. Comments have no samples.
    text = page.removeprefix("\ufeff")
    lines = (line for line in text.split("\n") if line and not line.startswith("#") and len(line) <= MAX_LINE_CHARS)
    read = list(islice(lines, MAX_SAMPLES + 1))
    for line in read if len(read) <= MAX_SAMPLES else ():
        with suppress(ValueError, IndexError):
            for family in text_string_to_metric_families(line):
                yield from family.samples
