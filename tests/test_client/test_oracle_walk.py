"""Walks over answers of known acceptance: closed forms, bounds, and estimates from the steps of one run."""

from __future__ import annotations

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
from specbench_client.analysis.what_if.oracle import OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import (
    PolicyWalk,
    PricedDrafter,
    Pricing,
    acceptance_lengths,
    baseline_seconds,
    walk,
    walk_fixed,
    walk_oracle,
    walk_seconds,
)
from specbench_client.documents.what_if import CostModel, DraftCost, DraftPolicy, OracleReport, TargetCost
from specbench_testing.present import present

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
    drafter = PricedDrafter(one.acceptance, DEAR)
    assert [length(one, walk_fixed(one.answers, drafter, k)) for k in (1, 3, 4, 9)] == [2.0, 4.0, 5.0, 5.0]
    assert length(one, walk_oracle(one.answers, drafter)) == 5.0


def test_step_cost_matches_a_calculation_by_hand() -> None:
    """One answer with a prompt of 10 and 5 tokens, 3 accepted at every position: one step at 11 cached tokens."""
    one = single_of([[3] * 5])
    prefill = 2.0 + 0.01 * 10 + 0.1
    plain = sum(2.0 + 0.01 + 0.001 * (10 + out) + 0.1 for out in (1, 2, 3, 4))
    assert baseline_seconds(one.answers, COST, 1).sum() == pytest.approx(prefill + plain)
    drafted = walk_oracle(one.answers, PricedDrafter(one.acceptance, DEAR))
    step = 2.0 + 0.01 * 4 + 0.001 * 11 + 0.1 + 1.0 + 0.25 * 3
    assert seconds(one, drafted) == pytest.approx(prefill + step)


def test_batch_multiplies_token_cost_but_not_fixed_cost() -> None:
    one = single_of([[0, 1, 0, 1, 0]])
    policy_walk = walk_fixed(one.answers, PricedDrafter(one.acceptance), 1)
    alone, eight = seconds(one, policy_walk), seconds(one, policy_walk, batch=8)
    passes = 1 + policy_walk.steps.place.size
    assert eight - passes * 2.1 == pytest.approx(8 * (alone - passes * 2.1))


def test_walk_without_drafts_takes_as_long_as_the_baseline() -> None:
    one = single_of([[3] * 30, [0] * 7])
    policy_walk = walk_fixed(one.answers, PricedDrafter(one.acceptance, DEAR), 0)
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
    drafter = PricedDrafter(answers.acceptance, DEAR)
    best = walk_oracle(answers.answers, drafter)
    assert best.steps.place.size <= walk_fixed(answers.answers, drafter, drafts).steps.place.size
    assert seconds(answers, best) <= seconds(answers, walk_fixed(answers.answers, drafter, 6)) + 1e-9


def test_oracle_is_not_charged_for_rejected_drafts() -> None:
    answers = single_of([[0] * 6])
    drafter = PricedDrafter(answers.acceptance, CHEAP)
    plain = baseline_seconds(answers.answers, COST, 1).sum()
    assert seconds(answers, walk_oracle(answers.answers, drafter)) == pytest.approx(plain)


def test_drafter_without_a_proposal_is_not_charged() -> None:
    proposed = np.array([0, 3, 0, 0, 2, 0], dtype=np.int64)
    answers = DrafterAnswers(answers_of([6]), PositionAcceptance(np.zeros(6, dtype=np.int64), proposed))
    policy_walk = walk_fixed(answers.answers, PricedDrafter(answers.acceptance, CHEAP), 2)
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
