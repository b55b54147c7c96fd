"""A prompt brought to a number of tokens: only its context is cut, or filled up, never its instruction. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specbench_api.errors import SpecbenchError
from specbench_client.dataset.length.ruler import Ruler

BETWEEN = "\n\n"
"""Between the context and each text that fills it up."""
_MOST_TRIES = 24


@dataclass(frozen=True, slots=True)
class Parts:
    """The prompt is `before + context + after`; only `context` may be cut or filled up."""

    before: str
    context: str
    after: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """The prompt as it came out. `tokens` counts all of it; `cut` and `added` count the context's."""

    text: str
    tokens: int
    cut: int
    added: int


class DoesNotFit(SpecbenchError):
    """This prompt cannot be brought to the length; says why."""


def fit(parts: Parts, target: int, ruler: Ruler, filler: Iterable[str] = ()) -> Fitted:
    """The prompt with at most `target` tokens and as near to it as whole characters allow, usually exact.

    Too long: the end of the context goes. Too short: texts of `filler` are appended to the context, the last one cut.
    Raises DoesNotFit where what may not be cut is too long already, or all of the filler is not enough.
    """
    own = _count(parts.before + parts.context + parts.after, ruler)
    if own == target:
        return Fitted(parts.before + parts.context + parts.after, own, 0, 0)
    frame = _count(parts.before + parts.after, ruler)
    if frame > target:
        raise DoesNotFit(
            f"without its context it has {frame:,} tokens already: give a shorter instruction, or more tokens"
        )
    filled = parts.context if own > target else _filled(parts, target, ruler, iter(filler))
    text, tokens = _cut(Parts(parts.before, filled, parts.after), target, target - frame, ruler)
    return Fitted(text, tokens, cut=max(0, own - tokens), added=max(0, tokens - own))


def _filled(parts: Parts, target: int, ruler: Ruler, filler: Iterator[str]) -> str:
    """The context with so much filler that the prompt is long enough; each text is counted once, by itself."""
    context = parts.context
    while (tokens := _count(parts.before + context + parts.after, ruler)) < target:
        while tokens < target:
            text = next(filler, None)
            if text is None:
                return _all_used(parts, context, target, ruler)
            context += BETWEEN + text
            tokens += len(ruler.encode_ordinary(BETWEEN + text))
    return context


def _all_used(parts: Parts, context: str, target: int, ruler: Ruler) -> str:
    tokens = _count(parts.before + context + parts.after, ruler)
    if tokens < target:
        raise DoesNotFit(f"with all that could fill it up it has {tokens:,} tokens: give more or longer contexts")
    return context


def _cut(parts: Parts, target: int, room: int, ruler: Ruler) -> tuple[str, int]:
    """The longest beginning of the context with which the prompt has at most `target` tokens.

    Tokens join across a seam, so the count of the whole is asked for, and the cut is moved by what it is off.
    """
    tokens = ruler.encode_ordinary(parts.context)
    keep, best, seen = min(room, len(tokens)), (parts.before + parts.after, 0), set[int]()
    for _ in range(_MOST_TRIES):
        text = parts.before + _text(tokens[:keep], ruler) + parts.after
        found = _count(text, ruler)
        if best[1] < found <= target:
            best = (text, found)
        seen.add(keep)
        keep = min(max(0, keep + target - found), len(tokens))
        if found == target or keep in seen:
            break
    return best if best[1] else (best[0], _count(best[0], ruler))


def _text(tokens: list[int], ruler: Ruler) -> str:
    """The text of the tokens, without the character that they may end within."""
    return ruler.decode_bytes(tokens).decode("utf-8", errors="ignore")


def _count(text: str, ruler: Ruler) -> int:
    return len(ruler.encode_ordinary(text))
