"""Reads Prometheus' text format: as much of it as counters need.

Sums over label sets: an engine with several workers (label `engine`) has one series each, and they count the same
thing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABELLED = re.compile(r"^([A-Za-z_:][\w:]*)\{(.*)\}\s")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


def totals(page: str) -> dict[str, float]:
    """Each series' name with the sum of its samples.

    Lines that are no samples, and values that are no numbers, are left out.
    """
    sums: dict[str, float] = {}
    for line in page.splitlines():
        match = _SAMPLE.match(line.strip())
        value = _number(match[2]) if match else None
        if match and value is not None:
            sums[match[1]] = sums.get(match[1], 0.0) + value
    return sums


def labels(page: str) -> dict[str, dict[str, str]]:
    """Each labelled series' name with the labels of its first sample: of several workers, the first one's."""
    found: dict[str, dict[str, str]] = {}
    for line in page.splitlines():
        match = _LABELLED.match(line)
        if match:
            found.setdefault(match[1], {name: _unescaped(text) for name, text in _LABEL.findall(match[2])})
    return found


def count(sums: Mapping[str, float], name: str) -> int | None:
    """One counter as an integer; None where the page has none."""
    value = sums.get(name)
    return None if value is None else round(value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
