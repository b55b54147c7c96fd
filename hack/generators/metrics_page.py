"""Renders docs/reference/metrics.md: the definition of every figure, and the threshold of every check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from specbench_api.spec.slo import Slo
from specbench_client.analysis.breakdown import breakdown, reuse
from specbench_client.analysis.estimates import speedups
from specbench_client.analysis.statistics import bootstrap, level
from specbench_client.analysis.summary.trends import FIGURES, RELATIVE_CHANGE, SHARE_CHANGE
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.documents.summary import MIN_WINDOWS
from specbench_client.metrics import acceptance, chunks_and_steps, goodput, steady_window
from specbench_client.metrics.acceptance import (
    accepted_exactly,
    conditional_acceptance,
    position_acceptance,
)
from specbench_client.metrics.catalog import MEASURES, RATIOS
from specbench_client.metrics.metric_types import RatioMetric, RequestMetric
from specbench_client.report.text.findings import AGAIN_AT_AN_ENDPOINT, AGAIN_HERE, AGAIN_ON_A_CLUSTER
from specbench_client.trust.check_type import Check
from specbench_client.trust.checks.comparison import baseline_invalid
from specbench_client.trust.registry import ANSWER_CHECKS, CELL_CHECKS, POINT_CHECKS, RUN_CHECKS

Row = tuple[str, str, str, str, str]

_PERCENTILES = """Linear interpolation between neighbouring values. Speeds have low percentiles: the slowest requests.
A percentile is missing unless at least one request is expected beyond it: a 90th needs 10 requests, a 95th 20, a 99th
100. Of fewer requests it is nearly their extreme value. A target at a missing percentile is neither met nor missed.
"""
GOODPUT = """Only if the run has targets: `spec.slo`, or `--slo-ttft-ms`, `--slo-tpot-ms` and `--slo-e2e-ms` of
`specbench measure` and `specbench report`. The figures are in `cells[].goodput` of the run's `summary.json`.
"""


def goodput_rows() -> list[Row]:
    """Return the rows of the goodput figures; the target of 35 ms is an example."""
    rate = (f"`{goodput.SLO_GOODPUT}`", goodput.RATE_UNIT, goodput.RATE_DEFINITION, goodput.RATE_MISSING, "both")
    shares = (goodput.attainment_ratio(Slo(tpot_ms=35)), goodput.target_attainment_ratio("tpot_ms", 35))
    example = ("", " (an example: each target has its own share)")
    return [
        rate,
        *(
            (f"`{one.name}`", one.unit, one.definition + note, one.missing, one.origin.description)
            for one, note in zip(shares, example, strict=True)
        ),
    ]


def breakdown_section() -> str:
    """Return the section on breakdowns: the classes of each dimension, and when it is missing."""
    of_requests = ", ".join(f"`{ratio.name}`" for ratio in breakdown.RATIOS)
    lines = [
        "## Breakdown\n",
        "Figures by class of step or request, in `cells[].breakdown` of `summary.json`. Each class has its number of",
        "steps, requests and prompts. How to read them: [breakdown](../research/breakdown.md).\n",
        f"- Classes of steps have `{acceptance.EMITTED_POOLED.name}`: tokens emitted by the steps of the class /",
        "  number of these steps. The verified length is the same, because records contain delivered drafts only.",
        f"- Classes of requests have {of_requests}; turns also `{breakdown.TURN_RATIOS[-1].name}`.\n",
        "| dimension | of | classes | missing when |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _rows()),
    ]
    return "\n".join(lines) + "\n"


def _rows() -> list[tuple[str, str, str, str]]:
    positions, contexts = (
        ", ".join(f"{low:,}" for low in lows[1:4]) for lows in (chunks_and_steps.POSITIONS, chunks_and_steps.CONTEXTS)
    )
    by_length = (
        f"{breakdown.BY_LITERATURE}, if at least two of these classes have {breakdown.CLASS_PROMPTS_MIN} prompts or"
        " more; else the quartiles of the cell's own requests"
    )
    return [
        (
            "`byPosition`",
            "steps",
            f"output position of the first token that the step emits: classes from 1, {positions}, …",
            f"{breakdown.NO_DRAFTS}; or {breakdown.NOT_LOCATED}",
        ),
        (
            "`byContext`",
            "steps",
            f"tokens before the step, prompt and output: classes from 0, {contexts}, …",
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
            "none: minimum, quartiles, maximum and deciles of the requests' acceptance lengths",
            breakdown.NO_DRAFTS,
        ),
    ]


_HEAD = """# Figures and checks

Generated by `hack/generate` from the code; do not edit.

Every figure is over the requests of the **steady state**: warm-up, ramp, drain and failed requests are left out.
`tokens` is the number of output tokens according to the engine's usage, else according to the client. Names that end
in `_ns` are columns of the [records](records.md#columns). Latency counts from the intended send time. A figure that
cannot be computed has no value; it is never 0.

The column *source* names the side that counted. `acceptance_source` of the records states whether the engine reported
acceptance by step or by request.
"""

_PAIRS = """A **pair** is one request of the arm and one of the baseline, with the same prompt, turn, pass over the
prompts, and repeat. Both are steady and without error. A later turn of a conversation is paired only if all earlier
replies were identical. The figures of this section are over pairs.
"""

_INTERVALS = f"""## Intervals

Level {level.LEVEL:.0%}. The sampling unit is the **prompt**, within repeats. Formulas, sources and tests:
[pairing and intervals](../concepts/pairing-and-intervals.md).

- **Prompts**: bootstrap with {bootstrap.RESAMPLES} resamples. A resample contains each drawn prompt with all its
  repeats. Prompts are drawn within categories if each category has at least {bootstrap.STRATUM_MIN}. The percentile
  interval is expanded for small numbers of prompts.
- **Repeats**, from three on: the variance between repeats is added.
- **t interval** over the values of the single repeats: reported if it is **wider**. `method` of the figure names the
  interval that is reported.
- **Speed-ups**: computed on the log ratio.
- **Mean TTFT and E2E latency**: bootstrap-t, because these times have long tails.
- **Percentiles**: the interval of the share of requests below the percentile, looked up among the values. Above the
  90th and below the 10th percentile, ranks are used.
- **No interval**: for fewer than {bootstrap.PROMPTS_MIN} prompts, and for a percentile that may be beyond all prompts. A
  median needs 6 prompts, a 95th percentile 72, a 99th 368.
- **Limits of a figure**: an interval ends where the figure cannot go further: an acceptance length is between 1 and
  k + 1. `method` states that it was cut.
- **One or two repeats**: an interval includes little or nothing of the noise between runs, and `method` states this.
  `summary.json` keeps such an interval of a speed-up, with `comparedRepeats`. Tables, report and `results.csv` omit it;
  `results.csv` has `compared_repeats`.

`cells[].claims` of `summary.json` has the conclusion about each speed-up, and the number of comparisons:

| conclusion | when |
|---|---|
| `Faster`, `Slower` | at least {MIN_REPEATS_TO_COMPARE} repeats; the interval excludes 1, also after Holm's correction for all comparisons of the run |
| `Indistinguishable` | the interval contains 1 |
| `Unclear` | the interval excludes 1, but not after Holm's correction |
| `TooFewRepeats` | fewer than {MIN_REPEATS_TO_COMPARE} repeats: only the ratio is reported |
| `NoInterval` | too few prompts for an interval |
| `NotComparable` | a check made the cell invalid, or no request has a partner |

Holm's correction compares the smallest p-value with 5 % / the number of comparisons, the next with 5 % / one fewer, and
so on. Without it, one of twenty comparisons excludes 1 by chance. Categories, over all cells, are corrected as a
separate family.
"""  # noqa: E501

_WINDOW = """## The steady window

`output_tps` divides by the length of the steady window: from the first steady request sent to the last steady token. In
a closed loop all streams are busy during the window; in an open loop conversations start on schedule.

A window may be as short as one request per stream, so rates must not depend on the requests that its edges cut. All
streams of a closed loop begin together: the requests that ended inside the window are nearly one per stream too many,
50 % at two requests per stream and 6 % at 16. `slo_goodput` therefore uses Little's law: requests in flight / seconds
per request. Requests of equal length give the exact rate at any number of requests per stream. In simulations of 8
streams with known rates, and durations with a standard deviation of half their mean, the error was at most 0.5 % in a
closed loop; in an open loop it was 3 % at one request for each in flight, 2 % at two, 1 % at four and 0.5 % at 16.

| file | field |
|---|---|
| a point's `summary.json` | `window`: `startNs`, `endNs` and `share` |
| the run's `summary.json` | `cells[].windows`: the same for each of `cells[].points`, in the same order |
| `results.csv` | `steady_start_s` and `steady_end_s`: one value per repeat, separated by `;`; `steady_share`: over all repeats |
| `report.html` | *Steady*: the share over all repeats |

Bounds count from the start of the point, as the times of its records do. The share is the length of the window divided
by the time from the first request sent to the last token, without warm-up; the rest is ramp and drain.
"""  # noqa: E501

_TREND_ROWS = "\n".join(
    f"| `{each.name}`: {each.label} | {each.unit} | {SHARE_CHANGE if each.is_share else RELATIVE_CHANGE} |"
    for each in FIGURES
)

_OVER_TIME = f"""Of a soak test: `cells[].trends` of `summary.json`, one for each figure that at least
{MIN_WINDOWS} windows have.

| figure | unit | `change` |
|---|---|---|
{_TREND_ROWS}

The slope, `start` and `end` (first and last window) are of a line fitted to the windows. Its interval is averaged over
the unknown autocorrelation of their noise: [coverage](../../benchmarks/intervals.md#slopes-of-soak-tests).

An engine that restarts begins anew: the line has one level for each process of the engine, and one slope for all.
`start`, `end`, `change` and `hours` are then of the longest time without a restart, and `restarts` counts them. A level
that differs between two processes is no change over time. A process is recognised by its start, where the engine's
metrics have it, else by the launch; counters that decrease show a restart too.
"""

_CHECKS = f"""## Checks

| severity | effect |
|---|---|
| **Invalid** | the point is invalid and not compared; the run is not trustworthy |
| **Fault** | the arm is at fault, which the headline says; the run stays trustworthy |
| **Warning** | the run is not trustworthy; the point stays valid |
| **Info** | none |

A check that lacks the data it needs reports nothing.

What *measure again* means:

- *On this machine* (`specbench run`): {AGAIN_HERE}
- *On a cluster*: {AGAIN_ON_A_CLUSTER}
- *At an endpoint that already runs*: {AGAIN_AT_AN_ENDPOINT}
"""

_UNSEEN = """## What no check finds

- A temperature that is slightly wrong: TemperatureNotApplied only separates greedy from sampled answers.
- A wrong top_p.
- A system prompt that a proxy adds to every request.

More, and how each check was tested: [how benchmarks mislead](../concepts/how-benchmarks-mislead.md).
"""


def render_metrics_page() -> str:
    """Return the whole page."""
    of_points = {each.name for each in POINT_CHECKS}
    parts = [
        _HEAD,
        "## Comparison with the baseline\n",
        _PAIRS,
        _table(
            [*(_speedup_row(name) for name in speedups.SPEEDUPS), *map(_whole_row, speedups.END_TO_END_DEFINITIONS)]
        ),
        "\nCrossover load and break-even acceptance length: [curves](../research/curve.md).",
        "Engines' own acceptance lengths: [engines](engines.md#acceptance-length-the-engines-figure-and-ours).",
        "\n## Reuse of the prompt cache\n",
        "With `promptCache: AsServed`, over the same pairs: `cells[].reuse` of `summary.json`.\n",
        _table([_reuse_row(*row) for row in reuse.DEFINITIONS]),
        "\n## Over time\n",
        _OVER_TIME,
        "## Sums and means\n",
        _table([*_tps_rows(), *(_ratio_row(ratio) for ratio in RATIOS)]),
        "\n## By position of the draft\n",
        _table([_position_row(make(1), make(2)) for make in (position_acceptance, conditional_acceptance)]),
        "\nIn a joint rate, a position counts as not accepted if the step did not draft it, or if it was cut off at",
        "the end of the answer. A conditional rate leaves out what was not drafted if the engine reports the drafts of",
        "each step (vLLM, llama.cpp), and counts what was accepted and cut off if `cut_tokens` is known (also SGLang).",
        "It is missing if drafts are not counted (see `acceptance_rate`). The end of a tree's branch is a rejection.",
        "\n## Histogram of accepted drafts\n",
        _table([_histogram_row()]),
        "\nThe shares of 0 to k add up to 1; 1 + Σ i × `accepted_exactly_i` is the acceptance length of draft steps.",
        "\n## Percentiles\n",
        _PERCENTILES,
        _table([_percentile_row(measure) for measure in MEASURES]),
        "\n## Goodput\n",
        GOODPUT,
        _table(goodput_rows()),
        "",
        breakdown_section(),
        _WINDOW,
        _INTERVALS,
        _CHECKS,
        *_section("Checks of a point", POINT_CHECKS),
        *_section(
            "Checks of a cell and its paired baseline",
            (*(each for each in CELL_CHECKS if each.name not in of_points), *ANSWER_CHECKS),
        ),
        _entry(baseline_invalid),
        *_section("Checks of a run", RUN_CHECKS),
        _UNSEEN,
    ]
    return "\n".join(parts).rstrip() + "\n"


def _table(rows: Sequence[tuple[str, str, str, str, str]]) -> str:
    head = "| figure | unit | definition | missing when | source |\n|---|---|---|---|---|"
    return "\n".join([head, *("| " + " | ".join([_anchored(row[0]), *map(_escaped, row[1:])]) + " |" for row in rows)])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _anchored(names: str) -> str:
    """Return the names of a row, each with its own anchor."""
    anchors = "".join(f'<a id="{name}"></a>' for name in re.findall(r"`(\w+)`", names))
    return f"{anchors}{_escaped(names)}"


def _speedup_row(name: str) -> tuple[str, str, str, str, str]:
    return f"`{name}`", "ratio", _without_pairs(speedups.SPEEDUPS[name].definition), speedups.SPEEDUP_MISSING, "both"


def _whole_row(name: str) -> tuple[str, str, str, str, str]:
    unit = speedups.END_TO_END_UNITS.get(name, "ratio")
    definition = _without_pairs(speedups.END_TO_END_DEFINITIONS[name])
    return f"`{name}`", unit, definition, speedups.END_TO_END_MISSING[name], "both"


def _without_pairs(definition: str) -> str:
    """Return a definition without the explanation of pairs, which the section contains once."""
    return definition.removesuffix(f", {speedups.OVER_PAIRS}")


def _reuse_row(name: str, definition: str) -> tuple[str, str, str, str, str]:
    missing = "cached tokens are not reported: see `cells[].reuseMissing`"
    return f"`{name}`", "ratio", _without_pairs(definition), missing, "both"


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
    return names, first.unit, f"At position 2: {second.definition}", first.missing, first.origin.description


def _histogram_row() -> tuple[str, str, str, str, str]:
    first, second, third = (accepted_exactly(count) for count in range(3))
    names, definition = f"`{first.name}`, `{second.name}`, …", f"For 2: {third.definition}"
    return names, first.unit, definition, first.missing, first.origin.description


def _percentile_row(measure: RequestMetric) -> tuple[str, str, str, str, str]:
    names = ", ".join(f"`{measure.name}_p{percent}`" for percent in measure.percents)
    return names, measure.unit, measure.definition, measure.missing, measure.origin.description


def _section(title: str, checks: Sequence[Check[Any]]) -> list[str]:
    return [f"### {title}\n", *(_entry(check) for check in checks)]


def _entry(check: Check[Any]) -> str:
    severities = " or ".join(check.severities)
    return (
        f"#### {check.name}\n\n{severities}. {check.description}\n\n- *Threshold:* {check.threshold}.\n- *Reason:*"
        f" {check.rationale}\n- *What to do:* {check.remedy}\n"
    )
