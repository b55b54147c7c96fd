"""Applies chat templates with transformers, in the engines' own environment; called as a program by the tests.

Reads rows of folder, messages and kwargs, and the date for the templates, from stdin as JSON; writes the
text and the token ids of each.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import Any

import transformers
from transformers.utils import chat_template_utils


class FixedDay(dt.datetime):
    """A clock with a fixed date."""

    day_text = ""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> FixedDay:
        """Midnight of the day."""
        return cls.fromisoformat(cls.day_text)


def applied(row: dict[str, Any]) -> dict[str, Any]:
    """Apply the template of a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(row["folder"])
    options = {"add_generation_prompt": True, **row["kwargs"]}
    return {
        "text": tokenizer.apply_chat_template(row["messages"], tokenize=False, **options),
        "ids": tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False, **options),
    }


if __name__ == "__main__":
    given = json.load(sys.stdin)
    FixedDay.day_text = given["day"]
    chat_template_utils.datetime = FixedDay
    sys.stdout.write(json.dumps([applied(row) for row in given["rows"]]))
