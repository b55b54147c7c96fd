"""Records in every input format are converted to the same tidy rows."""

from __future__ import annotations

import numpy as np

from specbench_client.metrics.tidy_frame import known_sum, numbers, sent_rows, steady_rows
from specbench_testing.synthetic_records import frame_of, record, tidy_frames

MIXED = [
    record(request_id="full", category="code", step_accepted=[2, 0], chunk_tokens=[1, 3, 1]),
    record(request_id="bare", steps=None, chunk_ns=None, chunk_tokens=None, output_tokens=None, input_tokens=None),
    record(request_id="failed", error_class="timeout", sent_ns=None, last_token_ns=None, first_token_ns=None),
]


def test_missing_values_stay_missing() -> None:
    rows = tidy_frames([frame_of(MIXED)])
    assert np.isnan(numbers(rows, "steps")).tolist() == [False, True, False]
    assert rows.lists("tokens_of_chunks").arrays()[1] is None
    assert np.isnan(numbers(rows, "chunks")).tolist() == [False, True, False]
    assert rows.codes("category").by_row.tolist() == ["code", None, None]
    assert known_sum(numbers(rows, "drafted_tokens")) is None


def test_unknown_tokens_of_a_chunk_are_missing() -> None:
    rows = tidy_frames([frame_of([record(chunk_tokens=[1, None, 2])])])
    found = rows.lists("tokens_of_chunks").arrays()[0]
    assert found is not None
    assert found.tolist() == [[1, 1], [2, 1]]


def test_tokens_are_the_engines_count_or_else_the_clients() -> None:
    rows = tidy_frames([frame_of([record(output_tokens=9, output_tokens_client=8), record(output_tokens=None)])])
    assert numbers(rows, "tokens").tolist() == [9, 11]


def test_warm_up_is_removed_and_failed_or_draining_rows_are_not_steady() -> None:
    phases = [record(phase=phase) for phase in ("warmup", "ramp", "steady", "drain")]
    rows = tidy_frames([frame_of([*phases, record(error_class="reset")])])
    assert rows.codes("phase").by_row.tolist() == ["ramp", "steady", "drain", "steady"]
    assert len(steady_rows(rows)) == 1


def test_skipped_turn_was_never_sent() -> None:
    rows = tidy_frames([frame_of([record(), record(error_class="skipped_after_error"), record(error_class="reset")])])
    assert sent_rows(rows).codes("error_class").by_row.tolist() == [None, "reset"]


def test_empty_records_give_empty_rows() -> None:
    assert len(tidy_frames([frame_of([])])) == 0
    assert len(tidy_frames([frame_of([record(phase="warmup")])])) == 0
