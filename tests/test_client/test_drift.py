"""Drift: alarms as seldom as is stated, soon where something changed, and the change told as what it is."""

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
from specbench_api.outcome.drift import DriftCause, DriftReport
from specbench_api.outcome.layout import run_root
from specbench_client.analysis.drift.charts import Tuning, run_charts, tuning_for
from specbench_client.analysis.drift.decompose import decompose, parts_of
from specbench_client.analysis.drift.judge import Wanted, judge_drift
from specbench_client.analysis.drift.ratios import LENGTH, RATE, pooled, windows
from specbench_client.analysis.drift.requests import Requests, requests_of
from specbench_client.cli import exit_code
from specbench_client.drive.conclude import conclude
from specbench_client.drive.drifting import in_no_order
from specbench_client.report.drift import drift_lines
from specbench_client.store.folder import FolderStore
from specbench_testing.kept import keep
from specbench_testing.records import World

DRAFTS = 3
ALPHA = {"code": 0.8, "chat": 0.5}


def log(
    seed: int, count: int = 400, shares: tuple[float, float] = (0.5, 0.5), worse: float = 1.0, spread: float = 0.1
) -> pd.DataFrame:
    """Requests whose drafts are accepted one after the other; `worse`: factor of that chance within categories."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(ALPHA), size=count, p=shares)
    alphas = np.clip(np.array([ALPHA[name] for name in names]) * worse + rng.normal(0, spread, count), 0.02, 0.98)
    steps = rng.integers(20, 60, count)
    chances = alphas[:, None] ** np.arange(1, DRAFTS + 1)  # P(≥ i accepted)
    accepted = [(rng.random(n)[:, None] < chance).sum() for n, chance in zip(steps, chances, strict=True)]
    times = 1.7e9 + np.cumsum(rng.exponential(10, count))
    told = {
        "accepted_tokens": accepted,
        "drafted_tokens": steps * DRAFTS,
        "steps": steps,
        "category": names,
        "time": times,
    }
    return pd.DataFrame(told)


def requests(seed: int, count: int = 400, **more: object) -> Requests:
    return requests_of(f"log {seed}", log(seed, count, **more))  # type: ignore[arg-type]


REFERENCE = requests(1, 1000)


def alarms(times: int, count: int = 300, **more: object) -> float:
    told = [judge_drift(requests(2 * n, 600), requests(2 * n + 1, count, **more), Wanted(seed=n)) for n in range(times)]
    return float(np.mean([report.alarm for report in told]))


@pytest.mark.draws
def test_false_alarms_are_as_seldom_as_is_stated() -> None:
    """One comparison in twenty by default; the bound is halved between two charts, so it is at most that."""
    assert alarms(50) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 50)


@pytest.mark.draws
def test_limits_are_not_wider_than_the_run_length_asks() -> None:
    """With a run length of the log's own length, 1 - 1/e of the logs have a false alarm; the two charts share it."""
    told = [judge_drift(requests(2 * n, 600), requests(2 * n + 1, 300), Wanted(run_length=300)) for n in range(24)]
    assert 0.25 <= np.mean([report.alarm for report in told]) <= 0.85
    assert told[0].false_alarm == pytest.approx(1 - np.exp(-1))


@pytest.mark.draws
def test_a_drafter_that_is_a_tenth_worse_is_found() -> None:
    assert alarms(10, worse=0.85) == 1.0


def test_a_worse_drafter_is_named_and_when_it_began() -> None:
    changed = pd.concat([log(2, 300), log(3, 300, worse=0.7)], ignore_index=True).assign(time=np.arange(600) + 1.7e9)
    report = judge_drift(REFERENCE, requests_of("changed", changed), Wanted())
    assert (report.alarm, report.cause) == (True, DriftCause.DRAFTER)
    assert all(chart.alarm_at is not None and 300 < chart.alarm_at < 400 for chart in report.charts)
    assert {chart.direction for chart in report.charts} == {"lower"}
    assert report.charts[0].alarm_time is not None
    assert report.charts[0].alarm_time.startswith("2023-11-14T22:")
    assert "cause: drafter" in report.verdict


def test_other_traffic_is_named_as_mix() -> None:
    report = judge_drift(REFERENCE, requests(2, 600, shares=(0.1, 0.9)), Wanted())
    assert (report.alarm, report.cause) == (True, DriftCause.MIX)
    change = report.changes[0]
    assert change.drafter.interval is not None
    assert change.drafter.interval.low <= 0 <= change.drafter.interval.high
    assert [each.category for each in change.categories] == ["chat", "code"]


def test_better_acceptance_is_a_change_too() -> None:
    report = judge_drift(REFERENCE, requests(2, 600, worse=1.2), Wanted())
    assert {chart.direction for chart in report.charts} == {"higher"}


def test_nothing_changed_is_said_with_what_was_looked_at() -> None:
    report = judge_drift(REFERENCE, requests(2), Wanted())
    assert (report.alarm, report.cause) == (False, DriftCause.NONE)
    assert report.verdict.startswith("no drift found; acceptance length ")
    assert report.run_length == 20 * 400
    assert report.false_alarm == pytest.approx(1 - np.exp(-1 / 20))


Sums = st.lists(st.tuples(*[st.integers(0, 50)] * 2), min_size=1, max_size=5)


@given(Sums, Sums)
def test_parts_add_up_exactly(then: list[tuple[int, int]], now: list[tuple[int, int]]) -> None:
    size = max(len(then), len(now))
    sides = [np.array([*side, *[(0, 0)] * (size - len(side))], dtype=float).T for side in (then, now)]
    if any(side[1].sum() == 0 for side in sides):
        return
    sides = [np.stack([np.where(side[1] > 0, side[0], 0), side[1]]) for side in sides]
    parts = parts_of((sides[0][0], sides[0][1]), (sides[1][0], sides[1][1]), 1.0)
    values = [1 + side[0].sum() / side[1].sum() for side in sides]
    assert parts.mix.sum() + parts.drafter.sum() == pytest.approx(values[1] - values[0], abs=1e-9)


def test_kitagawas_parts_are_those_of_the_hand() -> None:
    """Shares 0.5/0.5 → 0.8/0.2, values 3/2 → 2.8/2.2: mix 0.3 × (2.9 − 2.1), drafter −0.2 × 0.65 + 0.2 × 0.35."""
    parts = parts_of(
        (np.array([100.0, 50.0]), np.array([50.0, 50.0])), (np.array([144.0, 24.0]), np.array([80.0, 20.0])), 1.0
    )
    assert parts.mix.sum() == pytest.approx(0.3 * 2.9 - 0.3 * 2.1)
    assert parts.drafter.tolist() == pytest.approx([-0.2 * 0.65, 0.2 * 0.35])


def test_a_category_that_comes_is_mix_alone() -> None:
    then = pd.concat([log(1, 300, (0.0, 1.0))])
    change = decompose(requests_of("a", then).table, requests(2, 300).table, LENGTH, 0)
    assert change is not None
    (code,) = [each for each in change.categories if each.category == "code"]
    assert (code.reference, code.drafter) == (None, 0.0)
    assert code.mix > 0


@pytest.mark.draws
def test_intervals_of_ratios_of_clusters_hold_the_truth() -> None:
    """Each prompt comes ten times, so that single requests would give intervals three times too narrow."""
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
        figure = pooled(table, RATE)
        assert figure is not None
        assert figure.interval is not None
        inside.append(figure.interval.low <= 0.6 <= figure.interval.high)
    assert 0.91 <= np.mean(inside) <= 0.985


def test_charts_follow_their_formulas() -> None:
    """By hand, λ = 0.05 and κ = 0.1: z = 1 for ever."""
    ewma, cusum = run_charts(np.ones(3), Tuning(1))
    assert cusum.tolist() == pytest.approx([0.9, 1.8, 2.7])
    assert ewma[0] == pytest.approx(1.0)
    assert ewma[1] == pytest.approx((0.95 * 0.05 + 0.05) / np.sqrt(0.05 / 1.95 * (1 - 0.95**4)))
    down = run_charts(-np.ones(3), Tuning(1))
    assert np.concatenate(down) == pytest.approx(-np.concatenate([ewma, cusum]))


def test_a_long_log_is_charted_in_subgroups() -> None:
    tuning = tuning_for(100_000)
    assert tuning.group == 25
    assert tuning.subgroups(np.arange(100.0)).tolist() == [12.0, 37.0, 62.0, 87.0]


def test_windows_are_pieces_of_requests_or_of_time() -> None:
    current = requests(2, 450)
    assert [(each.first, each.requests) for each in windows(current, 200, None)] == [(1, 200), (201, 200), (401, 50)]
    timed = windows(current, 200, 600.0)
    assert sum(each.requests for each in timed) == 450
    assert len(timed) > 5
    assert timed[0].begun is not None


def test_a_change_that_no_chart_sees_and_an_interval_does_is_told_as_both() -> None:
    few = judge_drift(requests(1, 1000), requests(2, 30, worse=0.88), Wanted())
    assert not few.alarm
    assert few.changes[0].change.interval is not None
    assert few.changes[0].change.interval.high < 0
    said = [limit for limit in few.limits if limit.startswith("No chart passed its limit")]
    assert [("the whole change" in limit, "a longer current log decides" in limit) for limit in said] == [(True, True)]
    same = judge_drift(requests(1), requests(1), Wanted())
    assert not any(limit.startswith("No chart passed its limit") for limit in same.limits)


def test_requests_without_a_step_are_counted_and_left_out() -> None:
    table = log(1, 10)
    table.loc[0, "steps"] = 0
    table["accepted_tokens"] = table["accepted_tokens"].astype(object)
    table.loc[1, "accepted_tokens"] = None
    told = requests_of("x", table)
    assert (len(told.table), told.left_out) == (8, 2)


@pytest.mark.parametrize(
    ("reference", "current", "words"),
    [
        (log(1, 20), log(2), "20 requests tell their acceptance; 50 are needed"),
        (log(1), log(2).assign(steps=0), "no request tells its acceptance"),
        (log(1).rename(columns={"steps": "num_steps"}), log(2), r"left out: 400\) \(steps and accepted_tokens"),
        (log(1).assign(accepted_tokens=30, steps=30), log(2), "there is no spread \\(a log of a server that drafts"),
    ],
)
def test_logs_that_tell_too_little_are_refused(reference: pd.DataFrame, current: pd.DataFrame, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        judge_drift(requests_of("a", reference), requests_of("b", current), Wanted())


def written(path: Path, table: pd.DataFrame) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in json.loads(table.to_json(orient="records"))))
    return str(path)


@pytest.mark.parametrize(("worse", "code"), [(1.0, 0), (0.7, 3)])
def test_the_exit_code_of_two_logs_is_the_verdict(
    worse: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    then, now = written(tmp_path / "then.jsonl", log(1)), written(tmp_path / "now.jsonl", log(2, worse=worse))
    assert exit_code(["drift", then, now, "--output", "json"]) == code
    report = DriftReport.from_json(capsys.readouterr().out)
    assert report.alarm == (code == 3)
    assert report.reference.source == then
    assert exit_code(["drift", then, now, "--window-seconds", "600"]) == code
    assert "requests between false alarms on average" in capsys.readouterr().out
    assert exit_code(["drift", then, now, "--output", "markdown"]) == code
    assert capsys.readouterr().out.startswith("### specbench drift: ")


@pytest.mark.parametrize("unnamed", [1.0, 0.5])
def test_a_log_that_names_no_categories_is_not_called_another_mix(unnamed: float) -> None:
    worse = log(2, 600, worse=0.7)
    nameless = np.arange(len(worse)) < unnamed * len(worse)
    told = requests_of("nameless", worse.assign(category=worse["category"].mask(nameless, None)))
    report = judge_drift(REFERENCE, told, Wanted())
    assert report.alarm
    assert report.cause is DriftCause.UNKNOWN
    (length, *_) = report.changes
    assert (length.mix.value, length.drafter.value, length.categories) == (None, None, [])
    assert length.change.value is not None
    assert any("cannot be told apart" in limit for limit in report.limits)
    assert "mix not told" in report.verdict
    assert drift_lines(report)


def test_a_log_that_was_joined_with_itself_says_so() -> None:
    once = log(3, 200).assign(prompt_id=[f"p{n}" for n in range(200)])
    report = judge_drift(REFERENCE, requests_of("joined", pd.concat([once, once])), Wanted())
    assert any(limit.startswith("200 of the 400 requests of joined are there twice") for limit in report.limits)
    assert not any("twice" in limit for limit in judge_drift(REFERENCE, requests_of("once", once), Wanted()).limits)


def test_names_that_are_numbers_are_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "good.jsonl", log(1))
    lines = ['{"steps": 4, "accepted_tokens": 2, "category": 3}', '{"steps": 4, "accepted_tokens": 2, "category": "x"}']
    (tmp_path / "mixed.jsonl").write_text("\n".join(lines * 30))
    assert exit_code(["drift", good, str(tmp_path / "mixed.jsonl")]) in (0, 3)
    assert capsys.readouterr().err == ""


BAD_LINES = [
    ("{", "is no JSON"), ("[1]", "is no object"), ('{"steps": -1, "accepted_tokens": 2}', "steps: -1 is no count"),
    ('{"steps": 3, "accepted_tokens": 9, "drafted_tokens": 6}', "9 accepted of 6 drafted"),
    ('{"steps": 3, "accepted_tokens": 2, "time": "noon"}', "'noon' is no time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": 1700000000000}', "1700000000000 is no time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": Infinity}', "inf is no time"),
    ('{"steps": 3, "accepted_tokens": 2, "time": -5}', "-5 is no time"),
    ('{"steps": 3, "accepted_tokens": 2, "category": ["chat"]}', "['chat'] is no name"),
    ('{"steps": 1' + "0" * 400 + ', "accepted_tokens": 2}', "is no count"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_bad_line_is_named(line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "good.jsonl", log(1))
    (tmp_path / "bad.jsonl").write_text('{"steps": 4, "accepted_tokens": 2}\n' + line + "\n")
    assert exit_code(["drift", good, str(tmp_path / "bad.jsonl")]) == 2
    told = capsys.readouterr().err
    assert "bad.jsonl, line 2" in told
    assert words in told


def test_the_order_of_a_file_of_prompts_is_not_taken_for_time() -> None:
    """Three repeats of a file that begins with its code, beside the very same run."""
    whole = log(1, 60, spread=0.02).sort_values("category", ascending=False, kind="stable").drop(columns="time")
    file = whole.assign(prompt_id=[f"p{n}" for n in range(len(whole))], turn=1)
    rows = pd.concat([file.assign(repeat=repeat) for repeat in range(3)], ignore_index=True)
    run = requests_of("run", in_no_order(rows))
    assert judge_drift(requests_of("as in the file", rows), requests_of("the same", rows), Wanted()).alarm
    assert not judge_drift(run, run, Wanted()).alarm
    assert sorted(run.table["accepted_tokens"]) == sorted(rows["accepted_tokens"])


@pytest.mark.process
def test_two_stored_runs_are_compared_by_their_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(prompts=40, repeats=3, drafters=("ngram", "other"))
    roots = list[str]()
    for name, alpha in (("then", 0.6), ("now", 0.3)):
        uid = f"0190a000-0000-7000-8000-00000000000{len(roots)}"
        plan = keep(replace(world, alpha={"ngram": alpha}), tmp_path / name, uid)
        conclude(plan, FolderStore(tmp_path / name / run_root(plan.namespace, plan.name, plan.uid)))
        roots.append(str(tmp_path / name))
    assert exit_code(["drift", *roots]) == 2
    assert "--arm other --workload chat --load 1" in capsys.readouterr().err
    assert exit_code(["drift", *roots, "--arm", "other", "--output", "json"]) == 0
    capsys.readouterr()
    assert exit_code(["drift", *roots, "--arm", "ngram", "--output", "json"]) == 3
    report = DriftReport.from_json(capsys.readouterr().out)
    assert (report.cause, report.current.requests) == (DriftCause.DRAFTER, 120)
