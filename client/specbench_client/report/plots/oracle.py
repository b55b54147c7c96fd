"""A perfect draft length over each fixed one, by batch size; and one drafter over another, by position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from specbench_client.analysis.oracle.differences import Differences
from specbench_client.report.plots.along import Along
from specbench_client.report.plots.data import Reading, Series
from specbench_client.report.plots.heatmap import HeatMap
from specbench_client.report.plots.ink import GREY_LIGHT, PAGE, TOGETHER, Style, style

ORACLE = Style(PAGE.ink, marker="*")
"""In the page's ink: it is no arm."""
COMBINED = Style(GREY_LIGHT, marker="X", dash=(0, (4, 2)))


def oracle_against_fixed(
    batches: Sequence[int],
    fixed: Mapping[int, Sequence[float | None]],
    oracle: Sequence[float | None],
    combined: Sequence[float | None] | None = None,
) -> Along:
    """Speed-ups over the baseline by batch size: of each fixed number of draft tokens, of the oracle, of both oracles.

    batches: 1 and more, in rising order; every sequence has one value for each of them. Raises ValueError where there
    are more fixed lengths than are told apart, or a sequence is too short or too long.
    """
    if len(fixed) > TOGETHER:
        raise ValueError(f"{len(fixed)} draft lengths are more than {TOGETHER}: leave some out")
    lines = [_line(f"k = {k}", style(index), values) for index, (k, values) in enumerate(sorted(fixed.items()))]
    lines.append(_line("oracle", ORACLE, oracle))
    if combined is not None:
        lines.append(_line("oracle of both", COMBINED, combined))
    if any(len(line.readings) != len(batches) for line in lines):
        raise ValueError(f"each line needs {len(batches)} values, one a batch size")
    axis = {"x_label": "batch size", "y_label": "speed-up (1 = baseline)"}
    return Along(tuple(map(float, batches)), tuple(lines), logarithmic=True, level=1.0, **axis)


def differences_map(found: Differences, of: str, over: str) -> HeatMap:
    """Where the drafter `of` has more accepted than the drafter `over`, and where less."""
    values = tuple(tuple(None if math.isnan(each) else float(each) for each in row) for row in found.values)
    rows, columns = ([each.label for each in blocks] for blocks in (found.rows, found.columns))
    return HeatMap(
        tuple(rows), tuple(columns), values, f"position in the output, tokens; {of} − {over}", form="{:+.2f}"
    )


def _line(name: str, looks: Style, values: Sequence[float | None]) -> Series:
    return Series(name, looks, tuple(None if value is None else Reading(value) for value in values))
