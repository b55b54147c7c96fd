"""The word-order test: natural text and code have an order, random words do not."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.trust.checks.prompts import MOVED_MIN
from specbench_client.workload.random_text_detection import NUMBER, PAIRS_MAX, word_order, words_of
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.present import present

DRAW = random.Random(7)
LIST = [
    f"{first}{second}{third}"
    for first in "bdfgklm"
    for second in ("an", "ora", "ith", "ull", "e", "os", "ind")
    for third in "aeioust"
]
CODE = [path.read_text() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]]


def prompts(texts: list[str]) -> list[Prompt]:
    return [Prompt(f"p{number}", None, ((ChatMessage("user", text),),)) for number, text in enumerate(texts)]


def token_prompts(rows: list[list[int]]) -> list[Prompt]:
    return [Prompt(f"p{number}", None, ((ChatMessage("user", "", tuple(row)),),)) for number, row in enumerate(rows)]


def words(count: int, vocabulary: list[str] = LIST) -> str:
    return " ".join(DRAW.choices(vocabulary, k=count))


SHARED = words(600)
RANDOM = {
    "of a list": prompts([words(256) for _ in range(40)]),
    "some more frequent": prompts([words(256, [*LIST, *LIST[:20] * 20]) for _ in range(40)]),
    "real words shuffled": prompts([words(256, " ".join(CODE).split()) for _ in range(40)]),
    "letters": prompts(["".join(DRAW.choices("abcdefghijklmnopqrst     ", k=1500)) for _ in range(40)]),
    "four long ones": prompts([words(8000) for _ in range(4)]),
    "behind one instruction": prompts([f"Answer in one word, please: {words(256)} What is it?" for _ in range(40)]),
    "behind one long beginning": prompts([f"{SHARED} {words(256)}" for _ in range(40)]),
    "token ids": token_prompts([[DRAW.randrange(128000) for _ in range(512)] for _ in range(20)]),
    "token ids in sequence": token_prompts([list(range(at, at + 512)) for at in DRAW.sample(range(128000), 20)]),
    "Chinese letters": prompts(
        ["".join(DRAW.choices([chr(0x4E00 + n) for n in range(900)], k=400)) for _ in range(40)]
    ),
}


@pytest.mark.parametrize("kind", RANDOM)
def test_random_words_and_tokens_lose_nothing_when_shuffled(kind: str) -> None:
    order = present(word_order(RANDOM[kind]))
    assert order.moved < MOVED_MIN


def test_code_has_a_word_order() -> None:
    order = present(word_order(prompts(CODE)))
    assert order.pairs <= PAIRS_MAX
    assert order.repeated - order.shuffled > 5 * MOVED_MIN


@pytest.mark.parametrize(
    "few",
    [
        prompts(["Why is the sky blue?"]),
        prompts([words(100) for _ in range(30)]),
        prompts([words(400)] * 60),
        prompts(["yes " * 5000 + str(number) for number in range(5)]),
        prompts(["Which drifts?\n" + "\n".join(f"{DRAW.random():.3f} {DRAW.random():.3f}" for _ in range(90))] * 60),
        [],
    ],
    ids=["one", "short", "the same", "one word", "numbers", "none"],
)
def test_too_few_words_give_no_result(few: list[Prompt]) -> None:
    assert word_order(few) is None


def test_result_does_not_depend_on_the_order_of_prompts() -> None:
    given = prompts(CODE)
    assert word_order(given) == word_order(given[::-1])


def test_words_are_lower_case_with_numbers_replaced() -> None:
    (spaced,) = prompts(["Whose, (as ever) is x1: 3.5?"])
    (dense,) = prompts(["问题,很多。"])
    (ids,) = token_prompts([[5, 6]])
    assert words_of(spaced) == ["whose", "as", "ever", "is", NUMBER, NUMBER]
    assert words_of(dense) == ["问", "题", "很", "多"]
    assert words_of(ids) == [5, 6]
