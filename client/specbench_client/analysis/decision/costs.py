"""Requests an hour, and money for a request and for a million output tokens, from an engine's throughput.

    requests an hour  = output tokens a second x 3600 / mean output tokens of a request
    cost of a request = price of an hour / requests an hour + training / requests until it is done again
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
    per_request: float
    """Training, spread over the requests until it is done again."""
    currency: str
    words: str


def engine_costs(plan: Plan, summary: RunSummary, prices: Prices) -> dict[str, EngineCost]:
    """Return the cost of each arm by name. Raises InvalidSpec: a price or a number of GPUs or requests is missing."""
    names = [arm.name for arm in plan.arms]
    given = [("training", name) for name in prices.training] + [("trained", name) for name in prices.trained]
    strange = [(field, name) for field, name in given if name not in names]
    if strange:
        known = f"the arms are {', '.join(names)}"
        problems = [Problem(f"prices.{field}.{name}", "the run has no such arm", known) for field, name in strange]
        raise InvalidSpec(problems)
    paid = [name for name in names if training_cost(name, prices)]
    if paid and prices.requests_until_retrain is None:
        remedy = "give the number of requests until the drafter is trained again, over which its training is spread"
        raise InvalidSpec([Problem("prices.requestsUntilRetrain", f"needed for the training of {paid[0]}", remedy)])
    return {name: _engine_cost(name, plan, summary, prices) for name in names}


def training_cost(arm: str, prices: Prices) -> float:
    """Return the one-time cost of the arm's drafter: amount and GPU-hours. Raises InvalidSpec: no price."""
    amount, trained = prices.training.get(arm, 0.0), prices.trained.get(arm)
    if trained is None or not trained.gpu_hours:
        return amount
    price = trained.gpu_hour if trained.gpu_hour is not None else prices.gpu_hour.get(ANY_ARM)
    if price is None:
        what, remedy = "the price of a GPU-hour of its training is not known", "give gpuHour here, or --gpu-price"
        raise InvalidSpec([Problem(f"prices.trained.{arm}.gpuHour", what, remedy)])
    return amount + trained.gpu_hours * price


def _engine_cost(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> EngineCost:
    spread = training_cost(arm, prices) / (prices.requests_until_retrain or 1)
    if prices.machine_hour is not None:
        words = f"{prices.machine_hour:g} {prices.currency} an hour for all that one engine runs on"
        return EngineCost(prices.machine_hour, spread, prices.currency, words)
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
    return EngineCost(price * count, spread, prices.currency, words)


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
REQUESTS_GAINED = "requests_per_hour_gained"
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
    definition = f"{bill.words} / requests_per_hour" + (" + training spread" if bill.per_request else "")
    request = map_figure(
        hourly, lambda rate: bill.hour / rate + bill.per_request, bill.currency, f"Cost of one: {definition}"
    )
    million = map_figure(
        hourly,
        lambda rate: (bill.hour / rate + bill.per_request) * _MILLION / length,
        bill.currency,
        f"Cost of a million output tokens: ({definition}) x 1e6 / output_tokens_mean",
    )
    return {COST_PER_REQUEST: request, COST_PER_MILLION: million}


def cost_gain(
    rate_gain: Figure, bill: EngineCost, baseline: EngineCost, baseline_hourly: float | None
) -> Figure | None:
    """Return the baseline's cost of a token over this arm's at the same load, from the ratio of their throughputs.

    `baseline_hourly`: the baseline's requests an hour, needed if there is training to spread; None: unknown.
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
    return map_figure(rate_gain, gain, "ratio", definition)


def saved(gain: Figure) -> Figure:
    """Return the share of the baseline's cost that is saved at the same load."""
    return map_figure(
        gain, lambda ratio: 1 - 1 / ratio, "ratio", "Cost saved against the baseline at the same load: 1 - 1 / gain"
    )


def gained(rate_gain: Figure, baseline: Figure) -> Figure | None:
    """Return how many more requests an hour the same engine serves than the baseline at the same load."""
    hourly = baseline.value
    if hourly is None or rate_gain.value is None:
        return None
    definition = "The baseline's requests_per_hour x (gain in throughput - 1), at the same load"
    return map_figure(rate_gain, lambda ratio: hourly * (ratio - 1), "requests/h", definition)


def _length(cell: Cell) -> float | None:
    figure = cell.figures.get(LENGTH)
    return figure.value if figure and figure.value else None
