"""Curves over several runs, for a terminal, as Markdown and as a table for spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from specbench_api.outcome.claims import Standing
from specbench_api.outcome.curves import Curve, CurvePoint, Curves, Prediction
from specbench_api.outcome.figure import Figure
from specbench_client.report.columns import SIMULATED, number, with_interval
from specbench_client.report.sheets import Sheet, escaped, markdown_table

_RUN_LETTERS = 8
"""Of a run's UID, in tables."""
_BARE = (Standing.TOO_FEW_REPEATS, Standing.NO_INTERVAL, Standing.NOT_COMPARABLE)
"""Said of a figure whose interval does not hold what runs do, so that it is shown without."""
_STYLES = {Standing.FASTER: "green", Standing.SLOWER: "red"}


def curve_sheet(curves: Curves, curve: Curve) -> Sheet:
    """One curve."""
    marked = " (simulated, not a measurement)" if curves.simulated else ""
    return Sheet(
        f"{curve.title}{marked}",
        titles(curves),
        [row(point) for point in curve.points],
        words=("Arm", "Run", "Says"),
        styles=[_STYLES.get(point.standing, "") for point in curve.points],
        caption=curve.crossover.message,
    )


def lines_below(curves: Curves) -> list[str]:
    """What stands below the terminal's tables."""
    differing = [
        f"another curve: {curve.title}: {difference}" for curve in curves.curves for difference in curve.differs
    ]
    return [
        *(f"at {line}" for line in prediction_lines(curves)),
        *differing,
        *(f"left out: {each.what}: {each.reason}" for each in curves.left_out),
        *curves.limits,
    ]


def curves_markdown(curves: Curves) -> str:
    """All curves as Markdown."""
    lines = [f"### specbench: speed-up and acceptance by {curves.axis}", ""]
    lines += [f"> **{SIMULATED}**", ""] if curves.simulated else []
    for curve in curves.curves:
        lines += [f"#### {escaped(curve.title)}", "", *markdown_table(curve_sheet(curves, curve))]
        lines += ["", f"Where the speed-up is 1: {curve.crossover.message}", ""]
        lines += [*(f"- Differs from the first curve: {each}" for each in curve.differs)]
    lines += [f"- At {line}" for line in prediction_lines(curves)]
    lines += [f"- Left out: {each.what}: {each.reason}" for each in curves.left_out]
    return "\n".join([*lines, *(f"- {limit}" for limit in curves.limits), ""])


def curves_csv(curves: Curves) -> str:
    """One row a place, measured or asked for; missing is empty. Bounds are left out where they hold too little."""
    rows = [_csv_row(curves, number, point) for number, curve in enumerate(curves.curves) for point in curve.points]
    asked = [
        _csv_asked(curves, number, each) for number, curve in enumerate(curves.curves) for each in curve.predictions
    ]
    return str(pd.DataFrame([*rows, *asked]).to_csv(index=False))


def titles(curves: Curves) -> Sequence[str]:
    """Of the columns."""
    return (curves.axis, "Arm", "Run", "Pairs", "Speed-up [95 %]", "AL emitted [95 %]", "Says")


def row(point: CurvePoint) -> list[str]:
    """The cells of one place."""
    run = ", ".join(uri.rstrip("/").rpartition("/")[2][:_RUN_LETTERS] for uri in point.runs)
    few = point.standing in _BARE
    figures = [number(each.value) if few else with_interval(each) for each in (point.speedup, point.acceptance_length)]
    return [point.label, point.arm, run, f"{point.pairs:,}", *figures, str(point.standing)]


def prediction_lines(curves: Curves) -> list[str]:
    """One line a curve and place that was asked for."""
    return [f"{_asked(curve, each)}" for curve in curves.curves for each in curve.predictions]


def _asked(curve: Curve, each: Prediction) -> str:
    figures = [f"speed-up {with_interval(each.speedup)}", f"AL {with_interval(each.acceptance_length)}"]
    told = f": {', '.join(figures)}" if each.speedup is not None else ""
    return f"{each.message}{told} ({curve.title})"


def _csv_row(curves: Curves, curve: int, point: CurvePoint) -> dict[str, object]:
    few = point.standing in _BARE
    return {
        "curve": curve,
        "title": curves.curves[curve].title,
        "axis": curves.axis,
        "place": point.place,
        "basis": "measured",
        "arm": point.arm,
        "runs": ";".join(point.runs),
        "pairs": point.pairs,
        **_fields("speedup", point.speedup, bounded=not few),
        **_fields("acceptance_length", point.acceptance_length, bounded=not few),
        "standing": str(point.standing),
        "simulated": curves.simulated,
    }


def _csv_asked(curves: Curves, curve: int, each: Prediction) -> dict[str, object]:
    return {
        "curve": curve,
        "title": curves.curves[curve].title,
        "axis": curves.axis,
        "place": each.place,
        "basis": str(each.basis),
        **_fields("speedup", each.speedup),
        **_fields("acceptance_length", each.acceptance_length),
        "simulated": curves.simulated,
    }


def _fields(name: str, figure: Figure | None, *, bounded: bool = True) -> dict[str, float | None]:
    bounds = figure.interval if figure and bounded else None
    return {
        name: figure.value if figure else None,
        f"{name}_low": bounds.low if bounds else None,
        f"{name}_high": bounds.high if bounds else None,
    }
