"""Reads engines' metrics pages in Prometheus' text format with the parser of `prometheus_client`.

An engine with several workers (label `engine`) exposes one series for each of them; totals are sums over all label
sets of a name. Exemplars and timestamps are accepted and ignored. Lines that are longer than any engine's are left
out, because the parser's time grows with the square of a line's length. A page with more than MAX_SAMPLES samples has
no totals, because sums over a part of an engine's workers would be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

MAX_LINE_CHARS = 8192
MAX_SAMPLES = 50_000
"""Most samples of a page: an engine has some hundreds for each of its workers."""
MAX_COUNT = 2**53
"""A larger number is no valid count: JSON readers do not represent it exactly, and records cannot store it."""


def totals_by_series(page: str) -> dict[str, float]:
    """Return the sum of the samples of each series name. NaN and infinite values are left out."""
    totals: dict[str, float] = {}
    for sample in _samples(page):
        if abs(sample.value) <= sys.float_info.max:  # Not math.isfinite, which fails for an integer of 400 digits.
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


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


def fraction_value(page: str, name: str) -> float | None:
    """Return the mean of a gauge over its label sets; None where the page does not have it, or it is no fraction."""
    lines = "\n".join(line for line in page.split("\n") if line.startswith(name))
    values = [sample.value for sample in _samples(lines) if sample.name == name]
    return sum(values) / len(values) if values and all(0 <= value <= 1 for value in values) else None


def counter_value(totals: Mapping[str, float], name: str) -> int | None:
    """Return one counter as an integer; None where the page does not have it, or its value is not a valid count."""
    value = totals.get(name)
    return round(value) if value is not None and 0 <= value <= MAX_COUNT else None


def _samples(page: str) -> Iterator[Sample]:
    # Each line is parsed on its own: the parser raises at the first malformed line (ValueError, or IndexError within
    # labels), and one such line of an engine's page must not hide all its counters. Comments have no samples.
    lines = (line for line in page.split("\n") if line and not line.startswith("#") and len(line) <= MAX_LINE_CHARS)
    read = list(islice(lines, MAX_SAMPLES + 1))
    for line in read if len(read) <= MAX_SAMPLES else ():
        with suppress(ValueError, IndexError):
            for family in text_string_to_metric_families(line):
                yield from family.samples
