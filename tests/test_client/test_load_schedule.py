"""Arrivals: drawn schedules, and those of a trace."""

from __future__ import annotations

import json
import math
import re
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.load import Arrival, ArrivalProcess
from specbench_client.errors import BadInput
from specbench_client.load.arrivals import (
    ScheduledTimes,
    ScheduleLength,
    generator_of,
    load_trace,
    mean_rate,
    schedule_arrivals,
    share_of,
)
from specbench_client.workload import locations

N = 40_000
SIGMAS = 4.0
"""Chance exceeds this bound for one seed in 16,000; the seeds here are fixed."""
RENEWALS = [
    Arrival(process=ArrivalProcess.POISSON, seed=3),
    Arrival(process=ArrivalProcess.GAMMA, burstiness=0.25, seed=3),
    Arrival(process=ArrivalProcess.GAMMA, burstiness=4, seed=3),
]


def shape_of(arrival: Arrival) -> float:
    return arrival.burstiness if arrival.process is ArrivalProcess.GAMMA else 1.0


def gaps_of(times: ScheduledTimes) -> np.ndarray:
    return np.diff(times, prepend=0) / 1e9


def draw_schedule(arrival: Arrival, rate: float = 50.0, count: int = N, repeat: int = 0) -> ScheduledTimes:
    return schedule_arrivals(arrival, rate, ScheduleLength(count=count), repeat)


@pytest.mark.parametrize("arrival", RENEWALS, ids=str)
def test_mean_gap_is_the_inverse_of_the_rate(arrival: Arrival) -> None:
    gaps = gaps_of(draw_schedule(arrival)) * 50.0
    deviation = 1 / math.sqrt(shape_of(arrival))  # of one gap, in units of the mean
    assert abs(gaps.mean() - 1) < SIGMAS * deviation / math.sqrt(N)


@pytest.mark.parametrize("arrival", RENEWALS, ids=str)
def test_coefficient_of_variation_is_one_over_the_root_of_the_burstiness(arrival: Arrival) -> None:
    gaps = gaps_of(draw_schedule(arrival))
    shape = shape_of(arrival)
    expected = 1 / math.sqrt(shape)
    # delta method, with a gamma's skewness 2 / √shape and kurtosis 3 + 6 / shape
    error = expected * math.sqrt((2 + 2 / shape) / N) / 2
    assert abs(gaps.std() / gaps.mean() - expected) < SIGMAS * error


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
def test_merged_worker_shares_are_the_arrival_process(workers: int) -> None:
    times = draw_schedule(RENEWALS[0])
    merged = np.sort(np.concatenate([times[share_of(N, workers, worker)] for worker in range(workers)]))
    assert (merged == times).all()
    counts = np.bincount((merged // 1_000_000_000).astype(int))[:-1]  # arrivals of each second
    dispersion = counts.var(ddof=1) / counts.mean()
    assert abs(dispersion - 1) < SIGMAS * math.sqrt(2 / (len(counts) - 1))


def test_each_conversation_is_assigned_to_exactly_one_worker() -> None:
    shares = [list(share_of(17, 5, worker)) for worker in range(5)]
    assert sorted(chain.from_iterable(shares)) == list(range(17))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_constant_arrivals_do_not_drift() -> None:
    times = draw_schedule(Arrival(process=ArrivalProcess.CONSTANT), rate=3.0, count=200_000)
    assert set(np.diff(times)) <= {333_333_333, 333_333_334}
    assert times[-1] == round(199_999 / 3 * 1e9)


def test_arms_of_one_repeat_have_the_same_arrivals_and_repeats_differ() -> None:
    arrival = Arrival(seed=7)
    first, again, other = (draw_schedule(arrival, count=100, repeat=repeat) for repeat in (0, 0, 1))
    assert (first == again).all()
    assert not (first == other).any()
    assert not (first == draw_schedule(Arrival(seed=8), count=100)).any()


def test_rates_scale_one_arrival_pattern() -> None:
    slow, fast = draw_schedule(RENEWALS[1], rate=5, count=500), draw_schedule(RENEWALS[1], rate=20, count=500)
    assert np.abs(slow - fast * 4).max() <= 4  # ns, from rounding


processes = st.builds(
    lambda process, seed, shape: Arrival(
        process=process, seed=seed, burstiness=shape if process is ArrivalProcess.GAMMA else 1.0
    ),
    st.sampled_from([ArrivalProcess.CONSTANT, ArrivalProcess.POISSON, ArrivalProcess.GAMMA]),
    st.integers(0, 2**31 - 1),
    st.floats(0.05, 50),
)


@given(processes, st.floats(1, 1000), st.integers(1, 300), st.integers(0, 5))
def test_schedule_is_sorted_and_is_a_prefix_of_a_longer_one(
    arrival: Arrival, rate: float, count: int, repeat: int
) -> None:
    times = draw_schedule(arrival, rate, count, repeat)
    assert times.size == count
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert (draw_schedule(arrival, rate, count + 100, repeat)[:count] == times).all()


@given(processes, st.floats(1, 1000), st.floats(0.1, 10))
def test_schedule_by_duration_contains_all_arrivals_before_its_end(
    arrival: Arrival, rate: float, duration_s: float
) -> None:
    if draw_schedule(arrival, rate, 1)[0] >= duration_s * 1e9:
        with pytest.raises(BadInput, match="no conversation would begin"):
            schedule_arrivals(arrival, rate, ScheduleLength(duration_s=duration_s), 0)
        return
    times = schedule_arrivals(arrival, rate, ScheduleLength(duration_s=duration_s), 0)
    more = draw_schedule(arrival, rate, times.size + 1)
    assert (more[: times.size] == times).all()
    assert more[-1] >= int(duration_s * 1e9)
    assert (times <= duration_s * 1e9 + 1).all()


TRACE = np.array([103.0, 100.0, 101.5])


def replay(rate: float | None, extent: ScheduleLength, trace: np.ndarray = TRACE) -> list[float]:
    arrival = Arrival(process=ArrivalProcess.TRACE, uri="t.csv")
    return [float(ns) / 1e9 for ns in schedule_arrivals(arrival, rate, extent, 0, trace=trace)]


def test_trace_starts_at_its_first_arrival_at_its_own_speed() -> None:
    assert replay(None, ScheduleLength(count=3)) == [0, 1.5, 3]
    assert replay(None, ScheduleLength(duration_s=2)) == [0, 1.5]


def test_trace_is_scaled_to_the_requested_mean_rate() -> None:
    times = replay(4.0, ScheduleLength(count=3))
    assert times == [0, 0.25, 0.5]
    assert mean_rate(np.array(times)) == 4.0


def test_short_trace_is_repeated_one_mean_gap_after_its_end() -> None:
    assert replay(None, ScheduleLength(count=7)) == [0, 1.5, 3, 4.5, 6, 7.5, 9]
    assert len(replay(2.0, ScheduleLength(duration_s=100))) == 200


def test_trace_of_one_instant_is_one_burst() -> None:
    assert replay(None, ScheduleLength(count=2), np.array([5.0, 5.0])) == [0, 0]


@pytest.mark.parametrize(
    ("trace", "length", "message"),
    [
        (np.array([5.0, 5.0]), ScheduleLength(count=3), "cannot be repeated"),
        (np.arange(100) * 60_000.0, ScheduleLength(count=100), "not milliseconds"),
        (
            np.arange(50_000) * 1e-6,
            ScheduleLength(duration_s=86_400),
            "more than 2,000,000 conversations would begin",
        ),
    ],
    ids=["one instant", "milliseconds", "too many"],
)
def test_trace_without_a_usable_schedule_is_rejected(trace: np.ndarray, length: ScheduleLength, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replay(None, length, trace)


def test_rate_that_would_take_too_long_is_rejected() -> None:
    with pytest.raises(BadInput, match="raise load"):
        draw_schedule(Arrival(), rate=0.0001, count=100)


def test_only_the_needed_arrivals_are_drawn() -> None:
    assert draw_schedule(Arrival(), rate=1e5, count=1).size == 1
    assert len(list(islice(share_of(10**9, 4, 3), 2))) == 2


def times(text: str, name: str = "t.jsonl") -> list[float]:
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text)
        return [float(moment) for moment in load_trace(name, Path(folder))]


def test_seconds_and_timestamps_are_read_from_json_lines() -> None:
    assert times('{"timestamp": 1.5}\n\n{"timestamp": 2, "x": null}\n{"timestamp": "3.25"}') == [1.5, 2, 3.25]
    rfc = [{"timestamp": f"2026-01-01T00:00:{second}Z"} for second in ("00", "00.250", "01.5")]
    start, *later = times("\n".join(map(json.dumps, rfc)))
    assert [moment - start for moment in later] == [0.25, 1.5]


def test_utc_offsets_are_applied_and_default_to_utc() -> None:
    moments = ("2026-01-01T01:00:00+01:00", "2026-01-01 00:00:02.0360000", "2026-01-01T00:00:04Z")
    first, second, third = times("\n".join(json.dumps({"timestamp": one}) for one in moments))
    assert second - first == pytest.approx(2.036)
    assert third - first == 4


MOONCAKE = {"input_length": 600, "output_length": 20, "hash_ids": [0, 1]}


def test_mooncake_traces_are_in_milliseconds() -> None:
    rows = [{"timestamp": moment, **MOONCAKE} for moment in (0, 3052, 10_500)]
    assert times("\n\n".join(map(json.dumps, rows))) == [0, 3.052, 10.5]
    assert times('timestamp,input_length,output_length,hash_ids\n500,1,2,"[0]"\n', "t.csv") == [0.5]


def test_other_traces_with_the_same_lengths_are_in_seconds() -> None:
    assert times(json.dumps({"timestamp": 61.5, **MOONCAKE, "chat_id": 3})) == [61.5]
    assert times(json.dumps({"timestamp": 1500, "input_length": 3, "output_length": 4})) == [1500]


def test_csv_column_is_found_by_its_header() -> None:
    text = '﻿id, timestamp ,"n"\r\na,0.5,3\r\n"b\nc",1.5,4\r\n'
    assert times(text, "T.CSV") == [0.5, 1.5]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            '{"timestamp": 1}\n{"time": 2}',
            "t.jsonl",
            r"t\.jsonl, line 2: has no 'timestamp', it has 'time': rename the column",
        ),
        ('{"timestamp": "soon"}', "t.jsonl", r"line 1: timestamp is 'soon': give seconds, such as 12\.5, or RFC 3339"),
        ('{"timestamp": true}', "t.jsonl", "timestamp is True"),
        ('{"timestamp": NaN}', "t.jsonl", "timestamp is nan"),
        ('{"timestamp": null}', "t.jsonl", "timestamp is None"),
        ("timestamp\n1", "t.jsonl", "line 1: not JSON"),
        ("[1]", "t.jsonl", "row 1: is a JSON number: each row is one JSON object, such as"),
        ("a,b\n1,2", "t.csv", r"t\.csv, line 2: has no 'timestamp', it has 'a', 'b': rename the column"),
        ("a,timestamp\n1\n", "t.csv", r"line 2: has 1 cells for 2 columns"),
        ('timestamp\n"1\n', "t.csv", "not CSV"),
        ("timestamp\n", "t.csv", "contains no rows"),
        ("", "t.jsonl", "contains no rows"),
    ],
)
def test_invalid_row_is_rejected_with_its_line_and_a_remedy(text: str, name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        times(text, name)


def test_only_the_first_bad_rows_are_listed() -> None:
    with pytest.raises(BadInput, match="and 3 more of 9 rows") as caught:
        times("\n".join(['{"timestamp": 1}', *["{}"] * 8]))
    assert len(str(caught.value).splitlines()) == 6


def test_trace_is_read_from_the_spec_folder_or_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp": 1}')
    assert list(load_trace("t.jsonl", tmp_path)) == [1]
    monkeypatch.setattr(locations, "read_object", lambda _: b"timestamp\n2\n")
    assert list(load_trace("s3://b/t.csv", tmp_path)) == [2]
    for uri, message in (("http://x/t", "s3://BUCKET/KEY"), ("no.csv", "no such file")):
        with pytest.raises(BadInput, match=message):
            load_trace(uri, tmp_path)


def test_draws_for_different_purposes_are_independent() -> None:
    one, other = (generator_of(1, 0, purpose).random(N) for purpose in ("arrivals", "lengths"))
    assert abs(np.corrcoef(one, other)[0, 1]) < SIGMAS / math.sqrt(N)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.sort(gaps_of(draw_schedule(RENEWALS[0])) * 50.0)
    empirical = np.arange(1, N + 1) / N
    kolmogorov = np.abs(empirical - (1 - np.exp(-gaps))).max()
    assert kolmogorov < 1.95 / math.sqrt(N)  # 0.1 % of samples exceed this bound


@pytest.mark.parametrize("arrival", RENEWALS, ids=str)
def test_consecutive_gaps_are_uncorrelated(arrival: Arrival) -> None:
    gaps = gaps_of(draw_schedule(arrival))
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < SIGMAS / math.sqrt(N)


def test_faults_of_a_trace_are_named_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp": 1}\n{"time": 2}\n{\n')
    with pytest.raises(BadInput) as raised:
        load_trace("t.jsonl", tmp_path)
    assert re.findall(r"line (\d+): ", str(raised.value)) == ["2", "3"]
