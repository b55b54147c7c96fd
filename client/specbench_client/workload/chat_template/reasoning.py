"""Splits an answer into reasoning and final text, for engines that return the model's raw text.

An engine's reasoning parser runs only on its chat route, and only if it was enabled. Two formats are supported: tags
(`<think> … </think>`, used by DeepSeek-R1, Qwen3 and others; the opening tag may be part of the prompt), and OpenAI's
harmony (gpt-oss), in which each message names a channel: analysis and commentary are reasoning, final is the answer.
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


class SplitAnswer(NamedTuple):
    """The two parts of an answer. Only `final` belongs into the conversation's history."""

    reasoning: str
    final: str


def split_channels(text: str, *, thinking: bool = False) -> SplitAnswer:
    """Split a text. Without markers, all of it is final, unchanged. Splitting a final text again does not change it.

    `thinking`: the prompt ended with an open reasoning tag, which a truncated answer may not have closed.
    """
    if CHANNEL in text:
        reasoning, final = _harmony(text)
        tagged, final = _tagged(final, thinking=False)
        return SplitAnswer(_joined(reasoning, tagged), final)
    return SplitAnswer(*_tagged(text, thinking=thinking))


def markers_among(special: Collection[str]) -> tuple[str, ...]:
    """Return those of these special tokens that an answer needs to be split: engines omit them unless requested.

    Harmony's tokens count only if there are channels, because other models end their answers with <|end|>.
    """
    markers = (OPENS, CLOSES, *(_CHANNELS if CHANNEL in special else ()))
    return tuple(one for one in markers if one in special)


def opens_reasoning(prompt: str) -> bool:
    """Return whether a rendered prompt ends with an open reasoning tag, so that the answer begins with reasoning."""
    return prompt.rstrip().endswith(OPENS)


def _tagged(text: str, *, thinking: bool) -> tuple[str, str]:
    """Split at the last closing tag. Reasoning at the beginning that is never closed is reasoning to the end."""
    before, closes, rest = text.rpartition(CLOSES)
    if not closes and thinking:
        return text.strip("\n"), ""
    reasoning = before.lstrip().removeprefix(OPENS).strip("\n") if closes else ""
    final = rest.lstrip("\n") if closes else rest
    if final.lstrip().startswith(OPENS):
        return _joined(reasoning, final.lstrip().removeprefix(OPENS).strip("\n")), ""
    return reasoning, final


def _harmony(text: str) -> tuple[str, str]:
    """Split HEAD<|channel|>NAME …<|message|>CONTENT messages at their markers; text before the first is reasoning."""
    first, *pieces = _HARMONY.split(text)
    reasoning, final, channel, in_content = [first.strip()], list[str](), "", False
    for piece in pieces:
        if piece == MESSAGE:
            in_content = True
        elif piece in _HEADS or piece in _ENDS:
            in_content, channel = False, channel if piece == CONSTRAIN else ""
        elif in_content:
            (final if channel == _FINAL else reasoning).append(piece)
        else:
            words = piece.split()
            channel = channel or (words[0] if words else "")
    return _joined(*reasoning), _joined(*final)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
