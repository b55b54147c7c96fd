"""A load that was not the one asked for, or not the same all the while, is found; chance is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.plan.plan import Point
from specbench_testing.lies import OPEN, columns, found, names, watch
from specbench_testing.records import Lies, World

INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE


def test_an_open_loop_without_lies_has_no_findings() -> None:
    for world in (OPEN, World(prompts=60, rate=(10,), repeats=1, turns=2)):
        for arm in ("none", "ngram"):
            assert found(Lies(), arm, world) == []


def test_a_closed_loops_load_is_not_asked_of_an_open_one() -> None:
    assert found(watch(reached_concurrency=0.5), world=OPEN) == []


@pytest.mark.parametrize("reached", [2.0, 2.69])
def test_a_load_that_was_not_reached_is_found(reached: float) -> None:
    assert names(found(watch(reached_concurrency=reached))) == [("ConcurrencyNotReached", INVALID)]
    assert found(watch(reached_concurrency=2.8)) == []


def test_a_load_that_the_records_belie_is_found_without_a_watch() -> None:
    def slow_client(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(last_token_ns=frame["sent_ns"] + (frame["last_token_ns"] - frame["sent_ns"]) // 2)

    assert ("ConcurrencyNotReached", INVALID) in names(found(Lies(records=slow_client)))


def loaded(arrival: dict[str, Any], rate: float | None = 10) -> World:
    """An open loop with another process of arrivals."""
    load = {"slots": 64, "repeats": 1, "arrival": arrival} | ({"rate": [rate]} if rate else {})
    return World(prompts=60, rate=(rate or 1,), repeats=1, edits={"spec.load": load})


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
def test_a_rate_that_was_not_reached_is_found_beyond_what_chance_can_do(
    arrival: dict[str, Any], reached: float, steady_s: float, expected: int
) -> None:
    lies = watch(reached_rate=reached, duration_s=steady_s, steady_share=1.0)
    assert names(found(lies, world=loaded(arrival))) == [("RateNotReached", INVALID)] * expected


def test_a_rate_is_asked_of_no_closed_loop() -> None:
    assert found(watch(reached_rate=0.1)) == []


def growing(growth: float, **values: Any) -> Lies:
    return watch(in_flight_growth=growth, reached_rate=10, duration_s=1000, steady_share=1.0, **values)


def test_an_engine_that_cannot_keep_up_with_the_arrivals_is_found() -> None:
    assert names(found(growing(1.6, reached_concurrency=20.0), world=OPEN)) == [("Overloaded", INVALID)]
    assert found(growing(1.4, reached_concurrency=20.0), world=OPEN) == []
    assert found(growing(3.0, reached_concurrency=7.0), world=OPEN) == [], "two requests where there was one"
    assert found(growing(3.0, reached_concurrency=3.0)) == [], "a closed loop has no queue of its own"


def test_a_short_point_in_which_the_queue_happened_to_grow_is_no_overload() -> None:
    seen = {"reached_concurrency": 20.0, "reached_rate": 10, "steady_share": 1.0}
    assert found(watch(in_flight_growth=2.0, duration_s=10, **seen), world=OPEN) == []
    assert names(found(watch(in_flight_growth=3.0, duration_s=10, **seen), world=OPEN)) == [("Overloaded", INVALID)]


def test_a_trace_that_rises_by_itself_is_only_doubted() -> None:
    world = loaded(TRACE)
    assert names(found(growing(2.0, reached_concurrency=20.0), world=world)) == [("Overloaded", DOUBT)]


def test_a_point_without_a_steady_state_is_found() -> None:
    few = World(prompts=6, concurrency=(3,), repeats=1)
    assert names(found(Lies(), world=few)) == [("NoSteadyState", INVALID)]
    lies = columns(phase=lambda index, _: "ramp" if index < 20 else "drain")
    assert ("NoSteadyState", INVALID) in names(found(lies))


def test_an_open_loop_needs_as_many_steady_requests_as_were_in_flight() -> None:
    assert names(found(watch(reached_concurrency=500.0), world=OPEN)) == [("NoSteadyState", INVALID)]
    none = columns(phase=lambda _, row: "ramp" if row["phase"] == "steady" else row["phase"])
    assert "more arrived than the engine could do" in found(none, world=OPEN)[0].message


@pytest.mark.parametrize(("steady", "expected"), [(False, [("WarmupNotSteady", DOUBT)]), (True, []), (None, [])])
def test_a_warm_up_that_did_not_become_steady_is_doubted(
    steady: bool | None, expected: list[tuple[str, Severity]]
) -> None:
    assert names(found(watch(warmup_steady=steady, warmup_requests=32))) == expected


def slowed(factor: float, *, later: float = 0.5) -> Lies:
    """From so far on in the point, answers flow at another pace."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame.copy()
        late = rows["sent_ns"].rank(pct=True) > later
        flow = rows["last_token_ns"] - rows["first_token_ns"]
        rows.loc[late, "last_token_ns"] = rows["first_token_ns"] + (flow * factor).astype("int64")
        return rows

    return Lies(records=edit, watch=lambda _, seen: seen.model_copy(update={"reached_concurrency": 3.0}))


LONGER = World(prompts=60, concurrency=(3,), repeats=1)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize("factor", [1.2, 0.8])
def test_an_engine_that_changes_its_pace_within_a_point_is_doubted(factor: float, arm: str) -> None:
    findings = found(slowed(factor), arm, LONGER)
    assert names(findings) == [("Drift", DOUBT)]
    assert "time per decode step" in findings[0].message


@pytest.mark.parametrize("factor", [1.05, 0.95])
def test_a_machine_that_moves_a_little_is_not_doubted(factor: float) -> None:
    assert found(slowed(factor), world=LONGER) == []


def test_a_pace_is_judged_by_tokens_where_steps_are_not_told() -> None:
    def untold(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return slowed(1.3).records(point, frame).assign(steps=None, draft_steps=None, step_accepted=None)

    findings = found(Lies(records=untold, watch=slowed(1.3).watch), "none", LONGER)
    assert names(findings) == [("Drift", DOUBT)]
    assert "time per output token" in findings[0].message


def test_categories_that_stand_one_after_the_other_in_the_file_are_no_drift() -> None:
    """Their acceptance differs, and with it the time per token; nothing is said of the machine."""

    def sorted_file(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        early = frame["sent_ns"].rank(pct=True) < 0.5
        flow = (frame["last_token_ns"] - frame["first_token_ns"]).where(~early, lambda span: span // 2)
        told = {"steps": None, "draft_steps": None, "step_accepted": None}
        category = np.where(early, "code", "chat")
        return frame.assign(category=category, last_token_ns=frame["first_token_ns"] + flow, **told)

    lies = Lies(records=sorted_file, watch=slowed(1).watch)
    assert found(lies, world=LONGER) == []


def test_an_open_loop_is_judged_only_where_as_many_requests_were_in_flight() -> None:
    many = World(prompts=120, rate=(10,), repeats=1)
    assert names(found(slowed(1.3), world=many)) == [("Drift", DOUBT)]
    for growth in (1.3, 0.8, None):
        busy = watch(in_flight_growth=growth)
        assert found(Lies(records=slowed(1.3).records, watch=busy.watch), world=many) == []


def test_a_third_that_is_less_than_a_turn_of_the_streams_may_change_as_an_open_loop_may() -> None:
    """Its requests had the same others beside them. Of 60 prompts about thirty are steady on 16 streams."""

    def of(factor: float, streams: int) -> list[tuple[str, object]]:
        lies = Lies(records=slowed(factor).records, watch=watch(reached_concurrency=float(streams)).watch)
        return list(names(found(lies, "none", World(prompts=60, concurrency=(streams,), repeats=1))))

    assert of(1.15, 3) == [("Drift", DOUBT)]
    assert of(1.15, 16) == []
    assert of(1.4, 16) == [("Drift", DOUBT)]


def test_a_handful_of_requests_shows_no_drift() -> None:
    few = World(prompts=18, concurrency=(1,), repeats=1)
    calm = slowed(1.5).records
    assert found(Lies(records=calm, watch=watch(reached_concurrency=1.0).watch), world=few) == []
