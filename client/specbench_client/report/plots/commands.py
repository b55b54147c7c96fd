"""The figures of `specbench analyze oracle` and `specbench analyze drift`."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np

from specbench_client.documents.drift import DriftReport
from specbench_client.documents.what_if import OracleReport
from specbench_client.report.plots.style import (
    LIGHT,
    REFERENCE,
    STYLE,
    Drawing,
    bounds,
    draw_lines,
    draw_marks,
    finished,
    new_panels,
    series_look,
)
from specbench_client.report.text.what_if import policy_name


@mpl.rc_context(STYLE)
def oracle_speedups(report: OracleReport) -> Drawing | None:
    """Draw by batch size the speed-up of each fixed draft length and of the oracles; None without a step cost."""
    rows = {
        policy_name(row) + ("" if row.charge or row.drafter == report.drafters[0] else f", {row.drafter}"): row.speedups
        for row in report.rows
        if row.speedups
    }
    if not rows:
        return None
    canvas, (axes,) = new_panels([""], height_in=3.4)
    looks = {name: series_look(index, name) for index, name in enumerate(rows)}
    axes.axhline(1, label="no drafts", **REFERENCE)
    batches = list(next(iter(rows.values())))
    lines = {name: [(speedups[batch], True) for batch in batches] for name, speedups in rows.items()}
    draw_lines(axes, batches, lines, looks)
    axes.set_xlabel("batch size, requests")
    axes.set_ylabel("speed-up (1 = no drafts)")
    cost = report.step_cost.name if report.step_cost else "none"
    definition = f"Seconds without drafts / seconds with the policy, summed over all answers, by the step cost {cost}"
    drawn = (figure for speedups in rows.values() for figure in speedups.values())
    return finished(canvas, drawn, definition=definition)


@mpl.rc_context(STYLE)
def drift_windows(report: DriftReport) -> Drawing:
    """Draw the acceptance length of each window against the reference's, and the first alarm of each chart."""
    canvas, (axes,) = new_panels([""])
    reference = report.reference.acceptance_length
    axes.axhline(reference.value or np.nan, label="reference", **REFERENCE)
    if reference.interval:
        axes.axhspan(reference.interval.low, reference.interval.high, color=REFERENCE["color"], alpha=0.2)
    lengths = [window.acceptance_length for window in report.windows]
    middles = np.array([window.first + (window.requests - 1) / 2 for window in report.windows])
    draw_marks(axes, series_look(0, "current, by window"), middles, bounds(lengths), [True] * len(lengths))
    alarms = {f"alarm of {chart.name}": chart.alarm_at for chart in report.charts if chart.alarm_at is not None}
    for (name, request), linestyle in zip(alarms.items(), ("-", ":"), strict=False):
        axes.axvline(request, label=name, color=LIGHT[1], linestyle=linestyle)
    axes.set_xlabel("request of the current log")
    axes.set_ylabel("tokens a step")
    return finished(canvas, lengths, "Grey: the interval of the reference.")
