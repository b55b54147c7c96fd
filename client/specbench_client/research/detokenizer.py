"""Text, step by step: tokens that end within a character wait for the rest of it."""

from __future__ import annotations

from collections.abc import Callable

from specbench_client.research.runtime import Tokens

BROKEN = "\ufffd"
"""What decoding gives for bytes that are no character yet."""


class Detokenizer:
    """Decodes a window of recent tokens only: the whole answer anew at every step would take quadratic time.

    The window begins one delivered stretch early, because how a token is written may depend on the one before it.
    """

    def __init__(self, decode: Callable[[Tokens], str]) -> None:
        self._decode = decode
        self._window: Tokens = ()
        self._delivered = 0

    def push(self, tokens: Tokens) -> str:
        """Return the text that these tokens complete."""
        self._window += tokens
        before, now = self._texts()
        if now.endswith(BROKEN) or len(now) <= len(before):
            return ""
        self._window = self._window[self._delivered :]
        self._delivered = len(self._window)
        return now[len(before) :]

    def flush(self) -> str:
        """Return what still waits at the answer's end."""
        before, now = self._texts()
        return now[len(before) :]

    def _texts(self) -> tuple[str, str]:
        return self._decode(self._window[: self._delivered]), self._decode(self._window)
