"""Requests and results independent of any product: dialects parse bodies into them and format responses from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.openai_server_formats import (
    COMPLETION_MAX_TOKENS,
    MessageBody,
    RejectedBody,
    RequestTiming,
    StreamOptionsBody,
)
from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.errors import InvalidRequestBody
from specbench_client.simulator.generated_text import FREE_FORM, AnswerForm, choose_tool, message_words, split_tokens
from specbench_client.simulator.speculation import StepOutcome


@dataclass(frozen=True, slots=True)
class SimulatedPrompt:
    """A prompt: its identity (determines the answer), its texts (to look up a category), and its tokens.

    ``words``: one per token; those of a chat's messages begin with the role.
    """

    identity: str
    texts: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return len(self.words)


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Response options that the client requested."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    speculation: bool = False
    """Whether to report speculation statistics, for engines that report them only on request."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """An unparsed request: its body, id, and time of arrival (monotonic ns). `chat`: whether it is for a chat."""

    chat: bool
    body: bytes
    request_id: str
    received_ns: int


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One request. ``max_tokens`` None: up to the context length. Times are monotonic ns."""

    request_id: str
    received_ns: int
    chat: bool
    model: str
    prompt: SimulatedPrompt
    delivery: ResponseOptions = ResponseOptions()
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0
    seed: int | None = None
    form: AnswerForm = FREE_FORM


@dataclass(frozen=True, slots=True)
class SimulatedResponse:
    """A finished answer. ``reported_tokens``: the count in usage, which differs from ``len(words)`` under a fault."""

    words: tuple[str, ...]
    finish_reason: str
    outcomes: tuple[StepOutcome, ...]
    reported_tokens: int
    cached_tokens: int
    timing: RequestTiming


# The body models contain what all engines' routes have in common and are as lenient as the most lenient engine. Fields
# that change the answer in a way that is not imitated are rejected: ignoring ``n`` or ``stop`` would be an unintended
# fault.

UNSUPPORTED_FIELDS = {
    "n": 1,
    "best_of": 1,
    "stop": None,
    "echo": False,
    "logprobs": None,
    "prompt_logprobs": None,
    "structured_outputs": None,
    "regex": None,
    "ebnf": None,
    "return_token_ids": None,
}


class RequestBody(BaseModel):
    """Fields that both routes share."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptionsBody | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    # Without a generation_config engines sample at 1.0, so greedy decoding must be requested.
    temperature: Annotated[float, Field(ge=0)] | None = None
    seed: int | None = None


class ChatRequestBody(RequestBody):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[MessageBody], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


class CompletionRequestBody(RequestBody):
    """``POST /v1/completions`` with one prompt, as text or as token ids."""

    prompt: str | list[int] | list[str] | list[list[int]]


AnyRequestBody = ChatRequestBody | CompletionRequestBody


def parse_json_body(arrival: ReceivedRequest) -> Any:
    """Parse the body's JSON. Raises InvalidRequestBody."""
    try:
        return json.loads(arrival.body)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestBody(
            [{"type": "json_invalid", "loc": ("body",), "msg": f"JSON decode error: {error}"}]
        ) from error


def validate_body(arrival: ReceivedRequest, document: Any) -> AnyRequestBody:
    """Validate the body's parsed JSON. Raises InvalidRequestBody with pydantic's list of errors."""
    try:
        parsed = (ChatRequestBody if arrival.chat else CompletionRequestBody).model_validate(document)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False, include_input=False)]
        raise InvalidRequestBody(found) from error
    _reject_unsupported_fields(parsed)
    return parsed


def build_request(
    arrival: ReceivedRequest,
    parsed: AnyRequestBody,
    delivery: ResponseOptions,
    max_tokens: int | None,
    schema: Any = None,
) -> SimulatedRequest:
    """Build the product-independent request. ``schema``: the one of its response format, if it has one."""
    prompt, form = _prompt(parsed), AnswerForm(schema)
    extra = parsed.model_extra or {}
    if extra.get("tools"):
        if isinstance(parsed, CompletionRequestBody) or schema is not None:
            message = "The simulator imitates tools only in a chat without a response_format: omit tools."
            raise RejectedBody(message, param="tools")
        form = choose_tool(extra["tools"], extra.get("tool_choice"), prompt.identity)
    return SimulatedRequest(
        request_id=arrival.request_id,
        received_ns=arrival.received_ns,
        chat=arrival.chat,
        model=parsed.model or MODEL_NAME,
        prompt=prompt,
        delivery=delivery,
        max_tokens=max_tokens,
        min_tokens=parsed.min_tokens,
        ignore_eos=parsed.ignore_eos,
        temperature=1.0 if parsed.temperature is None else parsed.temperature,
        seed=parsed.seed,
        form=form,
    )


def openai_schema(parsed: AnyRequestBody) -> Any:
    """Return the schema of a ``response_format`` in OpenAI's form; None if the answer is any text."""
    requested = (parsed.model_extra or {}).get("response_format") or {"type": "text"}
    if requested == {"type": "text"}:
        return None
    match requested:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return schema
    raise unknown_format(requested, '{"type": "json_schema", "json_schema": {"name": …, "schema": …}}')


def unknown_format(requested: Any, known: str) -> RejectedBody:
    """Return the error for a response format that is not imitated."""
    message = f"The simulator does not imitate response_format={requested!r}: give {known}."
    return RejectedBody(message, param="response_format")


def output_token_limit(parsed: AnyRequestBody, completion: int | None = COMPLETION_MAX_TOKENS) -> int | None:
    """Return the maximum number of output tokens; None for a chat without a limit, which fills the context."""
    if isinstance(parsed, CompletionRequestBody):
        return parsed.max_tokens or completion
    return parsed.max_completion_tokens or parsed.max_tokens


def _reject_unsupported_fields(parsed: RequestBody) -> None:
    extra: Mapping[str, Any] = parsed.model_extra or {}
    for name, allowed in UNSUPPORTED_FIELDS.items():
        value = extra.get(name, allowed)
        if value is not None and value != allowed and value not in (False, []):
            raise RejectedBody(f"The simulator does not imitate {name}={value!r}: omit it.", param=name)


def _called(message: MessageBody) -> str:
    """Return the arguments of a message's tool calls, which are its text."""
    calls: Any = (message.model_extra or {}).get("tool_calls") or []
    return " ".join(str(call["function"]["arguments"]) for call in calls)


def _prompt(parsed: AnyRequestBody) -> SimulatedPrompt:
    if isinstance(parsed, ChatRequestBody):
        turns = [(one.role, one.text or _called(one)) for one in parsed.messages]
        users = tuple(text for role, text in turns if role == "user")
        tools = (parsed.model_extra or {}).get("tools")
        shown = [("tools", json.dumps(tools)), *turns] if tools else turns
        words = tuple(word for role, text in shown for word in message_words(role, text))
        return SimulatedPrompt(json.dumps(turns), users, words)
    prompt: Any = parsed.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise RejectedBody("The simulator accepts one prompt per request.", param="prompt")
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return SimulatedPrompt(prompt, (prompt,), split_tokens(prompt))
    if not prompt:
        raise RejectedBody("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    return SimulatedPrompt(json.dumps(prompt), (), tuple(map(str, prompt)))
