"""Reads the bodies of vLLM's two OpenAI routes. Unknown fields are ignored, as vLLM does."""

from __future__ import annotations

from specbench_client.simulator.ask import Arrival, Ask, Delivery
from specbench_client.simulator.bodies import StreamOptions, ask_of, document_of, max_tokens_of, validated
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.errors import BadRequest, UnknownModel


def read_body(config: SimulatorConfig, arrival: Arrival) -> Ask:
    """Return the request; BadRequest and UnknownModel as vLLM words them."""
    parsed = validated(arrival.kind, document_of(arrival))
    options = parsed.stream_options or StreamOptions()
    if parsed.stream_options and not parsed.stream:
        raise BadRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
    if parsed.model is not None and parsed.model not in config.model_names:
        raise UnknownModel(f"The model `{parsed.model}` does not exist.", param="model")
    delivery = Delivery(
        stream=bool(parsed.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        token_ids=bool(parsed.return_token_ids),
    )
    return ask_of(arrival, parsed, delivery, max_tokens_of(parsed))
