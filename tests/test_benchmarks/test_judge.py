"""Comparison of the times that a client reports with the server's recorded times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.clients.client import ObservedRequest
from client_bench.timing_accuracy import NothingFound, TrueRequest, compare_with_truth

MS = 1_000_000


def true_request(number: int = 0, chunks: int = 5, *, complete: bool = True) -> TrueRequest:
    """A recorded request: received at 100 ms, one chunk every 20 ms after that."""
    times = tuple((120 + 20 * chunk) * MS for chunk in range(chunks))
    return TrueRequest(number, f"id-{number}", 100 * MS, times, complete=complete)


def observation(true: TrueRequest, late_ns: int = 0) -> ObservedRequest:
    """A client's observation of the request, with all times late by `late_ns`."""
    chunks = [one + late_ns for one in true.chunk_ns]
    return ObservedRequest(true.number, None, true.ttft_ns + late_ns, chunks, absolute=True)


@given(late_ns=st.integers(-50 * MS, 50 * MS))
def test_a_constant_delay_is_the_error_of_ttft_and_chunks(late_ns: int) -> None:
    true = true_request()

    found = compare_with_truth([true], [observation(true, late_ns)])

    assert found.ttft is not None
    assert found.chunk is not None
    errors_ms = (found.ttft.p50_ms, found.ttft.p99_ms, found.chunk.p50_ms, found.chunk.p99_ms)
    assert errors_ms == pytest.approx([abs(late_ns) / 1e6] * 4)
    assert found.absolute


def test_without_a_common_clock_the_first_chunk_is_the_reference_and_has_no_error() -> None:
    true = true_request(chunks=2)

    found = compare_with_truth([true], [ObservedRequest(0, None, true.ttft_ns + 7 * MS, [0, 25 * MS])])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p50_ms, found.absolute) == (7.0, 5.0, False)


def test_ttft_percentiles_are_over_requests_and_chunk_percentiles_over_chunks() -> None:
    long, short = true_request(0, chunks=99), true_request(1, chunks=1)

    found = compare_with_truth([long, short], [observation(long), observation(short, 10 * MS)])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p50_ms) == (5.0, 0.0)
    assert found.chunks == 100


def test_a_request_without_a_number_is_matched_by_its_id() -> None:
    first, second = true_request(0), true_request(1, chunks=3)

    found = compare_with_truth([first, second], [ObservedRequest(None, "id-1", second.ttft_ns)])

    assert (found.requests, found.chunks, found.chunk) == (1, 3, None)


def test_requests_with_another_number_of_chunks_are_counted_but_not_timed() -> None:
    first, second = true_request(0), true_request(1)
    merged = ObservedRequest(1, None, second.ttft_ns, second.chunk_ns[1:], absolute=True)

    found = compare_with_truth([first, second], [observation(first), merged])

    assert (found.requests, found.miscounted) == (2, 1)
    assert found.chunk is not None
    assert found.chunk.p99_ms == 0.0


def test_chunks_with_equal_times_count_as_coalesced() -> None:
    true = true_request(chunks=4)
    last_ns = true.chunk_ns[-1]
    observed = ObservedRequest(0, None, true.ttft_ns, [true.chunk_ns[0], last_ns, last_ns, last_ns], absolute=True)

    assert compare_with_truth([true], [observed]).coalesced_share == 0.5
    assert compare_with_truth([true], [ObservedRequest(0, None, true.ttft_ns)]).coalesced_share is None


def test_unknown_and_incomplete_requests_are_lost() -> None:
    whole, broken = true_request(0), true_request(1, complete=False)

    found = compare_with_truth([whole, broken], [observation(whole), observation(broken), ObservedRequest(9, None, 0)])

    assert (found.requests, found.lost) == (1, 2)


def test_no_matching_requests_is_an_error() -> None:
    with pytest.raises(NothingFound, match="1 requests observed, 1 requests served"):
        compare_with_truth([true_request()], [ObservedRequest(None, "another", 0)])


def test_the_run_ends_with_the_later_of_the_last_sent_and_the_last_observed_chunk() -> None:
    true = true_request()
    last_ns = true.chunk_ns[-1]

    assert compare_with_truth([true], [observation(true, -MS)]).ended_ns == last_ns
    assert compare_with_truth([true], [observation(true, 30 * MS)]).ended_ns == last_ns + 30 * MS
    relative = ObservedRequest(0, None, true.ttft_ns + 5 * MS, [0, 0, 0, 0, 200 * MS])
    assert compare_with_truth([true], [relative]).ended_ns == true.chunk_ns[0] + 205 * MS
    assert compare_with_truth([true], [observation(true)]).began_ns == true.received_ns


@pytest.mark.parametrize(("chunks", "step_ms"), [(5, 20.0), (1, None)])
def test_the_step_time_is_the_median_gap_between_sent_chunks(chunks: int, step_ms: float | None) -> None:
    true = true_request(chunks=chunks)
    assert compare_with_truth([true], [observation(true)]).step_p50_ms == step_ms
