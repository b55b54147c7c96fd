"""Detects prompts that are random text: the order of their words carries no information. Pure.

In any language, in code and in JSON, some pairs of words occur again and again ("of the", "return self"). If the same
words are shuffled, most of these repeated pairs disappear. In random words, random token ids or words drawn from a
list, nothing changes, because they were shuffled already. The test therefore measures the share of distinct pairs of
adjacent words that occur more than once, in the prompts as they are and with their words shuffled. The two shares are
equal if the order carries no information. Both sides contain the same words with the same frequencies.

Text that prompts share literally is removed first, because it is no evidence about their own order: a common beginning
or end (an instruction, a template), and passages that occurred in an earlier prompt.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from statistics import fmean

from specbench_client.documents.prompt_coverage import WordOrderTest
from specbench_client.workload.row_parsing import Prompt

Words = list[Hashable]

PAIRS_MIN = 4000
"""With fewer pairs there is no result: chance repeats as many pairs as a language does."""
PAIRS_MAX = 8000
"""Maximum number of pairs: with more, a vocabulary of a few hundred words would repeat most pairs by chance."""
PROMPTS_MAX = 4000
"""Maximum number of prompts that are read, so that thousands of equal ones take no time."""
WORDS_EACH = 500
"""Maximum words taken from one prompt when there are enough prompts, so that no prompt dominates."""
PASSAGE = 8
"""Length in words of a passage that counts as copied if it occurs in two prompts."""
SHUFFLES = 5
SEED = 0
_TOO_SMALL = 0.5
"""Above this share of repeated pairs after shuffling, the vocabulary is too small for a result (such as letters)."""
_WITHOUT_SPACES = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without spaces between words: Thai to Tibetan, Burmese, Khmer, Japanese, Chinese."""
NUMBER = "0"
_DIGIT = re.compile(r"\d")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_CHARACTERS_A_WORD = 64
"""Maximum characters read per word, so that a text without spaces is not read to its end."""


def word_order(prompts: Sequence[Prompt]) -> WordOrderTest | None:
    """Return the shares of repeated word pairs, as they are and shuffled; None if there are too few pairs or words.

    The result does not depend on the order of the prompts.
    """
    each = max(WORDS_EACH, PAIRS_MAX // max(len(prompts), 1))
    stretches = _new_stretches([words[:each] for words in _without_shared_ends(_drawn(prompts, each))])
    words = list(chain.from_iterable(stretches))
    pairs, repeated = _repeated_pairs(stretches)
    if pairs < PAIRS_MIN:
        return None
    draw = random.Random(SEED)  # noqa: S311 -- no secret
    shuffled = fmean(_repeated_pairs(_shuffled(words, stretches, draw))[1] for _ in range(SHUFFLES))
    return None if shuffled > _TOO_SMALL else WordOrderTest(pairs=pairs, repeated=repeated, shuffled=shuffled)


def words_of(prompt: Prompt) -> Words:
    """Return a prompt's words in lower case without surrounding punctuation, or its token ids.

    In scripts without spaces, each character counts as a word. Every word with a digit counts as the same word, because
    the rows of a table differ in their numbers and are ordered nevertheless.
    """
    return list(
        chain.from_iterable(_words(each.content) if each.content else each.token_ids or () for each in prompt.messages)
    )


def _words(text: str) -> Sequence[str]:
    plain = unicodedata.normalize("NFC", text[: PAIRS_MAX * _CHARACTERS_A_WORD]).lower().split()
    dense = "".join(plain)
    if not dense.isascii() and 2 * len(_WITHOUT_SPACES.findall(dense)) > len(dense):
        return [letter for letter in dense if letter.isalnum()]
    return list(map(_plain_word, plain))


@lru_cache(maxsize=65536)
def _plain_word(word: str) -> str:
    return NUMBER if _DIGIT.search(word) else _EDGES.sub("", word) or word


def _drawn(prompts: Sequence[Prompt], each: int) -> list[Words]:
    """Draw enough prompts for the test, `each` words of each and no text twice; the draw depends on their ids."""
    order = sorted(prompts, key=lambda prompt: prompt.id)
    random.Random(SEED).shuffle(order)  # noqa: S311 -- no secret
    found: dict[tuple[Hashable, ...], None] = {}
    count = 0
    for prompt in order[:PROMPTS_MAX]:
        if count >= 2 * PAIRS_MAX:
            break
        words = tuple(words_of(prompt)[:PAIRS_MAX])
        count += 0 if words in found else min(len(words), each)
        found[words] = None
    return [list(words) for words in found]


def _without_shared_ends(texts: Sequence[Words]) -> list[Words]:
    begun = _without_shared_starts(texts)
    return [words[::-1] for words in _without_shared_starts([words[::-1] for words in begun])]


def _without_shared_starts(texts: Sequence[Words]) -> list[Words]:
    """Remove from each text the leading words that it shares with any other one; keep the order of the texts."""
    order = sorted(range(len(texts)), key=lambda place: [repr(word) for word in texts[place]])
    shared = [0] * len(texts)
    for one, other in pairwise(order):
        common = _common_prefix(texts[one], texts[other])
        shared[one], shared[other] = max(shared[one], common), max(shared[other], common)
    return [words[count:] for words, count in zip(texts, shared, strict=True)]


def _common_prefix(one: Words, other: Words) -> int:
    """Return the number of leading words that both texts share."""
    places = range(min(len(one), len(other)))
    return next((place for place in places if one[place] != other[place]), len(places))


def _new_stretches(texts: Sequence[Words]) -> list[Words]:
    """Return stretches of words that do not occur in an earlier text, PAIRS_MAX words in total."""
    seen: set[tuple[Hashable, ...]] = set()
    found: list[Words] = []
    room = PAIRS_MAX
    for words in texts:
        for stretch in _split_at_copies(words, seen):
            found.append(stretch[:room])
            room -= len(found[-1])
    return [stretch for stretch in found if len(stretch) > 1]


def _split_at_copies(words: Words, seen: set[tuple[Hashable, ...]]) -> list[Words]:
    """Split a text at passages in `seen`, drop those, and add the text's own passages to `seen`."""
    passages = [tuple(words[place : place + PASSAGE]) for place in range(len(words) - PASSAGE + 1)]
    copied = [False] * len(words)
    for place, passage in enumerate(passages):
        if passage in seen:
            copied[place : place + PASSAGE] = [True] * PASSAGE
    seen.update(passages)
    stretches: list[Words] = [[]]
    for word, old in zip(words, copied, strict=True):
        if old:
            stretches.append([])
        else:
            stretches[-1].append(word)
    return stretches


def _repeated_pairs(stretches: Sequence[Words]) -> tuple[int, float]:
    """Return the number of pairs, and the share of distinct pairs that occur more than once."""
    counts = Counter(chain.from_iterable(pairwise(stretch) for stretch in stretches))
    return counts.total(), sum(count > 1 for count in counts.values()) / max(len(counts), 1)


def _shuffled(words: Words, stretches: Sequence[Words], draw: random.Random) -> list[Words]:
    """Return the same words in random order, in stretches of the same lengths."""
    order = list(words)
    draw.shuffle(order)
    rest = iter(order)
    return [[next(rest) for _ in stretch] for stretch in stretches]
