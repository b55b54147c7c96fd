"""Parses the bodies of the two OpenAI routes, with vLLM's fields.

It is stricter than vLLM: an unsupported field is rejected, because ignoring it would silently change the measurement.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.openai_server_formats import COMPLETION_MAX_TOKENS, MessageBody, StreamOptionsBody
from specbench_client.research.runtime import (
    GenerationRequest,
    GenerationRuntime,
    ResearchBadRequest,
    ResearchUnknownModel,
    TokenIds,
)

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "stop": ([],), "echo": (False,), "logprobs": (False,), "tools": ([],),
    "min_tokens": (0,), "top_k": (-1, 0), "min_p": (0,), "repetition_penalty": (1,), "presence_penalty": (0,),
    "frequency_penalty": (0,), "add_generation_prompt": (True,),
}  # fmt: skip
"""Fields that are accepted only with these values, which have no effect."""


class ResearchRequestBody(BaseModel):
    """The body of both routes: `messages` for a chat, `prompt` for a completion."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: Annotated[list[MessageBody], Field(min_length=1)] | None = None
    prompt: str | list[int] | None = None
    stream: bool | None = False
    stream_options: StreamOptionsBody | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    ignore_eos: bool | None = False
    return_token_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request: the generation and the response options."""

    request_id: str
    chat: bool
    job: GenerationRequest
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False


def read_request(runtime: GenerationRuntime, data: bytes, request_id: str, *, chat: bool) -> ParsedRequest:
    """Parse a request. Raises ResearchBadRequest, ResearchUnknownModel."""
    body = _validated(data)
    _reject_unsupported_fields(body)
    if body.model not in (None, runtime.model_name):
        raise ResearchUnknownModel(f"The model `{body.model}` does not exist; `{runtime.model_name}` is served.")
    options = body.stream_options or StreamOptionsBody()
    return ParsedRequest(
        request_id=request_id,
        chat=chat,
        job=_generation_request(runtime, body, _prompt(runtime, body, chat=chat), chat=chat),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        token_ids=bool(body.return_token_ids),
    )


def _validated(data: bytes) -> ResearchRequestBody:
    try:
        return ResearchRequestBody.model_validate(json.loads(data))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ResearchBadRequest("; ".join(problems)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ResearchBadRequest(f"the body is not valid JSON: {error}") from error


def _reject_unsupported_fields(body: ResearchRequestBody) -> None:
    for name, value in (body.model_extra or {}).items():
        if value is not None and value not in NEUTRAL_VALUES.get(name, ()):
            raise ResearchBadRequest(f"The research runtime does not support {name}={value!r}: omit it.")


def _prompt(runtime: GenerationRuntime, body: ResearchRequestBody, *, chat: bool) -> TokenIds:
    if chat and body.messages and body.prompt is None:
        return runtime.chat([{"role": one.role, "content": one.text} for one in body.messages])
    if not chat and body.prompt and body.messages is None:
        return _ids(runtime, body.prompt) if isinstance(body.prompt, list) else runtime.encode(body.prompt)
    raise ResearchBadRequest("give messages and no prompt" if chat else "give one prompt, as text or token ids")


def _ids(runtime: GenerationRuntime, tokens: list[int]) -> TokenIds:
    unknown = [token for token in tokens if not 0 <= token < runtime.vocabulary]
    if unknown:
        raise ResearchBadRequest(f"Token id {unknown[0]} is out of the vocabulary of {runtime.vocabulary}.")
    return tuple(tokens)


def _generation_request(
    runtime: GenerationRuntime, body: ResearchRequestBody, prompt: TokenIds, *, chat: bool
) -> GenerationRequest:
    room = runtime.max_length - len(prompt)
    limit = body.max_completion_tokens or body.max_tokens or (room if chat else COMPLETION_MAX_TOKENS)
    if limit > room or room < 1:
        raise ResearchBadRequest(
            f"This model's maximum context length is {runtime.max_length} tokens; the prompt has {len(prompt)} and"
            f" {limit} were requested."
        )
    return GenerationRequest(
        prompt=prompt,
        max_tokens=limit,
        # Like vLLM without a generation_config: greedy decoding must be requested.
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        ignore_eos=bool(body.ignore_eos),
    )
