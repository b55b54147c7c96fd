"""A chat template with its tokenizer as plain data, which can be sent to a worker, and what it makes of messages."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError

from specbench_client.chat import Message
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.channels import Spoken, opens_thought, split_channels
from specbench_client.workload.chat_template.environment import compiled
from specbench_client.workload.chat_template.tokens import Tokens, load_tokens

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""By which names templates ask for what an assistant thought; each is given where the template's text names it."""
_FOUR_BYTES = "I"
_FAULTS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What Python raises of a template that takes a conversation for another than it is."""


@dataclass(frozen=True)
class AppliedTemplate:
    """Everything that the token ids of a conversation depend on besides its messages.

    `variables` is the canonical JSON of the special tokens' names and of the user's kwargs: a point's hash knows no
    order of keys, and the API server keeps none, so a template is given one order everywhere. `special_markers` are
    the markers of thought that the tokenizer has as special tokens; `where` names it in errors.
    """

    tokenizer_json: bytes = field(repr=False)
    source: str = field(repr=False)
    variables: str
    today: date
    special_markers: tuple[str, ...]
    where: str

    @property
    def template_sha256(self) -> str:
        """Of the template's text, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def tokenizer_sha256(self) -> str:
        """Of tokenizer.json, in hex."""
        return hashlib.sha256(self.tokenizer_json).hexdigest()

    def ready(self) -> None:
        """Compile and parse, once a process. Raises BadInput where one of the two cannot be."""
        _built(self)

    def text(self, messages: Sequence[Message]) -> str:
        """The conversation as the model reads it, up to where its answer begins. Raises BadInput."""
        built, variables = _built(self), json.loads(self.variables)
        told = [self._plain(message) for message in messages]
        tools = _offered(messages)
        if tools and variables.get("tools"):
            raise BadInput("the prompt offers tools, and so does chatTemplate.kwargs: take them out of the kwargs")
        try:
            return built.template.render(**{"tools": None, "documents": None} | variables | tools | _asked_of(told))
        except (TemplateError, *_FAULTS) as error:
            said = f"{type(error).__name__}: {error}" if not isinstance(error, TemplateError) else f"{error}"
            raise BadInput(f"the chat template of {self.where} refuses the conversation: {said}") from error

    def asked(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The same messages, the last with the token ids of them all; unchanged where they are there. Raises BadInput.

        Nothing is added to what the template wrote: a beginning-of-sequence token stands there once or not at all. The
        ids are an array of four bytes each: as integers of Python, those of a set of long prompts would be gigabytes.
        """
        last = messages[-1]
        if last.token_ids is not None:
            return messages
        ids = array(_FOUR_BYTES, _built(self).tokens.encode(self.text(messages)))
        return (*messages[:-1], replace(last, token_ids=ids))

    def spoken(self, messages: Sequence[Message], text: str) -> Spoken:
        """An answer to what was asked, in its two parts."""
        ids = messages[-1].token_ids
        return split_channels(text, thinking=ids is not None and opens_thought(_built(self).tokens.tail(ids)))

    def _plain(self, message: Message) -> dict[str, Any]:
        """As a template reads it."""
        names = REASONING_FIELDS if message.reasoning else ()
        thought = {name: message.reasoning for name in names if name in self.source}
        further = json.loads(message.further) if message.further else {}
        return {"role": message.role, "content": message.content, **thought, **further}


@dataclass(frozen=True)
class _Built:
    template: Template
    tokens: Tokens


@lru_cache(maxsize=8)
def _built(template: AppliedTemplate) -> _Built:
    """Compiled and parsed once a process: a large vocabulary takes a second."""
    try:
        return _Built(compiled(template.source, template.today), load_tokens(template.tokenizer_json, template.where))
    except TemplateError as error:
        raise BadInput(f"the chat template of {template.where} is no Jinja: {error}") from error


def _offered(messages: Sequence[Message]) -> dict[str, Any]:
    return {"tools": json.loads(messages[0].tools)} if messages and messages[0].tools else {}


def _asked_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"messages": messages, "add_generation_prompt": True}
