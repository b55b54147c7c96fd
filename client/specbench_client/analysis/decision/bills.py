"""What an hour of each arm's engine costs at the user's prices, and what its drafter's training adds to a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.facts import FactName
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.prices import Prices

ANY = "*"


@dataclass(frozen=True)
class Bill:
    """What one arm costs. `hour`: its engine for an hour, every GPU of it, the drafter's included."""

    hour: float
    per_request: float
    """Training, spread over the requests until it is done again."""
    currency: str
    words: str


def bills(plan: Plan, summary: RunSummary, prices: Prices) -> dict[str, Bill]:
    """By the arm's name. Raises InvalidSpec where a price, a number of GPUs or of requests is lacking."""
    names = [arm.name for arm in plan.arms]
    given = [("training", name) for name in prices.training] + [("trained", name) for name in prices.trained]
    strange = [(field, name) for field, name in given if name not in names]
    if strange:
        known = f"the arms are {', '.join(names)}"
        problems = [Problem(f"prices.{field}.{name}", "the run has no such arm", known) for field, name in strange]
        raise InvalidSpec(problems)
    paid = [name for name in names if training_cost(name, prices)]
    if paid and prices.requests_until_retrain is None:
        remedy = "the number of requests over which it is spread: until the drafter is trained anew"
        raise InvalidSpec([Problem("prices.requestsUntilRetrain", f"needed for the training of {paid[0]}", remedy)])
    return {name: _bill(name, plan, summary, prices) for name in names}


def training_cost(arm: str, prices: Prices) -> float:
    """What the arm's drafter cost once: the amount that is told, and its GPU-hours. Raises InvalidSpec: no price."""
    told, trained = prices.training.get(arm, 0.0), prices.trained.get(arm)
    if trained is None or not trained.gpu_hours:
        return told
    price = trained.gpu_hour if trained.gpu_hour is not None else prices.gpu_hour.get(ANY)
    if price is None:
        what, remedy = "nobody told what a GPU-hour of its training costs", "give gpuHour here, or --gpu-price"
        raise InvalidSpec([Problem(f"prices.trained.{arm}.gpuHour", what, remedy)])
    return told + trained.gpu_hours * price


def _bill(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> Bill:
    spread = training_cost(arm, prices) / (prices.requests_until_retrain or 1)
    if prices.machine_hour is not None:
        words = f"{prices.machine_hour:g} {prices.currency} an hour for all that one engine runs on"
        return Bill(prices.machine_hour, spread, prices.currency, words)
    product, count = _gpus(arm, plan, summary, prices)
    if count is None:
        remedy = "give gpus (--gpus N), or machineHour (--machine-price) for an engine without GPUs"
        raise InvalidSpec([Problem("prices.gpus", f"nobody told how many GPUs the engine of arm {arm} has", remedy)])
    price = prices.gpu_hour.get(product, prices.gpu_hour.get(ANY))
    if price is None:
        told = product or "a GPU whose product nobody told"
        remedy = f"add {product or ANY!r} to gpuHour, or give --gpu-price"
        raise InvalidSpec([Problem("prices.gpuHour", f"has no price of {told}", remedy)])
    of_what = f" {product}" if product else "s"
    words = f"{price:g} {prices.currency} a GPU-hour x {count} GPU{of_what}"
    return Bill(price * count, spread, prices.currency, words)


def _gpus(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> tuple[str, int | None]:
    """Product and number: as the run asked for them on its nodes, else as its launches were seen, else as told."""
    seen: Mapping[FactName, object] = {}
    for each in summary.arms_seen:
        if each.arm == arm:
            seen = {name: fact.value for name, fact in each.facts.items()}
    product, counted = seen.get(FactName.GPU), seen.get(FactName.GPU_COUNT)
    count = plan.placement.engine_devices or _whole(counted) or prices.gpus
    return (product if isinstance(product, str) else ""), count or None


def _whole(counted: object) -> int:
    """The GPUs that were seen; 0 where that is no whole number: a median of launches that had different ones."""
    return int(counted) if isinstance(counted, int | float) and counted == int(counted) else 0
