"""`spec.workloads[].chatTemplate`: who renders the messages of a conversation into the model's tokens.

An engine that receives messages renders them with its own chat template and its own implementation of it: template
versions differ, some engines add a beginning-of-sequence token, and a date in a template changes from day to day. When
the client renders them, every engine receives exactly the same token ids.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from specbench_api.api_model import PreserveUnknown, RuledModel, ValidationRule


class AppliedBy(StrEnum):
    """Who renders the conversation."""

    ENGINE = "Engine"
    CLIENT = "Client"


TEMPLATE_DATE = dt.date(2026, 1, 1)
"""The date that a template's `strftime_now` returns if the spec sets none."""
RESERVED_KWARGS = {
    "messages": "they come from the dataset",
    "add_generation_prompt": "it is always true: the answer is what is measured",
    "continue_final_message": "the last message is the user's, so there is nothing to continue",
    "strftime_now": "set chatTemplate.date",
    "raise_exception": "it is the function by which a template reports an error",
}
"""Template variables that `kwargs` must not set, and what to do instead."""
ENGINE_TEMPLATE_FIELDS = {
    "chat_template": "set chatTemplate.template",
    "chat_template_kwargs": "set chatTemplate.kwargs",
    "chat_template_args": "set chatTemplate.kwargs",
    "reasoning_effort": "set it in chatTemplate.kwargs",
    "add_generation_prompt": "it is always true",
    "tools": "set them in chatTemplate.kwargs",
    "documents": "set them in chatTemplate.kwargs",
    "add_special_tokens": "the template writes every special token itself",
}
"""Fields of `extraBody` that only affect an engine's own chat template, and so have no effect on token ids."""


def _day(text: str) -> str:
    """Validate a calendar day, as the API server does for format `date`."""
    try:
        dt.date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is not a calendar day: write one that exists, such as 2026-01-31") from error
    return text


def _iso_date(value: Any) -> Any:
    """Convert a date to text: `--set` parses a day as a date, a file contains text."""
    return value.isoformat() if type(value) is dt.date else value


Day = Annotated[
    str,
    BeforeValidator(_iso_date),
    Field(min_length=10, max_length=10, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", json_schema_extra={"format": "date"}),
    AfterValidator(_day),
]


class ChatTemplate(RuledModel):
    """How messages become tokens.

    CEL cannot inspect a map with arbitrary values, so the API server accepts `kwargs` with appliedBy: Engine;
    `specbench validate` and the operator reject it.
    """

    rules: ClassVar = (
        ValidationRule(
            "self.appliedBy == 'Client' || (!has(self.tokenizer) && !has(self.template) && !has(self.name)"
            " && !has(self.date))",
            "chatTemplate.tokenizer, template, name, kwargs and date need appliedBy: Client: set it, or configure the"
            " engine's template with extraBody.chat_template_kwargs and engine.args",
            lambda chat: (
                chat.by_client or not (chat.tokenizer or chat.template or chat.name or chat.date or chat.kwargs)
            ),
        ),
        ValidationRule(
            "!has(self.template) || !has(self.name)",
            "set either chatTemplate.template (your own file) or chatTemplate.name (one of the tokenizer's), not both",
            lambda chat: chat.template is None or chat.name is None,
        ),
    )

    applied_by: AppliedBy
    """Engine: messages are sent, and the engine renders them with its own template (also the behaviour without
    chatTemplate). Client: the client renders them and sends the same token ids to every engine."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Location of tokenizer.json and the template: a folder, `s3://BUCKET/FOLDER/`, or `OWNER/NAME[@REVISION]` on the
    hub. Without it: spec.model.tokenizer, or else the model's own."""
    template: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Your own Jinja file, used instead of the tokenizer's template: a path, or `s3://BUCKET/KEY`."""
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of the template, for a tokenizer with several. Without it: `default`."""
    kwargs: Annotated[dict[str, Any], Field(max_length=32), PreserveUnknown()] = {}
    """Variables passed to the template: enable_thinking, reasoning_effort, tools, … Object keys are passed in
    alphabetical order, which is also the order in which the API server stores them."""
    date: Day | None = None
    """The day that the template receives as today (`strftime_now`), so that a prompt does not change from day to day:
    `2026-01-31`. Without it: midnight of 2026-01-01."""

    @property
    def by_client(self) -> bool:
        """Whether the client applies the template and sends token ids."""
        return self.applied_by is AppliedBy.CLIENT

    @property
    def today(self) -> dt.date:
        """The date passed to the template."""
        return dt.date.fromisoformat(self.date) if self.date else TEMPLATE_DATE
