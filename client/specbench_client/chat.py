"""One chat message: the one word that workloads, dialects and load share, and so it lies beneath them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Message:
    """One message in OpenAI's form: `role` is system, developer, user, assistant or tool.

    `further` and `tools` are JSON texts, whose keys stay in the order in which a template writes them.
    """

    role: str
    content: str
    token_ids: Sequence[int] | None = None
    """Of the last message: the whole conversation up to here as the model's own tokens, which are sent instead of any
    text. Without a content it came as tokens, past any chat template, and is the only message."""
    reasoning: str = ""
    """What an assistant thought before it said this. It is sent to no engine; a chat template may ask for it."""
    further: str = ""
    """What else a chat template reads of it: an object with `tool_calls`, `tool_call_id`, `name`, or a content that is
    null. Empty where there is nothing."""
    tools: str = ""
    """Of a conversation's first message: the list of tools that the model is offered. Empty where there are none."""

    def reversed(self, prefix: int | None = None) -> Message:
        """As long, in the same words or tokens, and the other way round; with a number in front to be like no other.

        Tokens that a chat template made of a text are gone: the text is another one now.
        """
        if self.token_ids is not None and not self.content:
            turned = tuple(self.token_ids)[::-1]
            at = (prefix or 0) % len(turned)
            return replace(self, token_ids=turned[at:] + turned[:at])
        words = [] if prefix is None else [f"{prefix}"]
        return replace(self, content=" ".join([*words, *self.content.split()[::-1]]), token_ids=None)
