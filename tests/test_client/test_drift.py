"""Drift: the false-alarm rate is as stated, changes are detected early, and their cause is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.layout import run_root
from specbench_client.analysis.drift.comparison import DriftOptions, change_parts, decompose_change, drift_report
from specbench_client.analysis.drift.control_charts import ChartTuning, run_charts, tuning_for
from specbench_client.analysis.drift.request_log import (
    LENGTH,
    RATE,
    PooledMetric,
    RequestLog,
    acceptance_windows,
    pooled_acceptance,
    request_log,
)
from specbench_client.cli import exit_code
from specbench_client.documents.drift import DriftCause, DriftReport
from specbench_client.report.text.trends import drift_report_text
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.drift_requests import hash_order
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun
from specbench_testing.tables import table_of

pytestmark = pytest.mark.runs

DRAFTS = 3
ALPHA = {"code": 0.8, "chat": 0.5}


def log(
    seed: int, count: int = 400, shares: tuple[float, float] = (0.5, 0.5), worse: float = 1.0, spread: float = 0.1
) -> pd.DataFrame:
    """Return requests whose drafts are accepted in sequence; `worse` scales the acceptance rate of every category."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(ALPHA), size=count, p=shares)
    alphas = np.clip(np.array([ALPHA[name] for name in names]) * worse + rng.normal(0, spread, count), 0.02, 0.98)
    steps = rng.integers(20, 60, count)
    chances = alphas[:, None] ** np.arange(1, DRAFTS + 1)  # P(≥ i accepted)
    accepted = [(rng.random(n)[:, None] < chance).sum() for n, chance in zip(steps, chances, strict=True)]
    times = 1.7e9 + np.cumsum(rng.exponential(10, count))
    columns = {
        "accepted_tokens": accepted,
        "drafted_tokens": steps * DRAFTS,
        "steps": steps,
        "category": names,
        "time": times,
    }
    return pd.DataFrame(columns)


def requests(seed: int, count: int = 400, **more: object) -> RequestLog:
    return request_log(f"log {seed}", log(seed, count, **more))  # type: ignore[arg-type]


REFERENCE = requests(1, 1000)


def alarms(times: int, count: int = 300, **more: object) -> float:
    reports = [
        drift_report(requests(2 * n, 600), requests(2 * n + 1, count, **more), DriftOptions(seed=n))
        for n in range(times)
    ]
    return float(np.mean([report.alarm for report in reports]))


@pytest.mark.draws
def test_false_alarm_rate_is_at_most_the_stated_one() -> None:
    """One comparison in twenty by default; the rate is split between two charts, so this is an upper bound."""
    assert alarms(50) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 50)


@pytest.mark.draws
def test_drafter_with_15_percent_lower_acceptance_is_detected() -> None:
    assert alarms(10, worse=0.85) == 1.0


def test_worse_drafter_is_the_reported_cause_with_its_time() -> None:
    changed = pd.concat([log(2, 300), log(3, 300, worse=0.7)], ignore_index=True).assign(time=np.arange(600) + 1.7e9)
    report = drift_report(REFERENCE, request_log("changed", changed), DriftOptions())
    assert (report.alarm, report.cause) == (True, DriftCause.DRAFTER)
    assert all(chart.alarm_at is not None and 300 < chart.alarm_at < 400 for chart in report.charts)
    assert {chart.direction for chart in report.charts} == {"lower"}
    assert present(report.charts[0].alarm_time).startswith("2023-11-14T22:")
    assert "cause: drafter" in report.headline


def test_changed_traffic_is_reported_as_mix() -> None:
    report = drift_report(REFERENCE, requests(2, 600, shares=(0.1, 0.9)), DriftOptions())
    assert (report.alarm, report.cause) == (True, DriftCause.MIX)
    change = report.changes[0]
    assert present(change.drafter.interval).low <= 0 <= present(change.drafter.interval).high
    assert [each.category for each in change.categories] == ["chat", "code"]


def test_no_drift_is_reported_with_the_evidence() -> None:
    report = drift_report(REFERENCE, requests(2), DriftOptions())
    assert (report.alarm, report.cause) == (False, DriftCause.NONE)
    assert report.headline.startswith("no drift found; acceptance length ")
    assert report.run_length == 20 * 400
    assert report.false_alarm == pytest.approx(1 - np.exp(-1 / 20))


Sums = st.lists(st.tuples(*[st.integers(0, 50)] * 2), min_size=1, max_size=5)


@given(Sums, Sums)
def test_mix_and_drafter_parts_add_up_exactly(then: list[tuple[int, int]], now: list[tuple[int, int]]) -> None:
    size = max(len(then), len(now))
    sides = [np.array([*side, *[(0, 0)] * (size - len(side))], dtype=float).T for side in (then, now)]
    if any(side[1].sum() == 0 for side in sides):
        return
    sides = [np.stack([np.where(side[1] > 0, side[0], 0), side[1]]) for side in sides]
    parts = change_parts((sides[0][0], sides[0][1]), (sides[1][0], sides[1][1]), 1.0)
    values = [1 + side[0].sum() / side[1].sum() for side in sides]
    assert parts.mix.sum() + parts.drafter.sum() == pytest.approx(values[1] - values[0], abs=1e-9)


def test_kitagawas_parts_match_a_calculation_by_hand() -> None:
    """Shares 0.5/0.5 → 0.8/0.2, values 3/2 → 2.8/2.2: mix 0.3 × (2.9 − 2.1), drafter −0.2 × 0.65 + 0.2 × 0.35."""
    parts = change_parts(
        (np.array([100.0, 50.0]), np.array([50.0, 50.0])), (np.array([144.0, 24.0]), np.array([80.0, 20.0])), 1.0
    )
    assert parts.mix.sum() == pytest.approx(0.3 * 2.9 - 0.3 * 2.1)
    assert parts.drafter.tolist() == pytest.approx([-0.2 * 0.65, 0.2 * 0.35])


def test_new_category_counts_as_mix() -> None:
    then = request_log("a", log(1, 300, (0.0, 1.0)))
    change = present(decompose_change(then.table, requests(2, 300).table, LENGTH, 0))
    (code,) = [each for each in change.categories if each.category == "code"]
    assert (code.reference, code.drafter) == (None, 0.0)
    assert code.mix > 0


@pytest.mark.draws
def test_clustered_ratio_intervals_cover_the_truth() -> None:
    """Each prompt occurs ten times, so intervals over single requests would be three times too narrow."""
    inside = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rates = np.clip(rng.normal(0.6, 0.15, 60), 0.05, 0.95)
        drafted = np.full(600, 90.0)
        accepted = rng.binomial(90, np.repeat(rates, 10)).astype(float)
        prompts = np.repeat([f"p{index}" for index in range(60)], 10)
        table = pd.DataFrame(
            {"accepted_tokens": accepted, "drafted_tokens": drafted, "steps": 30.0, "prompt_id": prompts}
        )
        figure = present(pooled_acceptance(table, RATE))
        inside.append(present(figure.interval).low <= 0.6 <= present(figure.interval).high)
    assert 0.91 <= np.mean(inside) <= 0.985


@pytest.mark.parametrize(("metric", "accepted"), [(LENGTH, [0, 0, 0, 3]), (RATE, [90, 90, 90, 60])])
def test_intervals_of_acceptance_are_limited_to_possible_values(metric: PooledMetric, accepted: list[int]) -> None:
    columns = {"accepted_tokens": accepted, "drafted_tokens": 90.0, "steps": 30.0, "prompt_id": list("abcd")}
    interval = present(present(pooled_acceptance(pd.DataFrame(columns), metric)).interval)
    assert 1.0 in (interval.low, interval.high)


def test_charts_follow_their_formulas() -> None:
    """Calculated by hand for constant z = 1, with λ = 0.05 and κ = 0.1."""
    ewma, cusum = run_charts(np.ones(3), ChartTuning(1))
    assert cusum.tolist() == pytest.approx([0.9, 1.8, 2.7])
    assert ewma[0] == pytest.approx(1.0)
    assert ewma[1] == pytest.approx((0.95 * 0.05 + 0.05) / np.sqrt(0.05 / 1.95 * (1 - 0.95**4)))
    down = run_charts(-np.ones(3), ChartTuning(1))
    assert np.concatenate(down) == pytest.approx(-np.concatenate([ewma, cusum]))


def test_long_log_is_charted_in_subgroups() -> None:
    tuning = tuning_for(100_000)
    assert tuning.group == 25
    assert tuning.subgroups(np.arange(100.0)).tolist() == [12.0, 37.0, 62.0, 87.0]


def test_windows_are_counts_of_requests_or_durations() -> None:
    current = requests(2, 450)
    assert [(each.first, each.requests) for each in acceptance_windows(current, 200, None)] == [
        (1, 200),
        (201, 200),
        (401, 50),
    ]
    timed = acceptance_windows(current, 200, 600.0)
    assert sum(each.requests for each in timed) == 450
    assert len(timed) > 5
    assert timed[0].begun is not None


def test_requests_without_a_step_are_counted_and_left_out() -> None:
    table = log(1, 10)
    table.loc[0, "steps"] = 0
    table["accepted_tokens"] = table["accepted_tokens"].astype(object)
    table.loc[1, "accepted_tokens"] = None
    request_set = request_log("x", table)
    assert (len(request_set.table), request_set.left_out) == (8, 2)


@pytest.mark.parametrize(
    ("reference", "current", "words"),
    [
        (log(1, 20), log(2), "20 requests have their acceptance; 50 are needed"),
        (log(1), log(2).assign(steps=0), "no request has its acceptance"),
        (log(1).rename(columns={"steps": "num_steps"}), log(2), r"left out: 400\) \(give steps and accepted_tokens"),
        (
            log(1).assign(accepted_tokens=30, steps=30),
            log(2),
            "there is no spread \\(give a log of a server that drafts",
        ),
    ],
)
def test_insufficient_logs_are_rejected(reference: pd.DataFrame, current: pd.DataFrame, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        drift_report(request_log("a", reference), request_log("b", current), DriftOptions())


def write_log(path: Path, table: pd.DataFrame) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in json.loads(table.to_json(orient="records"))))
    return str(path)


@pytest.mark.parametrize(("worse", "code"), [(1.0, 0), (0.7, 3)])
def test_drift_command_exit_code_is_the_verdict(
    worse: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    then, now = write_log(tmp_path / "then.jsonl", log(1)), write_log(tmp_path / "now.jsonl", log(2, worse=worse))
    assert exit_code(["analyze", "drift", then, now, "--output", "json"]) == code
    report = DriftReport.from_json(capsys.readouterr().out)
    assert (report.alarm, report.reference.source) == (code == 3, then)


@pytest.mark.parametrize("unnamed", [1.0, 0.5])
def test_log_without_categories_is_not_reported_as_another_mix(unnamed: float) -> None:
    worse = log(2, 600, worse=0.7)
    nameless = np.arange(len(worse)) < unnamed * len(worse)
    current = request_log("nameless", worse.assign(category=worse["category"].mask(nameless, None)))
    report = drift_report(REFERENCE, current, DriftOptions())
    assert report.alarm
    assert report.cause is DriftCause.UNKNOWN
    (length, *_) = report.changes
    assert (length.mix.value, length.drafter.value, length.categories) == (None, None, [])
    assert length.change.value is not None
    assert any("cannot be separated" in limit for limit in report.limits)
    assert "mix unknown" in report.headline
    assert drift_report_text(report).topics[0].lines


def test_log_that_contains_requests_twice_is_reported() -> None:
    once = log(3, 200).assign(prompt_id=[f"p{n}" for n in range(200)])
    joined, single = (
        drift_report(REFERENCE, request_log("current", table), DriftOptions()).limits
        for table in (pd.concat([once, once]), once)
    )
    assert any(limit.startswith("200 of the 400 requests of current occur twice") for limit in joined)
    assert not any("twice" in limit for limit in single)


BAD_LINES = [
    ("{", "is not valid JSON"),
    ("[1]", "is not an object"),
    ('{"steps": -1, "accepted_tokens": 2}', "steps: -1 is not a count"),
    ('{"steps": 3, "accepted_tokens": 9, "drafted_tokens": 6}', "9 accepted of 6 drafted"),
    ('{"steps": 3, "accepted_tokens": 2, "time": "noon"}', "'noon' is not a time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": 1700000000000}', "1700000000000 is not a time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": Infinity}', "inf is not a time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": -5}', "-5 is not a time"),
    ('{"steps": 3, "accepted_tokens": 2, "category": ["chat"]}', "['chat'] is not a name"),
    ('{"steps": 1' + "0" * 400 + ', "accepted_tokens": 2}', "is not a count"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_bad_line_is_reported_with_its_number(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A category may be a number."""
    good = write_log(tmp_path / "good.jsonl", log(1))
    (tmp_path / "bad.jsonl").write_text('{"steps": 4, "accepted_tokens": 2, "category": 3}\n' + line + "\n")
    assert exit_code(["analyze", "drift", good, str(tmp_path / "bad.jsonl")]) == 2
    message = capsys.readouterr().err
    assert "bad.jsonl, line 2" in message
    assert words in message


def test_order_of_a_prompt_file_is_not_used_as_time() -> None:
    """The log repeats a file that starts with its code prompts three times; it is compared with itself."""
    whole = log(1, 60, spread=0.02).sort_values("category", ascending=False, kind="stable").drop(columns="time")
    file = whole.assign(prompt_id=[f"p{n}" for n in range(len(whole))], turn=1)
    rows = pd.concat([file.assign(repeat=repeat) for repeat in range(3)], ignore_index=True)
    run = request_log("run", rows.iloc[hash_order(table_of(rows))])
    assert drift_report(request_log("as in the file", rows), request_log("the same", rows), DriftOptions()).alarm
    assert not drift_report(run, run, DriftOptions()).alarm
    assert sorted(run.table["accepted_tokens"]) == sorted(rows["accepted_tokens"])


@pytest.mark.process
def test_two_stored_runs_are_compared_by_their_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = SyntheticRun(prompts=40, repeats=3, drafters=("ngram", "other"))
    roots = list[str]()
    for name, alpha in (("then", 0.6), ("now", 0.3)):
        uid = f"0190a000-0000-7000-8000-00000000000{len(roots)}"
        plan = store_results(replace(world, alpha={"ngram": alpha}), tmp_path / name, uid)
        conclude(plan, FolderStore(tmp_path / name / run_root(plan.namespace, plan.name, plan.uid)))
        roots.append(str(tmp_path / name))
    assert exit_code(["analyze", "drift", *roots]) == 2
    assert "--arm other --workload chat --load 1" in capsys.readouterr().err
    assert exit_code(["analyze", "drift", *roots, "--arm", "other", "--output", "json"]) == 0
    capsys.readouterr()
    assert exit_code(["analyze", "drift", *roots, "--arm", "ngram", "--output", "json"]) == 3
    report = DriftReport.from_json(capsys.readouterr().out)
    assert (report.cause, report.current.requests) == (DriftCause.DRAFTER, 120)


@pytest.mark.draws
def test_limits_are_not_wider_than_the_run_length_requires() -> None:
    """At a run length equal to the log's, 1 - 1/e of the logs have a false alarm, shared by the two charts."""
    reports = [
        drift_report(requests(2 * n, 600), requests(2 * n + 1, 300), DriftOptions(run_length=300)) for n in range(24)
    ]
    assert 0.25 <= np.mean([report.alarm for report in reports]) <= 0.85
    assert reports[0].false_alarm == pytest.approx(1 - np.exp(-1))
