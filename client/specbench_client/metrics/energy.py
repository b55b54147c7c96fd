"""What energy figures are: their names, units and definitions."""

from __future__ import annotations

JOULES = "energy_joules_per_output_token"
JOULES_UNIT = "J/token"
JOULES_DEFINITION = (
    "Energy a token: Σ over points of the integral of the power samples over the steady window / Σ over points of"
    " output_tps × the window's length; trapezoids between samples, all devices of the samples together"
)
WATTS = "power_watts"
WATTS_UNIT = "W"
WATTS_DEFINITION = (
    "Mean power over the steady windows of all points: Σ of the integrals of the power samples / Σ of the windows'"
    " lengths, all devices of the samples together"
)
JOULES_MISSING = WATTS_MISSING = (
    "the power samples do not cover the steady window of each point; without any (`specbench report --power FILE`) the"
    " figure is not there at all"
)
SOURCE = "power samples"
GAP_SHARE = 0.1
"""Of a steady window, that may lie between two samples of a device: a window of fewer than ten says nothing of it."""
GAP_MIN_S = 2.0
"""Samples this near to one another are always near enough: a device's own average is over a second or so."""
