"""What a speed-up is drawn against: its name, how its numbers are read, and what may be assumed along it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.metrics.frame import Values


@dataclass(frozen=True)
class Axis:
    """One axis. Straight lines between measured places are drawn on its scale and on the log of the speed-up."""

    name: str
    unit: str
    """Of its numbers; empty where they have none."""
    logarithmic: bool
    """Whether twice as much is one step, as of loads and lengths."""
    falling: bool = False
    """Whether a speed-up may be taken to fall along it, where the intervals allow that."""

    def scaled(self, places: Values) -> Values:
        """On the scale on which lines are straight."""
        return np.log(places) if self.logarithmic else places

    def unscaled(self, place: float) -> float:
        """Back from it."""
        return float(np.exp(place)) if self.logarithmic else place

    def words(self, place: float | None = None) -> str:
        """For sentences: `concurrency 40`, `2.5/s`, `temperature 0.7`; without a place, the axis's name."""
        name = self.name.replace("-", " ")
        if place is None:
            return name
        return self.number(place) if self.name == RATE_NAME else f"{name} {self.number(place)}"

    def number(self, place: float) -> str:
        """Where the axis is said already: `40`, `2.5/s`, `1,024`."""
        text = f"{place:.3g}" if abs(place) < 1000 else f"{place:,.0f}"
        return f"{text}/s" if self.name == RATE_NAME else text


RATE_NAME = "rate"
CONCURRENCY = Axis("concurrency", "streams", logarithmic=True, falling=True)
RATE = Axis(RATE_NAME, "conversations/s", logarithmic=True, falling=True)
