"""Whether the words of prompts stand in an order that says something. Pure.

In any language, in code and in JSON, some words follow one another again and again ("of the", "return self"). Shuffle
the same words, and most of these pairs are gone. In random words, random token ids, or words drawn from a list, nothing
is lost: they were shuffled before. So two shares are measured: of the different pairs of neighbouring words, how many
come back, as the prompts stand and with their words shuffled. Where the order says nothing, they are the same. Which
words they are, and how often each is used, is alike on both sides and says nothing.

What prompts share word by word is no order of their own, and is left out: the same beginning or end (an instruction, a
template), and longer passages that an earlier prompt had.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain, pairwise
from statistics import fmean

from specbench_api.outcome.coverage import WordOrder
from specbench_client.workload.reading import Prompt

Words = list[Hashable]

PAIRS_MIN = 4000
"""Below, nothing is told: the pairs that chance alone repeats are then as many as those of a language."""
PAIRS_MAX = 8000
"""More are not looked at: a few hundred words in random order would all stand beside one another by chance."""
WORDS_EACH = 500
"""Of a prompt, where there are prompts enough: no single one speaks for all."""
PASSAGE = 8
"""Words that stand in two prompts alike were copied."""
SHUFFLES = 5
SEED = 0
_TOO_SMALL = 0.5
"""Where so many pairs come back when shuffled, the words are too few to tell: letters of an alphabet, say."""
_WITHOUT_SPACES = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts that put no spaces between words: Thai to Tibetan, Burmese, Khmer, Japanese, Chinese."""
NUMBER = "0"
_DIGIT = re.compile(r"\d")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_CHARACTERS_A_WORD = 64
"""Of a prompt, so many a word are looked at: a text without spaces is not read to its end."""


def word_order(prompts: Sequence[Prompt]) -> WordOrder | None:
    """Return how often pairs of words come back, beside the same words shuffled; None where that cannot be told.

    The same for the same prompts, in whatever order they stand.
    """
    each = max(WORDS_EACH, PAIRS_MAX // max(len(prompts), 1))
    stretches = _own([words[:each] for words in _without_shared_ends(_drawn(prompts, each))])
    words = list(chain.from_iterable(stretches))
    pairs, repeated = _repeated(stretches)
    if pairs < PAIRS_MIN:
        return None
    draw = random.Random(SEED)  # noqa: S311 -- no secret
    shuffled = fmean(_repeated(_shuffled(words, stretches, draw))[1] for _ in range(SHUFFLES))
    return None if shuffled > _TOO_SMALL else WordOrder(pairs=pairs, repeated=repeated, shuffled=shuffled)


def words_of(prompt: Prompt) -> Words:
    """Return its words in small letters, without the punctuation around them; or the token ids that it is made of.

    Of scripts without spaces each letter counts as a word. What holds a digit is a number, and all numbers are one
    word: each row of a table has its own, and stands in order nevertheless.
    """
    messages = chain.from_iterable(prompt.turns)
    return list(
        chain.from_iterable(_words(each.content) if each.content else each.token_ids or () for each in messages)
    )


def _words(text: str) -> Sequence[str]:
    plain = unicodedata.normalize("NFC", text[: PAIRS_MAX * _CHARACTERS_A_WORD]).lower().split()
    dense = "".join(plain)
    if 2 * len(_WITHOUT_SPACES.findall(dense)) > len(dense):
        return [letter for letter in dense if letter.isalnum()]
    return [NUMBER if _DIGIT.search(word) else _EDGES.sub("", word) or word for word in plain]


def _drawn(prompts: Sequence[Prompt], each: int) -> list[Words]:
    """As many prompts as are needed where so many words of each are used, drawn by their names; each text once."""
    order = sorted(prompts, key=lambda prompt: prompt.id)
    random.Random(SEED).shuffle(order)  # noqa: S311 -- no secret
    found: dict[tuple[Hashable, ...], None] = {}
    count = 0
    for prompt in order:
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
    """Each without the words with which another one begins as well; in the order given."""
    order = sorted(range(len(texts)), key=lambda place: [repr(word) for word in texts[place]])
    shared = [0] * len(texts)
    for one, other in pairwise(order):
        alike = _alike(texts[one], texts[other])
        shared[one], shared[other] = max(shared[one], alike), max(shared[other], alike)
    return [words[count:] for words, count in zip(texts, shared, strict=True)]


def _alike(one: Words, other: Words) -> int:
    """With how many same words both begin."""
    places = range(min(len(one), len(other)))
    return next((place for place in places if one[place] != other[place]), len(places))


def _own(texts: Sequence[Words]) -> list[Words]:
    """What no earlier one holds, in stretches that belong together; PAIRS_MAX words of it."""
    seen: set[tuple[Hashable, ...]] = set()
    found: list[Words] = []
    room = PAIRS_MAX
    for words in texts:
        for stretch in _new(words, seen):
            found.append(stretch[:room])
            room -= len(found[-1])
    return [stretch for stretch in found if len(stretch) > 1]


def _new(words: Words, seen: set[tuple[Hashable, ...]]) -> list[Words]:
    """The stretches between passages that were seen before; its own passages are seen from now on."""
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


def _repeated(stretches: Sequence[Words]) -> tuple[int, float]:
    """How many pairs there are, and which share of the different ones is there more than once."""
    counts = Counter(chain.from_iterable(pairwise(stretch) for stretch in stretches))
    return counts.total(), sum(count > 1 for count in counts.values()) / max(len(counts), 1)


def _shuffled(words: Words, stretches: Sequence[Words], draw: random.Random) -> list[Words]:
    """The same words in stretches of the same lengths."""
    order = list(words)
    draw.shuffle(order)
    rest = iter(order)
    return [[next(rest) for _ in stretch] for stretch in stretches]
