"""Bounds of the traces that "Performance or Illusion?" released, and what span-split and replay make of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from specbench_client.analysis.what_if.answers import (
    AnswerSet,
    DraftedAnswer,
    DrafterAnswers,
    PositionAcceptance,
    join_answers,
)
from specbench_client.analysis.what_if.cost_models import PUBLISHED_H100
from specbench_client.analysis.what_if.ngram_lookup import NgramLookup, replay_lookup
from specbench_client.analysis.what_if.oracle import OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import (
    Pricing,
)
from specbench_client.dataset.recorded_answers import read_traces, trace_subject
from specbench_client.documents.what_if import DraftPolicy
from specbench_testing.shared_files import shared_file

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
