"""The published numbers of "Performance or Illusion?", from the released traces by the published rules, to the digit.

What is expected are the figures of a re-run of the authors' own simulator on these files, and of its corrected charges.
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
"""Batch size → the winner pays, both pay."""
LENGTHS = {
    ("gsm8k", "eagle"): (1.69, 2.40, 2.69, 2.83),
    ("cnn", "eagle"): (1.67, 2.33, 2.58, 2.78),
    ("gsm8k", "ngram"): (1.11, 1.16, 1.17, 1.18),
    ("cnn", "ngram"): (1.21, 1.35, 1.40, 1.46),
}
"""At most 1, 3, 5, 20 drafts."""


def subject(of: Trace, cost: CostModel = PUBLISHED_H100) -> OracleSubject:
    eagle, ngram = (
        NamedDrafter("eagle", of.eagle, cost.drafters["eagle"]),
        NamedDrafter("ngram", of.ngram, cost.drafters["ngram"]),
    )
    return OracleSubject("trace", eagle, ngram, of.both)


def rows_of(name: str, rules: WalkRules, batches: tuple[int, ...] = BATCHES) -> list[OracleRow]:
    return oracle_report(subject(trace(name)), (1, 3, 5), Pricing(batches, PUBLISHED_H100, rules)).rows


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_the_published_table_comes_out_within_its_rounding(name: str) -> None:
    rows = {
        (each.policy, each.drafts, each.charge): each
        for each in rows_of(name, PUBLISHED_RULES)
        if each.drafter != "ngram"
    }
    for (data, policy, drafts), wanted in GOLDEN.items():
        if data == name:
            row = rows[policy, drafts, DraftCharge.UNCHARGED if policy is DraftPolicy.COMBINE else None]
            found = [row.speedups[str(batch)].value for batch in BATCHES]
            assert found == pytest.approx(list(wanted), abs=ROUNDING), (policy, drafts)


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_a_combination_that_pays_for_its_drafters_is_worth_less(name: str) -> None:
    rows = {each.charge: each for each in rows_of(name, PUBLISHED_RULES, (1, 32))}
    for batch, wanted in CHARGED[name].items():
        found = [rows[charge].speedups[str(batch)].value for charge in (DraftCharge.WINNER, DraftCharge.BOTH)]
        assert found == pytest.approx(list(wanted), abs=ROUNDING)


@pytest.mark.parametrize(("name", "wanted"), [("gsm8k", 1.18), ("cnn", 1.45)])
def test_ngram_pays_for_no_step_that_found_nothing(name: str, wanted: float) -> None:
    """Which these are a trace does not tell, and a replay of its tokens does."""
    file = shared_file("data", "traces", f"combined_{name}.jsonl")
    asked = trace_subject(read_traces(file), "ngram", None, PUBLISHED_H100)
    rows = oracle_report(asked, (3,), Pricing((1,), PUBLISHED_H100, PUBLISHED_RULES)).rows
    assert rows[-1].speedups["1"].value == pytest.approx(wanted, abs=ROUNDING)
    proposed = asked.main.single.acceptance.proposed
    assert proposed is not None
    assert 0.05 < (proposed > 0).mean() < 0.5


def test_drafting_that_grows_with_the_draft_length_changes_which_length_is_best() -> None:
    cost = PUBLISHED_H100_BY_DRAFT
    rows = oracle_report(subject(trace("gsm8k"), cost), (1, 3, 5), Pricing((1,), cost, PUBLISHED_RULES)).rows
    found = {(each.policy, each.drafts): each.speedups["1"].value for each in rows if each.drafter == "eagle"}
    assert found[DraftPolicy.FIXED, 5] == pytest.approx(1.75, abs=ROUNDING)
    assert found[DraftPolicy.ORACLE, None] == pytest.approx(2.33, abs=ROUNDING)


@pytest.mark.parametrize(("name", "method"), LENGTHS)
def test_tokens_a_step_by_cap(name: str, method: str) -> None:
    """As published: what was verified, the last step's tokens beyond the end among them; mean over requests."""
    told = getattr(trace(name), method)
    found = []
    for cap in (1, 3, 5, 20):
        emitted = np.minimum(told.acceptance.accepted, cap) + 1
        steps = walk(told.answers, emitted, FirstStep.PUBLISHED)
        each = steps.sums(told.answers, emitted[steps.place].astype(np.float64)) / steps.sums(told.answers)
        found.append(float(each.mean()))
    assert found == pytest.approx(list(LENGTHS[name, method]), abs=ROUNDING)


@pytest.mark.parametrize(("name", "least"), [("gsm8k", 0.9997), ("cnn", 0.998)])
def test_a_replayed_lookup_accepts_what_the_engine_accepted(name: str, least: float) -> None:
    """At every position but the prefill's; where it does not, the engine had drafts accepted beyond the end."""
    of = trace(name)
    same, wrong = 0, 0
    for number, row in enumerate(of.rows):
        output = row["generated_token_ids"]
        found = replay_lookup(row["prompt_token_ids"], output, NgramLookup(3, 7, 20)).accepted[1:]
        engine = np.array(accepted_at(of.ngram.answers, of.ngram.acceptance, number)[1:])
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
def test_the_combination_from_one_run_and_a_replay_is_that_of_all_positions(name: str) -> None:
    """One large-k run of EAGLE and a replay on the texts, where both answers are equally long: within 1 %."""
    of = trace(name)
    alike = of.eagle.answers.output_tokens == of.ngram.answers.output_tokens
    answers, places = of.eagle.answers.of(alike)
    _, ngram_places = of.ngram.answers.of(alike)
    eagle, ngram = of.eagle.acceptance.at(places), of.ngram.acceptance.at(ngram_places)
    run = from_steps(DrafterAnswers(answers, eagle), drafts=20)
    rows = [row for row, same in zip(of.rows, alike, strict=True) if same]
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
    """What a run of so many drafts a step would have recorded, and what is known from that."""
    steps = walk(whole.answers, np.minimum(whole.acceptance.accepted, drafts) + 1)
    order = np.lexsort((steps.place, steps.answer))
    ends = np.cumsum(steps.sums(whole.answers))[:-1].astype(int)
    recorded = np.split(steps.emitted[order] - 1, ends)
    whole_tokens = whole.answers.output_tokens
    assert all(steps_cover_answer(each, int(tokens)) for each, tokens in zip(recorded, whole_tokens, strict=True))
    return DrafterAnswers(whole.answers, PositionAcceptance(np.concatenate([span_split(each) for each in recorded])))


def pooled(of: DrafterAnswers, course: PolicyWalk) -> float:
    return value(acceptance_lengths(of.answers, course)[0])


def speedup(of: DrafterAnswers, course: PolicyWalk) -> float:
    """As published, of one request a batch."""
    taken = walk_seconds(of.answers, course, PUBLISHED_H100, 1)
    return value(published_ratio(of.answers, baseline_seconds(of.answers, PUBLISHED_H100, 1), taken))


def value(ratio: SummedRatio) -> float:
    return float(ratio.over.sum() / ratio.under.sum())
