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
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Plan
from specbench_client.analysis.decision.request import Prices
from specbench_client.analysis.statistics.effects import map_figure
from specbench_client.documents.figure import Figure, StatusFigure
from specbench_client.documents.summary import Cell, RunSummary

ANY_ARM = "*"


@dataclass(frozen=True)
class EngineCost:
    """What one arm costs. `hour`: price of its engine for an hour, with all GPUs, the drafter's included."""

    hour: float
    currency: str
    words: str


def engine_cost(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> EngineCost:
    """Return the cost of an arm. Raises InvalidSpec: a price or a number of GPUs is missing."""
    if prices.machine_hour is not None:
        words = f"{prices.machine_hour:g} {prices.currency} per hour for all that one engine runs on"
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
    of_what = product or ("GPU" if count == 1 else "GPUs")
    words = f"{price:g} {prices.currency} per GPU-hour x {count} {of_what}"
    return EngineCost(price * count, prices.currency, words)


def _gpus(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> tuple[str, int | None]:
    """Return product and number of GPUs: as requested, else as reported by launches, else as given."""
    seen: Mapping[FactName, Fact] = {}
    for each in summary.arm_environments:
        if each.arm == arm:
            seen = each.facts
    product, counted = (seen.get(name) for name in (FactName.GPU, FactName.GPU_COUNT))
    # A median of launches that differ need not be whole.
    whole = int(counted.number) if counted and counted.number and counted.number == int(counted.number) else 0
    count = plan.placement.engine_devices or whole or prices.gpus
    return (product.value if product and isinstance(product.value, str) else ""), count or None


COST_PER_REQUEST = "cost_per_request"
COST_PER_MILLION = "cost_per_million_output_tokens"
LENGTH = "output_tokens_mean"
_HOUR_S, _MILLION = 3600.0, 1e6


def requests_per_hour(cell: Cell) -> Figure | None:
    """Return requests an hour; None without throughput or lengths. The interval is that of the throughput alone."""
    rate, length = cell.figures.get(StatusFigure.OUTPUT_TPS), cell.value(LENGTH)
    if rate is None or not rate.value or not length:
        return None
    definition = "Requests an hour: output_tps x 3600 / output_tokens_mean, the load held as it was"
    return map_figure(rate, lambda tps: tps * _HOUR_S / length, "requests/h", definition)


def cost_figures(cell: Cell, bill: EngineCost) -> dict[str, Figure]:
    """Return the costs of a request and of a million output tokens, by name; empty without throughput or lengths."""
    hourly, length = requests_per_hour(cell), cell.value(LENGTH)
    if hourly is None or not length:
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
