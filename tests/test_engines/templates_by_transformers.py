"""Applies chat templates with transformers, in the engines' own environment; called as a program by the tests.

Reads rows of folder, messages and kwargs from stdin, as JSON, and the day that templates are to be told; writes the
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
    """A clock that stands."""

    told = ""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> FixedDay:
        """Midnight of the day."""
        return cls.fromisoformat(cls.told)


def applied(row: dict[str, Any]) -> dict[str, Any]:
    """Apply the template of a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(row["folder"])
    asked = {"add_generation_prompt": True, **row["kwargs"]}
    return {
        "text": tokenizer.apply_chat_template(row["messages"], tokenize=False, **asked),
        "ids": tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False, **asked),
    }


if __name__ == "__main__":
    given = json.load(sys.stdin)
    FixedDay.told = given["day"]
    chat_template_utils.datetime = FixedDay
    sys.stdout.write(json.dumps([applied(row) for row in given["rows"]]))
