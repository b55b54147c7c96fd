"""The figures of one benchmark, as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from operator_bench.population import Mix
from operator_bench.reactions import Latencies
from operator_bench.usage import Usage


@dataclass(frozen=True)
class PhaseFigures:
    """One phase: how long it took, what the operator used and requested, and how fast it reacted."""

    name: str
    seconds: float
    usage: Usage
    requests: Mapping[str, int]
    """By verb and resource."""
    latencies: Mapping[str, Latencies] = field(default_factory=dict)
    """By kind of reaction."""
    settled_s: float | None = None
    """Time until every event was acted on and nothing was queued; None if that did not happen or was not measured."""
    load_average: float = 0.0
    """Of the machine, over the minute before the end of the phase."""
    settle_limit_s: float | None = None
    """How long the phase waited for that; None if it does not wait."""

    @property
    def requests_per_s(self) -> float:
        """All requests of the operator, per second."""
        return sum(self.requests.values()) / self.seconds if self.seconds else 0.0

    @property
    def line(self) -> str:
        """The most important figures in one line."""
        kinds = [f"{kind} {found.text}" for kind, found in self.latencies.items()]
        settled = [] if self.settle_limit_s is None else [f"settled after {self.settled_text}"]
        load = f"load average {self.load_average:.1f}"
        usage = f"{self.usage.cores:.2f} cores, {self.usage.rss_max_mib:.0f} MiB, {self.requests_per_s:.1f} requests/s"
        return "; ".join([f"{self.seconds:.0f} s", usage, *settled, *kinds, load])

    @property
    def settled_text(self) -> str:
        """The time until everything was settled, for people."""
        return f"> {self.settle_limit_s:.0f} s" if self.settled_s is None else f"{self.settled_s:.1f} s"

    @property
    def requests_by_verb(self) -> Mapping[str, float]:
        """Verb → requests per second."""
        counts: Counter[str] = Counter()
        for name, count in self.requests.items():
            counts[name.split()[0]] += count
        return {verb: count / self.seconds for verb, count in counts.most_common()} if self.seconds else {}


@dataclass(frozen=True)
class BenchmarkFigures:
    """All figures for one number of runs."""

    runs: int
    mix: Mix
    created_s: float
    """How long the benchmark took to create the runs."""
    database_mib: float
    """Size of etcd's database at the end."""
    restarts: int
    """How often the operator ended by itself."""
    watch_gaps: int
    """How many times the benchmark's own watches had to list all objects, because events were missed."""
    phases: Mapping[str, PhaseFigures]

    @property
    def rss_max_mib(self) -> float:
        """The largest resident memory in any phase, in MiB."""
        return max((phase.usage.rss_max_mib for phase in self.phases.values()), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON, with what is derived from them."""
        phases = {
            name: {**asdict(phase), "requests_per_s": phase.requests_per_s, "by_verb": dict(phase.requests_by_verb)}
            for name, phase in self.phases.items()
        }
        return {**asdict(self), "rss_max_mib": self.rss_max_mib, "phases": phases}
