"""What of an answer was thought and what was said, where the engine sends the model's raw text.

An engine's reasoning parser runs on its chat route alone, and there only where it was switched on. Two ways of writing
are known: tags (`<think> … </think>`, of DeepSeek-R1, Qwen3 and many after them; the opening one may stand in the
prompt), and OpenAI's harmony (gpt-oss), whose messages each name a channel: analysis and commentary are not for the
reader, final is.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

OPENS, CLOSES = "<think>", "</think>"
CHANNEL, CONSTRAIN, MESSAGE = "<|channel|>", "<|constrain|>", "<|message|>"
_HEADS = ("<|start|>", CHANNEL, CONSTRAIN)
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_CHANNELS = (MESSAGE, *_HEADS, *_ENDS)
_HARMONY = re.compile("(" + "|".join(re.escape(one) for one in _CHANNELS) + ")")
_FINAL = "final"


class Spoken(NamedTuple):
    """An answer in its two parts. `final` is what belongs into the history."""

    reasoning: str
    final: str


def split_channels(text: str, *, thinking: bool = False) -> Spoken:
    """Split any text. One without markers is all final, to the last space; what is final is final when split again.

    `thinking`: the prompt ended within a thought, which an answer that was cut off may never have closed.
    """
    if CHANNEL in text:
        reasoning, final = _harmony(text)
        thought, final = _tagged(final, thinking=False)
        return Spoken(_joined(reasoning, thought), final)
    return Spoken(*_tagged(text, thinking=thinking))


def markers_among(special: Collection[str]) -> tuple[str, ...]:
    """Which of these special tokens a text must hold to be split: engines leave them out of it unless asked.

    Harmony's count where there are channels alone: other models end their answers with <|end|>.
    """
    wanted = (OPENS, CLOSES, *(_CHANNELS if CHANNEL in special else ()))
    return tuple(one for one in wanted if one in special)


def opens_thought(prompt: str) -> bool:
    """Whether a rendered prompt ends within a thought: the answer goes on with it."""
    return prompt.rstrip().endswith(OPENS)


def _tagged(text: str, *, thinking: bool) -> tuple[str, str]:
    """Everything up to the last closing tag is thought, and so is a thought at the beginning that is never closed."""
    before, closes, rest = text.rpartition(CLOSES)
    if not closes and thinking:
        return text.strip("\n"), ""
    thought = before.lstrip().removeprefix(OPENS).strip("\n") if closes else ""
    final = rest.lstrip("\n") if closes else rest
    if final.lstrip().startswith(OPENS):
        return _joined(thought, final.lstrip().removeprefix(OPENS).strip("\n")), ""
    return thought, final


def _harmony(text: str) -> tuple[str, str]:
    """Messages are HEAD<|channel|>NAME …<|message|>CONTENT, up to the next marker; text before the first is thought."""
    first, *pieces = _HARMONY.split(text)
    thought, final, channel, in_content = [first.strip()], list[str](), "", False
    for piece in pieces:
        if piece == MESSAGE:
            in_content = True
        elif piece in _HEADS or piece in _ENDS:
            in_content, channel = False, channel if piece == CONSTRAIN else ""
        elif in_content:
            (final if channel == _FINAL else thought).append(piece)
        else:
            words = piece.split()
            channel = channel or (words[0] if words else "")
    return _joined(*thought), _joined(*final)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
