"""What the simulated model says: deterministic words, one word one token.

The text depends on model, seed and prompt alone (and on the request's seed once it is sampled), never on the drafter:
speculative decoding must not change greedy output, and a client that checks this needs an engine where it holds
exactly. Past its natural end (``ignore_eos``) the text goes on, as a real model's would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random

# Shape 4 gives natural lengths a standard deviation of half their mean: spread like chat answers, no long tail.
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What decides the text: the prompt's identity, sampling and limits. ``sample`` is None for greedy decoding."""

    model: str
    prompt: str
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    sample: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The words of one answer, why it ends, and the identity from which all its randomness is drawn."""

    identity: str
    words: tuple[str, ...]
    finish_reason: str


def compose(wanted: Wanted, *, seed: int, mean_tokens: float) -> Answer:
    """Return the whole answer; the engine then only decides how fast it comes."""
    identity = sha256("\0".join((wanted.model, str(seed), wanted.prompt, wanted.sample or "")).encode()).hexdigest()
    natural = max(wanted.min_tokens, _natural_length(identity, mean_tokens))
    ends = natural <= wanted.max_tokens and not wanted.ignore_eos
    count = natural if ends else wanted.max_tokens
    words = Random(f"words:{identity}").choices(VOCABULARY, k=count)  # noqa: S311 -- a simulation
    return Answer(identity, tuple(words), "stop" if ends else "length")


def reworded(answer: Answer, *, start: int) -> Answer:
    """Return the answer with other words from ``start`` on, and as many."""
    shift = 1 + Random(f"reworded:{answer.identity}").randrange(len(VOCABULARY) - 1)  # noqa: S311 -- a simulation
    other = tuple(VOCABULARY[(TOKEN_IDS[word] + shift) % len(VOCABULARY)] for word in answer.words[start:])
    return replace(answer, words=answer.words[:start] + other)


def render(words: tuple[str, ...], *, first: bool) -> str:
    """Return the tokens' text: every word but the answer's very first carries its leading space."""
    joined = " ".join(words)
    return joined if first or not words else f" {joined}"


def count_tokens(text: str) -> int:
    """Return the prompt's tokens: its words, and never 0."""
    return max(1, len(text.split()))


def _natural_length(identity: str, mean_tokens: float) -> int:
    drawn = Random(f"length:{identity}").gammavariate(LENGTH_SHAPE, mean_tokens / LENGTH_SHAPE)  # noqa: S311 -- a simulation
    return max(1, round(drawn))
