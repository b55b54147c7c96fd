"""A user's own prices: what an hour costs, and what a drafter cost once. None are shipped: they would be invented."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.model import ApiModel

Price = Annotated[float, Field(ge=1e-12, le=1e12)]
"""Of any currency. What is smaller than any coin is no price, and costs of tokens made of it would be 0."""


class Paradigm(StrEnum):
    """How a drafter comes to know its target."""

    TRAINING_FREE = "training-free"
    """It was not trained for this target: n-grams, or a smaller model that is there anyway."""
    POST_HOC = "post-hoc"
    """Trained for a target that was there before: EAGLE's and Medusa's heads. Another target needs it trained anew."""
    CO_TRAINED = "co-trained"
    """Trained with its target, and brought along by it: MTP."""


class Trained(ApiModel):
    """How one arm's drafter came to be, and what that took once."""

    paradigm: Paradigm | None = None
    """Without it, as is usual for the arm's method."""
    gpu_hours: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """GPU-hours of its training: GPUs x hours."""
    gpu_hour: Price | None = None
    """Price of one of these; without it, gpuHour's `*`."""
    again_with: Literal["target", "traffic", "never"] | None = None
    """What makes it necessary to train it again: another target, other traffic, or nothing."""


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
    trained: dict[str, Trained] = {}
    """How each arm's drafter was trained, by the arm's name; its GPU-hours are added to `training`."""
    requests_until_retrain: Annotated[int, Field(ge=1)] | None = None
    """Over how many requests that is spread: until the drafter is trained anew."""
