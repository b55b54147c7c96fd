"""Generates the simulated model's text: deterministic words, one token each.

The text depends only on model, seed and prompt (and on the request's seed if it is sampled), never on the drafter.
Speculative decoding must not change greedy output, and a client that checks this needs an engine where it holds
exactly. With ``ignore_eos`` the text continues past its natural end, like that of a real model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from zlib import crc32

# Shape 4 gives lengths a standard deviation of half their mean, like chat answers, without a long tail.
LENGTH_SHAPE = 4.0

_WORDS = """
the a and of to in is it that for on with as by this from at or an be are was which one all can has more when if
will so no not but what there use each how their them then these some would make like into time look two write
go see number way could people than first water been call who oil its now find long down day did get come made
may part over new sound take only little work know place year live me back give most very after thing our just
name good sentence man think say great where help through much before line right too mean old any same tell boy
follow came want show also around form three small set put end does another well large must big even such
because turn here why ask went men read need land different home us move try kind hand picture again change off
play spell air away animal house point page letter mother answer found study still learn should world
"""
VOCABULARY: tuple[str, ...] = tuple(_WORDS.split())
TOKEN_IDS: dict[str, int] = {word: index for index, word in enumerate(VOCABULARY)}
OTHER_TOKENS = 2**15
"""The first id of tokens outside the vocabulary: parts of JSON documents, and numbers."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Everything that determines the text. ``sample`` is None for greedy decoding."""

    model: str
    prompt: str
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    sample: str | None = None


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """The words of an answer, its finish reason, and the identity that seeds all its randomness.

    ``faults``: names of the faults that changed it.
    """

    identity: str
    words: tuple[str, ...]
    finish_reason: str
    faults: tuple[str, ...] = ()


def generate_text(request: TextRequest, *, seed: int, mean_tokens: float) -> GeneratedText:
    """Return the complete answer; the engine then only determines its timing."""
    identity = sha256("\0".join((request.model, str(seed), request.prompt, request.sample or "")).encode()).hexdigest()
    natural = max(request.min_tokens, _natural_length(identity, mean_tokens))
    ends = natural <= request.max_tokens and not request.ignore_eos
    count = natural if ends else request.max_tokens
    words = Random(f"words:{identity}").choices(VOCABULARY, k=count)  # noqa: S311 -- a simulation
    return GeneratedText(identity, tuple(words), "stop" if ends else "length")


def alter_text(answer: GeneratedText, *, start: int) -> GeneratedText:
    """Return the answer with different words and numbers from ``start`` on, and the same length."""
    shift = 1 + Random(f"reworded:{answer.identity}").randrange(len(VOCABULARY) - 1)  # noqa: S311 -- a simulation
    other = tuple(_altered(word, shift) for word in answer.words[start:])
    return replace(answer, words=answer.words[:start] + other)


def _altered(word: str, shift: int) -> str:
    """Return another word or number; tokens that are neither, such as JSON's punctuation, stay as they are."""
    if word in TOKEN_IDS:
        return VOCABULARY[(TOKEN_IDS[word] + shift) % len(VOCABULARY)]
    return str(int(word) + shift) if word.isdecimal() else word


def token_id(word: str) -> int:
    """Return the token's id; words outside the vocabulary have ids above it, which two of them may share."""
    known = TOKEN_IDS.get(word)
    return OTHER_TOKENS + crc32(word.encode()) % OTHER_TOKENS if known is None else known


def render(words: tuple[str, ...], *, first: bool) -> str:
    """Return the text of tokens; every word except the first of the answer has a leading space."""
    joined = " ".join(words)
    return joined if first or not words else f" {joined}"


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a text: its words, at least one."""
    return tuple(text.split()) or ("",)


def message_words(role: str, text: str) -> tuple[str, ...]:
    """Return the tokens of a chat message; the first one contains the role, which costs no token of its own."""
    first, *rest = split_tokens(text)
    return (f"{role}\0{first}", *rest)


def _natural_length(identity: str, mean_tokens: float) -> int:
    drawn = Random(f"length:{identity}").gammavariate(LENGTH_SHAPE, mean_tokens / LENGTH_SHAPE)  # noqa: S311 -- a simulation
    return max(1, round(drawn))
