"""Prices of an hour of hardware, given by the user. No prices are shipped."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specbench_api.api_model import ApiModel

Price = Annotated[float, Field(ge=1e-12, le=1e12)]
"""A price in any currency. The lower bound rejects prices so small that costs per token would be 0."""


class Prices(ApiModel):
    """A price list, all in one currency."""

    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    """Printed after every amount; nothing is converted."""
    gpu_hour: dict[str, Price] = {}
    """Price of one GPU for an hour, by the product name in provenance.json, or by `*` for any GPU."""
    gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs of one engine including its drafter's, used if neither the run's placement nor a launch has their number."""
    machine_hour: Price | None = None
    """Price per hour of all hardware of one engine (a node, or a CPU machine), instead of prices per GPU."""
