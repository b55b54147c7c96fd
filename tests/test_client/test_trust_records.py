"""Records that no request can have left break their point, whichever figure they would have flattered."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.record import RecordPhase
from specbench_api.plan.plan import Point
from specbench_testing.lies import columns, found, names, untold
from specbench_testing.records import Lies

Edit = Callable[[pd.DataFrame], pd.DataFrame]
MS = 1_000_000


def twice(frame: pd.DataFrame) -> pd.DataFrame:
    """One answer of the steady state is there a second time."""
    steady = frame[frame["phase"] == RecordPhase.STEADY.value]
    return pd.concat([frame, steady.iloc[[5]]], ignore_index=True)


def broken(edit: Edit) -> list[str]:
    """The messages about impossible records."""

    def records(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return edit(frame)

    told = found(Lies(records=records, counters=untold))
    assert all(each.severity is Severity.INVALID for each in told if each.check == "ImpossibleRecords")
    return [each.message for each in told if each.check == "ImpossibleRecords"]


def test_a_record_that_is_there_twice_is_enough() -> None:
    (message,) = broken(twice)
    assert "1 of 25 are there twice" in message


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: rows.assign(first_token_ns=rows["sent_ns"] - 20 * MS), "times that run backwards"),
        (lambda rows: rows.assign(last_token_ns=rows["first_token_ns"] - 5 * MS), "times that run backwards"),
        (lambda rows: rows.assign(sent_ns=rows["intended_ns"] - 5 * MS), "times that run backwards"),
        (lambda rows: rows.assign(last_token_ns=rows["intended_ns"]), "end when they begin"),
        (lambda rows: rows.assign(output_tokens=-rows["output_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(input_tokens=-rows["input_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(cached_tokens=rows["input_tokens"] + 1), "more cached than prompt tokens"),
        (lambda rows: rows.assign(intended_ns=-(2**63) + 1), "begin before their point"),
        (lambda rows: rows.assign(last_token_ns=2**63 - 1), "have a time of later than 104 days"),
        (lambda rows: rows.assign(output_tokens=2**63 - 1), "a count above 16 million"),
        (lambda rows: rows.assign(sent_ns=None), "were answered and never sent"),
        (lambda rows: rows.assign(repeat=3), "of another repeat than 0"),
    ],
)
def test_times_and_counts_that_cannot_be_are_named(edit: Edit, words: str) -> None:
    (message,) = broken(edit)
    assert words in message


def test_two_readings_of_one_moment_may_be_a_little_apart() -> None:
    assert broken(lambda rows: rows.assign(sent_ns=rows["first_byte_ns"] + MS // 2)) == []


def test_what_is_missing_is_no_impossible_record() -> None:
    told = columns(first_byte_ns=None, cached_tokens=None, input_tokens=None, output_tokens_client=None)
    assert "ImpossibleRecords" not in [name for name, _ in names(found(told))]
