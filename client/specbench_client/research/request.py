"""Reads the bodies of both OpenAI routes, in vLLM's words.

Stricter than vLLM on purpose: a field that this runtime does not honour is refused, because an answer that ignores it
would be measured as if it had not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specbench_client.research.errors import BadRequest, UnknownModel
from specbench_client.research.runtime import Job, Runtime, Tokens

COMPLETION_MAX_TOKENS = 16
"""Where a completion names none, as in vLLM and OpenAI's old API; a chat fills the context."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "stop": ([],), "echo": (False,), "logprobs": (False,), "tools": ([],),
    "min_tokens": (0,), "top_k": (-1, 0), "min_p": (0,), "repetition_penalty": (1,), "presence_penalty": (0,),
    "frequency_penalty": (0,), "add_generation_prompt": (True,),
}  # fmt: skip
"""Fields that are understood only where they change nothing, and their values that do."""


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(BaseModel):
    """One message; content is text or a list of text parts."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class Body(BaseModel):
    """Both routes in one: `messages` of a chat, `prompt` of a completion."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    prompt: str | list[int] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    ignore_eos: bool | None = False
    return_token_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: what is to be generated, and how the answer is wanted."""

    request_id: str
    chat: bool
    job: Job
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False


def read_request(runtime: Runtime, data: bytes, request_id: str, *, chat: bool) -> Asked:
    """Return what is asked. Raises BadRequest, UnknownModel."""
    body = _validated(data)
    _refuse_what_is_not_honoured(body)
    if body.model not in (None, runtime.model_name):
        raise UnknownModel(f"The model `{body.model}` does not exist; `{runtime.model_name}` is served.")
    options = body.stream_options or StreamOptions()
    return Asked(
        request_id=request_id,
        chat=chat,
        job=_job(runtime, body, _prompt(runtime, body, chat=chat), chat=chat),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        token_ids=bool(body.return_token_ids),
    )


def _validated(data: bytes) -> Body:
    try:
        return Body.model_validate(json.loads(data))
    except ValidationError as error:
        said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise BadRequest("; ".join(said)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error


def _refuse_what_is_not_honoured(body: Body) -> None:
    for name, value in (body.model_extra or {}).items():
        if value is not None and value not in NEUTRAL.get(name, ()):
            raise BadRequest(f"The research runtime does not honour {name}={value!r}: leave it out.")


def _prompt(runtime: Runtime, body: Body, *, chat: bool) -> Tokens:
    if chat and body.messages and body.prompt is None:
        return runtime.chat([{"role": one.role, "content": one.text} for one in body.messages])
    if not chat and body.prompt and body.messages is None:
        return _ids(runtime, body.prompt) if isinstance(body.prompt, list) else runtime.encode(body.prompt)
    raise BadRequest("messages are needed, and no prompt" if chat else "one prompt is needed, as text or token ids")


def _ids(runtime: Runtime, given: list[int]) -> Tokens:
    strange = [token for token in given if not 0 <= token < runtime.vocabulary]
    if strange:
        raise BadRequest(f"Token id {strange[0]} is out of the vocabulary of {runtime.vocabulary}.")
    return tuple(given)


def _job(runtime: Runtime, body: Body, prompt: Tokens, *, chat: bool) -> Job:
    room = runtime.max_length - len(prompt)
    limit = body.max_completion_tokens or body.max_tokens or (room if chat else COMPLETION_MAX_TOKENS)
    if limit > room or room < 1:
        raise BadRequest(
            f"This model's maximum context length is {runtime.max_length} tokens; the prompt has {len(prompt)} and"
            f" {limit} were asked for."
        )
    return Job(
        prompt=prompt,
        max_tokens=limit,
        # As vLLM without a generation_config: greedy must be asked for.
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        ignore_eos=bool(body.ignore_eos),
    )
