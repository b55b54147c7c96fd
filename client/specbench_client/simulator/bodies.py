"""What the bodies of all engines' two OpenAI routes have in common, read as leniently as the most lenient of them.

Fields that would change the answer in a way the simulator does not imitate are refused: an answer that silently ignores
``n`` or ``stop`` would be a lie that no test asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.simulator.ask import Arrival, Ask, Delivery, Kind, Prompt
from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.errors import BadRequest, InvalidBody
from specbench_client.simulator.text import count_tokens

# What every engine's completions keep of OpenAI: 16 tokens, unless asked.
COMPLETION_MAX_TOKENS = 16
REFUSED = {"n": 1, "best_of": 1, "stop": None, "echo": False, "logprobs": None, "prompt_logprobs": None, "tools": None}


class StreamOptions(BaseModel):
    """``stream_options``."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(BaseModel):
    """One message; content is text or a list of text parts."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class Body(BaseModel):
    """What both routes share."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    # Without a generation_config engines sample at 1.0: greedy must be asked for.
    temperature: Annotated[float, Field(ge=0)] | None = None
    seed: int | None = None
    return_token_ids: bool | None = None


class ChatBody(Body):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


class CompletionBody(Body):
    """``POST /v1/completions``; one prompt, as text or as token ids."""

    prompt: str | list[int] | list[str] | list[list[int]]


AnyBody = ChatBody | CompletionBody


def document_of(arrival: Arrival) -> Any:
    """Return the body's JSON; InvalidBody where it is none."""
    try:
        return json.loads(arrival.body)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidBody([{"type": "json_invalid", "loc": ("body",), "msg": f"JSON decode error: {error}"}]) from error


def validated(kind: Kind, document: Any) -> AnyBody:
    """Return the body of this route; InvalidBody lists what is wrong, as pydantic does."""
    try:
        parsed = (ChatBody if kind is Kind.CHAT else CompletionBody).model_validate(document)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False, include_input=False)]
        raise InvalidBody(found) from error
    _refuse_what_is_not_simulated(parsed)
    return parsed


def ask_of(arrival: Arrival, parsed: AnyBody, delivery: Delivery, max_tokens: int | None) -> Ask:
    """Return the request in no engine's words."""
    return Ask(
        request_id=arrival.request_id,
        received_ns=arrival.received_ns,
        kind=arrival.kind,
        model=parsed.model or MODEL_NAME,
        prompt=_prompt(parsed),
        delivery=delivery,
        max_tokens=max_tokens,
        min_tokens=parsed.min_tokens,
        ignore_eos=parsed.ignore_eos,
        temperature=1.0 if parsed.temperature is None else parsed.temperature,
        seed=parsed.seed,
    )


def max_tokens_of(parsed: AnyBody, completion: int | None = COMPLETION_MAX_TOKENS) -> int | None:
    """Return the most tokens of the answer; chat fills the context where none are named."""
    if isinstance(parsed, CompletionBody):
        return parsed.max_tokens or completion
    return parsed.max_completion_tokens or parsed.max_tokens


def _refuse_what_is_not_simulated(parsed: Body) -> None:
    extra: Mapping[str, Any] = parsed.model_extra or {}
    for name, allowed in REFUSED.items():
        value = extra.get(name, allowed)
        if value is not None and value != allowed and value not in (False, []):
            raise BadRequest(f"The simulator does not imitate {name}={value!r}: leave it out.", param=name)


def _prompt(parsed: AnyBody) -> Prompt:
    if isinstance(parsed, ChatBody):
        turns = [(one.role, one.text) for one in parsed.messages]
        users = tuple(text for role, text in turns if role == "user")
        return Prompt(json.dumps(turns), users, sum(count_tokens(text) for _, text in turns))
    prompt: Any = parsed.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise BadRequest("The simulator takes one prompt a request.", param="prompt")
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return Prompt(prompt, (prompt,), count_tokens(prompt))
    if not prompt:
        raise BadRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    return Prompt(json.dumps(prompt), (), len(prompt))
