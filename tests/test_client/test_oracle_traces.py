"""Reproduces the published figures of "Performance or Illusion?" from the released traces by the published rules.

Expected values come from a re-run of the authors' simulator on these files, with published and with corrected
charges.
"""

from __future__ import annotations

import numpy as np
import pytest

from specbench_client.analysis.what_if.answers import (
    DraftedAnswer,
    DrafterAnswers,
    PositionAcceptance,
    join_answers,
    span_split,
    steps_cover_answer,
)
from specbench_client.analysis.what_if.cost_models import PUBLISHED_H100, PUBLISHED_H100_BY_DRAFT
from specbench_client.analysis.what_if.ngram_lookup import NgramLookup, replay_lookup
from specbench_client.analysis.what_if.oracle import NamedDrafter, OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import (
    OUR_RULES,
    PUBLISHED_RULES,
    FirstStep,
    PolicyWalk,
    PricedDrafter,
    Pricing,
    SummedRatio,
    WalkRules,
    acceptance_lengths,
    baseline_seconds,
    published_ratio,
    walk,
    walk_combined,
    walk_fixed,
    walk_oracle,
    walk_seconds,
)
from specbench_client.dataset.recorded_answers import read_traces, trace_subject
from specbench_client.documents.what_if import CostModel, DraftCharge, DraftPolicy, OracleRow
from specbench_testing.engine_traces import Trace, accepted_at, trace
from specbench_testing.shared_files import shared_file

BATCHES = (1, 8, 16, 32, 64, 128)
ROUNDING = 0.005
GOLDEN = {
    ("gsm8k", DraftPolicy.FIXED, 1): (1.29, 1.28, 1.26, 1.23, 1.19, 1.14),
    ("gsm8k", DraftPolicy.FIXED, 3): (1.81, 1.73, 1.65, 1.52, 1.36, 1.18),
    ("gsm8k", DraftPolicy.FIXED, 5): (2.01, 1.86, 1.73, 1.53, 1.29, 1.07),
    ("gsm8k", DraftPolicy.ORACLE, None): (2.13, 2.06, 1.98, 1.87, 1.71, 1.54),
    ("gsm8k", DraftPolicy.COMBINE, None): (2.80, 2.64, 2.50, 2.28, 2.00, 1.71),
    ("cnn", DraftPolicy.FIXED, 3): (1.76, 1.65, 1.56, 1.44, 1.31, 1.21),
    ("cnn", DraftPolicy.ORACLE, None): (2.10, 1.96, 1.86, 1.72, 1.58, 1.45),
    ("cnn", DraftPolicy.COMBINE, None): (2.97, 2.62, 2.36, 2.07, 1.80, 1.58),
}
CHARGED = {"gsm8k": {1: (2.37, 2.17), 32: (2.02, 1.89)}, "cnn": {1: (2.57, 2.31), 32: (1.93, 1.82)}}
"""Batch size → speed-up if the winner pays, and if both pay."""
LENGTHS = {
    ("gsm8k", "eagle"): (1.69, 2.40, 2.69, 2.83),
    ("cnn", "eagle"): (1.67, 2.33, 2.58, 2.78),
    ("gsm8k", "ngram"): (1.11, 1.16, 1.17, 1.18),
    ("cnn", "ngram"): (1.21, 1.35, 1.40, 1.46),
}
"""With at most 1, 3, 5 and 20 drafts."""


def subject(answers: Trace, cost: CostModel = PUBLISHED_H100) -> OracleSubject:
    eagle, ngram = (
        NamedDrafter("eagle", answers.eagle, cost.drafters["eagle"]),
        NamedDrafter("ngram", answers.ngram, cost.drafters["ngram"]),
    )
    return OracleSubject("trace", eagle, ngram, answers.both)


def rows_of(name: str, rules: WalkRules, batches: tuple[int, ...] = BATCHES) -> list[OracleRow]:
    return oracle_report(subject(trace(name)), (1, 3, 5), Pricing(batches, PUBLISHED_H100, rules)).rows


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_published_table_is_reproduced_within_its_rounding(name: str) -> None:
    rows = {
        (each.policy, each.drafts, each.charge): each
        for each in rows_of(name, PUBLISHED_RULES)
        if each.drafter != "ngram"
    }
    for (data, policy, drafts), expected in GOLDEN.items():
        if data == name:
            row = rows[policy, drafts, DraftCharge.UNCHARGED if policy is DraftPolicy.COMBINE else None]
            found = [row.speedups[str(batch)].value for batch in BATCHES]
            assert found == pytest.approx(list(expected), abs=ROUNDING), (policy, drafts)


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_combination_charged_for_its_drafters_gains_less(name: str) -> None:
    rows = {each.charge: each for each in rows_of(name, PUBLISHED_RULES, (1, 32))}
    for batch, expected in CHARGED[name].items():
        found = [rows[charge].speedups[str(batch)].value for charge in (DraftCharge.WINNER, DraftCharge.BOTH)]
        assert found == pytest.approx(list(expected), abs=ROUNDING)


@pytest.mark.parametrize(("name", "expected"), [("gsm8k", 1.18), ("cnn", 1.45)])
def test_ngram_is_not_charged_for_steps_without_a_proposal(name: str, expected: float) -> None:
    """A trace does not contain these steps; a replay of its tokens does."""
    file = shared_file("data", "traces", f"combined_{name}.jsonl")
    oracle_subject = trace_subject(read_traces(file), "ngram", None, PUBLISHED_H100)
    rows = oracle_report(oracle_subject, (3,), Pricing((1,), PUBLISHED_H100, PUBLISHED_RULES)).rows
    assert rows[-1].speedups["1"].value == pytest.approx(expected, abs=ROUNDING)
    proposed = oracle_subject.main.single.acceptance.proposed
    assert proposed is not None
    assert 0.05 < (proposed > 0).mean() < 0.5


def test_per_draft_cost_changes_the_best_draft_length() -> None:
    cost = PUBLISHED_H100_BY_DRAFT
    rows = oracle_report(subject(trace("gsm8k"), cost), (1, 3, 5), Pricing((1,), cost, PUBLISHED_RULES)).rows
    found = {(each.policy, each.drafts): each.speedups["1"].value for each in rows if each.drafter == "eagle"}
    assert found[DraftPolicy.FIXED, 5] == pytest.approx(1.75, abs=ROUNDING)
    assert found[DraftPolicy.ORACLE, None] == pytest.approx(2.33, abs=ROUNDING)


@pytest.mark.parametrize(("name", "method"), LENGTHS)
def test_tokens_per_step_match_the_published_values_at_each_cap(name: str, method: str) -> None:
    """As published: verified tokens including those beyond the end of the answer; mean over requests."""
    drafter_answers = getattr(trace(name), method)
    found = []
    for cap in (1, 3, 5, 20):
        emitted = np.minimum(drafter_answers.acceptance.accepted, cap) + 1
        steps = walk(drafter_answers.answers, emitted, FirstStep.PUBLISHED)
        each = steps.sums(drafter_answers.answers, emitted[steps.place].astype(np.float64)) / steps.sums(
            drafter_answers.answers
        )
        found.append(float(each.mean()))
    assert found == pytest.approx(list(LENGTHS[name, method]), abs=ROUNDING)


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


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_one_run_with_long_drafts_gives_the_oracle_and_bounds_other_lengths(name: str, method: str) -> None:
    whole = getattr(trace(name), method)
    run = from_steps(whole, drafts=20)
    drafters = [PricedDrafter(method, each.acceptance) for each in (whole, run)]
    own = [walk_oracle(whole.answers, each) for each in drafters]
    assert (own[0].steps.place == own[1].steps.place).all()
    for drafts in (1, 3, 5):
        truth, split = (pooled(whole, walk_fixed(whole.answers, each, drafts)) for each in drafters)
        assert 0.965 * truth <= split <= truth


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_combination_from_one_run_and_a_replay_matches_all_positions(name: str) -> None:
    """One run of EAGLE with long drafts and a replay of its texts, for answers of equal length: within 1 %."""
    released = trace(name)
    same_length = released.eagle.answers.output_tokens == released.ngram.answers.output_tokens
    answers, places = released.eagle.answers.of(same_length)
    _, ngram_places = released.ngram.answers.of(same_length)
    eagle, ngram = released.eagle.acceptance.at(places), released.ngram.acceptance.at(ngram_places)
    run = from_steps(DrafterAnswers(answers, eagle), drafts=20)
    rows = [row for row, same in zip(released.rows, same_length, strict=True) if same]
    replayed = join_answers([by_replay(row) for row in rows])
    costs = [PUBLISHED_H100.drafters[each] for each in ("ngram", "eagle")]
    found = []
    for first, second in ((ngram, eagle), (replayed.acceptance, run.acceptance)):
        drafters = PricedDrafter("ngram", first, costs[0]), PricedDrafter("eagle", second, costs[1])
        found.append(
            speedup(DrafterAnswers(answers, eagle), walk_combined(answers, *drafters, DraftCharge.WINNER, OUR_RULES))
        )
    assert found[1] == pytest.approx(found[0], rel=0.01)


def by_replay(row: dict[str, list[int]]) -> DraftedAnswer:
    prompt, output = row["prompt_token_ids"], row["generated_token_ids"]
    return DraftedAnswer(str(row["id"]), None, 0, len(prompt), replay_lookup(prompt, output, NgramLookup(3, 7, 20)))


def from_steps(whole: DrafterAnswers, drafts: int) -> DrafterAnswers:
    """Return what a run with this many drafts per step would record, expanded to positions."""
    steps = walk(whole.answers, np.minimum(whole.acceptance.accepted, drafts) + 1)
    order = np.lexsort((steps.place, steps.answer))
    ends = np.cumsum(steps.sums(whole.answers))[:-1].astype(int)
    recorded = np.split(steps.emitted[order] - 1, ends)
    whole_tokens = whole.answers.output_tokens
    assert all(steps_cover_answer(each, int(tokens)) for each, tokens in zip(recorded, whole_tokens, strict=True))
    return DrafterAnswers(whole.answers, PositionAcceptance(np.concatenate([span_split(each) for each in recorded])))


def pooled(answers: DrafterAnswers, policy_walk: PolicyWalk) -> float:
    return value(acceptance_lengths(answers.answers, policy_walk)[0])


def speedup(answers: DrafterAnswers, policy_walk: PolicyWalk) -> float:
    """Return the speed-up as published, at batch size 1."""
    taken = walk_seconds(answers.answers, policy_walk, PUBLISHED_H100, 1)
    return value(published_ratio(answers.answers, baseline_seconds(answers.answers, PUBLISHED_H100, 1), taken))


def value(ratio: SummedRatio) -> float:
    return float(ratio.over.sum() / ratio.under.sum())
