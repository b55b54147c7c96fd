"""Reads engines' metrics pages in Prometheus' text format with the parser of `prometheus_client`.

An engine with several workers (label `engine`) exposes one series for each of them; totals are sums over all label
sets of a name. Exemplars and timestamps are accepted and ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def totals_by_series(page: str) -> dict[str, float]:
    """Return the sum of the samples of each series name. NaN and infinite values are left out."""
    totals: dict[str, float] = {}
    for sample in _samples(page):
        if math.isfinite(sample.value):
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def labels_by_series(page: str) -> dict[str, dict[str, str]]:
    """Return the labels of the first sample of each labelled series: of several workers, those of the first."""
    labels: dict[str, dict[str, str]] = {}
    for sample in _samples(page):
        if sample.labels:
            labels.setdefault(sample.name, dict(sample.labels))
    return labels


def counter_value(totals: Mapping[str, float], name: str) -> int | None:
    """Return one counter as an integer, or None where the page does not have it."""
    value = totals.get(name)
    return None if value is None else round(value)


def _samples(page: str) -> Iterator[Sample]:
    # Each line is parsed on its own: the parser raises at the first malformed line (ValueError, or IndexError within
    # labels), and one such line of an engine's page must not hide all its counters.
    for line in page.split("\n"):
        with suppress(ValueError, IndexError):
            for family in text_string_to_metric_families(line):
                yield from family.samples
