"""Reads the bodies of SGLang's two OpenAI routes. Unknown fields are ignored, and so is the name of the model."""

from __future__ import annotations

from specbench_client.simulator.ask import Arrival, Ask, Delivery, Kind
from specbench_client.simulator.bodies import StreamOptions, ask_of, document_of, max_tokens_of, validated
from specbench_client.simulator.errors import BadRequest


def read_body(arrival: Arrival) -> Ask:
    """Return the request; BadRequest as SGLang words it."""
    parsed = validated(arrival.kind, document_of(arrival))
    options = parsed.stream_options or StreamOptions()
    if arrival.kind is Kind.CHAT and parsed.stream and parsed.return_token_ids:
        raise BadRequest(
            "return_token_ids is not supported with streaming on /v1/chat/completions. Please set stream=false when "
            "using return_token_ids=true."
        )
    delivery = Delivery(
        stream=bool(parsed.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
        token_ids=bool(parsed.return_token_ids),
        speculation=bool((parsed.model_extra or {}).get("return_spec_tokens_details")),
    )
    return ask_of(arrival, parsed, delivery, max_tokens_of(parsed))
