"""docs/metrics.md, printed from the code: what every figure is, and what every check looks for.

`python -m specbench_client.report.reference > docs/metrics.md` writes it anew; a test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.estimates import end_to_end, speedup
from specbench_client.analysis.statistics import bootstrap
from specbench_client.metrics import window
from specbench_client.metrics.histogram import exactly
from specbench_client.metrics.metric import Measure, Ratio
from specbench_client.metrics.positions import conditional, joint
from specbench_client.metrics.table import MEASURES, RATIOS
from specbench_client.report.findings import AGAIN_AT_AN_ENDPOINT, AGAIN_HERE, AGAIN_ON_A_CLUSTER
from specbench_client.report.reference_energy import ENERGY, energy_rows
from specbench_client.report.reference_slices import GOODPUT, goodput_rows, slices_section
from specbench_client.trust.check import Check
from specbench_client.trust.table import BASELINE_INVALID, CELL_CHECKS, POINT_CHECKS, REMEDIES, RUN_CHECKS

_HEAD = """# Figures and checks

Printed from the code by `python -m specbench_client.report.reference`; do not edit.

Every figure is over the requests of the **steady state**: warm-up, ramp, drain and failed requests are left out.
`tokens` is the engine's own count of an answer (usage), else the client's. Times are on the client's monotonic clock;
latency runs from the intended send time. A figure that was not to be had has no value; it is never 0.
"""

_INTERVALS = f"""## Intervals

Level {bootstrap.LEVEL:.0%}; the sampling unit is the **prompt**, within repeats; never the request or the step.

- **Prompts**: {bootstrap.RESAMPLES} resamples of prompts, all repeats of a drawn one with it, within categories where
  each has at least {bootstrap.STRATUM_MIN} prompts. Percentiles, expanded for few prompts by
  t / z × √(n / (n − strata)).
- **Repeats**, from three on: their variance is added (what single requests add to both is taken off once). From four
  on, Student's quantiles of both parts are weighed by their variances (Cochran); with three it is that of
  Satterthwaite's degrees of freedom. Requests that run together share steps, so prompts alone understate the noise.
- **t over repeats**: the repeats' own values alone. The **wider** of the two intervals is reported, and named in the
  figure's `method`; speed-ups on the log ratio.
- **Means of times** to the first and to the last token, which have long tails: bootstrap-t in place of percentiles.
- **Percentiles**: the interval of the share of requests below it, looked up among the values; beyond the 90th and below
  the 10th the ranks between which it lies.
- Fewer than {bootstrap.PROMPTS_MIN} prompts give no interval; nor do so few that a percentile may lie beyond the
  largest value: a median needs 6 prompts, a 95th percentile 72, a 99th 368.
- How often these intervals hold a known truth, and their formulas with sources: [intervals.md](intervals.md).
- An interval is cut to what the figure can be: an acceptance length lies from 1 to k + 1. Its `method` says so then.
- One repeat or two: the noise between runs is in no interval, or hardly, and the method says so. `summary.json` keeps
  such an interval of a speed-up, beside `comparedRepeats`; tables, report and `results.csv` leave it out, and
  `results.csv` has `compared_repeats`.

A speed-up is called faster or slower only from {REPEATS_TO_TELL} repeats on, where its interval excludes 1, and where
this still holds after Holm's correction for the number of comparisons of the run: the smallest p-value is held against
5 % divided by their number, the next one against 5 % by one fewer, and so on, because of twenty comparisons without any
difference one excludes 1 by chance. The speed-ups within categories are a family of their own, corrected alike over the
categories of all cells. Where the interval holds 1, the word is *indistinguishable*; of fewer repeats only the ratio is
told, and how few they were. `summary.json` keeps the words in `cells[].claims`, with the number of comparisons.
"""

_WINDOW = """## The steady window

`output_tps` divides by the length of the steady window: from the first steady request sent to the last steady token. In
a closed loop that is while all streams are busy, in an open one while conversations begin as asked.

| where | what |
|---|---|
| a point's `summary.json`, `window` | `startNs`, `endNs`: its bounds on the clock of the records; `share`: see below |
| the run's `summary.json`, `cells[].windows` | the same of each of `cells[].points`, in their order |
| `results.csv` | `steady_start_s`, `steady_end_s`: one a repeat, `;` between them; `steady_share`: over all repeats |
| `report.html` | *Steady*: its share, over all repeats; *Steady windows*: each with its bounds |

Bounds count from the point's start, as the times of its records do. The share is the window's length over the time from
the first request sent to the last token, warm-up left out: what is missing of 1 is ramp and drain.
"""

_BASELINE_REMEDY = REMEDIES[BASELINE_INVALID]

_CHECKS = f"""## Checks

**Invalid** breaks the comparison: the point counts as invalid and the run is not trustworthy. **Doubt** makes the run
untrustworthy though the point's own numbers stand. **Note** is said and changes nothing. A check says nothing where its
evidence is missing.

What *measure again* means:

- *On this machine* (`specbench run`): {AGAIN_HERE}
- *On a cluster*: {AGAIN_ON_A_CLUSTER}
- *At an endpoint that already runs*: {AGAIN_AT_AN_ENDPOINT}
"""

_UNSEEN = """## What no check can see

A temperature that is a little off: nothing on the wire tells with which one an answer was sampled, and OtherTemperature
only tells greedy from sampled. top_p, and a system prompt that a proxy puts in front of every question, show nowhere.
More of this, and how each check was tried, stands in [trust.md](trust.md).
"""


def render() -> str:
    """Return the whole page."""
    parts = [
        _HEAD,
        "## Comparison with the baseline\n",
        _table([*(_speedup_row(name) for name in speedup.QUOTIENTS), *map(_whole_row, end_to_end.DEFINITIONS)]),
        "\nWhere a speed-up falls to 1, and the acceptance length that this needs: [crossover.md](crossover.md).",
        "\n## Sums and means\n",
        _table([*_tps_rows(), *(_ratio_row(ratio) for ratio in RATIOS)]),
        "\n## By position of the draft\n",
        _table([_position_row(make(1), make(2)) for make in (joint, conditional)]),
        "\nA step that drafted fewer than k tokens counts as not accepted beyond its end.",
        "\n## Histogram of accepted drafts\n",
        _table([_histogram_row()]),
        "\nThe shares of 0 to k add up to 1; 1 + Σ i × `accepted_exactly_i` is the acceptance length of draft steps.",
        "\n## Percentiles\n",
        "By linear interpolation between neighbours. For speeds the small ones are the bad ones.\n",
        _table([_percentile_row(measure) for measure in MEASURES]),
        "\n## Within targets\n",
        GOODPUT,
        _table(goodput_rows()),
        "",
        ENERGY,
        _table(energy_rows()),
        "",
        slices_section(),
        _WINDOW,
        _INTERVALS,
        _CHECKS,
        *_section("Of one point", POINT_CHECKS),
        *_section("Of a cell and its paired baseline", CELL_CHECKS),
        f"#### {BASELINE_INVALID}\n\nInvalid. The baseline itself is.\n\n- *What to do:* {_BASELINE_REMEDY}\n",
        *_section("Of the run", RUN_CHECKS),
        _UNSEEN,
    ]
    return "\n".join(parts).rstrip() + "\n"


def _table(rows: Sequence[tuple[str, str, str, str, str]]) -> str:
    head = "| figure | unit | definition | missing when | source |\n|---|---|---|---|---|"
    return "\n".join([head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def _speedup_row(name: str) -> tuple[str, str, str, str, str]:
    return f"`{name}`", "ratio", speedup.QUOTIENTS[name].definition, speedup.MISSING, "both"


def _whole_row(name: str) -> tuple[str, str, str, str, str]:
    unit = end_to_end.UNITS.get(name, "ratio")
    return f"`{name}`", unit, end_to_end.DEFINITIONS[name], end_to_end.MISSING[name], "both"


def _tps_rows() -> list[tuple[str, str, str, str, str]]:
    whole = (window.OUTPUT_TPS_UNIT, window.OUTPUT_TPS_DEFINITION, window.OUTPUT_TPS_MISSING)
    each = (window.OUTPUT_TPS_PER_GPU_UNIT, window.OUTPUT_TPS_PER_GPU_DEFINITION, window.OUTPUT_TPS_PER_GPU_MISSING)
    return [(f"`{window.OUTPUT_TPS}`", *whole, "both"), (f"`{window.OUTPUT_TPS_PER_GPU}`", *each, "both")]


def _ratio_row(ratio: Ratio) -> tuple[str, str, str, str, str]:
    return f"`{ratio.name}`", ratio.unit, ratio.definition, ratio.missing, ratio.origin.told


def _position_row(first: Ratio, second: Ratio) -> tuple[str, str, str, str, str]:
    names = f"`{first.name}`, `{second.name}`, …"
    return names, first.unit, f"{second.definition} (here for position 2)", first.missing, first.origin.told


def _histogram_row() -> tuple[str, str, str, str, str]:
    first, second = exactly(0), exactly(1)
    definition = f"{second.definition} (here 1)"
    return f"`{first.name}`, `{second.name}`, …", first.unit, definition, first.missing, first.origin.told


def _percentile_row(measure: Measure) -> tuple[str, str, str, str, str]:
    names = ", ".join(f"`{measure.name}_p{percent}`" for percent in measure.percents)
    return names, measure.unit, measure.definition, measure.missing, measure.origin.told


def _section(title: str, checks: Sequence[Check[Any]]) -> list[str]:
    return [f"### {title}\n", *(_entry(check) for check in checks)]


def _entry(check: Check[Any]) -> str:
    severities = " or ".join(check.severities)
    return (
        f"#### {check.name}\n\n{severities}. {check.says}\n\n- *From:* {check.threshold}.\n- *Why from there:*"
        f" {check.argument}\n- *What to do:* {check.remedy}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(render())
