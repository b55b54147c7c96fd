"""Load phases: bounds of the steady state across workers, and requests in flight."""

from __future__ import annotations

from itertools import chain
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.load.shared_state import WorkerColumn, WorkerTable
from specbench_client.load.steady_state import (
    ClosedLoopPhases,
    InFlightRecorder,
    LoadTimeline,
    LoadTimestamps,
    OpenLoopPhases,
    SteadyBounds,
    TimeSpan,
    timestamp_array,
)

SECOND = 1_000_000_000


def worker_table(workers: int) -> WorkerTable:
    return WorkerTable([0] * (workers * len(WorkerColumn)), workers)


def closed_loop_phases(streams: list[int]) -> list[ClosedLoopPhases]:
    shared = worker_table(len(streams))
    return [ClosedLoopPhases(shared, worker, None, count) for worker, count in enumerate(streams)]


def test_closed_loop_is_steady_once_every_stream_has_started() -> None:
    first_worker, second_worker = closed_loop_phases([2, 1])
    first_worker.opened(10, stream_began=True)
    first_worker.opened(11, stream_began=True)
    first_worker.opened(12, stream_began=False)
    assert first_worker.steady_bounds.steady_start_ns is None
    second_worker.opened(20, stream_began=True)
    assert first_worker.steady_bounds == second_worker.steady_bounds == SteadyBounds(20, None)


def test_worker_without_streams_does_not_delay_the_steady_state() -> None:
    one, other = closed_loop_phases([1, 0])
    for phases in (one, other):
        phases.started(5)
    one.opened(6, stream_began=True)
    assert one.steady_bounds.steady_start_ns == 6


def test_first_idle_stream_of_any_worker_ends_the_steady_state() -> None:
    one, other = closed_loop_phases([1, 1])
    other.stream_idle(30)
    one.stream_idle(40)
    other.stream_idle(50)
    assert one.steady_bounds.steady_end_ns == other.steady_bounds.steady_end_ns == 30


@pytest.mark.parametrize("kind", [ClosedLoopPhases, OpenLoopPhases])
def test_the_steady_state_ends_with_the_last_measured_conversation_of_all_workers(
    kind: type[ClosedLoopPhases | OpenLoopPhases],
) -> None:
    shared = worker_table(2)
    phases = [kind(shared, worker, 3, 1) for worker in range(2)]
    phases[0].measured(20)
    phases[0].measured(30)
    assert not any(one.all_measured() for one in phases)
    phases[1].measured(40)
    assert [one.steady_bounds.steady_end_ns for one in phases] == [40, 40]
    assert all(one.all_measured() for one in phases)


def test_fillers_after_the_last_measured_conversation_do_not_move_the_end() -> None:
    phases = ClosedLoopPhases(worker_table(1), 0, 1, 1)
    phases.measured(20)
    phases.stream_idle(35)
    assert phases.steady_bounds.steady_end_ns == 20


@pytest.mark.parametrize(
    ("opened", "ended", "expected_phase"),
    [(9, 15, "ramp"), (9, 25, "ramp"), (10, 20, "steady"), (15, 20, "steady"), (15, 21, "drain"), (22, 25, "drain")],
)
def test_requests_before_the_steady_state_are_ramp_and_after_it_drain(
    opened: int, ended: int, expected_phase: str
) -> None:
    assert SteadyBounds(10, 20).phase(opened, ended) == expected_phase


@pytest.mark.parametrize("workers", [1, 3])
def test_open_loop_is_steady_after_one_turnover(workers: int) -> None:
    """At constant rate and residence time R, this is after 2 R, independent of the number of workers."""
    gap, residence, count = 10, 1_000, 400
    shared = worker_table(workers)
    phases = [OpenLoopPhases(shared, worker, None, gap * (count - 1)) for worker in range(workers)]
    events = [(number * gap, "opened", number % workers) for number in range(count)]
    events += [(at + residence, "ended", worker) for at, _, worker in events]
    for one in phases:
        one.started(0)
    for at, kind, worker in sorted(events):
        if kind == "opened":
            phases[worker].opened(at, stream_began=False)
        else:
            phases[worker].ended(at)
    steady_start_ns, steady_end_ns, _ = phases[0].steady_bounds
    assert steady_start_ns == pytest.approx(2 * residence, abs=2 * gap)
    assert steady_end_ns == gap * (count - 1)


def test_recorder_returns_the_phase_when_a_request_ends() -> None:
    (phases,) = closed_loop_phases([2])
    recorder = InFlightRecorder(phases)
    request_phases = []
    recorder.opened(1, stream_began=True, conversation_began=True)
    recorder.opened(2, stream_began=True, conversation_began=True)
    request_phases.append(recorder.ended(1, 3))
    recorder.opened(4, stream_began=False, conversation_began=False)
    request_phases.append(recorder.ended(2, 5))
    phases.stream_idle(6)
    request_phases.append(recorder.ended(4, 7))
    assert request_phases == ["ramp", "steady", "drain"]
    assert (list(recorder.log.opened), list(recorder.log.ended), list(recorder.log.began)) == (
        [1, 2, 4],
        [3, 5, 7],
        [1, 2],
    )


def timeline(*spans: tuple[int, int], steady: int | None = 0, dry: int | None = None, workers: int = 1) -> LoadTimeline:
    """Return a timeline from second 0; each span is (opened, ended) in seconds."""
    logs = [LoadTimestamps() for _ in range(workers)]
    for number, (opened, ended) in enumerate(spans):
        log = logs[number % workers]
        log.opened.append(opened * SECOND)
        log.began.append(opened * SECOND)
        log.ended.append(ended * SECOND)
    steady_start_ns, steady_end_ns = (None if second is None else second * SECOND for second in (steady, dry))
    steady_bounds = SteadyBounds(steady_start_ns, steady_end_ns)
    return LoadTimeline(logs, 0, steady_bounds)


@pytest.mark.parametrize("workers", [1, 2])
def test_mean_in_flight_covers_only_the_steady_state(workers: int) -> None:
    seen = timeline((0, 4), (2, 10), (5, 8), steady=2, dry=8, workers=workers)
    assert seen.mean_in_flight == (2 * 2 + 1 * 1 + 2 * 3) / 6
    assert seen.steady_share == 0.6
    assert seen.duration_s == 10


def test_load_that_was_never_steady_has_no_figures() -> None:
    seen = timeline((0, 5), steady=None)
    assert (seen.mean_in_flight, seen.growth, seen.begun_per_s, seen.steady_share) == (None, None, None, 0)
    assert timeline(steady=None).steady_share is None


def test_steady_state_that_starts_after_its_end_is_none() -> None:
    assert timeline((0, 9), steady=8, dry=3).steady is None


def test_abandoned_requests_are_in_flight_until_the_end() -> None:
    log = LoadTimestamps(opened=timestamp_array([0, 0]), ended=timestamp_array([10]))
    assert LoadTimeline([log], 0, SteadyBounds(0, 10)).mean_in_flight == 2


def test_growing_queue_shows_in_the_last_third() -> None:
    level = timeline(*((second, second + 5) for second in range(100)), steady=10, dry=99)
    growing = timeline(*((second, 2 * second + 1) for second in range(100)), steady=10, dry=99)
    assert level.growth == pytest.approx(1, abs=0.1)
    assert growing.growth is not None
    assert growing.growth > 1.5
    assert level.begun_per_s == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12), st.integers(0, 8))
def test_mean_in_flight_is_the_mean_over_every_instant(spans: list[tuple[int, int]], start: int) -> None:
    spans = [(begin, begin + length) for begin, length in spans]
    seen = timeline(*spans, steady=start, workers=2)
    if seen.steady is None:
        assert max(end for _, end in spans) <= start
        return
    seconds = range(start, max(end for _, end in spans))
    at_once = [sum(begin <= second < end for begin, end in spans) for second in seconds]
    assert seen.mean_in_flight == pytest.approx(fmean(at_once))


def test_parts_of_a_time_span_are_contiguous() -> None:
    parts = [TimeSpan(10, 21).part(number, of=3) for number in range(3)]
    assert list(chain.from_iterable((one.start_ns, one.end_ns) for one in parts)) == [10, 13, 13, 17, 17, 21]
