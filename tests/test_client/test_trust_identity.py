"""Accepted drafts that do not add up to the answer are found; steps with variable or no drafts are not reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import ClientHealth
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.trust.checks.acceptance import STEP_TOKEN_MISMATCH
from specbench_client.trust.evidence import PointEvidence
from specbench_testing.corrupted_records import WORLD, check_names, findings_of, replace_columns
from specbench_testing.synthetic_records import frame_of, record

pytestmark = pytest.mark.runs

NGRAM = next(point for point in WORLD.plan.points if point.arm == "ngram")
ANSWERS = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 6)), min_size=1, max_size=8)
"""Accepted drafts of each draft step, and the number of steps without drafts."""


def check_values(answers: list[tuple[list[int], int]], extra: int = 0, **edits: Any) -> list[float | None]:
    """Return the check's values for these answers, each with `extra` tokens more than its steps emit."""
    rows = [record(**{**_answer(accepted, undrafted, extra), **edits}) for accepted, undrafted in answers]
    evidence = PointEvidence(WORLD.plan, NGRAM, tidy([frame_of(rows)]), ClientHealth(), None)
    return [each.value for each in STEP_TOKEN_MISMATCH.evaluate(evidence)]


@settings(max_examples=25, deadline=None)
@given(ANSWERS)
def test_consistent_answers_have_no_finding_for_any_drafts(answers: list[tuple[list[int], int]]) -> None:
    assert check_values(answers) == []
    assert check_values(answers, extra=1) == [], "one token per answer may be counted on one side only"


def test_difference_is_reported_as_a_share_of_the_tokens() -> None:
    answers = [([3, 1, 0], 2)] * 4
    assert check_values(answers, extra=4) == [pytest.approx(3 / 13)]
    assert check_values(answers, extra=-3) == [pytest.approx(2 / 6)]


def test_missing_step_counts_leave_only_lists_that_emit_too_much() -> None:
    answers = [([3, 1, 0], 0)]
    assert check_values(answers, extra=5, steps=None) == [], "five steps may have had no drafts"
    assert check_values(answers, extra=-4, steps=None) == [pytest.approx(3 / 3)]
    assert check_values(answers, extra=-4, steps=None, step_accepted=None) == []


def test_list_of_steps_with_more_tokens_than_counted_is_a_warning() -> None:
    corruptions = replace_columns(
        step_accepted=lambda _, row: row["step_accepted"] and [*row["step_accepted"][:-3], 3, 3, 3]
    )
    assert check_names(findings_of(corruptions)) == [("StepTokenMismatch", Severity.WARNING)]


def _answer(accepted: list[int], undrafted: int, extra: int) -> dict[str, Any]:
    tokens = 1 + sum(accepted) + len(accepted) + undrafted + extra
    counts = {"output_tokens": tokens, "output_tokens_client": tokens}
    return {**counts, "steps": len(accepted) + undrafted, "step_accepted": accepted}
