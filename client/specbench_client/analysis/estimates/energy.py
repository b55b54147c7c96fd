"""Energy figures: power samples integrated over the steady state of each point, in joules per output token. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, PointSummary
from specbench_client.analysis.statistics.intervals import repeats_interval
from specbench_client.metrics.steady_window import OUTPUT_TPS
from specbench_client.metrics.tidy_frame import Values

JOULES = "energy_joules_per_output_token"
JOULES_UNIT = "J/token"
JOULES_DEFINITION = (
    "Energy per output token: Σ over points of the integral of the power samples over the steady window / Σ over"
    " points of output_tps × the window's length; integrated by trapezoids, over all devices in the samples"
)
WATTS = "power_watts"
WATTS_UNIT = "W"
WATTS_DEFINITION = (
    "Mean power over the steady windows of all points: Σ of the integrals of the power samples / Σ of the windows'"
    " lengths, over all devices in the samples"
)
JOULES_MISSING = WATTS_MISSING = (
    "there are no power samples (`specbench report --power FILE`), or they do not cover the steady window of each point"
)
POWER_SOURCE = "power samples"
POWER_GAP_SHARE = 0.1
"""Maximum gap between two samples of a device, as a share of the steady window: at least ten samples."""
POWER_GAP_MIN_S = 2.0
"""A gap of up to this many seconds is always accepted: a device averages its own power over about a second."""
HASH_LETTERS = 12
"""Characters of a point's hash that are shown in a reason."""


@dataclass(frozen=True)
class PowerSamples:
    """Samples of one device, at least one: times in seconds since 1970, ascending, and power in watts, (samples,)."""

    at_s: Values
    watts: Values


@dataclass(frozen=True)
class PowerTrace:
    """Samples by device, and the wall-clock start of each point in seconds since 1970, by its hash."""

    devices: Mapping[str, PowerSamples]
    began_s: Mapping[str, float]


@dataclass(frozen=True)
class _EnergySpent:
    """Joules, seconds and tokens of one point's steady window; or the reason why they are not known."""

    joules: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0
    reason: str = ""


def with_energy(cells: Sequence[Cell], points: Sequence[PointSummary], power: PowerTrace) -> list[Cell]:
    """Return the cells with energy figures, which have no value if samples do not cover all steady windows."""
    spent = {point.hash: _spent(point, power) for point in points}
    return [
        cell.model_copy(update={"figures": {**cell.figures, **_figures([spent[each] for each in cell.points], power)}})
        for cell in cells
    ]


def integrate_joules(samples: PowerSamples, start_s: float, end_s: float) -> float | str:
    """Integrate a device's power from start to end by trapezoids; return the reason if samples do not cover it."""
    at_s = samples.at_s
    if at_s[0] > start_s or at_s[-1] < end_s:
        return (
            f"samples cover {at_s[0]:.1f} to {at_s[-1]:.1f} s, but the steady window is {start_s:.1f} to {end_s:.1f} s"
        )
    inside = at_s[np.searchsorted(at_s, start_s, side="right") - 1 : np.searchsorted(at_s, end_s) + 1]
    allowed = max(POWER_GAP_MIN_S, POWER_GAP_SHARE * (end_s - start_s))
    widest = float(np.diff(inside).max(initial=0.0))
    if widest > allowed:
        return (
            f"{widest:.1f} s between two samples, but at most {allowed:.1f} s are accepted for a window of this length"
        )
    within = at_s[(at_s > start_s) & (at_s < end_s)]
    edges = np.concatenate([[start_s], within, [end_s]])
    return float(np.trapezoid(np.interp(edges, at_s, samples.watts), edges))


def _spent(point: PointSummary, power: PowerTrace) -> _EnergySpent:
    window, tps = point.window, point.figures.get(OUTPUT_TPS)
    where = f"{point.arm} at {point.level.label}, point {point.hash[:HASH_LETTERS]}"
    if window is None or window.length_s <= 0 or tps is None or point.hash not in power.began_s:
        return _EnergySpent(reason=f"{where}: no steady state")
    if not tps.value:
        return _EnergySpent(reason=f"{where}: the output tokens of its steady state are not known")
    began_s = power.began_s[point.hash]
    start_s, end_s = began_s + window.start_ns / 1e9, began_s + window.end_ns / 1e9
    joules = {device: integrate_joules(samples, start_s, end_s) for device, samples in power.devices.items()}
    lacking = [f"{where}, device {device}: {why}" for device, why in joules.items() if isinstance(why, str)]
    if lacking:
        return _EnergySpent(reason=lacking[0])
    whole = sum(each for each in joules.values() if not isinstance(each, str))
    return _EnergySpent(whole, window.length_s, tps.value * window.length_s)


def _figures(spent: Sequence[_EnergySpent], power: PowerTrace) -> dict[str, Figure]:
    count = len(power.devices)
    devices = f"{count} device" + ("" if count == 1 else "s")
    reason = next((each.reason for each in spent if each.reason), "" if spent else "no point was measured")
    found = {
        JOULES: (JOULES_UNIT, JOULES_DEFINITION, [each.tokens for each in spent]),
        WATTS: (WATTS_UNIT, WATTS_DEFINITION, [each.seconds for each in spent]),
    }
    return {
        name: _figure([each.joules for each in spent], under, unit, f"{definition}: {devices}", reason)
        for name, (unit, definition, under) in found.items()
    }


def _figure(over: Sequence[float], under: Sequence[float], unit: str, definition: str, reason: str) -> Figure:
    if reason:
        return Figure(unit=unit, definition=f"{definition}; missing: {reason}", n=0, source=POWER_SOURCE)
    value, repeats = sum(over) / sum(under), np.divide(over, under)
    interval = repeats_interval(value, repeats)
    return Figure(value=value, unit=unit, definition=definition, n=repeats.size, interval=interval, source=POWER_SOURCE)
