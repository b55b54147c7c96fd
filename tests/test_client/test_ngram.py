"""N-gram replay against a literal implementation of its definition, and the overlap of answers with their prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.what_if.cost_models import PUBLISHED_H100
from specbench_client.analysis.what_if.ngram import AnswerLog, LoggedAnswer, NgramGrid, ngram_report
from specbench_client.analysis.what_if.ngram_lookup import NgramLookup, copied_share, replay_lookup
from specbench_client.analysis.what_if.policies import Pricing
from specbench_testing.present import present

ids = st.lists(st.integers(0, 2), max_size=30)


def reference_drafts(context: list[int], lookup: NgramLookup) -> list[int]:
    """Return the drafts by definition: longest suffix first, earliest occurrence, the tokens that follow it."""
    for size in range(min(lookup.longest, len(context) - 1), lookup.shortest - 1, -1):
        suffix = context[len(context) - size :]
        for start in range(len(context) - size):
            if context[start : start + size] == suffix:
                return context[start + size : start + size + lookup.drafts]
    return []


@given(
    ids, st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 4), st.integers(0, 4), st.integers(1, 6)
)
def test_every_position_has_the_drafts_of_the_definition(
    prompt: list[int], output: list[int], shortest: int, more: int, drafts: int
) -> None:
    lookup = NgramLookup(shortest, shortest + more, drafts)
    found = replay_lookup(prompt, output, lookup)
    for position in range(1, len(output)):
        expected = reference_drafts(prompt + output[:position], lookup)
        assert present(found.proposed)[position] == len(expected)
        rest = output[position:]
        same = [draft == token for draft, token in zip(expected, rest, strict=False)]
        accepted = same.index(False) if False in same else len(same)
        assert found.accepted[position] == accepted
    assert found.accepted[0] == 0


def test_longest_suffix_wins_and_then_the_earliest_match() -> None:
    """After … 1 2 3, the first 2 3 is followed by 9, and the only 1 2 3 by 8, 7."""
    prompt = [2, 3, 9, 9, 1, 2, 3, 8, 7, 5]
    output = [1, 2, 3, 8, 7, 6]
    found = replay_lookup(prompt, output, NgramLookup(2, 3, 5))
    assert present(found.proposed).tolist() == [0, 0, 5, 5, 5, 5]
    assert found.accepted.tolist() == [0, 0, 3, 2, 1, 0]
    assert replay_lookup(prompt, output, NgramLookup(2, 2, 5)).accepted.tolist()[3] == 0


def log_of(*answers: tuple[str, str | None, list[int], list[int]]) -> AnswerLog:
    rows = [
        LoggedAnswer(name, category, np.array(prompt), np.array(output)) for name, category, prompt, output in answers
    ]
    return AnswerLog("made", "the file's own", rows, {})


def test_copied_answers_reach_the_draft_limit_and_noise_drafts_nothing() -> None:
    """Of 31 copied tokens, one is from the prefill; after two steps three tokens can be looked up, then 4 per step."""
    text = list(range(100, 131))
    answers = [(f"copy{number}", "copy", text, text) for number in range(4)]
    answers += [(f"noise{number}", "noise", text, list(range(1000, 1031))) for number in range(4)]
    report = ngram_report(log_of(*answers), NgramGrid((3,), (7,), (3,)), Pricing((1,), PUBLISHED_H100))
    (setting,) = report.settings
    copy, noise = setting.categories["copy"], setting.categories["noise"]
    assert copy.acceptance_length.value == pytest.approx(30 / 9)
    assert copy.drafted_steps.value == pytest.approx(7 / 9)
    assert copy.acceptance_rate.value == pytest.approx(1.0)
    assert (noise.acceptance_length.value, noise.drafted_steps.value) == (1.0, 0.0)
    assert noise.acceptance_rate.value is None
    assert noise.speedups["1"].value == pytest.approx(1.0)
    assert (copy.speedups["1"].value or 0) > 2
    shares = {name: each.value for name, each in report.copied_share_by_category.items()}
    assert (shares, report.copied_share.value) == ({"copy": 1.0, "noise": 0.0}, 0.5)
    assert setting.overall.acceptance_length.value == pytest.approx(60 / 39)
    assert setting.overall.acceptance_length_mean.value == pytest.approx((30 / 9 + 1) / 2)


def test_every_valid_pair_of_suffix_lengths_is_combined_with_every_draft_length() -> None:
    report = ngram_report(log_of(("a", None, [1, 2], [1, 2, 1, 2])), NgramGrid((2, 5), (3, 7), (1, 4)), Pricing())
    combinations = [(each.lookup_min, each.lookup_max, each.drafts) for each in report.settings]
    assert combinations == [(2, 3, 1), (2, 3, 4), (2, 7, 1), (2, 7, 4), (5, 7, 1), (5, 7, 4)]
    assert report.settings[0].overall.speedups == {}
    assert any("--step-cost" in each for each in report.limits)


def test_answers_without_a_step_are_left_out_and_counted() -> None:
    report = ngram_report(
        log_of(("a", None, [1], [1]), ("b", None, [1], [1, 2, 3])), NgramGrid((2,), (3,), (3,)), Pricing()
    )
    assert (report.answers, report.left_out) == (1, {"fewer than two output tokens": 1})


def share_of(prompt: list[int], output: list[int]) -> float | None:
    return copied_share(np.array(prompt, dtype=np.int64), np.array(output, dtype=np.int64))


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], 1 / 2),
        ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], 1.0),
        ([1] * 4, [1] * 8, 1.0),
        ([1, 2, 3, 4], [1, 2, 3], None),
        ([1, 2, 3], [6, 7, 8, 9], 0.0),
        ([], [1, 2, 3, 4], 0.0),
    ],
)
def test_copied_share_matches_a_calculation_by_hand(
    prompt: list[int], output: list[int], expected: float | None
) -> None:
    assert share_of(prompt, output) == pytest.approx(expected)


@given(ids, ids)
def test_copied_share_matches_a_literal_count_of_4_grams(prompt: list[int], output: list[int]) -> None:
    theirs, ours = ([tuple(side[at : at + 4]) for at in range(len(side) - 3)] for side in (prompt, output))
    expected = sum(gram in theirs for gram in ours) / len(ours) if ours else None
    assert share_of(prompt, output) == pytest.approx(expected)
