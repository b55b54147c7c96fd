"""Prometheus' text format, as engines expose it: a family with its help and type, then its samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from specbench_client.simulator.counters import Histogram

Samples = list[tuple[dict[str, str], float]]
"""A sample: extra labels and value."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """How one engine names and labels its series. ``created_s``: each counter has a ``_created`` gauge of it."""

    prefix: str
    labels: Mapping[str, str]
    created_s: float | None = None

    def counter(self, name: str, meaning: str, samples: Samples) -> Iterator[str]:
        yield from self.family(f"{name}_total", "counter", meaning, samples)
        yield from self._created(name, meaning, [labels for labels, _ in samples])

    def histogram(self, name: str, meaning: str, histogram: Histogram) -> Iterator[str]:
        yield f"# HELP {self.prefix}{name} {meaning}"
        yield f"# TYPE {self.prefix}{name} histogram"
        seen = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            seen += count
            yield self._sample(f"{name}_bucket", {"le": "+Inf" if bound == float("inf") else str(float(bound))}, seen)
        yield self._sample(f"{name}_count", {}, seen)
        yield self._sample(f"{name}_sum", {}, histogram.total)
        yield from self._created(name, meaning, [{}])

    def family(self, name: str, kind: str, meaning: str, samples: Samples) -> Iterator[str]:
        yield f"# HELP {self.prefix}{name} {meaning}"
        yield f"# TYPE {self.prefix}{name} {kind}"
        for labels, value in samples:
            yield self._sample(name, labels, value)

    def _created(self, name: str, meaning: str, labels: list[dict[str, str]]) -> Iterator[str]:
        if self.created_s is not None:
            yield from self.family(f"{name}_created", "gauge", meaning, [(one, self.created_s) for one in labels])

    def _sample(self, name: str, labels: dict[str, str], value: float) -> str:
        everything = {**self.labels, **labels}
        inside = ",".join(f'{key}="{everything[key]}"' for key in sorted(everything))
        return f"{self.prefix}{name}{{{inside}}} {float(value)!r}"


def page(lines: Iterable[str]) -> bytes:
    """Return the page of these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
