"""Names, units and definitions of the energy figures."""

from __future__ import annotations

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
SOURCE = "power samples"
GAP_SHARE = 0.1
"""Maximum gap between two samples of a device, as a share of the steady window: at least ten samples."""
GAP_MIN_S = 2.0
"""A gap of up to this many seconds is always accepted: a device averages its own power over about a second."""
