"""Reads the bodies of vLLM's two OpenAI routes.

Unknown fields are ignored, as vLLM does. Fields that would change the answer in a way the simulator does not imitate
are refused: an answer that silently ignores ``n`` or ``stop`` would be a lie that no test asked for.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.simulator.ask import Ask, Delivery, Kind, Prompt
from specbench_client.simulator.config import MODEL_NAME, SimulatorConfig
from specbench_client.simulator.errors import BadRequest, UnknownModel
from specbench_client.simulator.text import count_tokens

# vLLM's defaults: chat fills the context, completions keep OpenAI's old 16.
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
    # Without a generation_config vLLM samples at 1.0: greedy must be asked for.
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


def read_body(config: SimulatorConfig, kind: Kind, body: bytes, request_id: str, received_ns: int) -> Ask:
    """Return the request; BadRequest and UnknownModel as vLLM words them."""
    parsed = _validated(kind, body)
    _refuse_what_is_not_simulated(parsed)
    options = parsed.stream_options or StreamOptions()
    if parsed.stream_options and not parsed.stream:
        raise BadRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
    model = parsed.model or MODEL_NAME
    if model not in config.model_names:
        raise UnknownModel(f"The model `{model}` does not exist.", param="model")
    return Ask(
        request_id=request_id,
        received_ns=received_ns,
        kind=kind,
        model=model,
        prompt=_prompt(parsed),
        delivery=Delivery(
            stream=bool(parsed.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
            token_ids=bool(parsed.return_token_ids),
        ),
        max_tokens=_max_tokens(parsed),
        min_tokens=parsed.min_tokens,
        ignore_eos=parsed.ignore_eos,
        temperature=1.0 if parsed.temperature is None else parsed.temperature,
        seed=parsed.seed,
    )


def _validated(kind: Kind, body: bytes) -> ChatBody | CompletionBody:
    try:
        return (ChatBody if kind is Kind.CHAT else CompletionBody).model_validate(json.loads(body))
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False, include_input=False)]
        raise BadRequest(str(found)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(
            str([{"type": "json_invalid", "loc": ("body",), "msg": f"JSON decode error: {error}"}])
        ) from error


def _refuse_what_is_not_simulated(parsed: Body) -> None:
    for name, allowed in REFUSED.items():
        value = (parsed.model_extra or {}).get(name, allowed)
        if value is not None and value != allowed and value not in (False, []):
            raise BadRequest(f"The simulator does not imitate {name}={value!r}: leave it out.", param=name)


def _max_tokens(parsed: ChatBody | CompletionBody) -> int | None:
    if isinstance(parsed, CompletionBody):
        return parsed.max_tokens or COMPLETION_MAX_TOKENS
    return parsed.max_completion_tokens or parsed.max_tokens


def _prompt(parsed: ChatBody | CompletionBody) -> Prompt:
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
