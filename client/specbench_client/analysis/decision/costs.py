"""Requests an hour, and money for a request and for a million output tokens, from an engine's throughput.

    requests an hour  = output tokens a second x 3600 / mean output tokens of a request
    cost of a request = price of an hour / requests an hour + training / requests until it is done again
    cost of 1M tokens = cost of a request x 1e6 / mean output tokens of a request

Against the baseline they mean something only at the same load, and where both meet the same targets.
"""

from __future__ import annotations

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.summary import Cell
from specbench_client.analysis.decision.bills import Bill
from specbench_client.analysis.estimates.evidence import mapped

REQUESTS_PER_HOUR = "requests_per_hour"
REQUESTS_GAINED = "requests_per_hour_gained"
COST_PER_REQUEST = "cost_per_request"
COST_PER_MILLION = "cost_per_million_output_tokens"
COST_SAVED = "cost_saved"
LENGTH = "output_tokens_mean"
_HOUR_S, _MILLION = 3600.0, 1e6


def requests_per_hour(cell: Cell) -> Figure | None:
    """None where throughput or lengths are missing. The interval is the throughput's: lengths are taken as they are."""
    rate, length = cell.figures.get(Headline.OUTPUT_TPS), _length(cell)
    if rate is None or not rate.value or length is None:
        return None
    definition = "Requests an hour: output_tps x 3600 / output_tokens_mean, the load held as it was"
    return mapped(rate, lambda tps: tps * _HOUR_S / length, "requests/h", definition)


def cost_figures(cell: Cell, bill: Bill) -> dict[str, Figure]:
    """Cost of a request and of a million output tokens, by name; empty where they are not to be had."""
    hourly, length = requests_per_hour(cell), _length(cell)
    if hourly is None or length is None:
        return {}
    definition = f"{bill.words} / requests_per_hour" + (" + training spread" if bill.per_request else "")
    request = mapped(
        hourly, lambda rate: bill.hour / rate + bill.per_request, bill.currency, f"Cost of one: {definition}"
    )
    million = mapped(
        hourly,
        lambda rate: (bill.hour / rate + bill.per_request) * _MILLION / length,
        bill.currency,
        f"Cost of a million output tokens: ({definition}) x 1e6 / output_tokens_mean",
    )
    return {COST_PER_REQUEST: request, COST_PER_MILLION: million}


def cost_gain(rate_gain: Figure, bill: Bill, baseline: Bill, baseline_hourly: float | None) -> Figure | None:
    """The baseline's cost of a token over this arm's at the same load, from the ratio of their throughputs.

    `baseline_hourly`: the baseline's requests an hour, needed where there is training to spread; None: not known.
    """
    spread = bill.per_request or baseline.per_request
    if rate_gain.value is None or (spread and baseline_hourly is None):
        return None
    hourly = baseline_hourly or 1.0  # without training it cancels

    def gain(ratio: float) -> float:
        return (baseline.hour / hourly + baseline.per_request) / (bill.hour / (hourly * ratio) + bill.per_request)

    definition = (
        "The baseline's cost of an output token over this arm's at the same load: (its hour's price / its requests an"
        f" hour + training) of each; from the ratio: {rate_gain.definition}"
    )
    return mapped(rate_gain, gain, "ratio", definition)


def saved(gain: Figure) -> Figure:
    """The share of the baseline's cost that is saved at the same load."""
    return mapped(
        gain, lambda ratio: 1 - 1 / ratio, "ratio", "Cost saved against the baseline at the same load: 1 - 1 / gain"
    )


def gained(rate_gain: Figure, baseline: Figure) -> Figure | None:
    """Requests an hour that the same engine serves more than the baseline at the same load."""
    hourly = baseline.value
    if hourly is None or rate_gain.value is None:
        return None
    definition = "The baseline's requests_per_hour x (gain in throughput - 1), at the same load"
    return mapped(rate_gain, lambda ratio: hourly * (ratio - 1), "requests/h", definition)


def _length(cell: Cell) -> float | None:
    figure = cell.figures.get(LENGTH)
    return figure.value if figure and figure.value else None
