"""`spec.workloads[].chatTemplate`: who turns the messages of a conversation into the model's tokens.

An engine that is sent messages renders them by its own chat template, and by its own reading of it: versions of a
template differ, some engines add a beginning-of-sequence token of theirs, a date in a template changes from day to
day. Rendered by the client, every engine is sent the very same token ids.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from specbench_api.model import ApiModel, Open, Rule, refuse_broken


class AppliedBy(StrEnum):
    """Who renders the conversation."""

    ENGINE = "Engine"
    CLIENT = "Client"


TEMPLATE_DATE = dt.date(2026, 1, 1)
"""What `strftime_now` of a template tells where the spec gives no date."""
CLAIMED_KWARGS = {
    "messages": "they come from the dataset",
    "add_generation_prompt": "it is always true: the answer is what is measured",
    "continue_final_message": "the last message is the user's, and nothing is to be continued",
    "strftime_now": "set chatTemplate.date",
    "raise_exception": "it is how a template refuses",
}
"""Variables of a template that are not for `kwargs`, and what to do instead."""
CLAIMED_BESIDE = {
    "chat_template": "set chatTemplate.template",
    "chat_template_kwargs": "set chatTemplate.kwargs",
    "chat_template_args": "set chatTemplate.kwargs",
    "reasoning_effort": "set it in chatTemplate.kwargs",
    "add_generation_prompt": "it is always true",
    "tools": "set them in chatTemplate.kwargs",
    "documents": "set them in chatTemplate.kwargs",
    "add_special_tokens": "the template writes every special token itself",
}
"""Fields of `extraBody` that reach an engine's chat template alone, and so nothing that is sent as token ids."""


def _day(text: str) -> str:
    """A day of the calendar, as the API server's format `date` has it."""
    try:
        dt.date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is no day of the calendar") from error
    return text


def _written(value: Any) -> Any:
    """`--set` reads a day as a date; a file's is text."""
    return value.isoformat() if type(value) is dt.date else value


Day = Annotated[
    str,
    BeforeValidator(_written),
    Field(min_length=10, max_length=10, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", json_schema_extra={"format": "date"}),
    AfterValidator(_day),
]


class ChatTemplate(ApiModel):
    """How messages become tokens.

    CEL sees no map that is open to anything, so the API server takes `kwargs` beside appliedBy: Engine; we do not.
    """

    rules: ClassVar = (
        Rule(
            "self.appliedBy == 'Client' || (!has(self.tokenizer) && !has(self.template) && !has(self.name)"
            " && !has(self.date))",
            "chatTemplate.tokenizer, template, name, kwargs and date are the client's: set appliedBy: Client, or give"
            " the engine its own by extraBody.chat_template_kwargs and engine.args",
        ),
        Rule(
            "!has(self.template) || !has(self.name)",
            "chatTemplate.template is a file of your own and name one of the tokenizer's templates: give one of them",
        ),
    )

    applied_by: AppliedBy
    """Engine: messages are sent, and the engine renders them by its own template (as where chatTemplate is left out).
    Client: the client renders them and sends token ids, the same to every engine."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Where tokenizer.json and the template lie: a folder, s3://BUCKET/FOLDER/, or OWNER/NAME[@REVISION] of the hub.
    Without it: spec.model.tokenizer, else the model's own."""
    template: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A Jinja file of your own instead of the tokenizer's template: a path, or s3://BUCKET/KEY."""
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Which template, of a tokenizer that has several by name; `default` where none is named."""
    kwargs: Annotated[dict[str, Any], Field(max_length=32), Open()] = {}
    """Variables of the template: enable_thinking, reasoning_effort, tools, … Keys of objects reach it in alphabetical
    order, in which the API server keeps them too."""
    date: Day | None = None
    """The day that a template is told where it asks for today (`strftime_now`), so that a prompt is the same tomorrow;
    midnight of 2026-01-01 where none is given."""

    @model_validator(mode="after")
    def _the_clients_own(self) -> ChatTemplate:
        given = (self.tokenizer, self.template, self.name, self.date, self.kwargs or None)
        ours = self.applied_by is AppliedBy.CLIENT
        refuse_broken(self.rules, (ours or not any(given), self.template is None or self.name is None))
        return self

    @property
    def by_client(self) -> bool:
        """Whether token ids are sent."""
        return self.applied_by is AppliedBy.CLIENT

    @property
    def today(self) -> dt.date:
        """What the template is told."""
        return dt.date.fromisoformat(self.date) if self.date else TEMPLATE_DATE
