"""The published numbers of "Performance or Illusion?", from the released traces by the published rules, to the digit.

What is expected are the figures of a re-run of the authors' own simulator on these files, and of its corrected charges.
"""

from __future__ import annotations

import numpy as np
import pytest

from specbench_api.outcome.cost_model import CostModel
from specbench_api.outcome.oracle import Charge, OracleRow, Policy
from specbench_client.analysis.oracle.answers import Reach
from specbench_client.analysis.oracle.course import OURS, PUBLISHED, Course, Drafter, Rules, combine, fixed, oracle
from specbench_client.analysis.oracle.policies import Pricing, lengths, published_ratio
from specbench_client.analysis.oracle.published import PUBLISHED_H100, PUBLISHED_H100_BY_DRAFT
from specbench_client.analysis.oracle.report import Named, Subject, oracle_report
from specbench_client.analysis.oracle.sampled import Ratio
from specbench_client.analysis.oracle.seconds import course_seconds, plain_seconds
from specbench_client.analysis.oracle.spans import fits, span_split
from specbench_client.analysis.oracle.told import Single, Told, single
from specbench_client.analysis.oracle.walk import First, walk
from specbench_client.analysis.replay.lookup import Lookup, replay
from specbench_client.dataset.logs.subject import trace_subject
from specbench_client.dataset.logs.traces import read_traces
from specbench_testing.shared import shared
from specbench_testing.traces import Trace, accepted_at, trace

BATCHES = (1, 8, 16, 32, 64, 128)
ROUNDING = 0.005
GOLDEN = {
    ("gsm8k", Policy.FIXED, 1): (1.29, 1.28, 1.26, 1.23, 1.19, 1.14),
    ("gsm8k", Policy.FIXED, 3): (1.81, 1.73, 1.65, 1.52, 1.36, 1.18),
    ("gsm8k", Policy.FIXED, 5): (2.01, 1.86, 1.73, 1.53, 1.29, 1.07),
    ("gsm8k", Policy.ORACLE, None): (2.13, 2.06, 1.98, 1.87, 1.71, 1.54),
    ("gsm8k", Policy.COMBINE, None): (2.80, 2.64, 2.50, 2.28, 2.00, 1.71),
    ("cnn", Policy.FIXED, 3): (1.76, 1.65, 1.56, 1.44, 1.31, 1.21),
    ("cnn", Policy.ORACLE, None): (2.10, 1.96, 1.86, 1.72, 1.58, 1.45),
    ("cnn", Policy.COMBINE, None): (2.97, 2.62, 2.36, 2.07, 1.80, 1.58),
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


def subject(of: Trace, cost: CostModel = PUBLISHED_H100) -> Subject:
    eagle, ngram = Named("eagle", of.eagle, cost.drafters["eagle"]), Named("ngram", of.ngram, cost.drafters["ngram"])
    return Subject("trace", eagle, ngram, of.both)


def rows_of(name: str, rules: Rules, batches: tuple[int, ...] = BATCHES) -> list[OracleRow]:
    return oracle_report(subject(trace(name)), (1, 3, 5), Pricing(batches, PUBLISHED_H100, rules)).rows


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_the_published_table_comes_out_within_its_rounding(name: str) -> None:
    rows = {
        (each.policy, each.drafts, each.charge): each for each in rows_of(name, PUBLISHED) if each.drafter != "ngram"
    }
    for (data, policy, drafts), wanted in GOLDEN.items():
        if data == name:
            row = rows[policy, drafts, Charge.UNCHARGED if policy is Policy.COMBINE else None]
            found = [row.speedups[str(batch)].value for batch in BATCHES]
            assert found == pytest.approx(list(wanted), abs=ROUNDING), (policy, drafts)


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_a_combination_that_pays_for_its_drafters_is_worth_less(name: str) -> None:
    rows = {each.charge: each for each in rows_of(name, PUBLISHED, (1, 32))}
    for batch, wanted in CHARGED[name].items():
        found = [rows[charge].speedups[str(batch)].value for charge in (Charge.WINNER, Charge.BOTH)]
        assert found == pytest.approx(list(wanted), abs=ROUNDING)


@pytest.mark.parametrize(("name", "wanted"), [("gsm8k", 1.18), ("cnn", 1.45)])
def test_ngram_pays_for_no_step_that_found_nothing(name: str, wanted: float) -> None:
    """Which these are a trace does not tell, and a replay of its tokens does."""
    file = shared("data", "traces", f"combined_{name}.jsonl")
    asked = trace_subject(read_traces(file), "ngram", None, PUBLISHED_H100)
    rows = oracle_report(asked, (3,), Pricing((1,), PUBLISHED_H100, PUBLISHED)).rows
    assert rows[-1].speedups["1"].value == pytest.approx(wanted, abs=ROUNDING)
    proposed = asked.main.single.reach.proposed
    assert proposed is not None
    assert 0.05 < (proposed > 0).mean() < 0.5


def test_drafting_that_grows_with_the_draft_length_changes_which_length_is_best() -> None:
    cost = PUBLISHED_H100_BY_DRAFT
    rows = oracle_report(subject(trace("gsm8k"), cost), (1, 3, 5), Pricing((1,), cost, PUBLISHED)).rows
    found = {(each.policy, each.drafts): each.speedups["1"].value for each in rows if each.drafter == "eagle"}
    assert found[Policy.FIXED, 5] == pytest.approx(1.75, abs=ROUNDING)
    assert found[Policy.ORACLE, None] == pytest.approx(2.33, abs=ROUNDING)


@pytest.mark.parametrize(("name", "method"), LENGTHS)
def test_tokens_a_step_by_cap(name: str, method: str) -> None:
    """As published: what was verified, the last step's tokens beyond the end among them; mean over requests."""
    told = getattr(trace(name), method)
    found = []
    for cap in (1, 3, 5, 20):
        emitted = np.minimum(told.reach.accepted, cap) + 1
        steps = walk(told.answers, emitted, First.PUBLISHED)
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
        found = replay(row["prompt_token_ids"], output, Lookup(3, 7, 20)).accepted[1:]
        engine = np.array(accepted_at(of.ngram.answers, of.ngram.reach, number)[1:])
        left = len(output) - 1 - np.arange(1, len(output))
        differing = found != engine
        assert (engine[differing] > left[differing]).all()
        same, wrong = same + int((~differing).sum()), wrong + int(differing.sum())
    assert same / (same + wrong) >= least


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_one_run_with_many_drafts_tells_the_oracle_and_bounds_other_lengths(name: str, method: str) -> None:
    whole = getattr(trace(name), method)
    run = from_steps(whole, drafts=20)
    drafters = [Drafter(method, each.reach) for each in (whole, run)]
    own = [oracle(whole.answers, each) for each in drafters]
    assert (own[0].steps.place == own[1].steps.place).all()
    for drafts in (1, 3, 5):
        truth, split = (pooled(whole, fixed(whole.answers, each, drafts)) for each in drafters)
        assert 0.965 * truth <= split <= truth


@pytest.mark.parametrize("name", ["gsm8k", "cnn"])
def test_the_combination_from_one_run_and_a_replay_is_that_of_all_positions(name: str) -> None:
    """One large-k run of EAGLE and a replay on the texts, where both answers are equally long: within 1 %."""
    of = trace(name)
    alike = of.eagle.answers.output_tokens == of.ngram.answers.output_tokens
    answers, places = of.eagle.answers.of(alike)
    _, ngram_places = of.ngram.answers.of(alike)
    eagle, ngram = of.eagle.reach.at(places), of.ngram.reach.at(ngram_places)
    run = from_steps(Single(answers, eagle), drafts=20)
    rows = [row for row, same in zip(of.rows, alike, strict=True) if same]
    replayed = single([by_replay(row) for row in rows])
    costs = [PUBLISHED_H100.drafters[each] for each in ("ngram", "eagle")]
    found = []
    for first, second in ((ngram, eagle), (replayed.reach, run.reach)):
        drafters = Drafter("ngram", first, costs[0]), Drafter("eagle", second, costs[1])
        found.append(speedup(Single(answers, eagle), combine(answers, *drafters, Charge.WINNER, OURS)))
    assert found[1] == pytest.approx(found[0], rel=0.01)


def by_replay(row: dict[str, list[int]]) -> Told:
    prompt, output = row["prompt_token_ids"], row["generated_token_ids"]
    return Told(str(row["id"]), None, 0, len(prompt), replay(prompt, output, Lookup(3, 7, 20)))


def from_steps(whole: Single, drafts: int) -> Single:
    """What a run of so many drafts a step would have recorded, and what is known from that."""
    steps = walk(whole.answers, np.minimum(whole.reach.accepted, drafts) + 1)
    order = np.lexsort((steps.place, steps.answer))
    ends = np.cumsum(steps.sums(whole.answers))[:-1].astype(int)
    recorded = np.split(steps.emitted[order] - 1, ends)
    whole_tokens = whole.answers.output_tokens
    assert all(fits(each, int(tokens)) for each, tokens in zip(recorded, whole_tokens, strict=True))
    return Single(whole.answers, Reach(np.concatenate([span_split(each) for each in recorded])))


def pooled(of: Single, course: Course) -> float:
    return value(lengths(of.answers, course)[0])


def speedup(of: Single, course: Course) -> float:
    """As published, of one request a batch."""
    taken = course_seconds(of.answers, course, PUBLISHED_H100, 1)
    return value(published_ratio(of.answers, plain_seconds(of.answers, PUBLISHED_H100, 1), taken))


def value(ratio: Ratio) -> float:
    return float(ratio.over.sum() / ratio.under.sum())
