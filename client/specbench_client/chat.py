"""The chat message and the start of a recorded request, which workloads, dialects and load generation share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message in OpenAI's form: `role` is system, developer, user, assistant or tool.

    `further` and `tools` are JSON texts, so that the order of their keys, which templates print, is preserved.
    """

    role: str
    content: str
    token_ids: Sequence[int] | None = None
    """Set on the last message: the whole conversation up to here as the model's own tokens, which are sent instead of
    text. Without `content`, the prompt was given as tokens, bypassing any chat template, and is the only message."""
    reasoning: str = ""
    """An assistant's reasoning before this message. It is not sent to engines, but chat templates may use it."""
    parts: str = ""
    """The content as the list of text parts that it is in the file, which is sent instead of `content`, the texts
    joined. Empty if it is a string there."""
    further: str = ""
    """Other fields, which are sent as they are: an object with `tool_calls`, `tool_call_id`, `name`, or a null
    `content`. Empty if there are none."""
    tools: str = ""
    """Set on a conversation's first message: the list of tools offered to the model. Empty if there are none."""
    shared: int = 0
    """Characters at the beginning of the content that all prompts of the workload share: its system prompt."""

    @property
    def sent(self) -> dict[str, Any]:
        """The message in OpenAI's form."""
        content = json.loads(self.parts) if self.parts else self.content
        return {"role": self.role, "content": content, **(json.loads(self.further) if self.further else {})}

    def reversed(self, prefix: int | None = None) -> ChatMessage:
        """Return the message with its words or tokens in reverse order; `prefix` makes it unique.

        What all prompts share is kept. Tokens that a chat template made of the text are removed, because the text has
        changed.
        """
        if self.token_ids is not None and not self.content:
            tokens = tuple(self.token_ids)[::-1]
            shift = (prefix or 0) % len(tokens)
            return replace(self, token_ids=tokens[shift:] + tokens[:shift])
        shared, own = self.content[: self.shared], self.content[self.shared :].split()[::-1]
        words = [] if prefix is None or (shared and not own) else [f"{prefix}"]
        rest = " ".join([*words, *own])
        return replace(self, content="\n\n".join(filter(None, (shared, rest))), parts="", token_ids=None)


@dataclass(frozen=True, slots=True)
class RequestStart:
    """When a request of a recorded session starts.

    `after`: the earlier requests of the session, by index, that must have ended; none: it starts with the session.
    `wait_s`: the recorded time since the last of them ended, or since the session began; None: not recorded.
    """

    after: tuple[int, ...] = ()
    wait_s: float | None = None
