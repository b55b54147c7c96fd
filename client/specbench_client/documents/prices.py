"""Prices given by the user: of an hour of hardware, and of training a drafter. No prices are shipped."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel

Price = Annotated[float, Field(ge=1e-12, le=1e12)]
"""A price in any currency. The lower bound rejects prices so small that costs per token would be 0."""


class Paradigm(StrEnum):
    """How a drafter is trained for its target."""

    TRAINING_FREE = "training-free"
    """Not trained for this target: n-grams, or an existing smaller model."""
    POST_HOC = "post-hoc"
    """Trained for an existing target, such as EAGLE and Medusa heads; another target needs new training."""
    CO_TRAINED = "co-trained"
    """Trained with its target and shipped with it: MTP."""


class Trained(ApiModel):
    """How one arm's drafter was trained, and the cost of the training."""

    paradigm: Paradigm | None = None
    """By default the usual one for the arm's method."""
    gpu_hours: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """GPU-hours of its training: GPUs x hours."""
    gpu_hour: Price | None = None
    """Price of one of these GPU-hours; by default gpuHour's `*`."""
    again_with: Literal["target", "traffic", "never"] | None = None
    """What requires new training: another target, other traffic, or nothing."""


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
    training: dict[str, Annotated[float, Field(ge=0, le=1e12)]] = {}
    """One-time cost of each arm's drafter, by the arm's name: training, distillation, labelling."""
    trained: dict[str, Trained] = {}
    """How each arm's drafter was trained, by the arm's name; its GPU-hours are added to `training`."""
    requests_until_retrain: Annotated[int, Field(ge=1)] | None = None
    """Requests over which the one-time costs are spread, until the drafter is trained again."""
