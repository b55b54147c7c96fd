"""A user's own prices: what an hour costs, and what a drafter cost once. None are shipped: they would be invented."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specbench_api.model import ApiModel

Price = Annotated[float, Field(ge=1e-12, le=1e12)]
"""Of any currency. What is smaller than any coin is no price, and costs of tokens made of it would be 0."""


class Prices(ApiModel):
    """A price list, all in one currency."""

    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    """Written behind every amount; nothing is converted."""
    gpu_hour: dict[str, Price] = {}
    """One GPU for an hour, by the product's name as provenance.json has it, or by `*` for any."""
    gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs of one engine, its drafter's included, where neither the run's placement nor a launch tells."""
    machine_hour: Price | None = None
    """Everything that one engine runs on for an hour, instead of GPUs by the piece: a whole node, or a CPU machine."""
    training: dict[str, Annotated[float, Field(ge=0, le=1e12)]] = {}
    """What each arm's drafter cost once, by the arm's name: training, distillation, labelling."""
    requests_until_retrain: Annotated[int, Field(ge=1)] | None = None
    """Over how many requests that is spread: until the drafter is trained anew."""
