"""Losslessness: the false-alarm rate, the detection of known differences, and undecidable cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.plan.plan import Point
from specbench_client.analysis.lossless.answer_texts import shared_prefix
from specbench_client.analysis.lossless.losslessness import judge_greedy
from specbench_client.analysis.lossless.sampled import length_test, opening_test
from specbench_client.documents.lossless import ComparedBy, Losslessness, LosslessVerdict
from specbench_client.documents.summary import RunSummary
from specbench_client.metrics.divergence import Divergence, divergence
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import text_digests
from specbench_client.numpy_columns import TextCodes
from specbench_client.report.text.answers import lossless_table
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world, sha
from specbench_testing.tables import table_of

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=24, categories=ONE, repeats=3)


def rows_of(texts: Sequence[tuple[int, str, str]], *, turn: int = 0) -> Table:
    """Return tidy rows, with the columns that divergence reads, from (repeat, prompt, text)."""
    rows = [
        {
            "point": f"point{repeat}", "repeat": float(repeat), "prompt_id": prompt,
            "turn": float(turn), "category": None, "intended_ns": float(index), "ok": True, "filler": False,
        }
        for index, (repeat, prompt, _) in enumerate(texts)
    ]  # fmt: skip
    return table_of(pd.DataFrame(rows).astype({"category": object})).assign(
        output_sha256=text_digests(text for _, _, text in texts),
        conversation_id=np.arange(len(texts), dtype=np.uint64),
    )


def test_divergence_is_the_share_of_pairs_that_differ() -> None:
    """By hand: p is a, a, b on the baseline and a, b, b on the arm; q is x in every repeat."""
    base = rows_of([(0, "p", "a"), (1, "p", "a"), (2, "p", "b"), (0, "q", "x"), (1, "q", "x"), (2, "q", "x")])
    arm = rows_of([(0, "p", "a"), (1, "p", "b"), (2, "p", "b"), (0, "q", "x"), (1, "q", "x"), (2, "q", "x")])
    found = divergence(arm, base)
    assert found.rate == pytest.approx((5 / 9 + 0) / 2)
    assert found.control == pytest.approx((2 / 3 + 0) / 2)


def test_answers_of_one_repeat_give_no_control() -> None:
    base = rows_of([(0, "p", "a"), (0, "p", "b"), (0, "p", "c")])
    found = divergence(base, base)
    assert found.control is None
    assert found.rate == pytest.approx(2 / 3)


Texts = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("pqr"), st.sampled_from("abc")), min_size=1, max_size=20)


@pytest.mark.draws
@given(Texts, Texts)
@settings(max_examples=25, deadline=None)
def test_divergence_equals_a_count_of_every_pair(
    arm: list[tuple[int, str, str]], base: list[tuple[int, str, str]]
) -> None:
    def by_hand(mine: list[tuple[int, str, str]], *, others: bool) -> dict[str, float]:
        found: dict[str, dict[int, list[float]]] = {}
        for repeat, prompt, text in mine:
            differs = [
                text != other
                for its, its_prompt, other in base
                if its_prompt == prompt and not (others and its == repeat)
            ]
            if differs:
                found.setdefault(prompt, {}).setdefault(repeat, []).append(float(np.mean(differs)))
        return {
            prompt: float(np.mean([np.mean(each) for each in repeats.values()])) for prompt, repeats in found.items()
        }

    found = divergence(rows_of(arm), rows_of(base))
    rate, control = by_hand(arm, others=False), by_hand(base, others=True)
    compared = {prompt: value for prompt, value in control.items() if prompt in rate}
    assert found.rate == (pytest.approx(np.mean(list(rate.values()))) if rate else None)
    if {(repeat, prompt) for repeat, prompt, _ in base} <= {(repeat, prompt) for repeat, prompt, _ in arm}:
        assert found.control == (pytest.approx(np.mean(list(compared.values()))) if compared else None)


def simulated(seed: int, *, prompts: int = 40, repeats: int = 3, effect: float = 0.0) -> Divergence:
    """Simulate answers that are the prompt's usual one or a rounding variant; a share `effect` of the arm's differ."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.6, 2.4, prompts)
    sides = []
    for side in ("arm", "base"):
        texts = []
        for repeat in range(repeats):
            rounded, own = rng.random(prompts) < chance, (rng.random(prompts) < effect) & (side == "arm")
            texts += [
                (repeat, f"p{index}", "own" if own[index] else "rounded" if rounded[index] else "usual")
                for index in range(prompts)
            ]
        sides.append(rows_of(texts))
    return divergence(sides[0], sides[1])


def verdicts(effect: float, times: int = 200, **more: int) -> list[LosslessVerdict]:
    results = [judge_greedy(simulated(seed, effect=effect, **more), seed) for seed in range(times)]
    return [each.verdict for each in results if each is not None]


@pytest.mark.draws
def test_false_alarm_rate_stays_within_its_level() -> None:
    """One-sided 2.5 % of 200 runs with equal distributions on both sides, ± 3 σ."""
    alarms = np.mean([verdict is LosslessVerdict.DIVERGES for verdict in verdicts(0.0)])
    assert alarms <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 200)


@pytest.mark.draws
def test_detectable_excess_is_found_in_about_four_runs_of_five() -> None:
    first = judge_greedy(simulated(0), 0)
    assert first is not None
    assert first.detectable is not None
    assert first.detectable.value is not None
    alike = float(1 - np.mean([found for seed in range(20) if (found := simulated(seed).rate) is not None]))
    effect = (
        first.detectable.value / alike
    )  # an arm's own answer always differs; otherwise it would differ with probability 1 - alike
    found = float(np.mean([verdict is LosslessVerdict.DIVERGES for verdict in verdicts(effect, 60)]))
    assert 0.6 <= found <= 0.97
    assert np.mean([verdict is LosslessVerdict.DIVERGES for verdict in verdicts(min(1.0, 2 * effect), 30)]) > 0.95


def losslessness_of(summary: RunSummary) -> Losslessness:
    (cell,) = [cell for cell in summary.cells if cell.arm == "ngram"]
    assert cell.lossless is not None
    return cell.lossless


def with_answers(words: Any) -> Corruptions:
    """Replace the answers: `words` maps (point, prompt number) to the text."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        texts = [words(point, int(str(prompt)[1:])) for prompt in frame["prompt_id"]]
        return frame.assign(output_text=texts, output_sha256=[sha(text) for text in texts])

    return Corruptions(records=edit)


def test_equal_answers_are_lossless_with_the_bound_for_zero_of_n() -> None:
    result = losslessness_of(run_of_world(WORLD))
    assert result.verdict is LosslessVerdict.LOSSLESS
    assert result.compared_by is ComparedBy.DIGEST
    assert result.excess is not None
    assert result.excess.interval is not None
    assert result.excess.interval.high == pytest.approx(1 - 0.025 ** (1 / 24))
    assert "would have been detected" in result.message


def test_different_answers_diverge_with_the_first_difference() -> None:
    corruptions = with_answers(lambda point, prompt: f"{'same ' * prompt}{point.arm}")
    result = losslessness_of(run_of_world(WORLD, corruptions))
    assert (result.verdict, result.compared_by) == (LosslessVerdict.DIVERGES, ComparedBy.TEXT)
    assert result.first_difference is not None
    assert result.first_difference.unit == "characters"
    assert result.first_difference.arm is not None
    assert result.first_difference.arm.value == pytest.approx(
        5 * 11.5, abs=1.5
    )  # "ngram" and "none" have a common first letter
    assert result.first_difference.control is None
    row = lossless_table(run_of_world(WORLD, corruptions)).rows[0]
    assert row[4:6] == ["100.0%", "0.0%"]


def test_token_ids_are_compared_if_stored() -> None:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        ids = pd.Series([[1, 2, 3, 4 if point.arm == "none" else 5, 6]] * len(frame), index=frame.index, dtype=object)
        digests = [sha(f"{point.arm}{prompt}") for prompt in frame["prompt_id"]]
        return frame.assign(output_token_ids=ids, output_text="kept", output_sha256=digests)

    result = losslessness_of(run_of_world(WORLD, Corruptions(records=edit)))
    assert result.compared_by is ComparedBy.TOKEN_IDS
    assert result.first_difference is not None
    assert result.first_difference.arm is not None
    assert (result.first_difference.unit, result.first_difference.arm.value) == ("tokens", 3)


def test_divergence_equal_to_the_control_is_lossless() -> None:
    corruptions = with_answers(lambda point, prompt: f"{prompt}" if point.repeat == 0 or prompt % 2 else f"{point}")
    result = losslessness_of(run_of_world(WORLD, corruptions))
    assert (result.verdict, result.compared_by) == (LosslessVerdict.LOSSLESS, ComparedBy.TEXT)
    assert result.control is not None
    assert result.control.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("world", "verdict"),
    [
        (replace(WORLD, repeats=1), LosslessVerdict.NO_CONTROL),
        (replace(WORLD, prompts=2), LosslessVerdict.TOO_FEW),
    ],
)
def test_undecidable_cases_have_their_own_verdict(world: SyntheticRun, verdict: LosslessVerdict) -> None:
    assert losslessness_of(run_of_world(world)).verdict is verdict


def test_no_digests_or_no_baseline_gives_no_verdict() -> None:
    no_digest = run_of_world(WORLD, Corruptions(records=lambda _, frame: frame.assign(output_sha256=None)))
    alone = run_of_world(replace(WORLD, edits={"spec.baseline": "Skip"}))
    assert [cell.lossless for summary in (no_digest, alone) for cell in summary.cells] == [None, None, None]


def sampled(
    seed: int, arm: tuple[float, ...] = (0.7, 0.2, 0.1), longer: float = 1.0, repeats: int = 4, prompts: int = 60
) -> tuple[Table, Table]:
    """Sampled answers of both sides: openings from three words, lengths around each prompt's mean."""
    rng = np.random.default_rng(seed)
    base = (0.7, 0.2, 0.1)
    means = rng.uniform(50, 500, prompts)
    made = []
    for chances, factor in ((arm, longer), (base, 1.0)):
        prompt = np.repeat(np.arange(prompts), repeats)
        made.append(
            Table(
                {
                    "prompt_id": TextCodes.of([f"p{each}" for each in prompt]),
                    "repeat": np.tile(np.arange(repeats), prompts).astype(float),
                    "opening": TextCodes.of(rng.choice(["The", "A", "So"], size=prompt.size, p=chances).tolist()),
                    "tokens": np.round(rng.lognormal(np.log(means[prompt] * factor), 0.25)),
                }
            )
        )
    return made[0], made[1]


@pytest.mark.draws
@pytest.mark.parametrize("test", [opening_test, length_test])
def test_permutation_tests_keep_their_level(test: Any) -> None:
    p_values = np.array([test(*sampled(seed), seed).p_value for seed in range(100)])
    assert np.mean(p_values <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)
    assert 0.35 < p_values.mean() < 0.65


@pytest.mark.draws
def test_detectable_share_of_new_openings_is_found() -> None:
    """The detectable difference is defined by this contamination: a share δ of the answers starts with a new word."""
    result = opening_test(*sampled(0), 0)
    assert result is not None
    found = []
    for seed in range(100):
        arm, base = sampled(seed)
        rng = np.random.default_rng(10_000 + seed)
        new = rng.random(len(arm)) < result.detectable
        openings = np.where(new, "Xylophone", arm.codes("opening").by_row)
        tested = opening_test(arm.assign(opening=TextCodes.of(openings.tolist())), base, seed)
        assert tested is not None
        found.append(tested.p_value <= 0.05)
    assert 0.65 <= np.mean(found) <= 0.95


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.lists(st.integers(1, 6), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_length_statistic_is_kolmogorov_smirnovs(mine: list[int], base: list[int]) -> None:
    """Each of two prompts has the same answers, so their mean is that of one."""
    sides = [
        Table({"prompt_id": TextCodes.of(["p", "q"] * len(side)), "tokens": np.repeat(np.array(side, dtype=float), 2)})
        for side in (mine, base)
    ]
    result = length_test(sides[0], sides[1], 0)
    assert result is not None
    by_hand = [abs(np.mean(np.array(mine) <= at) - np.mean(np.array(base) <= at)) for at in range(1, 7)]
    assert result.difference == pytest.approx(max(by_hand))


@pytest.mark.draws
def test_longer_answers_are_found() -> None:
    arm, base = sampled(1, longer=1.25)
    result = length_test(arm, base, 1)
    assert result is not None
    assert result.p_value < 0.01
    assert result.difference > result.detectable


def with_openings(arm_word: str) -> Corruptions:
    """Sampled answers start with one of a few words, drawn for each repeat, or with the arm's own word."""

    def words(point: Point, prompt: int) -> str:
        rng = np.random.default_rng([prompt, point.repeat, point.arm == "none"])
        word = rng.choice(["The", "A", "So"])
        return f"{arm_word if point.arm != 'none' and arm_word else word} {rng.random()}"

    return with_answers(words)


@pytest.mark.parametrize(("word", "verdict"), [("", LosslessVerdict.LOSSLESS), ("Own", LosslessVerdict.DIVERGES)])
def test_sampled_run_is_compared_by_distribution(word: str, verdict: LosslessVerdict) -> None:
    result = losslessness_of(run_of_world(replace(WORLD, temperature=0.8, repeats=4), with_openings(word)))
    assert result.verdict is verdict
    assert [each.name for each in result.tests] == ["opening", "length"]
    assert all(each.control_p_value is not None for each in result.tests)
    assert result.divergence is None


def test_answers_repeated_by_one_seed_are_not_independent() -> None:
    result = losslessness_of(run_of_world(replace(WORLD, temperature=0.8, seeded=True)))
    assert result.verdict is LosslessVerdict.NOT_INDEPENDENT


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_first_difference_is_the_length_of_the_common_prefix(one: list[int], other: list[int]) -> None:
    place = shared_prefix(np.array(one, dtype=np.int64), np.array(other, dtype=np.int64))
    assert one[:place] == other[:place]
    assert place == min(len(one), len(other)) or one[place] != other[place]
