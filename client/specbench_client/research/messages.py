"""Parses the bodies of the two OpenAI routes, and formats responses, with vLLM's fields, keys and order.

Parsing is stricter than vLLM: an unsupported field is rejected, because ignoring it would silently change the
measurement. One chunk of a response is one step and may contain several tokens. The request's statistics are in the
usage chunk, which is sent only on request, or in the body of a response that is not streamed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.openai_server_formats import (
    COMPLETION_MAX_TOKENS,
    MessageBody,
    RejectedBody,
    RejectedRequest,
    RequestTiming,
    StreamOptionsBody,
    VllmResponse,
    speculation_metrics,
)
from specbench_client.research.runtime import (
    GenerationRequest,
    GenerationRuntime,
    GenerationStep,
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
    """One request: the generation, and the form of its response."""

    job: GenerationRequest
    vllm: VllmResponse
    stream: bool = False
    token_ids: bool = False


def read_request(runtime: GenerationRuntime, data: bytes, request_id: str, *, chat: bool) -> ParsedRequest:
    """Parse a request. Raises RejectedRequest."""
    body = _validated(data)
    _reject_unsupported_fields(body)
    if body.model not in (None, runtime.model_name):
        message = f"The model `{body.model}` does not exist; `{runtime.model_name}` is served."
        raise RejectedRequest(message, HTTPStatus.NOT_FOUND)
    options = body.stream_options or StreamOptionsBody()
    job = _generation_request(runtime, body, _prompt(runtime, body, chat=chat), chat=chat)
    vllm = VllmResponse(
        request_id,
        runtime.model_name,
        f"transformers-{runtime.version}",
        chat,
        len(job.prompt),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
    )
    return ParsedRequest(job, vllm, stream=bool(body.stream), token_ids=bool(body.return_token_ids))


def _validated(data: bytes) -> ResearchRequestBody:
    try:
        return ResearchRequestBody.model_validate(json.loads(data))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise RejectedBody("; ".join(problems)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RejectedBody(f"the body is not valid JSON: {error}") from error


def _reject_unsupported_fields(body: ResearchRequestBody) -> None:
    for name, value in (body.model_extra or {}).items():
        if value is not None and value not in NEUTRAL_VALUES.get(name, ()):
            raise RejectedBody(f"The research runtime does not support {name}={value!r}: omit it.")


def _prompt(runtime: GenerationRuntime, body: ResearchRequestBody, *, chat: bool) -> TokenIds:
    if chat and body.messages and body.prompt is None:
        return runtime.chat([{"role": one.role, "content": one.text} for one in body.messages])
    if not chat and body.prompt and body.messages is None:
        return _ids(runtime, body.prompt) if isinstance(body.prompt, list) else runtime.encode(body.prompt)
    raise RejectedBody("give messages and no prompt" if chat else "give one prompt, as text or token ids")


def _ids(runtime: GenerationRuntime, tokens: list[int]) -> TokenIds:
    unknown = [token for token in tokens if not 0 <= token < runtime.vocabulary]
    if unknown:
        raise RejectedBody(f"Token id {unknown[0]} is out of the vocabulary of {runtime.vocabulary}.")
    return tuple(tokens)


def _generation_request(
    runtime: GenerationRuntime, body: ResearchRequestBody, prompt: TokenIds, *, chat: bool
) -> GenerationRequest:
    room = runtime.max_length - len(prompt)
    limit = body.max_completion_tokens or body.max_tokens or (room if chat else COMPLETION_MAX_TOKENS)
    if limit > room or room < 1:
        raise RejectedBody(
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


@dataclass(slots=True)
class ResearchResponse:
    """Formats one response. `depth`: maximum draft tokens per step; with 0 there are no speculation statistics."""

    parsed: ParsedRequest
    depth: int
    timing: RequestTiming
    steps: list[GenerationStep] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, step: GenerationStep) -> None:
        """Add a step of the answer."""
        self.steps.append(step)
        self.tokens += step.tokens

    def chunk(self, step: GenerationStep, text: str, finish_reason: str | None) -> bytes:
        """Add a step, and return its chunk."""
        self.add(step)
        ids = step.tokens if self.parsed.token_ids else None
        return self.parsed.vllm.chunk(text, len(self.tokens), finish_reason, token_ids=ids)

    def closing(self) -> bytes:
        """Return the usage chunk, if requested, and the end of the stream."""
        return b"".join(self.parsed.vllm.closing(len(self.tokens), 0, self._metrics()))

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        ids = self.tokens if self.parsed.token_ids else None
        return self.parsed.vllm.whole(text, finish_reason, len(self.tokens), 0, self._metrics(), token_ids=ids)

    def _metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = self.timing.metrics(len(self.tokens))
        if self.depth:
            drafted, accepted = [step.drafted for step in self.steps], [step.accepted for step in self.steps]
            metrics["speculative_decoding"] = speculation_metrics(drafted, accepted, self.depth)
        return metrics


BROKEN = "\ufffd"
"""The replacement character that decoding gives for an incomplete character."""


class Detokenizer:
    """Decodes tokens step by step; tokens that end inside a character wait for the rest of it.

    Only a window of recent tokens is decoded, because decoding the whole answer at every step would take quadratic
    time. The window includes the previous delivered tokens, because a token's text may depend on the token before it.
    """

    def __init__(self, decode: Callable[[TokenIds], str]) -> None:
        self._decode = decode
        self._window: TokenIds = ()
        self._delivered = 0

    def push(self, tokens: TokenIds) -> str:
        """Add tokens and return the text that they complete."""
        self._window += tokens
        before, now = self._texts()
        if now.endswith(BROKEN) or len(now) <= len(before):
            return ""
        self._window = self._window[self._delivered :]
        self._delivered = len(self._window)
        return now[len(before) :]

    def flush(self) -> str:
        """Return the remaining text at the end of the answer."""
        before, now = self._texts()
        return now[len(before) :]

    def _texts(self) -> tuple[str, str]:
        return self._decode(self._window[: self._delivered]), self._decode(self._window)
