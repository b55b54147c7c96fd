"""Records that no request can produce invalidate their point."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.record import RecordPhase
from specbench_api.plan.plan import Point
from specbench_api.spec.engine import Engine
from specbench_testing.corrupted_records import check_names, findings_of, replace_columns, without_counters
from specbench_testing.synthetic_records import Corruptions

Edit = Callable[[pd.DataFrame], pd.DataFrame]
MS = 1_000_000


def duplicate_one(frame: pd.DataFrame) -> pd.DataFrame:
    steady = frame[frame["phase"] == RecordPhase.STEADY.value]
    return pd.concat([frame, steady.iloc[[5]]], ignore_index=True)


def impossible_record_messages(edit: Edit) -> list[str]:
    def records(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return edit(frame)

    findings = findings_of(Corruptions(records=records, counters=without_counters))
    assert all(each.severity is Severity.INVALID for each in findings if each.check == "ImpossibleRecords")
    return [each.message for each in findings if each.check == "ImpossibleRecords"]


def test_one_duplicate_record_is_found() -> None:
    (message,) = impossible_record_messages(duplicate_one)
    assert "1 of 25 records are duplicates" in message


def without_one_send_time(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(sent_ns=rows["sent_ns"].where(rows.index != rows.index[5]))


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: rows.assign(first_token_ns=rows["sent_ns"] - 20 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(last_token_ns=rows["first_token_ns"] - 5 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(sent_ns=rows["intended_ns"] - 5 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(last_token_ns=rows["intended_ns"]), "have no duration"),
        (lambda rows: rows.assign(output_tokens=-rows["output_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(input_tokens=-rows["input_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(cached_tokens=rows["input_tokens"] + 1), "more cached than prompt tokens"),
        (lambda rows: rows.assign(intended_ns=-(2**63) + 1), "begin before their point"),
        (lambda rows: rows.assign(last_token_ns=2**63 - 1), "have a time later than 104 days"),
        (lambda rows: rows.assign(output_tokens=2**63 - 1), "a count above 16 million"),
        (without_one_send_time, "1 of 24 records were answered but never sent"),
        (lambda rows: rows.assign(repeat=3), "a repeat other than 0"),
    ],
)
def test_impossible_times_and_counts_are_named(
    edit: Edit, words: str, imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "is_imported", property(lambda _: imported))
    (message,) = impossible_record_messages(edit)
    assert words in message


@pytest.mark.parametrize("imported", [False, True])
def test_only_an_imported_run_may_have_no_send_times(imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's benchmark stores none at all; our client stores one for each request."""
    monkeypatch.setattr(Engine, "is_imported", property(lambda _: imported))
    messages = impossible_record_messages(lambda rows: rows.assign(sent_ns=None))
    assert bool(messages) is not imported
    assert all("were answered but never sent" in message for message in messages)


def test_small_difference_between_two_clocks_is_not_reported() -> None:
    assert impossible_record_messages(lambda rows: rows.assign(sent_ns=rows["first_byte_ns"] + MS // 2)) == []


def test_missing_values_are_not_impossible() -> None:
    findings = replace_columns(first_byte_ns=None, cached_tokens=None, input_tokens=None, output_tokens_client=None)
    assert "ImpossibleRecords" not in [name for name, _ in check_names(findings_of(findings))]
