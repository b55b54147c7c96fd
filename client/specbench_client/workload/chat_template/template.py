"""Renders messages with a chat template and tokenizer. `AppliedTemplate` is plain data that can be sent to workers."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.reasoning import SplitAnswer, opens_reasoning, split_channels
from specbench_client.workload.chat_template.tokenizer import ChatTokenizer, load_chat_tokenizer
from specbench_client.workload.row_parsing import Prompt

# The Jinja environment matches the one in transformers, with one difference: `strftime_now` formats midnight of the day
# that the spec declares, not the time of the call. Otherwise the same messages would give another prompt every day.


class GenerationMarks(Extension):
    """Renders `{% generation %} … {% endgeneration %}`, which marks the assistant's text for training, as its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Parse the block and return its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str, today: date) -> Template:
    """Compile a chat template. Raises jinja2.TemplateSyntaxError."""
    environment = _sandbox()
    midnight = datetime.combine(today, time())
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = midnight.strftime
    return environment.from_string(source)


def required_variables(source: str) -> set[str]:
    """Return the variables that a template uses and does not set itself. Raises jinja2.TemplateSyntaxError."""
    return meta.find_undeclared_variables(_sandbox().parse(source))


def _sandbox() -> Environment:
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMarks, loopcontrols]
    )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 -- templates pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Serialise to JSON for a template. Jinja's own filter would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    """Raise an error from within a template, which reports a conversation that it cannot render."""
    raise TemplateError(message)


REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Names of the assistant's reasoning in templates; each one that occurs in a template's text is set."""
_FOUR_BYTES = "I"
_RENDER_ERRORS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""Python exceptions that a template raises for a conversation of an unexpected shape."""


@dataclass(frozen=True)
class AppliedTemplate:
    """Everything besides the messages that determines the token ids of a conversation.

    `variables` is the canonical JSON of the named special tokens and of the user's kwargs. Neither a point's hash nor
    the API server preserves the order of keys, so templates always receive them in canonical order. `special_markers`
    are the reasoning markers that are special tokens of the tokenizer. `where` names the tokenizer in errors.
    """

    tokenizer_json: bytes = field(repr=False)
    source: str = field(repr=False)
    variables: str
    today: date
    special_markers: tuple[str, ...]
    where: str

    @property
    def template_sha256(self) -> str:
        """SHA-256 of the template's text, in hexadecimal."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def tokenizer_sha256(self) -> str:
        """SHA-256 of tokenizer.json, in hexadecimal."""
        return hashlib.sha256(self.tokenizer_json).hexdigest()

    def prepare(self) -> None:
        """Compile the template and load the tokenizer, once per process. Raises BadInput if either is invalid."""
        _load_once(self)

    def text(self, messages: Sequence[ChatMessage]) -> str:
        """Render the conversation up to the beginning of the model's answer. Raises BadInput."""
        loaded, variables = _load_once(self), json.loads(self.variables)
        plain = [self._plain(message) for message in messages]
        tools = {"tools": json.loads(messages[0].tools)} if messages and messages[0].tools else {}
        if tools and variables.get("tools"):
            raise BadInput(
                "both the prompt and chatTemplate.kwargs define tools: remove tools from chatTemplate.kwargs"
            )
        try:
            defaults = {"tools": None, "documents": None}
            conversation = {"messages": plain, "add_generation_prompt": True}
            return loaded.template.render(**defaults | variables | tools | conversation)
        except (TemplateError, *_RENDER_ERRORS) as error:
            reason = f"{error}" if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            raise BadInput(f"the chat template of {self.where} rejected the conversation: {reason}") from error

    def with_token_ids(self, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """Return the messages with the token ids of all of them in the last one, if not there yet. Raises BadInput.

        No token is added to the template's output, which contains a beginning-of-sequence token once or not at all. The
        ids are an array of four bytes each, because as Python integers those of long prompts would take gigabytes.
        """
        last = messages[-1]
        if last.token_ids is not None:
            return messages
        ids = array(_FOUR_BYTES, _load_once(self).tokens.encode(self.text(messages)))
        return (*messages[:-1], replace(last, token_ids=ids))

    def split_answer(self, messages: Sequence[ChatMessage], text: str) -> SplitAnswer:
        """Split an answer to these messages into reasoning and final text."""
        ids = messages[-1].token_ids
        return split_channels(text, thinking=ids is not None and opens_reasoning(_load_once(self).tokens.tail(ids)))

    def _plain(self, message: ChatMessage) -> dict[str, Any]:
        """Return a message as the dictionary that templates expect."""
        names = REASONING_FIELDS if message.reasoning else ()
        reasoning = {name: message.reasoning for name in names if name in self.source}
        if message.parts:
            raise BadInput(
                "has content in parts, which each engine's template joins in its own way: let the engine apply the chat"
                " template (leave chatTemplate.appliedBy: Client out), or give the content as one text"
            )
        return {**message.sent, **reasoning}


@dataclass(frozen=True)
class _LoadedTemplate:
    template: Template
    tokens: ChatTokenizer


@lru_cache(maxsize=8)
def _load_once(template: AppliedTemplate) -> _LoadedTemplate:
    """Compile and load once per process, because a large vocabulary takes a second to load."""
    try:
        return _LoadedTemplate(
            compile_template(template.source, template.today),
            load_chat_tokenizer(template.tokenizer_json, template.where),
        )
    except TemplateError as error:
        raise BadInput(f"the chat template of {template.where} is not valid Jinja: {error}") from error


ANSWER_PLACEHOLDER = ChatMessage("assistant", ".")
"""Stands for an answer that is not known yet; as short as possible."""


@dataclass(frozen=True)
class RenderedPrompts:
    """Prompts with the token ids of their first requests, and the length of each prompt's longest request by its id.

    `tokens` is exact for prompts of one turn. For others it is a lower bound, with the shortest possible answers.
    """

    rows: tuple[Prompt, ...]
    tokens: Mapping[str, int]


def render_prompts(prompts: Sequence[Prompt], template: AppliedTemplate) -> RenderedPrompts:
    """Render all turns of all prompts, so that a template that rejects one does so now. Raises BadInput."""
    rows, tokens = list[Prompt](), dict[str, int]()
    for prompt in prompts:
        try:
            first, *later = prompt.turns
            request = opening = template.with_token_ids(first)
            for turn in later if not prompt.starts else ():
                request = template.with_token_ids((*request, ANSWER_PLACEHOLDER, *turn))
            if prompt.starts:  # only the longest: rendering all would take time that is quadratic in their number
                request = template.with_token_ids(tuple(prompt.messages))
        except BadInput as error:
            raise BadInput(f"prompt {prompt.id!r}: {error}") from error
        rows.append(replace(prompt, turns=(opening, *later)))
        tokens[prompt.id] = len(request[-1].token_ids or ())
    return RenderedPrompts(tuple(rows), tokens)
