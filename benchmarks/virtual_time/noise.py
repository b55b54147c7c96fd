"""Noise that makes two runs of one engine differ: machine speed, step jitter, hiccups, and network delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.simulator import Faults

NS_PER_MS = 1e6


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logs; `hiccup_share` is the share of steps that take `hiccup` times as long."""

    run: float = 0.01
    step: float = 0.03
    hiccup_share: float = 0.002
    hiccup: float = 4.0
    network_ms: float = 0.06


NO_NOISE = Noise(run=0.0, step=0.0, hiccup_share=0.0)
"""Machines that do not differ."""


@dataclass(frozen=True)
class Drift:
    """A machine that gets slower in proportion to the time since the run began. `since_s`: until this launch."""

    per_s: float = 0.0
    since_s: float = 0.0

    def factor(self, engine_seconds: float) -> float:
        """Return the factor on the duration of a step."""
        return 1.0 + self.per_s * (self.since_s + engine_seconds)


class Machine(Faults):
    """The faults of one launch, and the random speed of its machine."""

    def __init__(
        self, values: Mapping[str, float], noise: Noise, rng: np.random.Generator, drift: Drift | None = None
    ) -> None:
        super().__init__(values)
        pace = float(np.exp(rng.normal(0.0, noise.run)))
        object.__setattr__(self, "_machine", (pace, noise, rng, drift or Drift()))

    def slowdown(self, engine_seconds: float) -> float:
        """Slowdown of a step: by the fault, the machine's speed and its drift, and the noise of this step."""
        pace, noise, rng, drift = self._machine  # type: ignore[attr-defined]
        pace *= drift.factor(engine_seconds)
        hiccup = noise.hiccup if rng.random() < noise.hiccup_share else 1.0
        jitter = float(np.exp(rng.normal(0.0, noise.step)))
        return float(super().slowdown(engine_seconds) * pace * jitter * hiccup)


@dataclass(frozen=True)
class Network:
    """Random delays of one direction, in ns, independent for each transfer."""

    noise: Noise
    rng: np.random.Generator

    def delay_ns(self) -> int:
        """Return the delay of the next bytes."""
        return int(self.noise.network_ms * NS_PER_MS * np.exp(self.rng.normal(0.0, 0.3)))
