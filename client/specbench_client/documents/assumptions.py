"""What `specbench plan` assumes about engines and answers before anything is measured. Each default is defined here.

A range is wide on purpose: the estimate decides whether a run takes one hour or thirty, not its speed.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from specbench_api.api_model import ApiModel

Amount = Annotated[float, Field(gt=0, le=1e9)]


class AssumedRange(ApiModel):
    """A plausible range and the value in it that is expected. A single number in a file is a range without width."""

    low: Amount
    """Lowest plausible value."""
    expected: Amount
    """Value that the estimate uses."""
    high: Amount
    """Highest plausible value."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"low": value, "expected": value, "high": value}
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.low <= self.expected <= self.high:
            raise ValueError("low, expected and high are not in this order")
        return self


class Assumptions(ApiModel):
    """Assumptions of an estimate of GPU-hours. What is not set follows from the model's name and the GPU's product."""

    gpu: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Product of the GPUs: `H100`. Without it: the node selector's nvidia.com/gpu.product."""
    model_parameters_b: Amount | None = None
    """Billions of parameters of the target. Without it: the number in its name, such as 70 of Llama-3.3-70B."""
    active_parameters_b: Amount | None = None
    """Billions of parameters that one token uses, for a mixture of experts. Without it: the number after A in its name,
    else all."""
    bytes_per_parameter: Amount | None = None
    """Bytes of one weight. Without it: from the name and the engine's arguments (FP8, AWQ, …), else 2."""
    stream_tokens_per_second: AssumedRange | None = None
    """Output tokens per second of one request alone, without a drafter. Without it: from model and GPU."""
    engine_tokens_per_second: AssumedRange | None = None
    """Most output tokens per second of one engine at any load. Without it: from model and GPU."""
    speed_up: AssumedRange = AssumedRange(low=0.7, expected=1.4, high=3)
    """Speed-up of an arm with a drafter over the baseline."""
    answer_share: AssumedRange = AssumedRange(low=0.15, expected=0.6, high=1)
    """Mean length of an answer as a share of output.maxTokens; 1 with output.ignoreEos."""
    prompt_tokens: AssumedRange = AssumedRange(low=100, expected=500, high=4000)
    """Mean tokens of a prompt, if the prompts are not on this machine."""
    memory_efficiency: AssumedRange = AssumedRange(low=0.35, expected=0.8, high=0.95)
    """Share of the GPU's memory bandwidth that decoding reaches."""
    compute_efficiency: AssumedRange = AssumedRange(low=0.15, expected=0.5, high=0.8)
    """Share of the GPU's dense BF16 FLOPS that prefill and large batches reach."""
    launch_factor: AssumedRange = AssumedRange(low=0.3, expected=1, high=2.5)
    """Seconds of a launch over budget.launchSeconds: scheduling, image pull, model load, first completion, shutdown."""
    point_factor: AssumedRange = AssumedRange(low=0.2, expected=1, high=5)
    """Seconds of a point over budget.pointSeconds, if nothing else is known about it."""
    warmup_factor: AssumedRange = AssumedRange(low=1, expected=1.5, high=4)
    """Warm-up requests of a launch over load.warmupRequests, at least one per stream."""
    node_gpus: Annotated[int, Field(ge=1, le=1024)] = 8
    """GPUs of one node."""
