"""Trends within soak tests: the statistic, and its figures and findings from simulated runs to reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from specbench_api.plan.plan import EngineGroup
from specbench_client.analysis.statistics.bootstrap import IntervalBounds
from specbench_client.analysis.statistics.fitted_line import FittedLine, fit_line
from specbench_client.analysis.summary.trends import (
    FAILURES,
    LOOKS_FROM,
    has_decayed,
    trends_of,
    windows_after_decay,
)
from specbench_client.documents.figure import Figure
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary, RequestCounts, RunSummary
from specbench_client.local import executor
from specbench_client.local.executor import LocalOptions, execute_locally
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import Values
from specbench_client.report.text.run_report import markdown, run_topics
from specbench_client.report.text.trends import trend_lines, trends_table
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_client.trust.checks.trends import acceptance_decays
from specbench_client.trust.evidence import CellEvidence
from specbench_testing.present import present
from specbench_testing.synthetic_records import ONE, SyntheticRun, run_of_world

NAME = "acceptance_length_emitted_pooled"
WINDOW_S = 300.0
SOAK = SyntheticRun(
    prompts=6,
    categories=ONE,
    edits={"spec.load": {"concurrency": [1], "order": "Soak", "durationSeconds": 60, "repeats": 9}},
)


def autocorrelated(coefficient: float, count: int, seed: int) -> np.ndarray:
    """Noise of an AR(1) process in its steady state."""
    shocks = np.random.default_rng(seed).standard_normal(count + 50)
    noise = np.zeros(count + 50)
    for index in range(1, count + 50):
        noise[index] = coefficient * noise[index - 1] + shocks[index]
    return noise[50:]


def windows(values: list[float], window_s: float = WINDOW_S) -> list[PointSummary]:
    point = SOAK.honest(SOAK.plan.points[0])
    return [
        point.model_copy(
            update={
                "repeat": repeat,
                "figures": {NAME: Figure(value=value, unit="tokens/step", definition="d", n=1, source="client")},
                "client_health": ClientHealth(duration_s=window_s),
                "counts": RequestCounts(requests=100),
            }
        )
        for repeat, value in enumerate(values)
    ]


@cache
def soak_summary() -> RunSummary:
    return run_of_world(SOAK)


def with_trends(points: list[PointSummary]) -> RunSummary:
    """Return the soak test's summary with one arm, whose trends are those of these windows."""
    cell = next(cell for cell in soak_summary().cells if cell.arm == "ngram")
    return soak_summary().model_copy(update={"cells": [cell.model_copy(update={"trends": trends_of(points)})]})


def test_a_decay_is_stated_relative_to_the_first_window() -> None:
    noise = 0.01 * autocorrelated(0.0, 144, 1)
    values = [4.47 - 0.98 * index / 143 + noise[index] for index in range(144)]
    found = {each.name: each for each in trends_of(windows(values)[::-1])}
    trend = found[NAME]
    assert (trend.start, trend.end) == pytest.approx((4.47, 3.49), abs=0.02)
    assert trend.hours == pytest.approx(143 * WINDOW_S / 3600)
    assert trend.change.value == pytest.approx(-0.98 / 4.47, rel=0.02)
    assert trend.change_per_hour == pytest.approx(-0.98 / 4.47 / trend.hours, rel=0.02)


def test_no_figure_falls_by_more_than_all_of_it() -> None:
    steep = [3.0, 2.8, 0.1, 0.05, 0.04, 0.02, 0.01, 0.01]
    (trend,) = (each for each in trends_of(windows(steep, window_s=3)) if each.name == NAME)
    assert trend.change.interval is not None
    assert (trend.change.value, trend.change.interval.low, trend.end) == (-1, -1, 0)
    assert (trend.change_per_hour, trend.time_words) == (None, "21 s")


def test_failures_change_by_a_difference_of_shares() -> None:
    points = [
        point.model_copy(update={"counts": RequestCounts(requests=100, failed_requests=index)})
        for index, point in enumerate(windows([3.0] * 12))
    ]
    found = {each.name: each for each in trends_of(points)}
    trend = found[FAILURES.name]
    assert (trend.start, trend.end, trend.change.value) == pytest.approx((0, 0.11, 0.11), abs=1e-9)
    assert found[NAME].change.value == 0


@pytest.mark.parametrize(
    ("window_s", "columns", "row", "words"),
    [
        (3, ["Time", "Change [95 %]"], ("1.15 min", "-25.0% [-25."), "from 0.0% to 23.0% in 1.15 min: +23.0 points"),
        (600, ["Change [95 %]", "An hour"], ("3.83 h", "-6.5%"), ", +6.0 points an hour"),
    ],
)
def test_changes_are_shown_in_readable_units(
    window_s: float, columns: list[str], row: tuple[str, str], words: str
) -> None:
    noise = 0.002 * autocorrelated(0.0, 24, 1)
    points = [
        point.model_copy(update={"counts": RequestCounts(requests=100, failed_requests=index)})
        for index, point in enumerate(windows([4 - index / 23 + noise[index] for index in range(24)], window_s))
    ]
    summary = with_trends(points)
    table = trends_table(summary)
    assert list(table.columns)[-2:] == columns
    assert table.rows[0][1] == "acceptance length (tokens/step)"
    assert (table.rows[0][4], table.rows[0][-1][: len(row[1])]) == row
    assert words in list(trend_lines(summary))[1]


def evidence(values: list[float], window_s: float = WINDOW_S) -> CellEvidence:
    plan = SOAK.plan
    return CellEvidence(
        plan=plan,
        arm=plan.arms[1],
        workload=plan.workloads[0],
        level=plan.load.levels[0],
        rows=Table({}),
        baseline=None,
        pairs=None,
        speedup=None,
        trends=tuple(trends_of(windows(values, window_s))),
    )


def test_a_fall_of_the_acceptance_length_over_hours_is_a_warning() -> None:
    noise = 0.02 * autocorrelated(0.5, 48, 3)
    falling = [3.0 * (1 - 0.22 * index / 47) + noise[index] for index in range(48)]
    (found,) = acceptance_decays.evaluate(evidence(falling))
    assert found.value == pytest.approx(0.22, abs=0.02)
    assert "fell from 2.99 to 2.34" in found.message
    assert found.message.endswith(", 5.6% an hour")
    (found,) = acceptance_decays.evaluate(evidence(falling, window_s=0.5))
    assert "in 23.5 s, by 21.9% [" in found.message
    assert "an hour" not in found.message


def restarts_of(served: list[dict[str, object]]) -> set[int]:
    """Return the restarts that the trends report, for windows with these fields."""
    points = [
        point.model_copy(update={"counters": None, "engine_launch": None} | fields)
        for point, fields in zip(windows([3.0] * len(served)), served, strict=True)
    ]
    return {trend.restarts for trend in trends_of(points)}


NEW_LAUNCH = {"engine_launch": "2"}
NEW_PROCESS = {"counters": CounterDeltas(process_started_s=2.0)}
LAUNCHED = {"engine_launch": "1"}
STARTED = {"counters": CounterDeltas(process_started_s=1.0)}
WITHIN = {"counters": CounterDeltas(process_started_s=2.0, restarted=True)}


@pytest.mark.parametrize(
    ("first", "middle", "second", "restarts"),
    [
        (LAUNCHED, LAUNCHED, NEW_LAUNCH, 1),
        (STARTED, STARTED, NEW_PROCESS, 1),
        (STARTED, WITHIN, NEW_PROCESS, 1),
        (LAUNCHED | STARTED, LAUNCHED | STARTED, NEW_LAUNCH | NEW_PROCESS, 1),
        (LAUNCHED | STARTED, LAUNCHED | STARTED, NEW_LAUNCH | STARTED, 0),  # only the client was started again
        ({}, {"counters": CounterDeltas(restarted=True)}, {}, 1),
        (LAUNCHED, LAUNCHED, LAUNCHED, 0),
        ({}, {}, {}, 0),
    ],
)
def test_restarts_of_the_engine_are_recognised(
    first: dict[str, object], middle: dict[str, object], second: dict[str, object], restarts: int
) -> None:
    assert restarts_of([*[first] * 8, middle, *[second] * 8]) == {restarts}


@pytest.mark.parametrize(
    ("starts", "restarts"),
    [
        ([1, 2] * 8, 0),
        ([2, 1] * 8, 0),
        ([1, 2, 3] * 5, 0),
        ([1, 1, *[2] * 14], 1),
        ([2, 2, *[1] * 14], 0),
        ([*[1, 2] * 4, *[3] * 8], 1),
    ],
    ids=str,
)
def test_processes_that_answer_in_turn_have_not_restarted(starts: list[float], restarts: int) -> None:
    assert restarts_of([{"counters": CounterDeltas(process_started_s=one)} for one in starts]) == {restarts}


@pytest.mark.parametrize(
    ("ends", "restarts"),
    [
        ([100, 200, 300, 400], 0),
        ([100, 200, 450, 900], 0),  # others used the engine, too
        ([500, 600, 100, 200], 1),
        ([500, 600, 699, 799], 1),  # the new process had served 599 when the window began
        ([500, 100, 200, 100], 2),
    ],
)
@pytest.mark.parametrize("counter", ["output_tokens", "prompt_tokens"])
def test_a_restart_between_windows_shows_in_counters_that_fell(counter: str, ends: list[int], restarts: int) -> None:
    """A running server that does not report when its process started."""
    ended = [*ends, *(ends[-1] + 100 * more for more in range(1, 14))]
    served = [CounterDeltas.model_validate({counter: 100, f"{counter}_total": total}) for total in ended]
    assert restarts_of([{"counters": counters} for counters in served]) == {restarts}


TOOTH = 1 - 0.22 * np.arange(24) / 23
"""Two processes of an engine serve 24 windows each; the acceptance falls by 22 % in each."""


@pytest.mark.parametrize(
    ("shape", "found_joined", "found"),
    [
        (np.concatenate([TOOTH, TOOTH]), False, True),
        (np.concatenate([TOOTH, TOOTH + 0.22]), False, True),
        (np.repeat([1.0, 0.8], 24), True, False),
        (np.repeat([0.8, 1.0], 24), False, False),
        (np.ones(48), False, False),
    ],
    ids=["saw-tooth", "rising teeth", "step down", "step up", "steady"],
)
def test_a_decay_is_found_across_a_restart_and_a_step_is_none(
    shape: np.ndarray, found_joined: bool, found: bool
) -> None:
    noise = 0.02 * np.concatenate([autocorrelated(0.5, 24, 1), autocorrelated(0.5, 24, 2)])
    joined = windows(list(3 * shape + noise))
    points = [point.model_copy(update=LAUNCHED if index < 24 else NEW_LAUNCH) for index, point in enumerate(joined)]
    results = [
        acceptance_decays.evaluate(replace(evidence([]), trends=tuple(trends_of(each)))) for each in (joined, points)
    ]
    assert [bool(each) for each in results] == [found_joined, found]
    if found:
        ((result,),) = results[1:]
        assert result.value == pytest.approx(0.22, abs=0.04)
        assert "to 2.33 in 1.92 h, by 22." in result.message
        assert "the engine restarted once" in result.message


def test_a_soak_test_reports_its_trends() -> None:
    summary = soak_summary()
    assert ("ngram", NAME) in {(cell.arm, trend.name) for cell in summary.cells for trend in cell.trends}
    assert markdown(SOAK.plan, summary).count("failed requests") == len(summary.cells)
    assert "trends" in [topic.name for topic in run_topics(SOAK.plan, summary)]
    assert [cell.trends for cell in run_of_world(replace(SOAK, edits={})).cells] == [[], []]


def test_a_steady_or_rising_acceptance_length_is_not_reported() -> None:
    for change in (0.0, 0.1):
        values = [3.0 * (1 + change * index / 47) for index in range(48)]
        assert acceptance_decays.evaluate(evidence(list(values + 0.02 * autocorrelated(0.5, 48, 4)))) == []
    assert acceptance_decays.evaluate(evidence([3.0, 2.0, 1.5])) == [], "too few windows"


def test_a_soak_test_with_a_stop_rule_ends_when_its_acceptance_has_fallen() -> None:
    noise = 0.02 * autocorrelated(0.5, 48, 3)
    falling, steady = [windows(list(line + noise)) for line in (3.0 - 0.03 * np.arange(48), np.full(48, 3.0))]
    ends = [count for count in range(48) if has_decayed(falling[:count])]
    assert LOOKS_FROM <= ends[0] < 24
    assert ends == list(range(ends[0], 48))
    assert not any(has_decayed(steady[:count]) for count in range(48))


def test_windows_after_a_decay_are_not_missing() -> None:
    plan = replace(SOAK, edits={"spec.load": {**SOAK.edits["spec.load"], "repeats": 20}}).plan
    stopping = plan.model_copy(update={"stop": "WhenDecayed"})
    (own,) = [group.points for group in plan.groups if group.arm == "ngram"]
    falling = windows([3.0 - 0.03 * index for index in range(14)])
    measured = [
        each.model_copy(update={"arm": "ngram", "hash": point.hash}) for each, point in zip(falling, own, strict=False)
    ]
    assert windows_after_decay(stopping, measured) == {point.hash for point in own[14:]}
    assert windows_after_decay(stopping, measured[:5]) == windows_after_decay(plan, measured) == set()


def test_an_arm_that_ended_early_is_not_launched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []

    async def launch(_: Run, group: EngineGroup, __: LocalOptions) -> None:
        launched.append(group.arm)

    monkeypatch.setattr(executor, "_launch_with_retries", launch)
    monkeypatch.setattr(executor, "has_decayed", lambda _: True)
    stopping = SOAK.plan.model_copy(update={"stop": "WhenDecayed"})
    for plan in (stopping, SOAK.plan):
        run = Run(FolderStore(tmp_path), plan)
        assert asyncio.run(execute_locally(run, LocalOptions(tmp_path, tmp_path, 1.0))) == {}
    assert launched == ["none", "ngram"], "only without a stop rule"


TIMES = np.arange(12.0)
LINE = 4 - 0.05 * TIMES
BUMPS = np.array([0.3, -0.1, 0.2, 0.4, -0.2, -0.5, 0.1, 0.0, 0.3, -0.3, 0.2, -0.1])
THREE = np.repeat([0, 1, 2], [4, 6, 2])
Parts = NDArray[np.intp]


def direct_fits(values: Values, times: Values, parts: Parts, freedom: int) -> tuple[Values, Values, Values]:
    """Slopes, their errors and weights by generalised least squares with the full covariance of each coefficient."""
    design = np.column_stack([parts[:, None] == np.unique(parts), times])
    found = []
    for coefficient in (np.arange(50) + 0.5) / 50:
        apart = np.abs(np.subtract.outer(np.arange(values.size), np.arange(values.size)))
        within = np.equal.outer(parts, parts)
        covariance = np.where(within, coefficient**apart, 0.0) / (1 - coefficient**2)
        precision = np.linalg.inv(covariance)
        information = design.T @ precision @ design
        line = np.linalg.solve(information, design.T @ precision @ values)
        noise = (values - design @ line) @ precision @ (values - design @ line)
        determinants = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1]
        error = np.sqrt(noise / freedom * np.linalg.inv(information)[-1, -1])
        found.append((line[-1], error, -(determinants + freedom * np.log(noise)) / 2))
    slopes, errors, logs = np.array(found).T
    return slopes, errors, np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()


@pytest.mark.parametrize(("parts", "freedom"), [(None, 10), (THREE, 8)])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_slopes_are_averaged_over_all_coefficients(parts: Parts | None, freedom: int, level: float) -> None:
    part = np.zeros(12, np.intp) if parts is None else parts
    values = LINE + 2 * part + BUMPS
    slopes, errors, weights = direct_fits(values, TIMES, part, freedom)
    found = present(fit_line(values, TIMES, level, parts))
    assert (found.slope, found.freedom) == pytest.approx((float(weights @ slopes), freedom))
    for bound, tail in ((found.bounds.low, (1 - level) / 2), (found.bounds.high, (1 + level) / 2)):
        assert weights @ stats.t.cdf((bound - slopes) / errors, freedom) == pytest.approx(tail)


def without(index: int, values: Values = LINE) -> Values:
    return np.where(np.arange(12) == index, np.nan, values)


TEETH = np.array([5.0, 3.0, 9.0])[np.repeat([0, 1, 2], [4, 7, 1])] - 0.1 * TIMES


@pytest.mark.parametrize(
    ("values", "times", "parts", "expected"),
    [
        (LINE, TIMES, None, (-0.05, 4.0, 3.45, 11, 10)),
        (without(3), TIMES, None, (-0.05, 4.0, 3.45, 11, 9)),
        (LINE, without(0, TIMES), None, (-0.05, 3.95, 3.45, 10, 9)),
        (LINE, TIMES + 100, None, (-0.05, 4.0, 3.45, 11, 10)),
        (-LINE, TIMES, None, (0.05, -4.0, -3.45, 11, 10)),
        (TIMES - 3, TIMES, None, (1, -3, 8, 11, 10)),
        (TEETH, TIMES, np.repeat([0, 1, 2], [4, 7, 1]), (-0.1, 2.6, 2.0, 6, 8)),
        (TEETH, TIMES, np.repeat([3, 7, 8], [4, 7, 1]), (-0.1, 2.6, 2.0, 6, 8)),
        (LINE[:8], TIMES[:8], None, (-0.05, 4.0, 3.65, 7, 6)),
        (LINE[:7], TIMES[:7], None, None),
        (LINE[:9], TIMES[:9], np.repeat([0, 1, 2], 3), None),
        (LINE, TIMES, np.arange(12), None),
        (BUMPS, 0 * TIMES, None, None),
        (1e100 * (1 + TIMES % 3), TIMES, None, None),
        (1e-101 * (1 + TIMES % 3), TIMES, None, None),
        (BUMPS, 1e-102 * TIMES, None, None),
        (BUMPS, 1e100 * TIMES, None, None),
    ],
)
def test_known_slopes(values: Values, times: Values, parts: Parts | None, expected: tuple[float, ...] | None) -> None:
    found = fit_line(values, times, parts=parts)
    if expected is None or found is None:
        assert (found, expected) == (None, None)
        return
    assert (found.slope, found.start, found.end, found.duration, found.freedom) == pytest.approx(expected)
    assert found.slope - 1e-9 < found.bounds.low < found.bounds.high - 1e-14 < found.slope + 1e-9, "but for rounding"


def test_a_constant_series_has_no_slope() -> None:
    expected = FittedLine(0, IntervalBounds(0, 0), 1.1, 1.1, 1, 10)
    assert fit_line(np.full(12, 1.1), TIMES / 11) == expected


def test_a_line_with_extreme_but_computable_values_is_fitted() -> None:
    small, large = (fit_line(size * (2 + BUMPS), TIMES) for size in (1e-90, 1e90))
    assert isinstance(small, FittedLine)
    assert isinstance(large, FittedLine)
    assert large.slope / small.slope == pytest.approx(1e180)


def autocorrelated_of_trends(coefficient: float, count: int, seed: int) -> Values:
    """Noise of an AR(1) process in its steady state."""
    noise = np.random.default_rng(seed).standard_normal(count + 50)
    for index in range(1, count + 50):
        noise[index] += coefficient * noise[index - 1]
    return noise[50:]


@pytest.mark.long
@pytest.mark.parametrize(
    ("coefficient", "windows", "parts", "least"),
    [(0.0, 8, 1, 0.96), (0.5, 48, 1, 0.93), (0.8, 24, 1, 0.91), (0.5, 12, 3, 0.93)],
)
def test_intervals_of_slopes_contain_the_truth(coefficient: float, windows: int, parts: int, least: float) -> None:
    """Each part has its own level. 300 series."""
    times, part, held = np.arange(float(windows * parts)), np.repeat(np.arange(parts), windows), 0
    for seed in range(300):
        noise = [autocorrelated_of_trends(coefficient, windows, parts * seed + each) for each in range(parts)]
        line = present(fit_line(np.array([5, 1, 3])[part] - 0.1 * times + np.concatenate(noise), times, parts=part))
        held += line.bounds.low <= -0.1 <= line.bounds.high
    assert held / 300 >= least
