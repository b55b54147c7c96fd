"""SLO goodput: requests that met every target that was given, a second and as a share.

The share is over the requests of the steady state, those that failed among them: they met nothing. The rate counts what
ended inside the steady window, whoever began it: in a closed loop as many requests enter it by the ramp as leave it by
the drain, so what ends inside it a second is what the engine serves a second.

Whether a request met its targets may be unknown: an answer that was not streamed has no first token. It is not met
where one target is known to be missed, and left out where none is and one cannot be told. An answer of one token has no
time per token that could be too long, and meets that target.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from specbench_api.outcome.record import RecordPhase
from specbench_api.spec.slo import Slo
from specbench_client.metrics import latency, pace
from specbench_client.metrics.frame import SKIPPED, Values, by_point, flags, numbers
from specbench_client.metrics.metric import Measure, Origin, Ratio
from specbench_client.metrics.rows import Columns, Rows, T, among
from specbench_client.metrics.window import steady_window

MEASURES: dict[str, Measure] = {each.name: each for each in (latency.TTFT_MS, pace.TPOT_MS, latency.E2E_MS)}
"""What a target is set for, by its name in the SLO."""

_READ = ["point", "steady", "ok", "tokens", "intended_ns", "sent_ns", "first_token_ns", "last_token_ns"]
"""All that goodput asks of a row."""
RATE = "slo_goodput"
RATE_UNIT = "requests/s"
RATE_DEFINITION = (
    "Requests a second that met every given target: those that ended inside the steady window without error and in"
    " time / its length; one of which a target cannot be told is not among them, and so it may be more"
)
RATE_MISSING = "no target is given, no request lies in the steady state, or no request tells what a target asks"
_UNTOLD = "no target is given, or no request tells what it asks"


def judged(rows: T) -> T:
    """Return the rows that the share is over: sent in the steady state, failed ones too."""
    inside = (rows["phase"] == RecordPhase.STEADY.value) & (rows["error_class"] != SKIPPED)
    return among(rows, inside.to_numpy(bool))


def met(rows: Columns, slo: Slo) -> Values:
    """Return 1 for each row that met every target, 0 for one that missed any, NaN where it cannot be told."""
    each = [met_one(rows, name, target) for name, target in slo.targets.items()]
    stacked = np.stack(each)
    missed, unknown = (stacked == 0).any(axis=0), np.isnan(stacked).any(axis=0)
    return np.where(missed, 0.0, np.where(unknown, np.nan, 1.0))


def met_one(rows: Columns, name: str, target: float) -> Values:
    """The same of one target; `target`: in ms."""
    values = MEASURES[name].values(rows)
    found = np.where(np.isnan(values), np.nan, (values <= target).astype(np.float64))
    if name == pace.TPOT_MS.name:
        found = np.where(numbers(rows, "tokens") == 1, 1.0, found)
    return np.where(flags(rows, "ok"), found, 0.0)


def share(slo: Slo) -> Ratio:
    """Return the share of requests that met every target; its rows are `judged`'s."""
    definition = "Share of the steady state's requests that met every given target; one that failed met none"
    return _share("slo_met_share", definition, lambda rows: met(rows, slo))


def share_of_one(name: str, target: float) -> Ratio:
    """The same of one target."""
    definition = f"Share of the steady state's requests with {name} of {target:g} ms at most; one that failed has not"
    return _share(f"slo_met_share_{name}", definition, lambda rows: met_one(rows, name, target))


def good_of_points(rows: pd.DataFrame | Rows, slo: Slo) -> tuple[Values, Values]:
    """Return, of each point that has a steady window, the good requests that ended in it, and its length in s.

    A point without any request of which it can be told is left out.
    """
    found = [_good(point, slo) for point in by_point(rows, _READ)]
    told = [each for each in found if each is not None]
    return np.array([count for count, _ in told]), np.array([seconds for _, seconds in told])


def _good(point: pd.DataFrame, slo: Slo) -> tuple[float, float] | None:
    window = steady_window(point)
    if window is None:
        return None
    ends = numbers(point, "last_token_ns")
    inside = flags(point, "ok") & (ends >= window.start_ns) & (ends <= window.end_ns)
    good = met(point[inside], slo)
    return None if np.isnan(good).all() else (float(np.nansum(good)), window.length_s)


def _share(name: str, definition: str, values: Callable[[Columns], Values]) -> Ratio:
    def parts(rows: Columns) -> tuple[Values, Values]:
        found = values(rows)
        return found, np.ones_like(found)

    return Ratio(name, "ratio", definition, _UNTOLD, Origin.BOTH, parts, highest=1.0)
