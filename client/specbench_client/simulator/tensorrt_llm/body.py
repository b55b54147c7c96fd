"""Reads the bodies of TensorRT-LLM's two OpenAI routes: a field that it does not know is refused."""

from __future__ import annotations

from typing import Any

from specbench_client.simulator.ask import Arrival, Ask, Delivery, Kind
from specbench_client.simulator.bodies import StreamOptions, ask_of, document_of, max_tokens_of, validated
from specbench_client.simulator.errors import BadRequest, InvalidBody

_BOTH = (
    "model", "n", "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "seed", "stop",
    "stream", "stream_options", "temperature", "top_p", "user", "lora_request", "prompt_ignore_length",
    "use_beam_search", "top_k", "top_p_min", "min_p", "repetition_penalty", "length_penalty", "early_stopping",
    "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "add_special_tokens", "response_format",
    "disaggregated_params", "echo", "max_tokens",
)  # fmt: skip
KNOWN: dict[Kind, frozenset[str]] = {
    Kind.CHAT: frozenset(
        [
            *_BOTH,
            *("messages", "prompt_token_ids", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"),
            *("reasoning_effort", "add_generation_prompt", "documents", "chat_template", "chat_template_kwargs"),
            *("mm_processor_kwargs", "cache_salt"),
        ]
    ),
    Kind.COMPLETION: frozenset([*_BOTH, "prompt", "suffix", "return_context_logits", "detokenize"]),
}
"""What each route takes, after the release candidates' own list."""


def read_body(arrival: Arrival) -> Ask:
    """Return the request; BadRequest as TensorRT-LLM words it."""
    document = document_of(arrival)
    _refuse_what_is_unknown(arrival.kind, document)
    parsed = validated(arrival.kind, document)
    extra = parsed.model_extra or {}
    if extra.get("prompt_token_ids") is not None:
        raise BadRequest("The simulator does not imitate prompt_token_ids: ask /v1/completions.")
    options = parsed.stream_options
    if options is not None and not parsed.stream:
        message = "Value error, Stream options can only be defined when stream is true."
        raise InvalidBody([{"type": "value_error", "loc": ("body",), "msg": message}])
    usage = _is_on(options, "include_usage")
    delivery = Delivery(
        stream=bool(parsed.stream),
        include_usage=usage,
        continuous_usage=usage and _is_on(options, "continuous_usage_stats"),
        token_ids=extra.get("detokenize") is False,
    )
    return ask_of(arrival, parsed, delivery, max_tokens_of(parsed, completion=None))


def _is_on(options: StreamOptions | None, name: str) -> bool:
    """Both options are on where any of them is given, unless they are switched off."""
    if options is None:
        return False
    return name not in options.model_fields_set or bool(getattr(options, name))


def _refuse_what_is_unknown(kind: Kind, document: Any) -> None:
    if not isinstance(document, dict):
        return
    unknown = [
        {"type": "extra_forbidden", "loc": ("body", name), "msg": "Extra inputs are not permitted", "input": value}
        for name, value in document.items()
        if name not in KNOWN[kind]
    ]
    missing = [{"type": "missing", "loc": ("body", "model"), "msg": "Field required"}] * ("model" not in document)
    if unknown or missing:
        raise InvalidBody([*missing, *unknown])
