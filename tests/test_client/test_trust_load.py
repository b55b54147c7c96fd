"""A load that differs from the requested one, or changes during the point, is found; random variation is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.documents.finding import Severity
from specbench_testing.corrupted_records import OPEN, WORLD, check_names, findings_of, replace_columns, replace_watch
from specbench_testing.synthetic_records import Corruptions, SyntheticRun

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


def test_valid_open_loop_has_no_findings() -> None:
    for world in (OPEN, SyntheticRun(prompts=60, rate=(10,), repeats=1, turns=2)):
        for arm in ("none", "ngram"):
            assert findings_of(Corruptions(), arm, world) == []


@pytest.mark.parametrize("reached", [2.0, 2.69])
def test_load_that_was_not_reached_is_found(reached: float) -> None:
    assert check_names(findings_of(replace_watch(reached_concurrency=reached))) == [("ConcurrencyNotReached", INVALID)]


def test_load_that_was_not_reached_is_found_from_records_alone() -> None:
    def slow_client(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(last_token_ns=frame["sent_ns"] + (frame["last_token_ns"] - frame["sent_ns"]) // 2)

    assert ("ConcurrencyNotReached", INVALID) in check_names(findings_of(Corruptions(records=slow_client)))


def open_loop_with(arrival: dict[str, Any], rate: float | None = 10) -> SyntheticRun:
    load = {"slots": 64, "repeats": 1, "arrival": arrival} | ({"rate": [rate]} if rate else {})
    return SyntheticRun(prompts=60, rate=(rate or 1,), repeats=1, edits={"spec.load": load})


TRACE = {"process": "Trace", "uri": "trace.csv"}


@pytest.mark.parametrize(
    ("arrival", "reached", "steady_s", "expected"),
    [
        ({"process": "Constant"}, 9.4, 1000, 1),
        ({"process": "Constant"}, 9.6, 1000, 0),
        ({"process": "Poisson"}, 9.4, 1000, 1),
        ({"process": "Poisson"}, 8.0, 10, 0),
        ({"process": "Poisson"}, 6.5, 10, 1),
        ({"process": "Gamma", "burstiness": 0.04}, 9.4, 100, 0),
        ({"process": "Gamma", "burstiness": 0.04}, 5.0, 100, 1),
        (TRACE, 5.0, 1000, 0),
    ],
)
def test_rate_that_was_not_reached_is_found_beyond_chance(
    arrival: dict[str, Any], reached: float, steady_s: float, expected: int
) -> None:
    corruptions = replace_watch(reached_rate=reached, duration_s=steady_s, steady_share=1.0)
    assert (
        check_names(findings_of(corruptions, world=open_loop_with(arrival))) == [("RateNotReached", INVALID)] * expected
    )


def growing_queue(growth: float, **values: Any) -> Corruptions:
    return replace_watch(in_flight_growth=growth, reached_rate=10, duration_s=1000, steady_share=1.0, **values)


def test_engine_that_cannot_keep_up_with_the_arrivals_is_found() -> None:
    assert check_names(findings_of(growing_queue(1.6, reached_concurrency=20.0), world=OPEN)) == [
        ("Overloaded", INVALID)
    ]
    assert findings_of(growing_queue(1.4, reached_concurrency=20.0), world=OPEN) == []
    assert findings_of(growing_queue(3.0, reached_concurrency=7.0), world=OPEN) == [], (
        "growth from one to two requests is not overload"
    )
    assert findings_of(growing_queue(3.0, reached_concurrency=3.0)) == [], "a closed loop has no queue"


def test_random_queue_growth_in_a_short_point_is_not_overload() -> None:
    seen = {"reached_concurrency": 20.0, "reached_rate": 10, "steady_share": 1.0}
    assert findings_of(replace_watch(in_flight_growth=2.0, duration_s=10, **seen), world=OPEN) == []
    assert check_names(findings_of(replace_watch(in_flight_growth=3.0, duration_s=10, **seen), world=OPEN)) == [
        ("Overloaded", INVALID)
    ]


def test_growing_trace_is_only_a_warning() -> None:
    world = open_loop_with(TRACE)
    assert check_names(findings_of(growing_queue(2.0, reached_concurrency=20.0), world=world)) == [
        ("Overloaded", WARNING)
    ]


def test_point_without_a_steady_state_is_found() -> None:
    few = SyntheticRun(prompts=6, concurrency=(3,), repeats=1)
    assert check_names(findings_of(Corruptions(), world=few)) == [("NoSteadyState", INVALID)]
    corruptions = replace_columns(phase=lambda index, _: "ramp" if index < 20 else "drain")
    assert ("NoSteadyState", INVALID) in check_names(findings_of(corruptions))


def test_open_loop_needs_as_many_steady_requests_as_were_in_flight() -> None:
    assert check_names(findings_of(replace_watch(reached_concurrency=500.0), world=OPEN)) == [
        ("NoSteadyState", INVALID)
    ]
    none = replace_columns(phase=lambda _, row: "ramp" if row["phase"] == "steady" else row["phase"])
    assert "more requests arrived than the engine can serve" in findings_of(none, world=OPEN)[0].message


@pytest.mark.parametrize(("steady", "expected"), [(False, [("WarmupNotSteady", WARNING)]), (True, []), (None, [])])
def test_warm_up_that_did_not_become_steady_is_a_warning(
    steady: bool | None, expected: list[tuple[str, Severity]]
) -> None:
    assert check_names(findings_of(replace_watch(warmup_steady=steady, warmup_requests=32))) == expected


def slow_down(factor: float) -> Corruptions:
    """Slow the engine down by `factor` once half of the requests were sent: all that follows takes so much longer."""
    return _at_other_times(0.5, lambda since: since * factor, reached=3.0)


def pause(ms: float, reached: float) -> Corruptions:
    """Let the engine pause once, when four fifths of the requests were sent."""
    return _at_other_times(0.8, lambda since: since + ms * 1e6, reached=reached)


def _at_other_times(share: float, later: Callable[[Any], Any], reached: float) -> Corruptions:
    """Once this share of the requests was sent, change each time, given as the ns since then."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        begin = int(frame["sent_ns"].quantile(share))

        def moved(times: Any) -> Any:
            since = np.asarray(times, dtype=np.int64) - begin
            return begin + np.where(since > 0, later(since), since).astype(np.int64)

        names = ["intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"]
        chunks = [moved(times).tolist() for times in frame["chunk_ns"]]
        return frame.assign(**{name: moved(frame[name]) for name in names}, chunk_ns=chunks)

    return Corruptions(records=edit, watch=lambda _, seen: seen.model_copy(update={"reached_concurrency": reached}))


LONGER = SyntheticRun(prompts=60, concurrency=(3,), repeats=1)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize(("factor", "found"), [(1.2, True), (0.8, True), (1.05, False), (0.95, False)])
def test_engine_that_changes_speed_within_a_point_is_a_warning(factor: float, found: bool, arm: str) -> None:
    findings = findings_of(slow_down(factor), arm, LONGER)
    assert check_names(findings) == [("StepTimeDrift", WARNING)] * found
    assert all("time per decode step" in each.message for each in findings)


def test_drift_is_measured_by_tokens_if_steps_are_not_reported() -> None:
    def slowed_without_steps(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return slow_down(1.3).records(point, frame).assign(steps=None, draft_steps=None, step_accepted=None)

    findings = findings_of(Corruptions(records=slowed_without_steps, watch=slow_down(1.3).watch), "none", LONGER)
    assert check_names(findings) == [("StepTimeDrift", WARNING)]
    assert "time per output token" in findings[0].message


def test_file_sorted_by_category_is_not_drift() -> None:
    """The categories differ in acceptance and thus in time per token, but the machine does not change speed."""

    def sorted_file(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        early = frame["sent_ns"].rank(pct=True) < 0.5
        flow = (frame["last_token_ns"] - frame["first_token_ns"]).where(~early, lambda span: span // 2)
        missing = {"steps": None, "draft_steps": None, "step_accepted": None}
        category = np.where(early, "code", "chat")
        return frame.assign(category=category, last_token_ns=frame["first_token_ns"] + flow, **missing)

    corruptions = Corruptions(records=sorted_file, watch=slow_down(1).watch)
    assert findings_of(corruptions, world=LONGER) == []


@pytest.mark.parametrize("missing", [{"steps": 0}, {"input_tokens": None}, {"turn": None}])
def test_records_that_lack_what_drift_needs_have_none(missing: dict[str, Any]) -> None:
    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**missing)

    assert "StepTimeDrift" not in dict(check_names(findings_of(Corruptions(records=edit), world=LONGER)))


THINKING = SyntheticRun(edits={"spec.workloads[0].thinkTime": {"seconds": 2}})


@pytest.mark.parametrize(
    ("world", "reached"),
    [
        (OPEN, {"reached_concurrency": 0.5}),
        (THINKING, {"reached_concurrency": 0.5}),
        (WORLD, {"reached_concurrency": 2.8}),
        (WORLD, {"reached_rate": 0.1}),
    ],
    ids=["open loop", "users think", "within 10 %", "closed loop"],
)
def test_reached_load_is_not_reported(world: SyntheticRun, reached: dict[str, float]) -> None:
    assert findings_of(replace_watch(**reached), world=world) == []


def edited(corruptions: Corruptions, **columns: Callable[[pd.DataFrame], Any]) -> Corruptions:
    """Set columns of the corrupted records."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rows = corruptions.records(point, frame)
        return rows.assign(**{name: value(rows) for name, value in columns.items()})

    return replace(corruptions, records=edit)


LONGER_LATER = np.random.default_rng(1).integers(0, 600, 60) + 10 * np.arange(60)


def growing(factor: float) -> Corruptions:
    """Slow down while prompts grow: a slower engine is not taken for the cost of longer contexts."""
    return edited(
        slow_down(factor),
        input_tokens=lambda rows: 100 + LONGER_LATER[rows["sent_ns"].rank().to_numpy(int) % 60],
    )


def watched(corruptions: Corruptions, **health: Any) -> Corruptions:
    return replace(corruptions, watch=replace_watch(**health).watch)


MANY = SyntheticRun(prompts=120, rate=(10,), repeats=1)


ON_16 = SyntheticRun(prompts=60, concurrency=(16,), repeats=1)


BY_NAME = edited(slow_down(1.3), category=lambda rows: rows["prompt_id"])


DRIFTS: dict[str, tuple[Corruptions, str, SyntheticRun, bool]] = {
    "growing prompts and a slower engine": (growing(1.3), "none", LONGER, True),
    "growing prompts": (growing(1.0), "none", LONGER, False),
    "no category twice": (BY_NAME, "none", LONGER, True),
    "no category twice, where drafts depend on it": (BY_NAME, "ngram", LONGER, False),
    "open loop": (slow_down(1.3), "ngram", MANY, True),
    "more in flight": (watched(slow_down(1.3), in_flight_growth=1.3), "ngram", MANY, False),
    "fewer in flight": (watched(slow_down(1.3), in_flight_growth=0.8), "ngram", MANY, False),
    "unknown in flight": (watched(slow_down(1.3), in_flight_growth=None), "ngram", MANY, False),
    # Of 60 prompts about thirty are steady on 16 streams: one pause of the engine delays half of them.
    "requests in flight together are not independent": (pause(150, reached=16.0), "none", ON_16, False),
    "many requests": (
        watched(slow_down(1.4), reached_concurrency=16.0),
        "none",
        replace(ON_16, prompts=160),
        True,
    ),
    "few requests": (
        watched(slow_down(1.5), reached_concurrency=1.0),
        "ngram",
        SyntheticRun(prompts=18, concurrency=(1,), repeats=1),
        False,
    ),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_drift_is_found_only_where_it_is_the_engines(case: str) -> None:
    corruptions, arm, world, found = DRIFTS[case]
    assert check_names(findings_of(corruptions, arm, world)) == [("StepTimeDrift", WARNING)] * found


"""Prompts roughly sorted by length, as files often are."""
