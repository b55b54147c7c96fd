"""Walks over answers of known acceptance: closed forms, bounds, and estimates from the steps of one run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.lossless.answer_texts import shared_prefix
from specbench_client.analysis.what_if.answers import (
    AnswerSet,
    DraftedAnswer,
    DrafterAnswers,
    PositionAcceptance,
    join_answers,
    shared_answers,
    span_split,
    steps_cover_answer,
)
from specbench_client.analysis.what_if.oracle import NamedDrafter, OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import (
    PUBLISHED_RULES,
    FirstStep,
    PolicyWalk,
    PricedDrafter,
    Pricing,
    acceptance_lengths,
    baseline_seconds,
    walk,
    walk_combined,
    walk_fixed,
    walk_oracle,
    walk_seconds,
)
from specbench_client.documents.what_if import CostModel, DraftCharge, DraftCost, DraftPolicy, TargetCost

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
    )


def single_of(accepted: list[list[int]]) -> DrafterAnswers:
    flat = np.array([each for one in accepted for each in one], dtype=np.int64)
    return DrafterAnswers(answers_of([len(one) for one in accepted]), PositionAcceptance(flat))


def length(of: DrafterAnswers, course: PolicyWalk) -> float:
    pooled = acceptance_lengths(of.answers, course)[0]
    return float(pooled.over.sum() / pooled.under.sum())


def seconds(of: DrafterAnswers, course: PolicyWalk, batch: int = 1) -> float:
    return float(walk_seconds(of.answers, course, COST, batch).sum())


def test_a_constant_acceptance_has_the_lengths_that_arithmetic_gives() -> None:
    """4 accepted everywhere, 21 tokens: 20 after the prefill, in steps of 5, of 4 (k=3), of 2 (k=1)."""
    one = single_of([[4] * 21])
    drafter = PricedDrafter("dear", one.acceptance, DEAR)
    assert [length(one, walk_fixed(one.answers, drafter, k)) for k in (1, 3, 4, 9)] == [2.0, 4.0, 5.0, 5.0]
    assert length(one, walk_oracle(one.answers, drafter)) == 5.0


def test_what_steps_cost_in_full() -> None:
    """One answer: a prompt of 10, 5 tokens, 3 accepted everywhere: one step at 11 cached tokens ends it."""
    one = single_of([[3] * 5])
    prefill = 2.0 + 0.01 * 10 + 0.1
    plain = sum(2.0 + 0.01 + 0.001 * (10 + out) + 0.1 for out in (1, 2, 3, 4))
    assert baseline_seconds(one.answers, COST, 1).sum() == pytest.approx(prefill + plain)
    drafted = walk_oracle(one.answers, PricedDrafter("dear", one.acceptance, DEAR))
    step = 2.0 + 0.01 * 4 + 0.001 * 11 + 0.1 + 1.0 + 0.25 * 3
    assert seconds(one, drafted) == pytest.approx(prefill + step)


def test_a_batch_has_so_many_times_the_tokens_and_one_pass() -> None:
    one = single_of([[0, 1, 0, 1, 0]])
    course = walk_fixed(one.answers, PricedDrafter("none", one.acceptance), 1)
    alone, eight = seconds(one, course), seconds(one, course, batch=8)
    passes = 1 + course.steps.place.size
    assert eight - passes * 2.1 == pytest.approx(8 * (alone - passes * 2.1))


def test_a_walk_without_drafts_takes_as_long_as_the_baseline() -> None:
    one = single_of([[3] * 30, [0] * 7])
    course = walk_fixed(one.answers, PricedDrafter("dear", one.acceptance, DEAR), 0)
    assert walk_seconds(one.answers, course, COST, 4) == pytest.approx(baseline_seconds(one.answers, COST, 4))


@given(accepted_lists, st.integers(0, 8))
def test_every_token_after_the_first_is_emitted_once(accepted: list[list[int]], drafts: int) -> None:
    of = single_of(accepted)
    course = walk_fixed(of.answers, PricedDrafter("any", of.acceptance), drafts)
    assert (
        course.steps.sums(of.answers, course.steps.emitted.astype(np.float64)) == of.answers.output_tokens - 1
    ).all()


@given(accepted_lists)
def test_a_step_looks_where_the_one_before_it_ended(accepted: list[list[int]]) -> None:
    of = single_of(accepted)
    steps = walk(of.answers, of.acceptance.accepted + 1)
    for answer, one in enumerate(accepted):
        own = np.sort(steps.place[steps.answer == answer]) - of.answers.starts[answer]
        at, wanted = 1, []
        while at < len(one):
            wanted.append(at)
            at += one[at] + 1
        assert own.tolist() == wanted


@given(accepted_lists)
def test_the_published_walk_is_the_same_one_position_earlier(accepted: list[list[int]]) -> None:
    shifted = single_of([[*one[1:], 0] for one in accepted])
    of = single_of(accepted)
    ours = walk(of.answers, of.acceptance.accepted + 1)
    published = walk(shifted.answers, shifted.acceptance.accepted + 1, FirstStep.PUBLISHED)
    assert (ours.place == published.place + 1).all()
    assert (ours.cached == published.cached).all()


def following_the_text(accepted: list[int]) -> list[int]:
    """Whose drafts follow the text alone: what is accepted from p is accepted from p + 1 too."""
    for place in range(len(accepted) - 2, -1, -1):
        accepted[place] = min(accepted[place], accepted[place + 1] + 1)
    return accepted


@given(accepted_lists, st.integers(1, 6))
def test_an_oracle_has_the_fewest_steps_and_no_more_time_than_drafts_without_end(
    accepted: list[list[int]], drafts: int
) -> None:
    of = single_of([following_the_text(one) for one in accepted])
    drafter = PricedDrafter("dear", of.acceptance, DEAR)
    best = walk_oracle(of.answers, drafter)
    assert best.steps.place.size <= walk_fixed(of.answers, drafter, drafts).steps.place.size
    assert seconds(of, best) <= seconds(of, walk_fixed(of.answers, drafter, 6)) + 1e-9


@given(accepted_lists, st.integers(0, 1000))
def test_both_pay_no_less_than_the_winner_and_the_winner_no_less_than_the_cheaper_alone(
    accepted: list[list[int]], seed: int
) -> None:
    of = single_of(accepted)
    other = PositionAcceptance(np.random.default_rng(seed).integers(0, 7, of.acceptance.accepted.size))
    drafters = PricedDrafter("cheap", of.acceptance, CHEAP), PricedDrafter("dear", other, DEAR)
    taken = [
        seconds(of, walk_combined(of.answers, *drafters, each))
        for each in (DraftCharge.UNCHARGED, DraftCharge.WINNER, DraftCharge.BOTH)
    ]
    assert taken == sorted(taken)


def test_of_equals_the_first_pays() -> None:
    of = single_of([[2] * 4])
    drafters = PricedDrafter("cheap", of.acceptance, CHEAP), PricedDrafter("dear", of.acceptance, DEAR)
    won = seconds(of, walk_combined(of.answers, *drafters, DraftCharge.WINNER))
    assert won == pytest.approx(seconds(of, walk_oracle(of.answers, drafters[0])))


def test_an_oracle_that_knows_that_nothing_is_accepted_pays_nothing_and_the_published_one_does() -> None:
    of = single_of([[0] * 6])
    drafter = PricedDrafter("cheap", of.acceptance, CHEAP)
    plain = baseline_seconds(of.answers, COST, 1).sum()
    assert seconds(of, walk_oracle(of.answers, drafter)) == pytest.approx(plain)
    assert seconds(of, walk_oracle(of.answers, drafter, PUBLISHED_RULES)) == pytest.approx(plain + 5 * 0.5)


def test_a_drafter_that_found_nothing_is_not_paid_for() -> None:
    proposed = np.array([0, 3, 0, 0, 2, 0], dtype=np.int64)
    of = DrafterAnswers(answers_of([6]), PositionAcceptance(np.zeros(6, dtype=np.int64), proposed))
    course = walk_fixed(of.answers, PricedDrafter("cheap", of.acceptance, CHEAP), 2)
    assert course.drafts[np.argsort(course.steps.place)].tolist() == [2, 0, 0, 2, 0]
    assert seconds(of, course) == pytest.approx(baseline_seconds(of.answers, COST, 1).sum() + 2 * (0.5 + 0.02))


@given(st.lists(st.integers(0, 9), max_size=30))
def test_steps_are_spread_over_the_positions_between_them(recorded: list[int]) -> None:
    spread = span_split(recorded)
    assert steps_cover_answer(recorded, spread.size)
    walked = walk(answers_of([spread.size]), spread + 1)
    assert (walked.emitted - 1).tolist() == recorded
    assert all(spread[1:-1] <= spread[2:] + 1)


def test_incomplete_steps_do_not_cover_an_answer() -> None:
    assert steps_cover_answer([2, 0, 1], 7)
    assert not steps_cover_answer([2, 0, 1], 8)
    assert not steps_cover_answer(None, 7)
    assert not steps_cover_answer([2, -1, 1], 6)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_what_two_answers_share_ends_before_the_first_token_that_differs(left: list[int], right: list[int]) -> None:
    shared = shared_prefix(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    assert left[:shared] == right[:shared]
    assert shared == min(len(left), len(right)) or left[shared] != right[shared]


def told(prompt: str, accepted: list[int], ids: list[int] | None = None, sha: str | None = None) -> DraftedAnswer:
    known = None if ids is None else np.array(ids, dtype=np.int64)
    return DraftedAnswer(prompt, None, 0, 10, PositionAcceptance(np.array(accepted, dtype=np.int64)), known, sha)


def test_two_drafters_are_combined_up_to_the_first_token_that_differs_and_the_share_is_reported() -> None:
    first = {("p", 0, 0): told("p", [0, 5, 4, 3, 2, 1], [7, 7, 7, 7, 1, 1])}
    second = {
        ("p", 0, 0): told("p", [0, 1, 0, 1, 0, 0, 0, 0], [7, 7, 7, 7, 2, 2, 2, 2]),
        ("q", 0, 0): told("q", [0, 0]),
    }
    found = shared_answers(first, second)
    assert found.answers.output_tokens.tolist() == [4]
    assert found.covered == 4 / 10
    assert (found.first.accepted.tolist(), found.second.accepted.tolist()) == ([0, 5, 4, 3], [0, 1, 0, 1])
    assert found.compared_by.startswith("token ids")


def test_without_ids_equal_texts_are_whole_and_others_are_not_covered() -> None:
    keys = [(name, 0, 0) for name in "abc"]
    first = dict(zip(keys, [told(name, [0, 1, 0], sha="same") for name in "abc"], strict=True))
    shas = ("same", "other", None)
    second = {key: told(key[0], [0, 0, 0], sha=sha) for key, sha in zip(keys, shas, strict=True)}
    found = shared_answers(first, second)
    assert (found.answers.ids, found.covered) == (("a",), 1 / 3)
    assert shared_answers(first, second, unchecked=True).answers.ids == ("a", "c")


def test_the_runs_own_draft_length_is_among_the_fixed_ones() -> None:
    rng = np.random.default_rng(5)
    of = join_answers([told(f"p{number}", [0, *rng.integers(0, 7, 60)]) for number in range(30)])
    report = oracle_report(
        OracleSubject("made", NamedDrafter("dear", of, DEAR, run_drafts=6)), (1, 3, 10), Pricing((1,), COST)
    )
    assert [each.drafts for each in report.rows if each.policy is DraftPolicy.FIXED] == [1, 3, 6]
    assert [each.drafts for each in report.what_if] == [1, 3], "other lengths"


def test_headroom_is_what_the_oracle_has_over_the_best_fixed_length() -> None:
    rng = np.random.default_rng(5)
    of = join_answers([told(f"p{number}", [0, *rng.integers(0, 6, 60)]) for number in range(30)])
    subject = OracleSubject("made", NamedDrafter("dear", of, DEAR))
    report = oracle_report(subject, (1, 2, 5), Pricing((1, 64), COST))
    rows = {(each.policy, each.drafts): each for each in report.rows}
    for room in report.rooms:
        batch = str(room.batch)
        speeds = {k: rows[DraftPolicy.FIXED, k].speedups[batch].value or 0.0 for k in (1, 2, 5)}
        top = max(speeds, key=lambda k: speeds[k])
        assert room.best_drafts == top
        assert room.headroom.value == pytest.approx(
            (rows[DraftPolicy.ORACLE, None].speedups[batch].value or 0.0) - speeds[top]
        )
        assert room.headroom.interval is not None
        assert room.headroom.interval.low <= (room.headroom.value or 0.0) <= room.headroom.interval.high


def test_where_no_length_pays_the_best_is_to_draft_nothing() -> None:
    of = join_answers([told(f"p{number}", [0] * 20) for number in range(5)])
    report = oracle_report(OracleSubject("made", NamedDrafter("dear", of, DEAR)), (1, 3), Pricing((1,), COST))
    (room,) = report.rooms
    assert (room.best_drafts, room.best_fixed.value) == (0, 1.0)
    assert room.headroom.value == pytest.approx(0.0)


def test_without_a_step_cost_there_are_lengths_and_no_speedups() -> None:
    of = join_answers([told(f"p{number}", [0, 2, 1, 0] * 4) for number in range(5)])
    report = oracle_report(OracleSubject("made", NamedDrafter("eagle", of, run_drafts=3)), (1, 3, 5), Pricing((1, 8)))
    assert [each.drafts for each in report.rows] == [1, 3, None]
    assert all(not each.speedups for each in report.rows)
    assert report.rooms == []
    assert any("--step-cost" in each for each in report.limits)
    assert [each.drafts for each in report.what_if] == [1, 3]


def test_the_share_of_steps_with_all_drafts_accepted_is_reported() -> None:
    """Of the steps 3, 3, 0 of a run of three drafts two were full."""
    of = join_answers([told("p", span_split([3, 3, 0]).tolist())])
    report = oracle_report(OracleSubject("made", NamedDrafter("eagle", of, run_drafts=3)), (3,), Pricing())
    assert report.censored["eagle"].value == pytest.approx(2 / 3)
    assert any("eagle: 67% of its steps accepted every draft" in each for each in report.limits)
    longer = oracle_report(OracleSubject("made", NamedDrafter("eagle", of, run_drafts=4)), (3,), Pricing())
    assert longer.censored["eagle"].value == 0.0
    assert not any("accepted every draft" in each for each in longer.limits)
