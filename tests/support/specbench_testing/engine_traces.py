"""Released engine traces as answers: acceptance at every output position, for n-gram and EAGLE-3."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from specbench_client.analysis.what_if.answers import (
    AnswerSet,
    DraftedAnswer,
    DrafterAnswers,
    PositionAcceptance,
    SharedAnswers,
    join_answers,
    shared_answers,
)
from specbench_testing.shared_files import shared_file


@dataclass(frozen=True)
class Trace:
    """One data set: the released rows, each drafter's own answers, and both cut to the shorter one."""

    rows: tuple[dict[str, Any], ...]
    eagle: DrafterAnswers
    ngram: DrafterAnswers
    both: SharedAnswers


@cache
def trace(name: str) -> Trace:
    """`gsm8k` or `cnn`; skips the test if the file does not exist."""
    lines = shared_file("data", "traces", f"combined_{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = tuple(json.loads(line) for line in lines)
    eagle, ngram = ([trace_answer(row, method) for row in rows] for method in ("eagle", "ngram"))
    keyed = [{(each.prompt_id, 0, number): each for number, each in enumerate(side)} for side in (ngram, eagle)]
    return Trace(rows, join_answers(eagle), join_answers(ngram), shared_answers(keyed[0], keyed[1], unchecked=True))


def trace_answer(row: dict[str, Any], method: str) -> DraftedAnswer:
    """One answer of a trace."""
    accepted = np.array(row[f"acc_{method}"]["acc_len"], dtype=np.int64) - 1
    return DraftedAnswer(str(row["id"]), None, 0, len(row["prompt_token_ids"]), PositionAcceptance(accepted))


def accepted_at(answers: AnswerSet, reach: PositionAcceptance, answer: int) -> list[int]:
    """Drafts that a drafter has accepted at each position of one answer."""
    start = answers.starts[answer]
    return [int(each) for each in reach.accepted[start : start + answers.output_tokens[answer]]]
