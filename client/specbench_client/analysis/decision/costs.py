"""Requests an hour, and money for a request and for a million output tokens, from an engine's throughput.

    requests an hour  = output tokens a second x 3600 / mean output tokens of a request
    cost of a request = price of an hour / requests an hour
    cost of 1M tokens = cost of a request x 1e6 / mean output tokens of a request

Comparisons with the baseline are meaningful only at the same load, and where both meet the same targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.provenance import FactName
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.figure_ratios import map_figure
from specbench_client.documents.prices import Prices

ANY_ARM = "*"


@dataclass(frozen=True)
class EngineCost:
    """What one arm costs. `hour`: price of its engine for an hour, with all GPUs, the drafter's included."""

    hour: float
    currency: str
    words: str


def engine_costs(plan: Plan, summary: RunSummary, prices: Prices) -> dict[str, EngineCost]:
    """Return the cost of each arm by name. Raises InvalidSpec: a price or a number of GPUs is missing."""
    return {arm.name: _engine_cost(arm.name, plan, summary, prices) for arm in plan.arms}


def _engine_cost(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> EngineCost:
    if prices.machine_hour is not None:
        words = f"{prices.machine_hour:g} {prices.currency} an hour for all that one engine runs on"
        return EngineCost(prices.machine_hour, prices.currency, words)
    product, count = _gpus(arm, plan, summary, prices)
    if count is None:
        remedy = "give --gpus N, or --machine-price for an engine without GPUs; in a price list: gpus or machineHour"
        raise InvalidSpec(
            [Problem("prices.gpus", f"it is not known how many GPUs the engine of arm {arm} has", remedy)]
        )
    price = prices.gpu_hour.get(product, prices.gpu_hour.get(ANY_ARM))
    if price is None:
        hardware = product or "a GPU of unknown product"
        remedy = f"add {product or ANY_ARM!r} to gpuHour, or give --gpu-price"
        raise InvalidSpec([Problem("prices.gpuHour", f"has no price for {hardware}", remedy)])
    of_what = f" {product}" if product else "s"
    words = f"{price:g} {prices.currency} a GPU-hour x {count} GPU{of_what}"
    return EngineCost(price * count, prices.currency, words)


def _gpus(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> tuple[str, int | None]:
    """Return product and number of GPUs: as requested, else as reported by launches, else as given."""
    seen: Mapping[FactName, object] = {}
    for each in summary.arm_environments:
        if each.arm == arm:
            seen = {name: fact.value for name, fact in each.facts.items()}
    product, counted = seen.get(FactName.GPU), seen.get(FactName.GPU_COUNT)
    count = plan.placement.engine_devices or _whole(counted) or prices.gpus
    return (product if isinstance(product, str) else ""), count or None


def _whole(counted: object) -> int:
    """Return the reported number of GPUs; 0 if it is not whole, being a median of launches that differ."""
    return int(counted) if isinstance(counted, int | float) and counted == int(counted) else 0


REQUESTS_PER_HOUR = "requests_per_hour"
COST_PER_REQUEST = "cost_per_request"
COST_PER_MILLION = "cost_per_million_output_tokens"
COST_SAVED = "cost_saved"
LENGTH = "output_tokens_mean"
_HOUR_S, _MILLION = 3600.0, 1e6


def requests_per_hour(cell: Cell) -> Figure | None:
    """Return requests an hour; None without throughput or lengths. The interval is that of the throughput alone."""
    rate, length = cell.figures.get(StatusFigure.OUTPUT_TPS), _length(cell)
    if rate is None or not rate.value or length is None:
        return None
    definition = "Requests an hour: output_tps x 3600 / output_tokens_mean, the load held as it was"
    return map_figure(rate, lambda tps: tps * _HOUR_S / length, "requests/h", definition)


def cost_figures(cell: Cell, bill: EngineCost) -> dict[str, Figure]:
    """Return the costs of a request and of a million output tokens, by name; empty without throughput or lengths."""
    hourly, length = requests_per_hour(cell), _length(cell)
    if hourly is None or length is None:
        return {}
    definition = f"{bill.words} / requests_per_hour"
    request = map_figure(hourly, lambda rate: bill.hour / rate, bill.currency, f"Cost of one: {definition}")
    million = map_figure(
        hourly,
        lambda rate: bill.hour / rate * _MILLION / length,
        bill.currency,
        f"Cost of a million output tokens: {definition} x 1e6 / output_tokens_mean",
    )
    return {COST_PER_REQUEST: request, COST_PER_MILLION: million}


def cost_gain(rate_gain: Figure, bill: EngineCost, baseline: EngineCost) -> Figure:
    """Return the baseline's cost of a token over this arm's at the same load, from the ratio of their throughputs."""
    definition = (
        "The baseline's cost of an output token over this arm's at the same load: the price of an hour of each over its"
        f" throughput; from the ratio: {rate_gain.definition}"
    )
    return map_figure(rate_gain, lambda ratio: ratio * baseline.hour / bill.hour, "ratio", definition)


def saved(gain: Figure) -> Figure:
    """Return the share of the baseline's cost that is saved at the same load."""
    return map_figure(
        gain, lambda ratio: 1 - 1 / ratio, "ratio", "Cost saved against the baseline at the same load: 1 - 1 / gain"
    )


def _length(cell: Cell) -> float | None:
    figure = cell.figures.get(LENGTH)
    return figure.value if figure and figure.value else None
