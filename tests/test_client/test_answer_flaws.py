"""Answers that are wrong whatever was asked."""

from __future__ import annotations

import random

import pytest

from specbench_api.outcome.record import AnswerFlaw
from specbench_client.load.answer_flaws import LOOP_TOKENS, flaw_of

PROSE = "Speculative decoding drafts some tokens and verifies them in one step of the target."
WORDS = [f"{first}{second}" for first in "bcdfghklmnprst" for second in ("ado", "erin", "ilum", "oks", "ute")]


def prose(words: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


@pytest.mark.parametrize(
    ("text", "reasoning", "finish", "flaw"),
    [
        (PROSE, "", "stop", None),
        (PROSE, "", None, None),
        (PROSE, "", "abort", AnswerFlaw.UNEXPECTED_FINISH),
        ("", "", "stop", AnswerFlaw.EMPTY),
        (" \n", "", "length", AnswerFlaw.EMPTY),
        ("", "Let me think.", "length", None),
        ("", "Let me think.", "stop", AnswerFlaw.EMPTY),
        ("", "", "tool_calls", None),
        ("", "f{}", "function_call", None),
        ("tab\tand\r\nlines\x0b\x0c", "", "stop", None),
        ("a\x00b", "", "stop", AnswerFlaw.BROKEN_TEXT),
        ("\x1b[31mred", "", "stop", AnswerFlaw.BROKEN_TEXT),
        ("caf\ufffd au lait", "", "length", AnswerFlaw.BROKEN_TEXT),
        ("cut in a character \ufffd", "", "length", None),
        ("not cut \ufffd", "", "stop", AnswerFlaw.BROKEN_TEXT),
    ],
)
def test_flaws_of_one_answer(text: str, reasoning: str, finish: str | None, flaw: AnswerFlaw | None) -> None:
    assert flaw_of(text, reasoning, finish, None, called=finish == "function_call") is flaw


@pytest.mark.parametrize("period", [1, 2, 7, 40, 300, 1000])
@pytest.mark.parametrize("start", ["", prose(50)])
def test_loops_are_found_wherever_they_are_cut(period: int, start: str) -> None:
    unit = (prose(400, seed=period) + ".")[-period:]
    repeated = unit * (4 + 400 // period)
    for cut in {0, 1, period // 2}:
        text = start + repeated[cut:] + unit[:cut]
        assert flaw_of(text, "", "length", None) is AnswerFlaw.LOOP, (period, cut)


def test_a_loop_of_single_characters_is_measured_in_tokens() -> None:
    assert flaw_of("!" * LOOP_TOKENS, "", "length", LOOP_TOKENS) is AnswerFlaw.LOOP
    assert flaw_of("!" * (LOOP_TOKENS - 1), "", "length", LOOP_TOKENS - 1) is None


def test_a_loop_in_the_reasoning_is_found() -> None:
    assert flaw_of("", "Wait, is it? " * 40, "length", None) is AnswerFlaw.LOOP


@pytest.mark.parametrize(
    "text",
    [
        PROSE * 3,
        prose(2000),
        "".join(f"{number}. The same words every time\n" for number in range(100)),
        prose(40) + "\n" + "-" * 80,
        "".join(f"|{'---|' * 8}\n|{' a |' * 8}\n{prose(9, seed)}\n" for seed in range(9)),
        "again " * 100 + prose(3),
    ],
)
def test_text_that_repeats_otherwise_is_no_loop(text: str) -> None:
    assert flaw_of(text, "", "stop", None) is None
