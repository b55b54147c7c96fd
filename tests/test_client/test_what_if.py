"""What-if answers: the walk of the oracle, the traces that it reads, and n-gram lookups."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.what_if.answers import (
    AnswerSet,
    DraftedAnswer,
    DrafterAnswers,
    PositionAcceptance,
    join_answers,
    span_split,
    steps_cover_answer,
)
from specbench_client.analysis.what_if.ngram import (
    AnswerLog,
    LoggedAnswer,
    NgramGrid,
    NgramLookup,
    copied_share,
    ngram_report,
    replay_lookup,
)
from specbench_client.analysis.what_if.oracle import OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import (
    PUBLISHED_H100,
    PolicyWalk,
    Pricing,
    acceptance_lengths,
    baseline_seconds,
    walk,
    walk_fixed,
    walk_oracle,
    walk_seconds,
)
from specbench_client.dataset.recorded_answers import read_traces, trace_subject
from specbench_client.documents.what_if import CostModel, DraftCost, DraftPolicy, OracleReport, TargetCost
from specbench_testing.present import present
from specbench_testing.shared_files import shared_file

CHEAP, DEAR = DraftCost(fixed_s=0.5), DraftCost(fixed_s=1.0, per_draft_s=0.25)
COST = CostModel(
    name="made",
    source="a test",
    target=TargetCost(fixed_s=2.0, per_token_s=0.01, per_cached_token_s=0.001),
    overhead_s=0.1,
    drafters={"cheap": CHEAP, "dear": DEAR},
)
accepted_lists = st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=40), min_size=1, max_size=6)


def answers_of(tokens: list[int], prompt: int = 10) -> AnswerSet:
    return AnswerSet(
        tuple(f"p{number}" for number in range(len(tokens))),
        (None,) * len(tokens),
        np.full(len(tokens), prompt, dtype=np.int64),
        np.array(tokens, dtype=np.int64),
        np.zeros(len(tokens), dtype=np.int64),
    )


def single_of(accepted: list[list[int]]) -> DrafterAnswers:
    flat = np.array([each for one in accepted for each in one], dtype=np.int64)
    return DrafterAnswers(answers_of([len(one) for one in accepted]), PositionAcceptance(flat))


def length(answers: DrafterAnswers, policy_walk: PolicyWalk) -> float:
    pooled = acceptance_lengths(answers.answers, policy_walk)[0]
    return float(pooled.over.sum() / pooled.under.sum())


def seconds(answers: DrafterAnswers, policy_walk: PolicyWalk, batch: int = 1) -> float:
    return float(walk_seconds(answers.answers, policy_walk, COST, batch).sum())


def test_constant_acceptance_gives_the_arithmetic_length() -> None:
    """4 accepted at every position, 21 tokens: 20 after the prefill, in steps of 5, of 4 (k=3), of 2 (k=1)."""
    one = single_of([[4] * 21])
    assert [length(one, walk_fixed(one.answers, one.acceptance, k, DEAR)) for k in (1, 3, 4, 9)] == [2.0, 4.0, 5.0, 5.0]
    assert length(one, walk_oracle(one.answers, one.acceptance, DEAR)) == 5.0


def test_step_cost_matches_a_calculation_by_hand() -> None:
    """One answer with a prompt of 10 and 5 tokens, 3 accepted at every position: one step at 11 cached tokens."""
    one = single_of([[3] * 5])
    prefill = 2.0 + 0.01 * 10 + 0.1
    plain = sum(2.0 + 0.01 + 0.001 * (10 + out) + 0.1 for out in (1, 2, 3, 4))
    assert baseline_seconds(one.answers, COST, 1).sum() == pytest.approx(prefill + plain)
    drafted = walk_oracle(one.answers, one.acceptance, DEAR)
    step = 2.0 + 0.01 * 4 + 0.001 * 11 + 0.1 + 1.0 + 0.25 * 3
    assert seconds(one, drafted) == pytest.approx(prefill + step)


def test_batch_multiplies_token_cost_but_not_fixed_cost() -> None:
    one = single_of([[0, 1, 0, 1, 0]])
    policy_walk = walk_fixed(one.answers, one.acceptance, 1)
    alone, eight = seconds(one, policy_walk), seconds(one, policy_walk, batch=8)
    passes = 1 + policy_walk.steps.place.size
    assert eight - passes * 2.1 == pytest.approx(8 * (alone - passes * 2.1))


def test_walk_without_drafts_takes_as_long_as_the_baseline() -> None:
    one = single_of([[3] * 30, [0] * 7])
    policy_walk = walk_fixed(one.answers, one.acceptance, 0, DEAR)
    assert walk_seconds(one.answers, policy_walk, COST, 4) == pytest.approx(baseline_seconds(one.answers, COST, 4))


@given(accepted_lists)
def test_each_step_starts_where_the_previous_one_ended(accepted: list[list[int]]) -> None:
    answers = single_of(accepted)
    steps = walk(answers.answers, answers.acceptance.accepted + 1)
    for answer, one in enumerate(accepted):
        own = np.sort(steps.place[steps.answer == answer]) - answers.answers.starts[answer]
        at, expected = 1, []
        while at < len(one):
            expected.append(at)
            at += one[at] + 1
        assert own.tolist() == expected


def limit_to_text_lookup(accepted: list[int]) -> list[int]:
    """Return acceptance of drafts that follow the text: a match at p continues at p + 1."""
    for place in range(len(accepted) - 2, -1, -1):
        accepted[place] = min(accepted[place], accepted[place + 1] + 1)
    return accepted


@given(accepted_lists, st.integers(1, 6))
def test_oracle_has_the_fewest_steps_and_no_more_time_than_unlimited_drafts(
    accepted: list[list[int]], drafts: int
) -> None:
    answers = single_of([limit_to_text_lookup(one) for one in accepted])
    best = walk_oracle(answers.answers, answers.acceptance, DEAR)
    assert best.steps.place.size <= walk_fixed(answers.answers, answers.acceptance, drafts, DEAR).steps.place.size
    assert seconds(answers, best) <= seconds(answers, walk_fixed(answers.answers, answers.acceptance, 6, DEAR)) + 1e-9


def test_oracle_is_not_charged_for_rejected_drafts() -> None:
    answers = single_of([[0] * 6])
    plain = baseline_seconds(answers.answers, COST, 1).sum()
    assert seconds(answers, walk_oracle(answers.answers, answers.acceptance, CHEAP)) == pytest.approx(plain)


def test_drafter_without_a_proposal_is_not_charged() -> None:
    proposed = np.array([0, 3, 0, 0, 2, 0], dtype=np.int64)
    answers = DrafterAnswers(answers_of([6]), PositionAcceptance(np.zeros(6, dtype=np.int64), proposed))
    policy_walk = walk_fixed(answers.answers, answers.acceptance, 2, CHEAP)
    assert policy_walk.drafts[np.argsort(policy_walk.steps.place)].tolist() == [2, 0, 0, 2, 0]
    assert seconds(answers, policy_walk) == pytest.approx(
        baseline_seconds(answers.answers, COST, 1).sum() + 2 * (0.5 + 0.02)
    )


@given(st.lists(st.integers(0, 9), max_size=30))
def test_recorded_steps_expand_to_positions_and_back(recorded: list[int]) -> None:
    spread = span_split(recorded)
    assert steps_cover_answer(recorded, spread.size)
    walked = walk(answers_of([spread.size]), spread + 1)
    assert (walked.emitted - 1).tolist() == recorded
    assert all(spread[1:-1] <= spread[2:] + 1)


def test_incomplete_steps_do_not_cover_an_answer() -> None:
    cases = [([2, 0, 1], 7), ([2, 0, 1], 8), (None, 7), ([2, -1, 1], 6)]
    assert [steps_cover_answer(steps, tokens) for steps, tokens in cases] == [True, False, False, False]


def report_of(
    accepted: list[list[int]],
    lengths: tuple[int, ...],
    pricing: Pricing,
    cost: DraftCost | None = None,
    run_drafts: int | None = None,
) -> OracleReport:
    """Return the report on one drafter with these answers."""
    reach = [PositionAcceptance(np.array(each, dtype=np.int64)) for each in accepted]
    answers = join_answers([DraftedAnswer(f"p{number}", None, 0, 10, each) for number, each in enumerate(reach)])
    subject = OracleSubject("made", "eagle", answers, cost, run_drafts)
    return oracle_report(subject, lengths, pricing)


def drawn_answers(most: int) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [[0, *rng.integers(0, most + 1, 60)] for _ in range(30)]


def test_runs_own_draft_length_is_among_the_fixed_ones() -> None:
    report = report_of(drawn_answers(6), (1, 3, 10), Pricing((1,), COST), DEAR, run_drafts=6)
    assert [each.drafts for each in report.rows if each.policy is DraftPolicy.FIXED] == [1, 3, 6]


def test_length_below_the_runs_own_has_the_cut_steps_of_the_run_and_is_a_bound() -> None:
    """Steps that accept independently of each other, as in the simulator: cutting them is exact."""
    rng = np.random.default_rng(7)
    steps = [np.minimum(rng.geometric(0.3, 200) - 1, 3) for _ in range(20)]
    report = report_of([span_split(each).tolist() for each in steps], (1, 2), Pricing((1,), COST), DEAR, run_drafts=3)
    every = np.concatenate(steps)
    for row in report.rows[:3]:
        assert row.acceptance_length.value == pytest.approx(1 + np.minimum(every, row.drafts or 0).mean())
        speedup = row.speedups["1"]
        for figure in (row.acceptance_length, row.acceptance_length_mean, speedup):
            assert (figure.interval is None, figure.missing) == (
                (row.drafts or 0) < 3,
                "lower bound" * (row.drafts != 3),
            )
    whole = report_of([span_split(np.minimum(each, 2)).tolist() for each in steps], (), Pricing((1,), COST), DEAR, 2)
    cut, measured = (present(rows[index].speedups["1"].value) for rows, index in ((report.rows, 1), (whole.rows, 0)))
    assert cut == pytest.approx(measured, rel=0.02)


def test_spans_of_long_drafts_are_the_larger_bound() -> None:
    """One step of 7 tokens is four of at most two; cut, it would be one of two tokens."""
    report = report_of([span_split([6, 0, 0, 0, 0]).tolist()], (1,), Pricing(), run_drafts=10)
    assert present(report.rows[0].acceptance_length.value) == pytest.approx(11 / 8)


def test_headroom_is_the_oracles_gain_over_the_best_fixed_length() -> None:
    report = report_of(drawn_answers(5), (1, 2, 5), Pricing((1, 64), COST), DEAR)
    rows = {(each.policy, each.drafts): each for each in report.rows}
    for room in report.rooms:
        batch = str(room.batch)
        speeds = {k: rows[DraftPolicy.FIXED, k].speedups[batch].value or 0.0 for k in (1, 2, 5)}
        oracle, headroom = present(rows[DraftPolicy.ORACLE, None].speedups[batch].value), present(room.headroom.value)
        assert room.best_drafts == max(speeds, key=lambda k: speeds[k])
        assert headroom == pytest.approx(oracle - max(speeds.values()))
        assert present(room.headroom.interval).low <= headroom <= present(room.headroom.interval).high


def test_best_draft_length_is_0_when_no_length_pays() -> None:
    (room,) = report_of([[0] * 20] * 5, (1, 3), Pricing((1,), COST), DEAR).rooms
    assert (room.best_drafts, room.best_fixed.value) == (0, 1.0)
    assert room.headroom.value == pytest.approx(0.0)


def test_report_without_a_step_cost_has_lengths_and_no_speedups() -> None:
    report = report_of([[0, 2, 1, 0] * 4] * 5, (1, 3, 5), Pricing((1, 8)), run_drafts=3)
    assert [(each.drafts, each.speedups) for each in report.rows] == [(1, {}), (3, {}), (None, {})]
    assert report.rooms == []
    assert any("--step-cost" in each for each in report.limits)


@pytest.mark.parametrize(("run_drafts", "share"), [(3, 2 / 3), (4, 0.0)])
def test_share_of_steps_with_all_drafts_accepted_is_reported(run_drafts: int, share: float) -> None:
    """Two of the steps 3, 3, 0 of a run with three drafts accepted every draft."""
    report = report_of([span_split([3, 3, 0]).tolist()], (3,), Pricing(), run_drafts=run_drafts)
    assert present(report.censored).value == pytest.approx(share)
    limit = "67% of the steps accepted every draft"
    assert any(limit in each for each in report.limits) == bool(share)


ROUNDING = 0.005
GOLDEN = {
    ("gsm8k", DraftPolicy.FIXED, 3): (1.82, 1.19),
    ("gsm8k", DraftPolicy.ORACLE, None): (2.31, 1.61),
    ("cnn", DraftPolicy.FIXED, 3): (1.77, 1.24),
    ("cnn", DraftPolicy.ORACLE, None): (2.28, 1.51),
}
"""Speed-ups at batch sizes 1 and 128."""


@dataclass(frozen=True)
class Trace:
    """One data set: the released rows, and each drafter's own answers."""

    rows: tuple[dict[str, Any], ...]
    eagle: DrafterAnswers
    ngram: DrafterAnswers


@cache
def trace(name: str) -> Trace:
    """`gsm8k` or `cnn`; skips the test if the file does not exist."""
    lines = shared_file("data", "traces", f"combined_{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = tuple(json.loads(line) for line in lines)
    eagle, ngram = ([trace_answer(row, method) for row in rows] for method in ("eagle", "ngram"))
    return Trace(rows, join_answers(eagle), join_answers(ngram))


def trace_answer(row: dict[str, Any], method: str) -> DraftedAnswer:
    accepted = np.array(row[f"acc_{method}"]["acc_len"], dtype=np.int64) - 1
    return DraftedAnswer(str(row["id"]), None, 0, len(row["prompt_token_ids"]), PositionAcceptance(accepted))


def accepted_at(answers: AnswerSet, reach: PositionAcceptance, answer: int) -> list[int]:
    """Drafts that a drafter has accepted at each position of one answer."""
    start = answers.starts[answer]
    return [int(each) for each in reach.accepted[start : start + answers.output_tokens[answer]]]


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_bounds_of_the_released_traces(name: str) -> None:
    subject = OracleSubject("trace", "eagle", trace(name).eagle, PUBLISHED_H100.drafters["eagle"])
    rows = {
        (each.policy, each.drafts): [each.speedups[batch].value for batch in ("1", "128")]
        for each in oracle_report(subject, (1, 3, 5), Pricing((1, 128), PUBLISHED_H100)).rows
    }
    for (data, policy, drafts), expected in GOLDEN.items():
        if data == name:
            assert rows[policy, drafts] == pytest.approx(list(expected), abs=ROUNDING), (policy, drafts)


@pytest.mark.parametrize(("name", "expected"), [("gsm8k", 1.185), ("cnn", 1.416)])
def test_ngram_is_not_charged_for_steps_without_a_proposal(name: str, expected: float) -> None:
    """A trace does not contain these steps; a replay of its tokens does."""
    file = shared_file("data", "traces", f"combined_{name}.jsonl")
    oracle_subject = trace_subject(read_traces(file), "ngram", PUBLISHED_H100)
    rows = oracle_report(oracle_subject, (3,), Pricing((1,), PUBLISHED_H100)).rows
    assert rows[-1].speedups["1"].value == pytest.approx(expected, abs=ROUNDING)
    proposed = oracle_subject.single.acceptance.proposed
    assert proposed is not None
    assert 0.05 < (proposed > 0).mean() < 0.5


@pytest.mark.parametrize(("name", "least"), [("gsm8k", 0.9997), ("cnn", 0.998)])
def test_replayed_lookup_matches_the_engines_acceptance(name: str, least: float) -> None:
    """Compared at every position after the prefill; differences occur only for drafts beyond the end of the answer."""
    released = trace(name)
    same, wrong = 0, 0
    for number, row in enumerate(released.rows):
        output = row["generated_token_ids"]
        found = replay_lookup(row["prompt_token_ids"], output, NgramLookup(3, 7, 20)).accepted[1:]
        engine = np.array(accepted_at(released.ngram.answers, released.ngram.acceptance, number)[1:])
        left = len(output) - 1 - np.arange(1, len(output))
        differing = found != engine
        assert (engine[differing] > left[differing]).all()
        same, wrong = same + int((~differing).sum()), wrong + int(differing.sum())
    assert same / (same + wrong) >= least


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
