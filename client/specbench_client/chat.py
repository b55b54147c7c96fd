"""One chat message: the one word that workloads, dialects and load share, and so it lies beneath them all."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Message:
    """One message in OpenAI's form: `role` is system, user or assistant."""

    role: str
    content: str
    token_ids: tuple[int, ...] | None = None
    """Instead of a text: the prompt as the model's own tokens, past any chat template. Then it is the only message."""

    def reversed(self, prefix: int | None = None) -> Message:
        """As long, in the same words or tokens, and the other way round; with a number in front to be like no other."""
        if self.token_ids is not None:
            turned = self.token_ids[::-1]
            at = (prefix or 0) % len(turned)
            return replace(self, token_ids=turned[at:] + turned[:at])
        words = [] if prefix is None else [f"{prefix}"]
        return replace(self, content=" ".join([*words, *self.content.split()[::-1]]))
