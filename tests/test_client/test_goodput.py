"""SLO goodput calculated by hand: requests that met their targets, unknown ones, and failed ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from csv import DictReader
from heapq import heapify, heappop, heappush
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.spec.slo import Slo
from specbench_client.analysis.estimates.cell_figures import goodput_of
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.cli import exit_code
from specbench_client.documents.summary import RunSummary
from specbench_client.metrics.goodput import judged_rows, meets_slo
from specbench_client.metrics.metric_types import SENT_LATE, TimingFault
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.report.results_csv import csv
from specbench_client.report.text.results_table import terminal_columns
from specbench_client.report.text.run_report import markdown
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.synthetic_records import (
    CREATED,
    NS_PER_MS,
    SyntheticRun,
    frame_of,
    point_of,
    record,
    record_table,
    tidy_frames,
)

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=12, concurrency=(2,), repeats=3)
"""TTFT is about 30 ms; TPOT is 10 ms for the baseline and less for the drafter."""
PLAIN = Slo(ttft_ms=50, tpot_ms=10, e2e_ms=150)
"""Targets that the default record meets exactly: 50, 10 and 150 ms."""


def verdict(slo: Slo, **edits: Any) -> float:
    (found,) = meets_slo(tidy_frames([frame_of([record(**edits)])]), slo).tolist()
    return float(found)


def test_request_exactly_at_its_targets_meets_them() -> None:
    assert verdict(PLAIN) == 1
    assert [verdict(PLAIN.model_copy(update={name: target - 0.1})) for name, target in PLAIN.targets.items()] == [0] * 3


def test_target_latency_is_measured_from_the_intended_time() -> None:
    assert verdict(Slo(ttft_ms=50), intended_ns=-NS_PER_MS) == 0


def test_unknown_target_is_left_out_unless_another_is_missed() -> None:
    whole: dict[str, Any] = {"first_token_ns": None, "chunk_ns": None, "chunk_tokens": None}
    assert verdict(Slo(e2e_ms=150), **whole) == 1
    assert math.isnan(verdict(PLAIN, **whole))
    assert verdict(Slo(ttft_ms=50, e2e_ms=149), **whole) == 0


def test_failed_requests_are_not_all_that_is_known_of_answers_with_an_uncounted_start() -> None:
    uncounted, failed = record(token_conflict="UncountedStart", chunk_tokens=None), record(error_class="reset")
    rows, known = (tidy_frames([frame_of([one, failed])]) for one in (uncounted, record()))
    for slo in (Slo(ttft_ms=50), Slo(tpot_ms=10), PLAIN):
        assert meets_slo(known, slo).tolist() == [1, 0]
        assert np.isnan(meets_slo(rows, slo)).all()
    assert meets_slo(rows, Slo(e2e_ms=150)).tolist() == [1, 0]


def test_answer_of_one_token_is_judged_without_the_tpot_target() -> None:
    """It has no time per token, so it neither meets such a target nor misses it."""
    one = {"output_tokens": 1, "output_tokens_client": 1, "steps": 0, "last_token_ns": 50 * NS_PER_MS}
    assert math.isnan(verdict(Slo(tpot_ms=1), **one))
    assert [verdict(Slo(ttft_ms=limit, tpot_ms=1), **one) for limit in (50, 49)] == [1, 0]
    assert math.isnan(verdict(Slo(ttft_ms=50, tpot_ms=1), output_tokens=None, output_tokens_client=None))
    assert verdict(Slo(tpot_ms=1), **one, error_class="reset") == 0
    rows = tidy_frames([frame_of([record(), record(**one), record(last_token_ns=250 * NS_PER_MS)])])
    found = goodput_of(rows, Slo(ttft_ms=50, tpot_ms=10), 1)
    assert found.slo_attainment.value == pytest.approx(2 / 3)
    assert found.by_target["tpot_ms"].value == 0.5


def test_failed_requests_miss_and_unsent_ones_do_not_count() -> None:
    rows = tidy_frames([frame_of([record(), record(error_class="reset"), record(error_class="skipped_after_error")])])
    found = goodput_of(rows, PLAIN, 1)
    assert found.slo_attainment.value == 0.5
    assert {name: figure.value for name, figure in found.by_target.items()} == dict.fromkeys(PLAIN.targets, 0.5)
    assert len(judged_rows(rows)) == 2


def test_coalesced_ttft_leaves_all_requests_unknown_and_not_only_those_that_met_the_targets() -> None:
    rows = tidy_frames([frame_of([record(), record(error_class="reset"), record(last_token_ns=250 * NS_PER_MS)])])
    late = rows.assign(timing_fault=np.full(3, TimingFault.COALESCED))
    assert goodput_of(rows, PLAIN, 1).slo_attainment.value == pytest.approx(1 / 3)
    found = goodput_of(late, PLAIN, 1)
    assert (found.slo_attainment.value, found.rate.value, found.by_target["ttft_ms"].value) == (None, None, None)
    assert found.by_target["e2e_ms"].value == pytest.approx(1 / 3)
    assert goodput_of(late, Slo(e2e_ms=150), 1).slo_attainment.value == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("slo", "late_ms", "times", "lost"),
    [
        (Slo(ttft_ms=60), 30, 1, {"ttft_ms"}),
        (Slo(ttft_ms=60), 30, 6, {"ttft_ms"}),
        (Slo(ttft_ms=60, e2e_ms=500), 30, 6, {"ttft_ms"}),
        (PLAIN, 30, 6, {"ttft_ms", "e2e_ms"}),
        (Slo(ttft_ms=50), 4.9, 6, set()),
        (Slo(ttft_ms=81), 30, 6, set()),
        (Slo(ttft_ms=40), 30, 6, set()),
        (Slo(tpot_ms=10), 30, 6, set()),
        (Slo(ttft_ms=60), 30, 0, set()),
    ],
)
def test_goodput_is_left_out_if_requests_missed_a_target_only_because_they_were_sent_late(
    slo: Slo, late_ms: float, times: int, lost: set[str]
) -> None:
    late = record(intended_ns=round(-late_ms * NS_PER_MS), connect_ns=0)
    rows = tidy_frames([frame_of([late] * times + [record(intended_ns=0, connect_ns=0)] * (100 - times))])
    found = goodput_of(rows, slo, 1)
    assert {name for name, figure in found.by_target.items() if figure.value is None} == lost
    assert {figure.missing for name, figure in found.by_target.items() if name in lost} <= {SENT_LATE}
    together = [found.slo_attainment, found.rate]
    assert [figure.missing == SENT_LATE for figure in together] == [bool(lost)] * 2


def requests_of_point(requests: Iterable[tuple[str, float, float]], point: str = "point") -> Table:
    """Requests of one point: phase, start and end in ms; the first token is 10 ms after the start."""
    rows = []
    for phase, begin, end in requests:
        first, last = round((begin + 10) * NS_PER_MS), round(end * NS_PER_MS)
        sent = round(begin * NS_PER_MS)
        times = {"intended_ns": sent, "sent_ns": sent, "first_token_ns": first}
        rows.append(record(phase=phase, last_token_ns=last, chunk_ns=[first, last], chunk_tokens=[1, 10], **times))
    return tidy_frames([frame_of(rows)], point)


def test_rate_is_requests_in_flight_over_the_time_of_a_request_without_failed_ones() -> None:
    rows = requests_of_point(
        [("ramp", 0, 90), ("steady", 40, 140), ("steady", 50, 240), ("drain", 120, 260)],
    )
    failed = tidy_frames([frame_of([record(phase="steady", sent_ns=60 * NS_PER_MS, error_class="reset")])], "point")
    in_flight, total_s = (0.05 + 0.1 + 0.19 + 0.12) / 0.2, 0.1 + 0.19 + 0.14
    for each in (rows, join_tables([rows, failed])):
        assert goodput_of(each, Slo(e2e_ms=100), 1).rate.value == pytest.approx(in_flight * 1 / total_s)
        assert goodput_of(each, Slo(e2e_ms=150), 1).rate.value == pytest.approx(in_flight * 2 / total_s)
        assert goodput_of(each, Slo(e2e_ms=1), 1).rate.value == 0


STREAMS, MEAN_MS = 8, 1_000.0


def closed_loop(each: int, draw: Callable[[], float]) -> Iterator[tuple[str, float, float]]:
    """`each` measured requests per stream between fillers, all of which begin at 0; an engine that nothing slows."""
    free = [(draw(), "ramp") for _ in range(STREAMS)]
    yield from (("ramp", 0, end) for end, _ in free)
    heapify(free)
    unsent = in_flight = STREAMS * each
    while in_flight:
        now, phase = heappop(free)
        in_flight -= phase == "steady"
        kind, unsent = ("steady" if unsent else "drain"), max(unsent - 1, 0)
        if in_flight:
            end = now + draw()
            yield kind, now, end
            heappush(free, (end, kind))


def open_loop(each: int, draw: Callable[[], float]) -> Iterator[tuple[str, float, float]]:
    """STREAMS requests per second, so as many in flight, with fillers before and until the last measured answer."""
    now, ends = -5 * MEAN_MS, list[float]()
    while len(ends) < STREAMS * each or now < max(ends):
        phase = "ramp" if now < 0 else "steady" if len(ends) < STREAMS * each else "drain"
        end = now + draw()
        yield phase, now, end
        if phase == "steady":
            ends.append(end)
        now += MEAN_MS / STREAMS


@pytest.mark.parametrize("each", [1, 2, 4, 16])
def test_rate_of_equal_requests_is_exact_however_short_the_window(each: int) -> None:
    rows = requests_of_point(closed_loop(each, lambda: MEAN_MS))
    assert goodput_of(rows, Slo(e2e_ms=MEAN_MS), 1).rate.value == pytest.approx(STREAMS)


@pytest.mark.parametrize("each", [1, 2, 4, 16])
@pytest.mark.parametrize("is_open", [False, True], ids=["closed loop", "open loop"])
def test_rate_is_that_of_the_engine_however_short_the_window(is_open: bool, each: int) -> None:
    draws = np.random.default_rng(each)

    def draw() -> float:
        return float(draws.gamma(4.0, MEAN_MS / 4))

    points = [
        requests_of_point(open_loop(each, draw) if is_open else closed_loop(each, draw), f"point-{number}")
        for number in range(300 // (each + 2))
    ]
    rate = goodput_of(join_tables(points), Slo(e2e_ms=100 * MEAN_MS), 1).rate.value
    assert rate == pytest.approx(STREAMS, rel=0.05 if is_open else 0.03)


def test_rate_is_missing_without_a_steady_state_or_times() -> None:
    assert goodput_of(requests_of_point([("ramp", 0, 90)]), PLAIN, 1).rate.value is None
    without_times = tidy_frames([frame_of([record(first_token_ns=None)])], "point")
    found = goodput_of(without_times, Slo(ttft_ms=1), 1)
    assert (found.rate.value, found.slo_attainment.value, found.rate.n) == (None, None, 0)


def summary_of(slo: Slo | None) -> RunSummary:
    measured = {point.hash: point_of(WORLD, point) for point in WORLD.plan.points}
    records = {key: [record_table(frame)] for key, (_, frame) in measured.items()}
    return summarise_run(WORLD.plan, [summary for summary, _ in measured.values()], records, CREATED, slo=slo)


def test_slo_without_targets_is_rejected() -> None:
    with pytest.raises(ValidationError, match="set at least one of slo"):
        Slo()
    assert Slo(ttft_ms=500, tpot_ms=35).words == "TTFT ≤ 500 ms, TPOT ≤ 35 ms"


def report_json(where: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert exit_code(["report", str(where), "--output", "json", *flags]) == Exit.OK
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_run_with_an_slo_has_goodput_for_every_cell_and_in_its_tables() -> None:
    summary = summary_of(Slo(tpot_ms=9.0))
    baseline, ngram = (present(cell.goodput) for cell in summary.cells)
    assert summary.slo == Slo(tpot_ms=9.0)
    assert (baseline.slo_attainment.value, baseline.rate.value) == (0, 0), "the baseline's TPOT is 10 ms"
    assert present(ngram.slo_attainment.value) > 0.8
    assert ngram.rate.interval is not None
    assert ngram.slo_attainment.interval is not None
    assert RunSummary.from_json(summary.to_json()) == summary
    assert {cell.goodput for cell in summary_of(None).cells} == {None}
    text = markdown(WORLD.plan, summary)
    assert "In time: TPOT ≤ 9 ms." in text
    assert f" | {ngram.rate.value:.2f} [" in text
    rows = list(DictReader(StringIO(csv(summary))))
    assert [float(row["slo_attainment"]) for row in rows] == [0, pytest.approx(ngram.slo_attainment.value)]
    assert [column.title for column in terminal_columns(summary)][-2:] == ["In time\nreq/s", "Findings"]


@pytest.mark.process
def test_finished_run_can_be_evaluated_with_other_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "out"
    store_results(WORLD, results, UID)
    assert "slo" not in report_json(results, capsys)
    kept = results / run_root("local", WORLD.plan.name, UID) / SUMMARY
    before = kept.read_bytes()
    evaluated = report_json(results, capsys, "--slo-tpot-ms", "9")
    assert evaluated["cells"][1]["goodput"]["sloAttainment"]["value"] > 0.8
    assert kept.read_bytes() == before
    report_json(results, capsys, "--slo-tpot-ms", "9", "--recompute")
    again = report_json(results, capsys, "--slo-ttft-ms", "500")["slo"]
    assert again == {"tpotMs": 9, "ttftMs": 500, "percentile": 95}, "targets without a flag are kept"
    assert report_json(results, capsys, "--no-slo", "--slo-ttft-ms", "500")["slo"] == {"ttftMs": 500, "percentile": 95}
    assert "slo" not in report_json(results, capsys, "--no-slo")
    assert "slo" in report_json(results, capsys), "not stored without --recompute"
    assert "slo" not in report_json(results, capsys, "--recompute", "--no-slo")
    assert "slo" not in report_json(results, capsys)


def test_target_out_of_bounds_is_rejected_with_its_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["report", str(tmp_path), "--slo-tpot-ms", "0"]) == Exit.BAD_INPUT
    assert "--slo-tpot-ms" in capsys.readouterr().err
