"""docs/reference/metrics.md, printed from the code: what every figure is, and what every check looks for.

`python -m generators.metrics_page > docs/reference/metrics.md` writes it anew; a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from specbench_api.outcome.summary import MIN_REPEATS_TO_COMPARE
from specbench_api.spec.slo import Slo
from specbench_client.analysis.breakdown import breakdown, steps
from specbench_client.analysis.estimates import speedups
from specbench_client.analysis.statistics import bootstrap
from specbench_client.metrics import acceptance, goodput, record_lists, steady_window
from specbench_client.metrics.acceptance import (
    accepted_exactly,
    conditional_acceptance,
    position_acceptance,
)
from specbench_client.metrics.catalog import MEASURES, RATIOS
from specbench_client.metrics.metric import RatioMetric, RequestMetric
from specbench_client.metrics.steady_window import (
    JOULES,
    JOULES_DEFINITION,
    JOULES_MISSING,
    JOULES_UNIT,
    POWER_GAP_MIN_S,
    POWER_GAP_SHARE,
    POWER_SOURCE,
    WATTS,
    WATTS_DEFINITION,
    WATTS_MISSING,
    WATTS_UNIT,
)
from specbench_client.report.text.findings import AGAIN_AT_AN_ENDPOINT, AGAIN_HERE, AGAIN_ON_A_CLUSTER
from specbench_client.trust.check import Check
from specbench_client.trust.registry import BASELINE_INVALID, CELL_CHECKS, POINT_CHECKS, REMEDIES, RUN_CHECKS

# The section of docs/reference/metrics.md on energy: its figures, and what a file of power samples must hold.

ENERGY = f"""## Energy

Engines tell no power, and the client sees no GPU: samples come from beside the run, as a file.

```console
$ TZ=UTC nvidia-smi --query-gpu=timestamp,uuid,power.draw --format=csv -lms 500 --id=0,1 > power.csv    # on the node
$ specbench report specbench-results --latest --recompute --power power.csv
```

| form | what counts |
|---|---|
| nvidia-smi's CSV | `timestamp`, `power.draw [W]` (or `.average`, `.instant`), and `uuid`, `index` or `pci.bus_id` |
| any CSV with a first line of names | `time` or `timestamp`, `watts`, and `device` or `gpu` where there are several |
| Prometheus' JSON of a range query, as of DCGM's `DCGM_FI_DEV_POWER_USAGE` | each series a device |

A time is seconds since 1970, or a date with its zone; without one it is taken as UTC. The file holds **the devices of
the engine and no others**: all of them are added up, idle ones too. With `--recompute` the samples are kept as
`power.csv` beside the results and are read again whenever the answer is made anew; without it they are used once.

A figure has no value where samples leave out any part of the steady window of any point of its cell: before the first
or after the last of a device, or with a gap of more than {POWER_GAP_SHARE:.0%} of the window and more than
{POWER_GAP_MIN_S:g} s. Why stands at the end of the figure's definition, and is said on stderr. What is left open: the
node's clock and the client's must agree far better than a window is long; power is the device's own sensor's (an
average over some time on most GPUs; CPU, memory and fans are not in it); and joules are held against the output tokens
of the window, so what prompts cost is in them.
"""


def energy_rows() -> list[tuple[str, str, str, str, str]]:
    """Its figures, as the tables of the page have them."""
    return [
        (f"`{JOULES}`", JOULES_UNIT, JOULES_DEFINITION, JOULES_MISSING, POWER_SOURCE),
        (f"`{WATTS}`", WATTS_UNIT, WATTS_DEFINITION, WATTS_MISSING, POWER_SOURCE),
    ]


# The sections of docs/reference/metrics.md on targets and on slices, printed from the code as the rest of it.

Row = tuple[str, str, str, str, str]

GOODPUT = """Only of a run with targets: `spec.slo`, or `--slo-ttft-ms`, `--slo-tpot-ms` and `--slo-e2e-ms` of
`specbench measure` and `specbench report`; in `cells[].goodput` of the run's `summary.json`. *Goodput* has a second
meaning in the field, tokens emitted over step time; this is not that one.
"""


def goodput_rows() -> list[Row]:
    """Return figure, unit, definition, when it is missing, and source; targets stand for any."""
    rate = (f"`{goodput.SLO_GOODPUT}`", goodput.RATE_UNIT, goodput.RATE_DEFINITION, goodput.RATE_MISSING, "both")
    shares = (goodput.attainment_ratio(Slo(tpot_ms=35)), goodput.target_attainment_ratio("tpot_ms", 35))
    return [rate, *((f"`{one.name}`", one.unit, one.definition, one.missing, one.origin.description) for one in shares)]


def slices_section() -> str:
    """Return what each dimension is cut by, and when it is missing."""
    of_requests = ", ".join(f"`{ratio.name}`" for ratio in breakdown.RATIOS)
    lines = [
        "## Slices\n",
        "The same figures by where requests and steps stand, in `cells[].breakdown` of `summary.json`, with the",
        "steps, requests and prompts of each class: [breakdown](../research/breakdown.md). Of steps there is one",
        f"figure, `{acceptance.EMITTED_POOLED.name}`; records hold delivered drafts, of which the emitted and the",
        f"verified length are one: {steps.DEFINITION}. Of requests there are {of_requests}.\n",
        "| dimension | of | classes | missing when |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _rows()),
    ]
    return "\n".join(lines) + "\n"


def _rows() -> list[tuple[str, str, str, str]]:
    positions, contexts = (
        ", ".join(f"{low:,}" for low in lows[1:4]) for lows in (record_lists.POSITIONS, record_lists.CONTEXTS)
    )
    by_length = (
        f"{breakdown.BY_LITERATURE}, where two of these hold {breakdown.CLASS_PROMPTS_MIN} prompts or more; else the"
        " quartiles of the cell's own requests"
    )
    return [
        (
            "`byPosition`",
            "steps",
            f"output position of the first token that a step emits: from 1, {positions}, …",
            f"{breakdown.NO_DRAFTS}; or {breakdown.NOT_LOCATED}",
        ),
        (
            "`byContext`",
            "steps",
            f"tokens before the step, prompt and output: from 0, {contexts}, …",
            f"as `byPosition`; or {breakdown.NO_PROMPT_TOKENS}",
        ),
        ("`byPart`", "steps", "reasoning; answer", f"as `byPosition`; or {breakdown.NO_REASONING}"),
        (
            "`byLength`",
            "requests; their steps by position",
            by_length,
            f"{breakdown.NO_TOKENS}; or {breakdown.ONE_LENGTH}",
        ),
        ("`byTurn`", "requests", f"turn 1, turn 2, …, turn {breakdown.TURNS_MAX} and later", breakdown.NO_TURNS),
        (
            "`acceptanceByRequest`",
            "requests",
            "none: five numbers and the deciles of one request's",
            breakdown.NO_DRAFTS,
        ),
    ]


_HEAD = """# Figures and checks

Generated by `hack/generate` from the code; do not edit.

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
- How often these intervals hold a known truth, and their formulas with sources:
  [pairing and intervals](../concepts/pairing-and-intervals.md).
- An interval is cut to what the figure can be: an acceptance length lies from 1 to k + 1. Its `method` says so then.
- One repeat or two: the noise between runs is in no interval, or hardly, and the method says so. `summary.json` keeps
  such an interval of a speed-up, beside `comparedRepeats`; tables, report and `results.csv` leave it out, and
  `results.csv` has `compared_repeats`.

A speed-up is called faster or slower only from {MIN_REPEATS_TO_COMPARE} repeats on, where its interval excludes 1, and
where
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

**Invalid** breaks the comparison: the point counts as invalid and the run is not trustworthy. **Warning** makes the run
untrustworthy though the point's own numbers stand. **Info** is said and changes nothing. A check says nothing where its
evidence is missing.

What *measure again* means:

- *On this machine* (`specbench run`): {AGAIN_HERE}
- *On a cluster*: {AGAIN_ON_A_CLUSTER}
- *At an endpoint that already runs*: {AGAIN_AT_AN_ENDPOINT}
"""

_UNSEEN = """## What no check can see

A temperature that is a little off: nothing on the wire tells with which one an answer was sampled, and
TemperatureNotApplied only tells greedy from sampled. top_p, and a system prompt that a proxy adds to every question,
cannot be seen.
More of this, and how each check was tried, is in [how benchmarks mislead](../concepts/how-benchmarks-mislead.md).
"""


def render_metrics_page() -> str:
    """Return the whole page."""
    parts = [
        _HEAD,
        "## Comparison with the baseline\n",
        _table(
            [*(_speedup_row(name) for name in speedups.SPEEDUPS), *map(_whole_row, speedups.END_TO_END_DEFINITIONS)]
        ),
        "\nWhere a speed-up falls to 1, and the acceptance length that this needs: [curves](../research/curve.md).",
        "\n## Sums and means\n",
        _table([*_tps_rows(), *(_ratio_row(ratio) for ratio in RATIOS)]),
        "\n## By position of the draft\n",
        _table([_position_row(make(1), make(2)) for make in (position_acceptance, conditional_acceptance)]),
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
    return "\n".join([head, *("| " + " | ".join([_anchored(row[0]), *map(_escaped, row[1:])]) + " |" for row in rows)])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _anchored(names: str) -> str:
    """The names of a row, each with an anchor of its own to link to."""
    anchors = "".join(f'<a id="{name}"></a>' for name in re.findall(r"`(\w+)`", names))
    return f"{anchors}{_escaped(names)}"


def _speedup_row(name: str) -> tuple[str, str, str, str, str]:
    return f"`{name}`", "ratio", speedups.SPEEDUPS[name].definition, speedups.SPEEDUP_MISSING, "both"


def _whole_row(name: str) -> tuple[str, str, str, str, str]:
    unit = speedups.END_TO_END_UNITS.get(name, "ratio")
    return f"`{name}`", unit, speedups.END_TO_END_DEFINITIONS[name], speedups.END_TO_END_MISSING[name], "both"


def _tps_rows() -> list[tuple[str, str, str, str, str]]:
    whole = (steady_window.OUTPUT_TPS_UNIT, steady_window.OUTPUT_TPS_DEFINITION, steady_window.OUTPUT_TPS_MISSING)
    each = (
        steady_window.OUTPUT_TPS_PER_GPU_UNIT,
        steady_window.OUTPUT_TPS_PER_GPU_DEFINITION,
        steady_window.OUTPUT_TPS_PER_GPU_MISSING,
    )
    return [(f"`{steady_window.OUTPUT_TPS}`", *whole, "both"), (f"`{steady_window.OUTPUT_TPS_PER_GPU}`", *each, "both")]


def _ratio_row(ratio: RatioMetric) -> tuple[str, str, str, str, str]:
    return f"`{ratio.name}`", ratio.unit, ratio.definition, ratio.missing, ratio.origin.description


def _position_row(first: RatioMetric, second: RatioMetric) -> tuple[str, str, str, str, str]:
    names = f"`{first.name}`, `{second.name}`, …"
    return names, first.unit, f"{second.definition} (here for position 2)", first.missing, first.origin.description


def _histogram_row() -> tuple[str, str, str, str, str]:
    first, second = accepted_exactly(0), accepted_exactly(1)
    definition = f"{second.definition} (here 1)"
    return f"`{first.name}`, `{second.name}`, …", first.unit, definition, first.missing, first.origin.description


def _percentile_row(measure: RequestMetric) -> tuple[str, str, str, str, str]:
    names = ", ".join(f"`{measure.name}_p{percent}`" for percent in measure.percents)
    return names, measure.unit, measure.definition, measure.missing, measure.origin.description


def _section(title: str, checks: Sequence[Check[Any]]) -> list[str]:
    return [f"### {title}\n", *(_entry(check) for check in checks)]


def _entry(check: Check[Any]) -> str:
    severities = " or ".join(check.severities)
    return (
        f"#### {check.name}\n\n{severities}. {check.description}\n\n- *From:* {check.threshold}.\n- *Why from there:*"
        f" {check.rationale}\n- *What to do:* {check.remedy}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(render_metrics_page())
