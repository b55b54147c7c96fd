"""Splitting answers into reasoning and final text, without losing text or splitting plain text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.workload.chat_template.reasoning import (
    SplitAnswer,
    markers_among,
    opens_reasoning,
    split_channels,
)

HARMONY = "<|channel|>analysis<|message|>We add.<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two.\n", SplitAnswer("", "Two.\n")),
        ("<think>\nWe add.\n</think>\n\nTwo.", SplitAnswer("We add.", "Two.")),
        ("We add.\n</think>\n\nTwo.", SplitAnswer("We add.", "Two.")),
        ("<think>We add and", SplitAnswer("We add and", "")),
        ("<think>\n\n</think>\n\nTwo.", SplitAnswer("", "Two.")),
        ("<think>a</think>b<think>c</think>d", SplitAnswer("a</think>b<think>c", "d")),
        ("The tag <think> opens a thought.", SplitAnswer("", "The tag <think> opens a thought.")),
        (HARMONY, SplitAnswer("We add.", "Two.")),
        ("<|channel|>analysis<|message|>We add and", SplitAnswer("We add and", "")),
        ("<|channel|>final<|message|>Two", SplitAnswer("", "Two")),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
            SplitAnswer("{}", ""),
        ),
        (
            "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
            SplitAnswer("First.", "Two."),
        ),
        ("Phi says so.<|end|>", SplitAnswer("", "Phi says so.<|end|>")),
    ],
)
def test_answer_is_split_into_reasoning_and_final_text(text: str, expected: SplitAnswer) -> None:
    assert split_channels(text) == expected


def test_unclosed_reasoning_started_by_the_prompt_is_not_final_text() -> None:
    assert opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert split_channels("We add and", thinking=True) == SplitAnswer("We add and", "")
    assert split_channels("We add.\n</think>\nTwo.", thinking=True) == SplitAnswer("We add.", "Two.")


HARMONY_MARKERS = ("<|message|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
MARKERS = ("<think>", "</think>", *HARMONY_MARKERS)


def test_only_markers_of_reasoning_are_kept_in_the_text() -> None:
    assert markers_among({"<|end|>", "<|start|>", "<|assistant|>"}) == (), "Phi's special tokens do not mark reasoning"
    assert markers_among({"</think>", "<think>", "<|end|>"}) == ("<think>", "</think>")
    assert markers_among({*HARMONY_MARKERS, "<|endoftext|>"}) == HARMONY_MARKERS


PIECES = st.lists(st.sampled_from((*MARKERS, "final", "analysis", "a", " ", "\n", "<|chan", "nel|>", "</thi", "nk>")))


@given(st.one_of(st.text(), PIECES.map("".join)), st.booleans())
def test_final_text_contains_no_markers_and_is_not_split_again(text: str, thinking: bool) -> None:
    final = split_channels(text, thinking=thinking).final
    assert split_channels(final) == SplitAnswer("", final)
    assert "</think>" not in final
    assert "<|channel|>" not in final


@given(st.text(), st.text(), st.booleans())
def test_text_without_markers_is_kept_unchanged(before: str, after: str, thinking: bool) -> None:
    plain = (before + after).replace("<", "(")
    assert split_channels(plain) == SplitAnswer("", plain)
    thought, answer = before.replace("<", "(").strip("\n"), after.replace("<", "(").lstrip("\n")
    assert split_channels(f"{thought}</think>{answer}", thinking=thinking) == SplitAnswer(thought.lstrip(), answer)
