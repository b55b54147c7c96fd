"""`spec.workloads[]`: prompts, sampling and output limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from specbench_api.model import ApiModel, Open
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import Dataset, Source

__all__ = ["CLAIMED_BODY", "ChatTemplate", "Dataset", "Output", "Sampling", "Source", "Workload"]


def _unsigned(value: float) -> float:
    """-0.0 is 0: it would be another point by its spelling alone."""
    return value + 0.0


class Sampling(ApiModel):
    """Sampling parameters, always sent explicitly: an engine's own defaults differ from model to model."""

    temperature: Annotated[float, Field(ge=0, le=2), AfterValidator(_unsigned)] = 0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1
    """Nucleus sampling."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Seed of the sampling, sent with every request; also the seed of anything the client draws."""


class Output(ApiModel):
    """How long answers may become."""

    max_tokens: Annotated[int, Field(ge=1, le=131072)] = 256
    """Most tokens of one answer."""
    ignore_eos: bool = False
    """Go on past the natural end, up to maxTokens. Text past the end inflates acceptance: marked in the results."""
    stream: bool = True
    """False asks for whole answers at once: times to the first token, per token and of chunks are then missing."""


CLAIMED_BODY = {
    "model": "it is spec.model.name",
    "messages": "they come from the dataset",
    "prompt": "it comes from the dataset",
    "n": "one answer a request is what is measured: ask for more requests",
    "max_tokens": "set output.maxTokens",
    "max_completion_tokens": "set output.maxTokens",
    "ignore_eos": "set output.ignoreEos",
    "stream": "set output.stream",
    "stream_options": "it follows from output.stream",
    "temperature": "set sampling.temperature",
    "top_p": "set sampling.topP",
    "seed": "set sampling.seed: each request draws its own from it",
    "cache_prompt": "no prompt is kept between requests, on every arm",
    "timings_per_token": "it is how llama.cpp tells its drafts, and always on",
    "return_spec_tokens_details": "it is how SGLang tells its drafts, and always on",
}
"""Fields of a request's body that are not for `extraBody`, and what to do instead."""


class Workload(ApiModel):
    """Prompts with how they are answered."""

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Name in tables and status."""
    dataset: Dataset
    """The prompts."""
    sampling: Sampling = Sampling()
    """How tokens are drawn."""
    output: Output = Output()
    """Limits of the answers."""
    extra_body: Annotated[dict[str, Any], Field(max_length=32), Open()] = {}
    """Further fields of every request's body, on every arm: top_k, stop, chat_template_kwargs, … What specbench sets
    itself is refused; its neutral values for other samplers (top_k, min_p, penalties) give way."""
    chat_template: ChatTemplate | None = None
    """Who turns messages into tokens. Left out: the engine, by its own chat template."""

    @property
    def client_template(self) -> ChatTemplate | None:
        """The chat template that the client is to apply; None where the engine applies its own."""
        return self.chat_template if self.chat_template is not None and self.chat_template.by_client else None
