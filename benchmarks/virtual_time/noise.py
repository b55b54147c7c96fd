"""Noise that makes two runs of one engine differ: machine speed, step jitter, hiccups, and network delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.simulator import Fault, Faults

NS_PER_MS = 1e6


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logs, but for `hiccup_share`: steps that take `hiccup` times as long."""

    run: float = 0.01
    step: float = 0.03
    hiccup_share: float = 0.002
    hiccup: float = 4.0
    network_ms: float = 0.06


class Machine(Faults):
    """The faults of one launch, and the machine on which it happens to run."""

    def __init__(self, values: Mapping[Fault, float], noise: Noise, rng: np.random.Generator) -> None:
        super().__init__(values)
        pace = float(np.exp(rng.normal(0.0, noise.run)))
        object.__setattr__(self, "_machine", (pace, noise, rng))

    def slowdown(self, engine_seconds: float) -> float:
        """The fault's, times the machine's pace, and what happens to this very step."""
        pace, noise, rng = self._machine  # type: ignore[attr-defined]
        hiccup = noise.hiccup if rng.random() < noise.hiccup_share else 1.0
        jitter = float(np.exp(rng.normal(0.0, noise.step)))
        return float(super().slowdown(engine_seconds) * pace * jitter * hiccup)


@dataclass(frozen=True)
class Network:
    """Delays of one direction, each drawn anew (ns)."""

    noise: Noise
    rng: np.random.Generator

    def delay_ns(self) -> int:
        """How long the next bytes travel."""
        return int(self.noise.network_ms * NS_PER_MS * np.exp(self.rng.normal(0.0, 0.3)))
