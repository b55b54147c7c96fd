"""status.json: rows of results, their number and size, the best speed-up, and the texts of conditions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specbench_api.outcome.status_document import (
    ARM_AT_FAULT,
    ARMS_BYTES,
    StatusDocument,
    clip,
    stored_bytes,
)
from specbench_api.plan.canonical import plan_digest
from specbench_api.plan.expansion import expand
from specbench_api.spec.latency_percentiles import PERCENTILES, PERCENTS
from specbench_api.spec.load import Level
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.slo import Slo
from specbench_api.spec.status import TEXT_MAX, ArmResult, Percentiles
from specbench_client.documents.figure import Figure
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.recommendation import Objective, Recommendation
from specbench_client.documents.summary import Cell, EndToEnd, Goodput, RunSummary, best_speedup_text
from specbench_client.stored_runs.status_builder import status_document
from specbench_operator.cluster.results import STATUS_MAX_BYTES
from specbench_testing.operator_builders import figure, operator_run, summary_of
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

PLAN = expand(parse_run(operator_run()))
SUMMARY = summary_of(PLAN, 2)


def rows_of(summary: RunSummary) -> list[ArmResult]:
    return status_document(summary, PLAN).arms


def with_cells(*cells: Cell) -> RunSummary:
    return SUMMARY.model_copy(update={"cells": list(cells)})


def cell(speedup: Figure | None, **changes: object) -> Cell:
    return SUMMARY.cells[1].model_copy(update={"speedup": speedup, **changes})


def test_a_missing_figure_stays_missing() -> None:
    row = rows_of(with_cells(cell(None)))[0]
    assert (row.speedup, row.speedup_text, row.e2e_ms, row.acceptance_rate) == (None, "", None, None)
    assert rows_of(with_cells(cell(figure(None))))[0].speedup is None
    assert rows_of(with_cells(cell(figure(1.5))))[0].speedup is None, "a speed-up without an interval is not shown"


@pytest.mark.parametrize(
    ("speedup", "valid", "text"),
    [
        (figure(1.834, 1.76, 1.9), True, "1.83 [1.76, 1.90]"),
        (figure(1.1, 0.9, 1.3), True, "1.10 [0.90, 1.30] indistinguishable"),
        (figure(0.5, 0.4, 0.6), True, "0.50 [0.40, 0.60]"),
        (figure(1.834, 1.76, 1.9), False, "1.83 [1.76, 1.90] invalid"),
    ],
)
def test_a_speedup_is_shown_with_its_interval(speedup: Figure, valid: bool, text: str) -> None:
    assert rows_of(with_cells(cell(speedup, valid=valid)))[0].speedup_text == text


@pytest.mark.parametrize(
    ("repeats", "valid", "text"),
    [
        (1, True, "1.83 (1 repeat: too few to tell)"),
        (2, True, "1.83 (2 repeats: too few to tell)"),
        (2, False, "1.83 (2 repeats: too few to tell) invalid"),
        (3, True, "1.83 [1.76, 1.90]"),
    ],
)
def test_a_speedup_from_too_few_repeats_has_no_interval(repeats: int, valid: bool, text: str) -> None:
    with_repeats = cell(
        figure(1.834, 1.76, 1.9).without_interval(too_few_repeats(repeats)),
        tpot_speedup=figure(2.0, 1.9, 2.1).without_interval(too_few_repeats(repeats)),
        valid=valid,
    )
    row = rows_of(with_cells(with_repeats))[0]
    assert row.speedup_text == text
    assert (row.speedup is None) == (row.tpot_speedup is None) == (repeats < 3)
    assert bool(best_speedup_text(with_cells(with_repeats))) == (repeats >= 3)


def test_best_is_none_faster_and_names_the_largest_loss() -> None:
    unclear, slower = cell(figure(1.1, 0.9, 1.3)), cell(figure(0.7, 0.6, 0.8))
    slowest = cell(figure(0.5, 0.4, 0.6), level=Level(concurrency=8))
    assert best_speedup_text(with_cells(unclear, slower, slowest)) == "none faster; ngram 0.50x at concurrency 8"
    assert best_speedup_text(with_cells(unclear)) == "none faster"


@pytest.mark.parametrize(
    "unknown",
    [
        {"cells": [cell(figure(1.6, 1.5, 1.7), valid=False)]},
        {"cells": [cell(figure(1.6, 1.5, 1.7).without_interval("2 repeats"))]},
        {"missing": ["0" * 64]},
    ],
    ids=["invalid", "too few repeats", "not measured"],
)
def test_best_is_not_none_faster_while_a_cell_is_unknown(unknown: dict[str, Any]) -> None:
    slower = cell(figure(0.7, 0.6, 0.8), level=Level(concurrency=8))
    known = with_cells(slower)
    assert best_speedup_text(known) == "none faster; ngram 0.70x at concurrency 8"
    cells = [*known.cells, *unknown.get("cells", [])]
    assert best_speedup_text(known.model_copy(update={**unknown, "cells": cells})) == "ngram 0.70x at concurrency 8"


def test_best_is_the_largest_valid_speedup_above_1() -> None:
    good = cell(figure(1.4, 1.2, 1.6), level=Level(concurrency=8))
    broken = cell(figure(9.0, 8.0, 10.0), valid=False)
    unclear = cell(figure(3.0, 0.5, 9.0))
    slower = cell(figure(0.7, 0.6, 0.8))
    assert best_speedup_text(with_cells(broken, unclear, slower, good, cell(None))) == "ngram 1.40x at concurrency 8"
    assert best_speedup_text(with_cells(broken, cell(None))) == ""
    fault = Finding(check="ReuseLost", severity=Severity.FAULT, message="m", arm="ngram")
    assert best_speedup_text(with_cells(good).model_copy(update={"findings": [fault]})) == ""
    other = cell(figure(1.2, 1.1, 1.3), workload="code")
    rated = cell(figure(1.4, 1.2, 1.6), level=Level(rate=2.5))
    assert best_speedup_text(with_cells(rated)) == "ngram 1.40x at 2.5/s"
    assert best_speedup_text(with_cells(good, other)) == "ngram 1.40x at concurrency 8 chat"


@pytest.mark.parametrize(
    ("level", "load"),
    [(Level(concurrency=8), "8"), (Level(rate=2.5), "2.5/s"), (Level(), "trace")],
)
def test_a_row_contains_its_load_as_a_number_and_as_text(level: Level, load: str) -> None:
    row = rows_of(with_cells(cell(None, level=level)))[0]
    assert (row.load, row.concurrency, row.rate) == (load, level.concurrency, level.rate)


def test_the_rows_that_fit_are_the_first_loads_of_every_arm() -> None:
    cells = [
        cell(figure(1.834, 1.76, 1.9), arm=f"{arm}-{'<' * 28}", level=Level(concurrency=level + 1))
        for arm in range(3)
        for level in range(300)
    ]
    document = status_document(with_cells(*cells), PLAN)
    assert document.arms_omitted == len(cells) - len(document.arms) > 0
    size, last = stored_bytes([row.to_dict() for row in document.arms]), stored_bytes(document.arms[-1].to_dict())
    assert ARMS_BYTES - last < size <= ARMS_BYTES
    levels = [[row.concurrency for row in document.arms if row.arm.startswith(f"{arm}-")] for arm in range(3)]
    for kept in levels:
        assert kept == list(range(1, len(kept) + 1))
        assert abs(len(kept) - len(levels[0])) <= 1
    assert not status_document(with_cells(*cells[:20]), PLAN).arms_omitted


@pytest.mark.parametrize("letter", ["x", "<", "ü"])
def test_the_largest_document_is_one_that_the_operator_reads(letter: str) -> None:
    """1,024 cells are allowed, with any number of findings each, whose names are all as long as they may be."""
    findings = [f"{number}{letter * 300}" for number in range(40)]
    cells = [cell(figure(1.834, 1.76, 1.9), workload=letter * 32, findings=findings[row:]) for row in range(40)]
    many = [cell(None, workload=letter * 32) for _ in range(984)]
    doubt = Finding(check="NeverDrafted", severity=Severity.INVALID, message=letter * 9000)
    summary = with_cells(*cells, *many).model_copy(
        update={"headline": letter * 9000, "findings": [doubt], "trustworthy": False}
    )
    written = status_document(summary, PLAN).to_json().encode()
    assert len(written) < STATUS_MAX_BYTES
    assert StatusDocument.from_untrusted_json(written) == StatusDocument.from_json(written)


def test_end_to_end_speedup_and_goodput_have_columns() -> None:
    end_to_end = EndToEnd(
        speedup=figure(1.41, 1.3, 1.5), median_speedup=figure(9.0), requests_per_hour=figure(9.0),
        baseline_requests_per_hour=figure(9.0), cost_saved=figure(9.0),
    )  # fmt: skip
    goodput = Goodput(slo=Slo(ttft_ms=200), rate=figure(7.25), slo_attainment=figure(0.925), by_target={})
    row = rows_of(with_cells(cell(None, end_to_end=end_to_end, goodput=goodput)))[0].to_dict()
    assert row["e2eSpeedup"] == {"value": 1.41, "low": 1.3, "high": 1.5}
    assert (row["goodput"], row["sloAttainment"]) == (7.25, 0.925)
    bare = rows_of(with_cells(cell(None)))[0]
    assert (bare.e2e_speedup, bare.goodput, bare.slo_attainment) == (None, None, None)


def test_status_has_a_field_for_every_percentile() -> None:
    assert tuple(Percentiles.model_fields) == PERCENTILES == tuple(f"p{percent}" for percent in PERCENTS)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "column_of_the_other_loop"),
    [
        (SyntheticRun(slo=Slo(ttft_ms=10_000), prompts=40), "rate"),
        (SyntheticRun(slo=Slo(ttft_ms=10_000), prompts=40, rate=(2,)), "concurrency"),
    ],
)
def test_only_the_column_of_the_other_loop_type_is_empty_for_a_drafting_arm(
    world: SyntheticRun, column_of_the_other_loop: str
) -> None:
    document = status_document(run_of_world(world), world.plan)
    row = next(row for row in document.arms if row.arm != "none")
    assert [name for name, value in row if value is None or value == ""] == [column_of_the_other_loop]
    for latency in (row.ttft_ms, row.tpot_ms, row.e2e_ms):
        assert latency is not None
        assert None not in latency.model_dump().values()


def test_the_recommendation_is_truncated_to_the_byte_limit() -> None:
    recommendation = Recommendation(
        objective=Objective.THROUGHPUT, worth=1.0, simulated=True, trustworthy=True,
        sentence="use ngram ü" + "x" * 2000, choices=[], candidates=[], limits=[],
    )  # fmt: skip
    sentence = status_document(SUMMARY.model_copy(update={"recommendation": recommendation}), PLAN).recommendation
    assert sentence.startswith("use ngram ü")
    assert len(sentence.encode()) <= TEXT_MAX
    assert not status_document(SUMMARY, PLAN).recommendation, "the summary has no recommendation"


def finding(check: str, severity: Severity) -> Finding:
    return Finding(check=check, severity=severity, message=f"found by {check}", arm="ngram")


@pytest.mark.parametrize(
    ("findings", "trust", "reason", "message"),
    [
        ([], "Trustworthy", "Trustworthy", "A claim."),
        ([("Noted", Severity.INFO)], "Trustworthy", "Trustworthy", "A claim."),
        ([("ReuseLost", Severity.FAULT)], "Trustworthy", ARM_AT_FAULT, "A claim."),
        (
            [("Warned", Severity.WARNING), ("Broken", Severity.INVALID), ("Second", Severity.INVALID)],
            *("Untrustworthy", "Broken", "A claim; found by Broken"),
        ),
    ],
)
def test_trust_has_the_worst_finding_as_its_reason(
    findings: list[tuple[str, Severity]], trust: str, reason: str, message: str
) -> None:
    reported = [finding(*each) for each in findings]
    trustworthy = not any(each.severity.is_doubt for each in reported)
    summary = SUMMARY.model_copy(update={"findings": reported, "trustworthy": trustworthy, "headline": "A claim."})
    document = status_document(summary, PLAN)
    assert (document.trust, document.trust_reason, document.trust_message) == (trust, reason, message)
    assert (document.uid, document.plan_sha256) == (PLAN.uid, plan_digest(PLAN))
    assert (document.points_measured, document.points_invalid, document.headline) == (2, 0, "A claim.")


@pytest.mark.parametrize("letter", ["x", "<", "ü", "𝄞", "\0", '"'])
def test_a_text_is_clipped_by_its_encoded_size(letter: str) -> None:
    text = clip(letter * 500, 128)
    assert 0 < len(json.dumps(text)) - 2 <= 128
    assert clip("short", 128) == "short"
