"""Running servers compared, interleaved: the prompts of a repeat, their number, and the end of a decided run."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Container, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.layout import STATUS
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import REPEATS_TO_DECIDE, EngineGroup, Plan, Point
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.gate import GateMetric
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.estimates.point_rows import RoundsLeftOut, why_no_rounds_are_added
from specbench_client.analysis.explanation.traffic_mix import TrafficMix, predict_mix
from specbench_client.analysis.summary.run import evaluate_cells, summarise_run
from specbench_client.analysis.summary.stop_rule import ended_repeats, is_settled, may_be_decided
from specbench_client.analysis.summary.trends import with_divided_rounds
from specbench_client.cli.measure import OWN_PROMPTS
from specbench_client.cli.measure_probing import warn_of_repeated_prompts, warn_of_swapped_servers
from specbench_client.cli.run_execution import RunOptions, execute_run
from specbench_client.cli.run_selection import select_run
from specbench_client.documents.figure import Figure, FigureInterval, Verdict
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import Cell, ClientHealth, CounterDeltas, PointSummary, RunSummary
from specbench_client.drive.load_planning import ArrivalPlan
from specbench_client.drive.load_probes import LEAST, PER_STREAM, PER_STREAM_MOST, size_of_repeat
from specbench_client.drive.prompts import prompts_of_point
from specbench_client.errors import BadInput, NotDurable
from specbench_client.local import executor
from specbench_client.local.executor import LocalOptions, execute_locally
from specbench_client.local.local_runs import find_local_run
from specbench_client.report.text.findings import next_step
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.stored_runs import write_results
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.write_results import conclude, report_speedups_so_far
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.corrupted_records import combine, failing
from specbench_testing.local_results import store_point
from specbench_testing.resources import run_of
from specbench_testing.result_pairs import replaced, result_of
from specbench_testing.runs_with_rounds import Retried
from specbench_testing.synthetic_records import (
    CREATED,
    Corruptions,
    SyntheticRun,
    counters_of,
    point_of,
    record_table,
    watch_of,
)

ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]


def plan_of(load: dict[str, Any], edits: dict[str, Any] | None = None) -> Plan:
    spec = {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": [], "spec.load": load}
    return lay_out(run_of(spec | (edits or {})))


# Prompts of a repeat.

PROMPTS = Prompts(tuple(Prompt(f"p{n}", "ab"[n % 2], ()) for n in range(40)), "fingerprint")


def test_every_arm_of_a_repeat_sends_the_same_prompts_and_no_point_sends_those_of_another() -> None:
    plan = plan_of({"concurrency": [1, 3], "requestsPerStream": 2, "repeats": 5})
    sent = {
        (point.arm, point.level.label, point.repeat): [row.id for row in prompts_of_point(plan, point, PROMPTS).rows]
        for point in plan.points
    }
    counts = {"1": 2, "3": 6}
    sent_by_point = [sent["none", load, repeat][: counts[load]] for repeat in range(5) for load in counts]
    assert sent_by_point == [sent["eagle3", load, repeat][: counts[load]] for repeat in range(5) for load in counts]
    assert len({name for names in sent_by_point for name in names}) == 40
    categories = {row.id: row.category for row in PROMPTS.rows}
    assert all([categories[name] for name in names].count("a") == len(names) / 2 for names in sent_by_point)


def test_rows_of_a_trace_keep_their_order() -> None:
    trace = {"source": "mooncake", "uri": "t.jsonl"}
    plan = plan_of({"concurrency": [1], "requests": 5, "repeats": 2}, {"spec.workloads[0].dataset": trace})
    names = [row.id for row in PROMPTS.rows]
    for point in plan.points:
        start = 5 * point.repeat
        assert [row.id for row in prompts_of_point(plan, point, PROMPTS).rows] == names[start:] + names[:start]


def test_points_of_a_duration_begin_at_prompts_far_from_those_of_earlier_points() -> None:
    plan = plan_of({"concurrency": [1, 2], "durationSeconds": 9, "repeats": 4})
    orders = {
        (point.arm, point.level.label, point.repeat): [row.id for row in prompts_of_point(plan, point, PROMPTS).rows]
        for point in plan.points
    }
    begun = [orders["none", load, repeat] for repeat in range(4) for load in ("1", "2")]
    assert begun == [orders["eagle3", load, repeat] for repeat in range(4) for load in ("1", "2")]
    starts = [begun[0].index(order[0]) for order in begun]
    assert all(order == begun[0][start:] + begun[0][:start] for order, start in zip(begun, starts, strict=True))
    for count in (2, 4, 8):  # However many points there are, each has a similar share of the prompts before the next.
        first = sorted(starts[:count])
        gaps = [after - before for before, after in pairwise([*first, first[0] + 40])]
        assert min(gaps) >= 40 / count / 2


@pytest.mark.parametrize(
    "plan",
    [
        *(plan_of({"concurrency": [1], "repeats": 2, **load}) for load in ({"requests": 40}, {"requests": 80}, {})),
        lay_out(run_of({"spec.load": {"concurrency": [1], "requests": 5, "repeats": 2}})),
    ],
    ids=["all prompts", "twice all prompts", "no number", "launched engines"],
)
def test_these_turns_send_the_prompts_in_file_order(plan: Plan) -> None:
    assert all(prompts_of_point(plan, point, PROMPTS) is PROMPTS for point in plan.points)


# Requests of a repeat.


@pytest.mark.parametrize(
    ("load", "request_s", "wanted"),
    [
        ({"concurrency": [1]}, 1.0, LEAST),  # 6 s of requests are too few
        ({"concurrency": [1]}, 20.0, LEAST),  # a request longer than the repeat: still some prompts
        ({"concurrency": [1]}, 0.2, 32),  # 30, rounded up
        ({"concurrency": [8]}, 1.0, 6),
        ({"concurrency": [8]}, 5.0, PER_STREAM),
        ({"concurrency": [2, 64]}, 5.0, 4),  # for each stream, so a load takes as long as another
        ({"concurrency": [64]}, 0.001, PER_STREAM_MOST),
        ({"rate": [2.0, 9.0], "slots": 8}, 1.0, 6),  # seconds of arrivals
        ({"rate": [0.5, 9.0], "slots": 8}, 1.0, 16),  # until the lowest rate has LEAST
        ({"rate": [2.0], "slots": 8}, 10.0, 48),  # long requests: as many as keep the server busy
    ],
)
def test_a_repeat_is_long_for_a_request_and_short_for_the_machine(
    load: dict[str, Any], request_s: float, wanted: int
) -> None:
    assert size_of_repeat(ArrivalPlan(plan_of(load).load, None), request_s) == wanted


@pytest.mark.parametrize(
    ("rate", "trace", "wanted"),
    [
        ({}, [0.0, 40.0, 80.0], 384),  # 320 s of a trace's own rate, rounded up
        ({"rate": [2.0]}, [0.0, 40.0, 80.0], 6),  # replayed at this rate
        ({}, [5.0, 5.0], 8),  # all at one moment
    ],
)
def test_a_repeat_of_a_trace_has_enough_arrivals(rate: dict[str, Any], trace: list[float], wanted: int) -> None:
    load = {**rate, "slots": 8, "arrival": {"process": "Trace", "uri": "arrivals.csv"}}
    assert size_of_repeat(ArrivalPlan(plan_of(load).load, np.array(trace)), 1.0) == wanted


def test_too_few_prompts_are_noticed_before_the_first_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"id": "{n}", "prompt": "p {n}"}}\n' for n in range(64)))
    plan = plan_of({"concurrency": [1, 2], "requests": 8, "repeats": 4})
    warn_of_repeated_prompts(plan)
    assert capsys.readouterr().err == ""
    more = plan_of({"concurrency": [1, 2], "requestsPerStream": 6, "repeats": 4})
    warn_of_repeated_prompts(more)
    assert "has 64 prompts, but 72 are needed" in capsys.readouterr().err
    warn_of_repeated_prompts(more.model_copy(update={"stop": "WhenDecided"}))
    assert "72 are needed to send none twice in at most 4 repeats" in capsys.readouterr().err
    warn_of_repeated_prompts(more.model_copy(update={"prompt_cache": PromptCache.DISABLED}))
    warn_of_repeated_prompts(more.model_copy(update={"restarts": True}))
    assert capsys.readouterr().err == ""
    within = plan_of({"concurrency": [1, 2], "requestsPerStream": 22, "repeats": 4})
    warn_of_repeated_prompts(within.model_copy(update={"restarts": True, "stop": "WhenDecided"}))
    assert "66 are needed to send none twice in 1 repeat." in capsys.readouterr().err
    own = {"spec.workloads[0].dataset": {"source": "jsonl", "uri": OWN_PROMPTS}}
    warn_of_repeated_prompts(plan_of({"concurrency": [64], "requestsPerStream": 6, "repeats": 4}, own))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("drafting", "lines"), [({"none"}, 1), ({"eagle3"}, 0), ({"none", "eagle3"}, 0), (set(), 0)])
def test_a_baseline_that_drafts_alone_may_be_swapped(
    drafting: set[str], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_swapped_servers(drafting)
    assert len(capsys.readouterr().err.splitlines()) == lines


# The end.


def concluded(world: SyntheticRun, repeats: int, busy: Container[tuple[str, int]] = ()) -> RunSummary:
    """The summary of a run that stops when it is decided, after so many repeats.

    `busy`: arm and repeat of the points at which the client was busy with something else.
    """
    plan = world.plan.model_copy(update={"stop": "WhenDecided"})
    measured = [point for point in plan.points if point.repeat < repeats]
    summaries = [_busy(world, each) if (each.arm, each.repeat) in busy else world.honest(each) for each in measured]
    return summarise_run(
        plan, summaries, {point.hash: [record_table(world.records(point))] for point in measured}, CREATED
    )


def _busy(world: SyntheticRun, point: Point) -> PointSummary:
    watch = watch_of(point).model_copy(update={"cpu_share": 0.95})
    return world.summary_with(point, watch, counters_of(world.records(point)), simulated=False)


CLEAR = SyntheticRun(repeats=8, step_ms={"ngram": 12.0, "none": 20.0}, alpha={"ngram": 0.6})


@pytest.mark.runs
def test_a_clear_difference_ends_the_run_and_leaves_nothing_missing() -> None:
    summary = concluded(CLEAR, REPEATS_TO_DECIDE)
    assert summary.decided_after == REPEATS_TO_DECIDE
    assert (summary.missing, summary.points_total, summary.points_measured) == ([], 12, 12)
    (cell,) = (cell for cell in summary.cells if cell.arm == "ngram")
    assert cell.claims is not None
    assert cell.claims.overall is Verdict.FASTER
    assert cell.speedup is not None
    assert cell.speedup.interval is not None
    assert "confidence sequence" in cell.speedup.interval.method
    assert "MissingPoints" not in {finding.check for finding in summary.findings}


@pytest.mark.runs
@pytest.mark.parametrize("repeats", [2, 4, 5, 7])
def test_a_run_ends_after_an_even_number_of_repeats_from_six_on(repeats: int) -> None:
    """An odd number would leave a linear drift in the ratio (ABBA); few repeats have no useful interval."""
    summary = concluded(CLEAR, repeats)
    assert summary.decided_after is None
    assert len(summary.missing) == 2 * (8 - repeats)


@pytest.mark.runs
def test_an_undecided_run_goes_on() -> None:
    noisy = SyntheticRun(repeats=8, step_ms={"ngram": 20.0, "none": 20.0}, alpha={"ngram": 0.02}, run_noise=0.1)
    summary = concluded(noisy, 6)
    assert (summary.decided_after, len(summary.missing)) == (None, 4)


@pytest.mark.runs
def test_no_difference_that_matters_ends_the_run_too() -> None:
    """Exactly equal step times and no accepted draft: the interval is far inside of 5 %."""
    equal = SyntheticRun(
        repeats=8, step_ms={"ngram": 20.0, "none": 20.0}, alpha={"ngram": 0.0}, alpha_spread=0.0, run_noise=0.002
    )
    summary = concluded(equal, 8)
    assert summary.decided_after == 8


def test_the_last_repeat_must_be_complete_on_every_arm() -> None:
    plan = CLEAR.plan.model_copy(update={"stop": "WhenDecided"})
    first = {point.hash for point in plan.points if point.repeat < 6}
    begun = next(point.hash for point in plan.points if point.repeat == 6)
    assert may_be_decided(plan, ended_repeats(plan, first))
    assert not may_be_decided(plan, ended_repeats(plan, first | {begun}))
    assert not may_be_decided(plan, ended_repeats(plan, first - {next(iter(first))}))
    assert not may_be_decided(CLEAR.plan, ended_repeats(CLEAR.plan, first))


@pytest.mark.runs
@pytest.mark.parametrize("arm", ["ngram", "none"])
def test_an_invalid_repeat_costs_its_round_and_not_the_answer(arm: str) -> None:
    """Its round is left out on both sides, which leaves four repeats of six: the run goes on."""
    busy = {(arm, 3)}
    assert concluded(CLEAR, 6, busy).decided_after is None
    summary = concluded(CLEAR, 8, busy)
    assert (summary.decided_after, summary.points_invalid) == (8, 1)
    assert doubts(summary) == doubts(concluded(CLEAR, 8))
    cell = drafting(summary)
    assert (cell.valid, cell.compared_repeats) == (True, 6)
    assert cell.claims is not None
    assert cell.claims.overall is Verdict.FASTER
    (finding,) = (each for each in summary.findings if each.check == "ClientSaturated")
    assert finding.severity is Severity.INFO
    assert "repeats 3 and 4 are left out on both sides" in finding.message


@pytest.mark.runs
@pytest.mark.parametrize(("interrupted", "end"), [(None, 8), (True, None)])
def test_a_run_ends_with_the_last_repeats_that_had_new_prompts(interrupted: bool | None, end: int | None) -> None:
    """They are left out, and the run stays trustworthy. After an interruption, other prompts may be left."""
    noisy = SyntheticRun(repeats=12, step_ms={"ngram": 20.0, "none": 20.0}, alpha={"ngram": 0.02}, run_noise=0.1)
    plan = noisy.plan.model_copy(update={"stop": "WhenDecided"})
    measured = [point for point in plan.points if point.repeat < 8]
    found = Finding(check="PromptsSentAgain", severity=Severity.WARNING, message="m")
    summaries = [
        each.model_copy(
            update={
                "findings": [found] if (each.arm, each.repeat) == ("ngram", 7) else [],
                "client_health": each.client_health.model_copy(update={"interrupted_before": interrupted}),
            }
        )
        for each in map(noisy.honest, measured)
    ]
    records = {point.hash: [record_table(noisy.records(point))] for point in measured}
    summary = summarise_run(plan, summaries, records, CREATED)
    assert (summary.decided_after, drafting(summary).compared_repeats) == (end, 6)
    assert "PromptsSentAgain" not in doubts(summary)


@pytest.mark.runs
def test_invalid_repeats_in_more_than_a_third_of_the_rounds_are_not_left_out() -> None:
    """Two rounds of three: the run goes on as long as they may become a third. All rounds: it ends at once."""
    two, all_rounds = {("ngram", 0), ("none", 3)}, {("ngram", each) for each in range(8)}
    long = replace(CLEAR, repeats=12)
    assert not drafting(concluded(long, 6, two)).valid
    assert concluded(long, 6, two).decided_after is None
    assert not drafting(concluded(long, 8, two)).valid
    assert drafting(concluded(long, 12, two)).valid
    assert concluded(CLEAR, 6, two).decided_after == 6, "two of the plan's four rounds are more than a third"
    ended = concluded(long, 6, all_rounds)
    assert ended.decided_after == 6
    assert Severity.INVALID in {each.severity for each in ended.findings if each.check == "ClientSaturated"}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("repeats", "order", "compared"),
    [(8, "Interleaved", 6), (5, "Interleaved", 3), (3, "Interleaved", None), (8, "Sequential", None)],
)
def test_a_run_with_a_fixed_number_of_repeats_loses_a_round_too(repeats: int, order: str, compared: int | None) -> None:
    """A third of the rounds at most, and only where every arm is first once in a round."""
    world = replace(CLEAR, repeats=repeats, edits={"spec.load.order": order})
    points = world.plan.points
    summaries = [
        _busy(world, each) if (each.arm, each.repeat) == ("ngram", 2) else world.honest(each) for each in points
    ]
    records = {each.hash: [record_table(world.records(each))] for each in points}
    cell = drafting(summarise_run(world.plan, summaries, records, CREATED))
    assert (cell.compared_repeats if cell.valid else None) == compared


def doubts(summary: RunSummary) -> set[str]:
    return {finding.check for finding in summary.findings if finding.severity is not Severity.INFO}


def drafting(summary: RunSummary) -> Cell:
    (cell,) = (cell for cell in summary.cells if cell.arm != "none")
    return cell


SERVERS = SyntheticRun(
    repeats=12,
    drafters=(),
    step_ms={"eagle3": 12.0, "none": 20.0},
    edits={"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []},
)


def executed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, corruptions: Corruptions
) -> tuple[FolderStore, Plan, list[EngineGroup]]:
    """The store, plan and measured groups of a run that stops when it is decided. No server answers."""
    plan = SERVERS.plan.model_copy(update={"stop": "WhenDecided", "namespace": "local", "uid": "u"})
    store = FolderStore(folder / "run")

    async def measure(run: Run, group: EngineGroup, _: LocalOptions) -> None:
        (point,) = group.points
        store_point(PointStore(run.store), *point_of(SERVERS, point, corruptions))

    monkeypatch.setattr(executor, "_launch_with_retries", measure)
    groups: list[EngineGroup] = []
    options = LocalOptions(folder, folder, 1.0, on_group=groups.append)
    assert asyncio.run(execute_locally(Run(store, plan), options)) == {}
    return store, plan, groups


@pytest.mark.runs
def test_a_repeat_that_its_own_server_made_invalid_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server fails where it is slow: without such points it would look faster than it is."""
    store, plan, groups = executed(tmp_path, monkeypatch, Corruptions(records=failing_in_a_repeat))
    assert len(groups) == 2 * 6
    summary = conclude(plan, store)
    assert not drafting(summary).valid
    assert "RequestsFailed" in doubts(summary)


def undecided(tmp_path: Path, stop: str | None, repeats: int, begun: int) -> Run:
    """A comparison with so many complete repeats, and so many points of the next one."""
    world = replace(SERVERS, step_ms={"eagle3": 20.0, "none": 20.0}, alpha={"eagle3": 0.02}, run_noise=0.1)
    plan = world.plan.model_copy(update={"stop": stop, "namespace": "local", "uid": "u"})
    store = FolderStore(tmp_path / "run")
    measured = [point for point in plan.points if point.repeat < repeats]
    measured += [point for point in plan.points if point.repeat == repeats][:begun]
    for point in measured:
        store_point(PointStore(store), *point_of(world, point))
    return Run(store, plan)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("stop", "repeats", "begun", "lines_expected"),
    [
        ("WhenDecided", 6, 0, 1),
        ("WhenDecided", 4, 0, 1),
        ("WhenDecided", 3, 0, 1),
        (None, 3, 0, 1),
        (None, 3, 1, 0),
        (None, 2, 0, 0),
    ],
)
def test_an_undecided_comparison_reports_its_speedups_so_far(
    tmp_path: Path, stop: str | None, repeats: int, begun: int, lines_expected: int
) -> None:
    lines: list[str] = []
    assert not report_speedups_so_far(undecided(tmp_path, stop, repeats, begun), lines.append)
    assert len(lines) == lines_expected
    for line in lines:
        speedup = (
            r"eagle3 1?\d\.\d\dx( \[\d\.\d\d, \d\.\d\d\])? at concurrency \d+(, (excludes a gain|interval too) .*)?$"
        )
        assert re.search(rf"after {repeats} repeats{' of at least 6' if stop and repeats < 6 else ''}: {speedup}", line)


@pytest.mark.runs
def test_an_invalid_comparison_so_far_names_the_finding(tmp_path: Path) -> None:
    run, lines = undecided(tmp_path, None, 0, 0), list[str]()
    for point in run.plan.points:
        store_point(PointStore(run.store), *point_of(SERVERS, point, Corruptions(records=failing_in_a_repeat)))
    assert not report_speedups_so_far(run, lines.append)
    assert ["RequestsFailed, BaselineInvalid" in line for line in lines] == [True]


@pytest.mark.parametrize(
    ("high", "excluded"),
    [(0.9, ""), (1.0, ""), (1.29, "excludes a gain above 29%"), (2.0, "excludes a gain above 100%"), (2.1, "")],
)
def test_an_interval_excludes_gains_that_somebody_may_expect(high: float, excluded: str) -> None:
    interval = FigureInterval(low=0.5, high=high, method="t")
    figure = Figure(value=0.8, unit="ratio", definition="", n=3, interval=interval, source="client")
    assert figure.excluded == excluded


@pytest.mark.parametrize(("low", "settled"), [(1.0, False), (1.1, True)])
def test_a_run_goes_on_while_an_interval_is_too_wide(low: float, settled: bool) -> None:
    interval = FigureInterval(low=low, high=3.1, method="t")
    figure = Figure(value=1.5, unit="ratio", definition="", n=6, interval=interval, source="client")
    assert is_settled(Verdict.FASTER, figure) == settled


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.03, 160.0, "1.00x at"), (0.72, 1.43, "1.00x [0.72, 1.43] at"), (0.3, 1.01, "1.00x at"), (1.1, 3.4, "1.00x at")],
)
def test_a_speedup_so_far_has_no_interval_that_is_too_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, low: float, high: float, words: str
) -> None:
    run, lines = undecided(tmp_path, "WhenDecided", 4, 0), list[str]()
    cells = evaluate_cells(run.plan, list(run.point_summaries.values()), run.records)
    (judged,) = (each for each in cells if each.cell.arm == "eagle3")
    interval = FigureInterval(low=low, high=high, method="t")
    figure = Figure(value=1.0, unit="ratio", definition="", n=3, interval=interval, source="client")
    changed = replace(judged, cell=judged.cell.model_copy(update={"speedup": figure}))
    monkeypatch.setattr(write_results, "evaluate_cells", lambda *_, **__: [changed])
    assert not report_speedups_so_far(run, lines.append)
    assert f"after 4 repeats of at least 6: eagle3 {words} concurrency" in lines[0]
    assert lines[0].endswith("interval too wide") == ("[" not in words)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("stop", "repeats", "lines_expected"), [("WhenDecided", 6, 1), ("WhenDecided", 4, 0), (None, 4, 0)]
)
def test_many_records_are_evaluated_between_repeats_only_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str | None, repeats: int, lines_expected: int
) -> None:
    run, lines = undecided(tmp_path, stop, repeats, 0), list[str]()
    rows = sum(file.rows or 0 for manifest in run.manifests.values() for file in manifest.files)
    for most, expected in ((rows - 1, lines_expected), (rows, lines_expected + 1)):
        monkeypatch.setattr(write_results, "ROWS_OF_ESTIMATE_MAX", most)
        assert not report_speedups_so_far(run, lines.append)
        assert len(lines) == expected


@pytest.mark.runs
def test_damaged_records_end_a_run_between_repeats_only_if_it_is_to_be_decided(tmp_path: Path) -> None:
    lines = list[str]()
    for stop, repeats in ((None, 4), ("WhenDecided", 4), ("WhenDecided", 6)):
        folder = tmp_path / f"{stop}-{repeats}"
        run = undecided(folder, stop, repeats, 0)
        for file in folder.rglob("*.parquet"):
            file.write_bytes(b"garbage")
        with pytest.raises(NotDurable) if repeats == 6 else nullcontext():
            assert not report_speedups_so_far(run, lines.append)
    assert len(lines) == 2


@pytest.mark.runs
def test_a_run_that_was_killed_after_its_deciding_repeat_measures_no_further_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after the same repeats as without the interruption."""
    plan = SERVERS.plan.model_copy(update={"stop": "WhenDecided", "namespace": "local", "uid": "u"})
    store = FolderStore(tmp_path / "run")
    measured = [point for point in plan.points if point.repeat < REPEATS_TO_DECIDE]
    for point in measured:
        store_point(PointStore(store), *point_of(SERVERS, point))
    monkeypatch.setattr(executor, "_launch_with_retries", None)
    options = LocalOptions(tmp_path, tmp_path, 1.0)
    assert asyncio.run(execute_locally(Run(store, plan), options)) == {}
    assert conclude(plan, store).decided_after == REPEATS_TO_DECIDE
    for uid in ("a", "b"):
        shutil.copytree(tmp_path / "run", tmp_path / "results/runs/local/small" / uid)
    with pytest.raises(BadInput, match=rf"contains 2 runs(.|\n)*  {len(measured)} points  ") as caught:
        select_run(str(tmp_path / "results"), latest=False)
    assert f"of at most {len(plan.points)} points" not in str(caught.value)


def failing_in_a_repeat(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    """A quarter of the requests of the baseline's third repeat failed."""
    return failing(frame) if (point.arm, point.repeat) == ("none", 2) else frame


# Rounds that are measured again.

PAIRED = SyntheticRun(
    prompts=12,
    repeats=4,
    concurrency=(1, 2),
    drafters=(),
    step_ms={"eagle3": 12.0, "none": 20.0},
    edits={"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []},
)
LAUNCHED = SyntheticRun(prompts=12, repeats=4, concurrency=(1, 2), step_ms={"ngram": 12.0, "none": 20.0})


def busy_at(*turns: tuple[str, int]) -> Corruptions:
    """The client was busy with something else in these turns, an arm and a repeat each, at concurrency 1."""

    def watch(point: Point, honest: ClientHealth) -> ClientHealth:
        busy = (point.arm, point.repeat) in turns and point.level.concurrency == 1
        return honest.model_copy(update={"cpu_share": 0.95}) if busy else honest

    return Corruptions(watch=watch)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> SyntheticRun:
    """The world of a test's parameter: a world, or a number of repeats at one load."""
    given: SyntheticRun | int = request.param
    return replace(PAIRED, repeats=given, concurrency=(1,), prompts=6) if isinstance(given, int) else given


@pytest.fixture
def retried(world: SyntheticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retried:
    return Retried(world, Corruptions(), tmp_path, monkeypatch)


@pytest.mark.runs
@pytest.mark.parametrize("world", [PAIRED, LAUNCHED], ids=["servers", "engines"], indirect=True)
def test_an_invalid_round_is_measured_again_at_its_load_alone(retried: Retried) -> None:
    world, arm = retried.world, retried.world.plan.arms[1].name
    retried.corruptions = busy_at((arm, 1))
    run = retried.run(retries=2)
    again = retried.measured[len(world.plan.points) :]
    assert [(each.arm, each.repeat, each.level.label) for each in again] == [
        ("none", 4, "1"),
        (arm, 4, "1"),
        (arm, 5, "1"),
        ("none", 5, "1"),
    ]
    summary = conclude(run.plan, run.store)
    assert (summary.missing, summary.points_total, summary.points_invalid) == ([], 20, 1)
    assert doubts(summary) == doubts(result_of(world).summary)
    cells = {(each.arm, each.level.label): each for each in summary.cells}
    assert [(cells[arm, load].valid, cells[arm, load].compared_repeats) for load in "12"] == [(True, 4), (True, 4)]
    assert [len(cells["none", load].points) for load in "12"] == [4, 4], "its row is of the same repeats"
    (finding,) = (each for each in summary.findings if each.check == "ClientSaturated")
    assert (finding.severity, finding.arm, finding.load) == (Severity.INFO, arm, "1")
    assert "repeats 1 and 2 are left out on both sides" in finding.message
    assert finding.message.endswith("and were measured again")
    assert retried.run(retries=2).plan == run.plan
    assert retried.measured == [], "the same command finds the run with its added rounds"


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "turns", "retries", "added", "valid"),
    [
        (4, [("eagle3", 1)], 0, [], False),
        (4, [("eagle3", 1), ("none", 2)], 1, [4, 5], False),
        (4, [("eagle3", 1), ("none", 2)], 3, [4, 5, 6, 7], True),
        (4, [("eagle3", each) for each in range(32)], 2, [4, 5, 6, 7], False),
        (4, [("eagle3", 1), ("eagle3", 4)], 2, [4, 5, 6, 7], True),
        (3, [("eagle3", 2)], 1, [4, 5], True),
        (2, [("none", 0)], 1, [], False),
        (31, [("none", 0)], 1, [], True),
    ],
    indirect=["world"],
)
def test_as_many_rounds_are_added_as_are_lacking_and_allowed(
    retried: Retried, turns: list[tuple[str, int]], retries: int, added: list[int], *, valid: bool
) -> None:
    """Two rounds are in the place of two, also if one that was added is invalid; with half a round, a whole one.

    Two repeats give no interval, so none is added to them.
    """
    retried.corruptions = busy_at(*turns)
    run, repeats = retried.run(retries), retried.world.repeats
    assert sorted({each.repeat for each in run.plan.points} - set(range(repeats))) == added
    summary = conclude(run.plan, run.store)
    assert drafting(summary).valid == valid


@pytest.mark.runs
@pytest.mark.parametrize("world", [4], indirect=True)
@pytest.mark.parametrize(("cpu_share", "added"), [(0.95, 1), (0.2, 0)])
def test_what_follows_from_a_late_client_is_the_clients(retried: Retried, cpu_share: float, added: int) -> None:
    """Half of the concurrency alone may be the server's doing."""

    def watch(point: Point, honest: ClientHealth) -> ClientHealth:
        lower = {"cpu_share": cpu_share, "reached_concurrency": 0.5}
        return honest.model_copy(update=lower if (point.arm, point.repeat) == ("none", 1) else {})

    retried.corruptions = Corruptions(watch=watch)
    assert retried.run(retries=1).plan.added_rounds == added


@pytest.mark.runs
@pytest.mark.parametrize(
    ("checks", "left_out"),
    [
        (["ForeignTraffic"], {0}),
        (["ForeignTraffic", "AcceptanceCounterMismatch"], {0}),
        (["AcceptanceCounterMismatch"], set()),
        (["ForeignTraffic", "ConcurrencyNotReached"], set()),
    ],
)
def test_counters_that_foreign_traffic_moved_are_not_the_servers_fault(checks: list[str], left_out: set[int]) -> None:
    points = [PAIRED.honest(point) for point in PAIRED.plan.points if point.level.concurrency == 1]
    found = [Finding(check=name, severity=Severity.INVALID, message="m") for name in checks]
    points[1] = points[1].model_copy(update={"findings": found})
    assert RoundsLeftOut.of(PAIRED.plan, points).invalid == left_out


@pytest.mark.runs
@pytest.mark.parametrize("check", ["RateNotReached", "ConcurrencyNotReached", "ChunksCoalesced"])
@pytest.mark.parametrize("late", [Severity.WARNING, Severity.INVALID, None])
def test_a_client_that_was_late_for_single_requests_explains_no_lower_load(check: str, late: Severity | None) -> None:
    """It may have read late; without any lateness all of them are the server's."""
    points = [PAIRED.honest(point) for point in PAIRED.plan.points if point.level.concurrency == 1]
    found = [Finding(check=check, severity=Severity.INVALID, message="m")]
    found += [Finding(check="ClientSaturated", severity=late, message="m")] if late else []
    points[1] = points[1].model_copy(update={"findings": found})
    is_clients = late is Severity.INVALID or (late is not None and check == "ChunksCoalesced")
    assert RoundsLeftOut.of(PAIRED.plan, points).invalid == ({0} if is_clients else set())


def restarts_at(arm: str, repeat: int) -> Corruptions:
    """The arm's server has another process from this repeat on."""

    def counters(point: Point, honest: CounterDeltas) -> CounterDeltas:
        started_s = 2.0 if point.arm == arm and point.repeat >= repeat else 1.0
        return honest.model_copy(update={"process_started_s": started_s})

    return Corruptions(counters=counters)


@pytest.mark.runs
@pytest.mark.parametrize("world", [4], indirect=True)
@pytest.mark.parametrize(
    ("arm", "repeat", "left_out"),
    [("eagle3", 1, 1), ("none", 1, 1), ("eagle3", 2, None), ("none", 3, 2), ("none", 2, None), ("eagle3", 0, None)],
)
def test_a_round_that_spans_a_restart_is_measured_again(
    retried: Retried, arm: str, repeat: int, left_out: int | None
) -> None:
    """Not if a server restarted before its points of a round. Without a retry, the comparison is doubtful."""
    retried.corruptions = restarts_at(arm, repeat)
    run = retried.run(retries=0)
    doubtful = conclude(run.plan, run.store)
    assert drafting(doubtful).valid
    assert ("RepeatsApart" in doubts(doubtful)) == (left_out is not None)
    run = retried.run(retries=1)
    assert [each.repeat for each in retried.measured] == ([] if left_out is None else [4, 4, 5, 5])
    summary = conclude(run.plan, run.store)
    apart = [each for each in summary.findings if each.check == "RepeatsApart"]
    assert "RepeatsApart" not in doubts(summary)
    assert [(each.arm, f"repeats {2 * (left_out or 0) - 1} and" in each.message) for each in apart] == (
        [] if left_out is None else [(arm, True)]
    )
    assert drafting(summary).compared_repeats == 4


Turn = tuple[str, int, int]
"""An arm, a concurrency and a repeat."""


def turn_of(point: Point | PointSummary) -> Turn:
    return point.arm, int(point.level.label), point.repeat


def divided(plan: Plan, in_time: list[Point], counters: dict[Turn, CounterDeltas]) -> list[Turn]:
    """The points with a finding about what divides their round, if measured in this order with these counters."""
    start = datetime(2030, 1, 1, tzinfo=UTC)
    times = [start + timedelta(minutes=index) for index in range(len(in_time))]
    spans = {point.hash: (at, at) for at, point in zip(times, in_time, strict=True)}
    points = [
        PointSummary.model_construct(**dict(point), counters=counters[turn_of(point)], findings=[], engine_launch=None)
        for point in plan.points
    ]
    found = with_divided_rounds(plan, points, spans)
    assert [each.hash for each in found] == [each.hash for each in points]
    return [turn_of(point) for point in found for _ in point.findings]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"eagle3": ("eagle3", 2, 0)}, [("eagle3", 1, 1)]),
        ({"none": ("none", 2, 0)}, [("none", 1, 1)]),
        ({"none": ("none", 2, 3)}, [("none", 2, 3)]),
        ({"eagle3": ("eagle3", 1, 1)}, [("eagle3", 1, 1), ("eagle3", 2, 1)]),
        ({"none": ("none", 1, 2), "eagle3": ("eagle3", 1, 2)}, []),
        ({"eagle3": ("eagle3", 1, 2)}, []),
    ],
    ids=["arm between loads", "baseline between loads", "later", "within", "both between rounds", "arm between rounds"],
)
@pytest.mark.parametrize("shows_start", [True, False])
def test_a_restart_divides_only_the_loads_that_were_measured_on_both_sides_of_it(
    first: dict[str, Turn], expected: list[Turn], *, shows_start: bool
) -> None:
    """Also where only counters show it, which have grown again until the load's next repeat. `first`: after it."""
    plan = plan_of({"concurrency": [1, 2], "repeats": 4})
    assert divided(plan, plan.points, processes(plan.points, first, shows_start=shows_start)) == expected


def test_restarts_by_specbench_divide_no_round() -> None:
    plan = plan_of({"concurrency": [1, 2], "repeats": 4})
    counters = processes(plan.points, {"eagle3": ("eagle3", 1, 1)}, shows_start=True)
    assert divided(plan, plan.points, counters) != []
    assert divided(plan.model_copy(update={"restarts": True}), plan.points, counters) == []


def test_a_restart_divides_no_round_of_a_single_server() -> None:
    alone = {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS[1:]}}
    plan = plan_of({"concurrency": [1, 2], "repeats": 4}, alone)
    counters = processes(plan.points, {"eagle3": ("eagle3", 1, 1)}, shows_start=True)
    assert divided(plan, plan.points, counters) == []


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ({("eagle3", 1, 2), ("eagle3", 1, 3)}, [("eagle3", 1, 2), ("eagle3", 1, 3)]),
        ({("none", 1, 1)}, [("eagle3", 1, 1)]),
        ({("eagle3", 1, 3), ("none", 1, 3)}, []),
    ],
    ids=["arm", "baseline", "both"],
)
def test_repeats_that_were_continued_out_of_turn_divide_their_round(late: set[Turn], expected: list[Turn]) -> None:
    plan = plan_of({"concurrency": [1, 2], "repeats": 4})
    in_time = sorted(plan.points, key=lambda point: turn_of(point) in late)
    assert divided(plan, in_time, processes(in_time, {}, shows_start=True)) == expected


def processes(in_time: list[Point], first: dict[str, Turn], *, shows_start: bool) -> dict[Turn, CounterDeltas]:
    """The counters of points in the order of measurement, whose arms restart before their points in `first`."""
    totals, starts, found = {"none": 0, "eagle3": 0}, {"none": 1.0, "eagle3": 1.0}, {}
    for point in in_time:
        turn = turn_of(point)
        if first.get(point.arm) == turn:
            totals[point.arm], starts[point.arm] = 0, starts[point.arm] + 1
        gained = 100 * turn[1] ** 4
        totals[point.arm] += gained
        started = starts[point.arm] if shows_start else None
        total = totals[point.arm]
        found[turn] = CounterDeltas(output_tokens=gained, output_tokens_total=total, process_started_s=started)
    return found


@pytest.mark.parametrize("shows_start", [True, False])
@pytest.mark.parametrize(
    ("late", "first", "expected"),
    [
        ({2}, {}, []),
        ({2}, {"none": ("none", 2, 0), "eagle3": ("eagle3", 2, 0)}, []),
        ({4}, {"eagle3": ("eagle3", 4, 1)}, [("eagle3", 4, 1)]),
        ({1, 4}, {"none": ("none", 2, 1)}, [("none", 2, 1)]),
    ],
)
def test_restarts_are_sought_in_the_order_of_measurement(
    late: set[int], first: dict[str, Turn], expected: list[Turn], *, shows_start: bool
) -> None:
    """Loads that were added to a stored run, in the plan between its other ones, were measured after all of them."""
    plan = plan_of({"concurrency": [1, 2, 4], "repeats": 4})
    in_time = sorted(plan.points, key=lambda point: point.level.concurrency in late)
    assert divided(plan, in_time, processes(in_time, first, shows_start=shows_start)) == expected


@pytest.mark.runs
@pytest.mark.parametrize("world", [4], indirect=True)
@pytest.mark.parametrize(
    ("turns", "left_out", "again"),
    [
        ([("eagle3", 1), ("none", 4)], {5: Severity.INFO, 2: Severity.INVALID}, False),
        ([("eagle3", 1), ("eagle3", 4)], {5: Severity.INVALID, 2: Severity.INVALID}, False),
        ([("none", 1), ("none", 4)], {5: Severity.INVALID, 2: Severity.INVALID}, False),
        ([("none", 1), ("eagle3", 2)], {2: Severity.INFO, 3: Severity.INVALID}, False),
        ([("none", 1)], {2: Severity.INFO}, True),
    ],
)
def test_an_added_round_that_is_invalid_is_left_out_on_both_sides_or_on_none(
    retried: Retried, turns: list[tuple[str, int]], left_out: dict[int, Severity], *, again: bool
) -> None:
    """Nothing was measured in its place; in the last case the added round is valid."""
    retried.corruptions = busy_at(*turns)
    run = retried.run(retries=1)
    summary = conclude(run.plan, run.store)
    found = [each for each in summary.findings if each.check == "ClientSaturated"]
    repeats = {each.hash: each.repeat + 1 for each in run.plan.points}
    assert {repeats[str(each.point)]: each.severity for each in found} == left_out
    assert {"measured again" in each.message for each in found} == {again}
    kept = {repeats[point] for cell in summary.cells for point in cell.points}
    assert (5 in kept, 6 in kept) == ((True, True) if left_out.get(5) is not Severity.INFO else (False, False))


@pytest.mark.runs
def test_what_a_baseline_that_ended_early_keeps_is_left_out_on_neither_side() -> None:
    """One of its two rounds is too many to leave out; it is one of the arm's four."""
    world = replace(PAIRED, repeats=8, concurrency=(1,), prompts=6)
    points = [each for each in world.plan.points if each.arm != "none" or each.repeat < 4]
    summaries = [_busy(world, each) if each.repeat == 1 else world.honest(each) for each in points]
    records = {each.hash: [record_table(world.records(each))] for each in points}
    summary = summarise_run(world.plan, summaries, records, CREATED)
    found = [each for each in summary.findings if each.check == "ClientSaturated"]
    assert [(each.arm, each.severity) for each in found] == [(arm, Severity.INVALID) for arm in ("eagle3", "none")]


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ({"repeats": 2}, "fewer than 3 repeats"),
        ({"repeats": 31}, "more than 32 repeats"),
        ({"repeats": 30}, ""),
        ({"repeats": 4, "order": "Sequential"}, "load.order: Interleaved"),
        ({"repeats": 3}, ""),
    ],
)
def test_a_run_without_a_round_to_replace_has_a_reason(load: dict[str, Any], why: str) -> None:
    plan = plan_of({"concurrency": [1], **load})
    found = why_no_rounds_are_added(plan)
    assert why in found
    assert bool(why) == bool(found)
    assert why_no_rounds_are_added(plan.model_copy(update={"stop": "WhenDecided"}))


@pytest.mark.runs
@pytest.mark.parametrize("world", [2, 4], indirect=True)
def test_a_finished_run_without_a_round_to_replace_says_why(
    retried: Retried, capsys: pytest.CaptureFixture[str]
) -> None:
    run = retried.run(retries=0)
    conclude(run.plan, run.store)
    options = RunOptions(retried.folder, str(retried.folder), "table", retries=2, retry_invalid=True)
    outcome = execute_run(retried.plan, options)
    assert outcome.run.plan == run.plan
    printed = capsys.readouterr().err
    assert (why_no_rounds_are_added(run.plan) or "spoiled a repeat") in printed
    assert "--new instead of --retry-invalid" in printed


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "turns", "rounds"),
    [(4, [0], [1, 1]), (4, [0, 4], [1, 2, 2]), (4, [], [0]), (2, [0], [0])],
    indirect=["world"],
)
def test_the_status_document_requests_the_round_that_a_run_lacks(
    retried: Retried, turns: list[int], rounds: list[int]
) -> None:
    """Also those that it has, so that a lost plan is found again. With each allowed retry, one more is measured."""
    retried.corruptions = busy_at(*(("eagle3", turn) for turn in turns))
    cells = sorted({point.cell for point in retried.plan.points}, key=str)
    for retries, expected in enumerate(rounds):
        run = retried.run(retries=retries)
        conclude(run.plan, run.store)
        document = StatusDocument.from_untrusted_json(run.store.get(STATUS) or b"")
        assert [sorted(each, key=str) for each in document.rounds] == [cells] * expected
        assert run.plan.added_rounds == min(retries, expected)


@pytest.mark.parametrize(("field", "flag", "retries"), [(1, None, 1), (3, None, 3), (3, 2, 2), (3, 0, 0), (0, 2, 2)])
def test_a_flag_overrides_the_retries_of_a_spec(field: int, flag: int | None, retries: int) -> None:
    spec = run_of({"spec.retries": field, "spec.startupDeadlineSeconds": 60, "spec.slo": {"e2eMs": 5}}).spec
    options = RunOptions(Path(), "results", "table", retries=flag).for_spec(spec)
    assert (options.retries, options.startup_deadline_s, options.slo) == (retries, 60, spec.slo)


@pytest.mark.runs
@pytest.mark.parametrize("world", [4], indirect=True)
def test_what_a_server_made_invalid_is_not_measured_again(retried: Retried) -> None:
    retried.corruptions = combine(busy_at(("eagle3", 0)), Corruptions(records=failing_in_a_repeat))
    assert retried.run(retries=2).plan.planned_repeats is None


@pytest.mark.runs
@pytest.mark.parametrize("world", [4], indirect=True)
def test_an_interrupted_round_is_continued_and_counts_as_a_retry(retried: Retried) -> None:
    retried.corruptions, retried.interrupted_after = busy_at(("eagle3", 1), ("eagle3", 4)), 9
    with pytest.raises(KeyboardInterrupt):
        retried.run(retries=1)
    begun = find_local_run(FolderStore(retried.folder), retried.plan)
    assert not any("measured again" in each.message for each in conclude(begun.plan, begun.store).findings)
    retried.interrupted_after = None
    run = retried.run(retries=1)
    assert [(each.arm, each.repeat) for each in retried.measured] == [("eagle3", 4), ("eagle3", 5), ("none", 5)]
    assert run.plan.added_rounds == 1
    assert not {each.arm: each.valid for each in conclude(run.plan, run.store).cells if each.level.label == "1"}[
        "eagle3"
    ]


def interrupted_at(*turns: tuple[str, int]) -> Corruptions:
    """Two thirds of the prompts of these turns, an arm and a repeat each, were sent before an interruption.

    They are as short as two lines, so that the block of the cache that is never reused is a sixth of them.
    """

    def watch(point: Point, honest: ClientHealth) -> ClientHealth:
        return honest.model_copy(update={"interrupted_before": (point.arm, point.repeat) in turns})

    def edit(point: Point, rows: pd.DataFrame) -> pd.DataFrame:
        sent = ((point.arm, point.repeat) in turns) & (np.arange(len(rows)) % 3 != 0)
        return rows.assign(cached_tokens=np.where(sent, rows["input_tokens"] - 16, 0))

    return Corruptions(watch=watch, records=edit)


SIX_REQUESTS = replace(PAIRED, repeats=6, concurrency=(1,), prompts=6, edits={**PAIRED.edits, "spec.load.requests": 6})


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "prompts", "added"), [(6, 900, 0), (SIX_REQUESTS, 47, 0), (SIX_REQUESTS, 48, 1)], indirect=["world"]
)
@pytest.mark.parametrize("arm", ["none", "eagle3"])
def test_the_round_of_an_interrupted_point_is_left_out_and_measured_again_with_new_prompts(
    retried: Retried, prompts: int, added: int, arm: str
) -> None:
    """Neither server is blamed. Where another round would send prompts again, none is added.

    Without a number of requests, each repeat sends all prompts.
    """
    honest = doubts(result_of(retried.world).summary)
    retried.corruptions, retried.prompts = interrupted_at((arm, 3)), prompts
    run = retried.run(retries=2)
    summary = conclude(run.plan, run.store)
    assert (run.plan.added_rounds, doubts(summary)) == (added, honest)
    assert (drafting(summary).valid, drafting(summary).compared_repeats) == (True, 4 + 2 * added)
    assert retried.run(retries=2).plan == run.plan, "one interruption costs no second retry"
    (finding,) = (each for each in summary.findings if each.check == "PromptsSentAgain")
    assert (finding.severity, finding.arm) == (Severity.INFO, arm)
    assert finding.value == pytest.approx(0.56, abs=0.03)
    assert "4 of 6 prompts" in finding.message
    assert "repeats 3 and 4 are left out on both sides" in finding.message
    assert ("needs 48 different prompts" in finding.message) == (prompts == 47)
    assert "ReuseLost" not in {each.check for each in summary.findings}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "prompts", "way"),
    [
        (4, 900, "restart the servers, or give other prompts"),
        (replace(SIX_REQUESTS, repeats=4), 35, "restart the servers, or give 36 other prompts"),
        (replace(SIX_REQUESTS, repeats=4), 36, "--retry-invalid"),
        (replace(SIX_REQUESTS, repeats=3), 35, "restart the servers, or give 36 other prompts"),
    ],
    indirect=["world"],
)
@pytest.mark.parametrize("arm", ["none", "eagle3"])
def test_an_interrupted_point_of_few_repeats_is_a_doubt_about_no_server(
    retried: Retried, prompts: int, way: str, arm: str
) -> None:
    """What is to be done next works: another round, if the run has the prompts for it."""
    honest = doubts(result_of(retried.world).summary)
    retried.corruptions, retried.prompts = interrupted_at((arm, 2)), prompts
    run = retried.run(retries=0)
    summary = conclude(run.plan, run.store)
    assert drafting(summary).compared_repeats == retried.world.repeats
    assert doubts(summary) == honest | {"PromptsSentAgain"}
    assert not [each for each in summary.findings if each.severity is Severity.FAULT]
    step = next_step(run.plan, summary, "results")
    assert way in step
    assert ("--retry-invalid" in step) == (retried.run(retries=1).plan.added_rounds == 1)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "corruptions", "expected"),
    [
        (6, interrupted_at(("eagle3", 1)), [["3"], ["4"], ["5", "3"]]),
        (3, busy_at(("eagle3", 0)), [["4", "2"]]),
        (3, busy_at(("eagle3", 2)), [["4", "3"]]),
    ],
    indirect=["world"],
)
def test_speedups_so_far_state_of_how_many_repeats_they_are(
    retried: Retried, corruptions: Corruptions, expected: list[list[str]]
) -> None:
    """The round of a spoiled point is left out as soon as it is one of three. There is no repeat 4 after three."""
    retried.corruptions = corruptions
    retried.run(retries=1)
    counts = [re.findall(r"\d+(?= repeats|(?: of them))", line) for line in retried.lines]
    assert counts == expected


# The interval of a run that stops because of it.


def stopped_run() -> Run:
    plan = CLEAR.plan.model_copy(update={"stop": "WhenDecided"})
    return replaced(result_of(CLEAR), plan=plan, summary=concluded(CLEAR, CLEAR.repeats))


@pytest.fixture(scope="module")
def stopped_speedups() -> dict[str, Figure]:
    return dict(speedups_of_a_stopped_run())


def speedups_of_a_stopped_run() -> Iterator[tuple[str, Figure]]:
    """Yield every figure that is a speed-up of the stored run, with the analysis that computes it."""
    run = stopped_run()
    (cell,) = (cell for cell in run.summary.cells if cell.arm == "ngram")
    assert cell.speedup is not None
    assert cell.tpot_speedup is not None
    assert cell.end_to_end is not None
    assert cell.prediction is not None
    yield "cell", cell.speedup
    yield "category", cell.by_category["code"]["speedup"]
    yield "per output token", cell.tpot_speedup
    yield "whole requests", cell.end_to_end.speedup
    yield "median", cell.end_to_end.median_speedup
    yield "cost saved", cell.end_to_end.cost_saved
    yield "factors", cell.prediction.measured
    yield "decoding", cell.prediction.predicted
    for axis in ("draft-tokens", "output-tokens"):
        (curve,) = build_curves(axis, run).curves
        yield f"curve over {axis}", curve.points[0].speedup
    (mix,) = predict_mix(run, [cell], TrafficMix({"code": 1.0, "chat": 2.0}))
    yield "mix", mix.speedup
    yield (
        "compare",
        next(each.ratio for each in comparison(run, run, CREATED).cells if each.metric == GateMetric.SPEEDUP),
    )


@pytest.mark.runs
def test_every_speedup_of_a_stopped_run_has_an_interval_that_is_valid_at_any_time(
    stopped_speedups: dict[str, Figure],
) -> None:
    methods = {name: each.interval.method for name, each in stopped_speedups.items() if each.interval}
    assert list(methods) == list(stopped_speedups)
    assert [name for name, method in methods.items() if "confidence sequence" not in method] == []


@pytest.mark.runs
@pytest.mark.parametrize("analysis", ["factors", "curve over draft-tokens"])
def test_the_same_speedup_of_a_stopped_run_is_the_same_in_every_analysis(
    analysis: str, stopped_speedups: dict[str, Figure]
) -> None:
    again, cell = stopped_speedups[analysis], stopped_speedups["cell"]
    assert again.value == pytest.approx(cell.value)
    assert again.interval is not None
    assert cell.interval is not None
    assert (again.interval.low, again.interval.high) == pytest.approx((cell.interval.low, cell.interval.high))
