"""Noise that makes two runs of one engine differ: machine speed, step jitter, hiccups, and network delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.simulator import Fault, Faults

NS_PER_MS = 1e6


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logs; `hiccup_share` is the share of steps that take `hiccup` times as long."""

    run: float = 0.01
    step: float = 0.03
    hiccup_share: float = 0.002
    hiccup: float = 4.0
    network_ms: float = 0.06


class Machine(Faults):
    """The faults of one launch, and the random speed of its machine."""

    def __init__(self, values: Mapping[Fault, float], noise: Noise, rng: np.random.Generator) -> None:
        super().__init__(values)
        pace = float(np.exp(rng.normal(0.0, noise.run)))
        object.__setattr__(self, "_machine", (pace, noise, rng))

    def slowdown(self, engine_seconds: float) -> float:
        """Slowdown of a step: by the fault, the machine's speed, and the noise of this step."""
        pace, noise, rng = self._machine  # type: ignore[attr-defined]
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
