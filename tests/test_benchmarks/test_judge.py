"""The harness' arithmetic: what is told against what was true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.clients.client import ObservedRequest
from client_bench.timing_accuracy import NothingFound, TrueRequest, compare_with_truth

MS = 1_000_000


def true_request(number: int = 0, chunks: int = 5, *, complete: bool = True) -> TrueRequest:
    """Received at 100 ms, its first chunk after 20 ms, then one every 20 ms."""
    times = tuple((120 + 20 * chunk) * MS for chunk in range(chunks))
    return TrueRequest(number, f"id-{number}", 100 * MS, times, complete=complete)


def seen(true: TrueRequest, late_ns: int = 0, *, absolute: bool = True) -> ObservedRequest:
    """The truth, every time of it late by as much."""
    shift = late_ns if absolute else -true.chunk_ns[0]
    chunks = [one + shift for one in true.chunk_ns]
    return ObservedRequest(true.number, None, true.ttft_ns + late_ns, chunks, absolute=absolute)


@given(late_ns=st.integers(-50 * MS, 50 * MS))
def test_a_client_that_is_late_by_so_much_has_that_error(late_ns: int) -> None:
    true = true_request()

    found = compare_with_truth([true], [seen(true, late_ns)])

    assert found.ttft is not None
    assert found.chunk is not None
    told = (found.ttft.p50_ms, found.ttft.p99_ms, found.chunk.p50_ms, found.chunk.p99_ms)
    assert told == pytest.approx([abs(late_ns) / 1e6] * 4)
    assert found.absolute


def test_without_one_clock_a_lateness_that_all_chunks_share_shows_in_the_first_token_alone() -> None:
    true = true_request()

    found = compare_with_truth([true], [seen(true, 7 * MS, absolute=False)])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p99_ms, found.absolute) == (7.0, 0.0, False)


def test_without_one_clock_the_first_chunk_is_the_yardstick_and_is_not_counted_as_right() -> None:
    true = true_request(chunks=2)
    told = ObservedRequest(0, None, true.ttft_ns, [0, 25 * MS])

    found = compare_with_truth([true], [told])

    assert found.chunk is not None
    assert found.chunk.p50_ms == 5.0


def test_percentiles_are_over_requests_for_the_first_token_and_over_chunks_for_chunks() -> None:
    long, short = true_request(0, chunks=99), true_request(1, chunks=1)

    found = compare_with_truth([long, short], [seen(long), seen(short, 10 * MS)])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p50_ms) == (5.0, 0.0)
    assert found.chunks == 100


def test_a_request_is_found_by_its_id_where_the_client_has_no_number() -> None:
    first, second = true_request(0), true_request(1, chunks=3)

    found = compare_with_truth([first, second], [ObservedRequest(None, "id-1", second.ttft_ns)])

    assert (found.requests, found.chunks, found.chunk) == (1, 3, None)


def test_another_number_of_chunks_is_counted_and_left_out_of_their_times() -> None:
    first, second = true_request(0), true_request(1)
    merged = ObservedRequest(1, None, second.ttft_ns, second.chunk_ns[1:], absolute=True)

    found = compare_with_truth([first, second], [seen(first), merged])

    assert (found.requests, found.miscounted) == (2, 1)
    assert found.chunk is not None
    assert found.chunk.p99_ms == 0.0


def test_chunks_with_the_time_of_the_next_one_were_gathered_by_one_read() -> None:
    true = true_request(chunks=4)
    last_ns = true.chunk_ns[-1]
    told = ObservedRequest(0, None, true.ttft_ns, [true.chunk_ns[0], last_ns, last_ns, last_ns], absolute=True)

    assert compare_with_truth([true], [told]).gathered_share == 0.5
    assert compare_with_truth([true], [ObservedRequest(0, None, true.ttft_ns)]).gathered_share is None


def test_what_the_server_does_not_know_or_did_not_finish_is_lost() -> None:
    whole, broken = true_request(0), true_request(1, complete=False)

    found = compare_with_truth([whole, broken], [seen(whole), seen(broken), ObservedRequest(9, None, 0)])

    assert (found.requests, found.lost) == (1, 2)


def test_nothing_in_common_is_no_result() -> None:
    with pytest.raises(NothingFound, match="1 requests told, 1 requests served"):
        compare_with_truth([true_request()], [ObservedRequest(None, "another", 0)])


def test_the_run_ends_when_the_slower_of_both_had_the_last_chunk() -> None:
    true = true_request()
    last_ns = true.chunk_ns[-1]

    assert compare_with_truth([true], [seen(true, -MS)]).ended_ns == last_ns
    assert compare_with_truth([true], [seen(true, 30 * MS)]).ended_ns == last_ns + 30 * MS
    relative = ObservedRequest(0, None, true.ttft_ns + 5 * MS, [0, 0, 0, 0, 200 * MS])
    assert compare_with_truth([true], [relative]).ended_ns == true.chunk_ns[0] + 205 * MS
    assert compare_with_truth([true], [seen(true)]).began_ns == true.received_ns


def test_the_true_step_is_the_median_gap_of_the_servers_sends() -> None:
    assert compare_with_truth([true_request()], [seen(true_request())]).step_p50_ms == 20.0
    single = true_request(chunks=1)
    assert compare_with_truth([single], [seen(single)]).step_p50_ms is None
