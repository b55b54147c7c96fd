"""The audit: consistent tables have no findings, and each contradiction is reported by its rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_client.analysis.audit.columns import Quantity, heading_unit, read_heading
from specbench_client.analysis.audit.columns import unit_factor as factor_of
from specbench_client.analysis.audit.document import AuditDocument, run_document, with_labels
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, read_number
from specbench_client.analysis.audit.reading import read_document
from specbench_client.analysis.audit.report import RULES, audit_document
from specbench_client.analysis.published.tables import published_names, published_text
from specbench_client.documents.audit import AuditReport
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

Rows = list[dict[str, Any]]


def audit(*tables: Rows, **facts: str) -> AuditReport:
    document = {"tables": [{"name": f"t{index}", "rows": rows} for index, rows in enumerate(tables)]}
    import json

    return audit_document(read_document(json.dumps(document), "tables.json", facts))


def found(report: AuditReport) -> list[str]:
    return [finding.rule for finding in report.findings]


def consistent_rows(
    alpha: float = 0.75, base_ms: float = 40.0, prefill_ms: float = 300.0, drafts: tuple[int, ...] = (0, 1, 3, 5, 8)
) -> Rows:
    """Rows computed from the formulas and rounded: one engine, one stream, 200 tokens per request."""
    tokens, price = 200, 12.0
    rows = []
    for k in drafts:
        length = sum(alpha**power for power in range(k + 1))
        step = base_ms * (1 + 0.03 * k)
        tpot = step / length
        whole = prefill_ms + tpot * (tokens - 1)
        base_whole = prefill_ms + base_ms * (tokens - 1)
        per_hour, tps = 3_600_000 / whole, tokens / whole * 1000
        rows.append(
            {
                "method": "eagle3" if k else "none", "k": str(k), "concurrency": "1",
                "accept rate": f"{(length - 1) / k:.1%}" if k else "–", "AL": f"{length:.2f}",
                "TPOT P50 (ms)": f"{tpot:.1f}", "TTFT (ms)": f"{prefill_ms:.0f}", "E2E mean (s)": f"{whole / 1000:.2f}",
                "speedup": f"{base_whole / whole:.2f}x", "output tokens": str(tokens), "tok/s": f"{tps:.1f}",
                "req/h": f"{per_hour:.0f}", "$/h": f"{price:.2f}", "cost per request": f"{price / per_hour:.5f}",
                "cost per 1M tokens": f"${price / tps / 3600 * 1e6:,.2f}", "engine": "vLLM 0.11.1",
                "step (ms)": f"{step:.1f}",
                "cost reduction": f"{1 - whole / base_whole:.1%}" if k else "",
            }
        )  # fmt: skip
    return rows


def test_consistent_rows_are_checked_by_every_rule_without_a_finding() -> None:
    report = audit(consistent_rows(), consistent_rows())
    assert found(report) == []
    assert [rule.rule for rule in report.rule_usage if not rule.comparisons] == []
    assert (report.tables, report.rows, report.settings) == (2, 10, [])


@given(
    st.floats(0.3, 0.95), st.floats(5, 100), st.floats(10, 2000),
    st.lists(st.integers(1, 16), min_size=1, max_size=5, unique=True),
)  # fmt: skip
@example(alpha=0.93359375, base_ms=5.0, prefill_ms=10.0, drafts=[1, 4, 13])  # a TPOT of 0.7 ms has one digit
@settings(max_examples=60, deadline=None)
def test_consistent_tables_have_no_findings(alpha: float, base_ms: float, prefill_ms: float, drafts: list[int]) -> None:
    assert found(audit(consistent_rows(alpha, base_ms, prefill_ms, (0, *sorted(drafts))))) == []


BROKEN: tuple[tuple[int, dict[str, str], set[str]], ...] = (
    (2, {"accept rate": "140%"}, {"PossibleAcceptance", "AcceptanceByDraftLength"}),
    (2, {"AL": "4.6"}, {"PossibleAcceptance", "AcceptanceLength", "AcceptanceByDraftLength"}),
    (3, {"AL": "3.20", "accept rate": ""}, set()),
    (3, {"accept rate": "74%", "AL": ""}, {"AcceptanceByDraftLength"}),
    (
        1,
        {"AL": "", "accept rate": "99%", "TPOT P50 (ms)": "39.9", "tok/s": "", "E2E mean (s)": ""},
        {"StepTimeByDraftLength"},
    ),
    (1, {"speedup": "1.95x"}, {"SpeedupAboveTokens", "SpeedupAboveParts"}),
    (0, {"speedup": "1.20x"}, {"BaselineOfItself"}),
    (3, {"step (ms)": "60.0"}, {"StepTime"}),
    (3, {"accepted length": "2.29"}, set()),
    (3, {"accepted length": "3.9"}, {"AcceptanceLength"}),
    (3, {"speedup": "3.40x"}, {"ThroughputRatio"}),
    (3, {"tok/s": "110"}, {"ThroughputRatio", "ThroughputAboveStreams", "Cost"}),
    (3, {"req/h": "800"}, {"LittlesLaw", "ThroughputRatio", "Cost"}),
    (3, {"E2E mean (s)": "9.00"}, {"LittlesLaw", "EndToEnd"}),
    (3, {"cost per request": "0.00400"}, {"Cost"}),
    (3, {"cost reduction": "12.0%"}, {"Cost"}),
    (3, {"engine": "vLLM 0.7.3"}, {"EngineRelease"}),
    (3, {"engine": "vLLM nightly"}, set()),
)


def repr_of(value: object) -> str:
    """Return a text that is stable across processes: sets are unordered."""
    return str(sorted(value) if isinstance(value, set) else value)[:40]


@pytest.mark.parametrize(("row", "changes", "rules"), BROKEN, ids=repr_of)
def test_each_contradiction_is_reported_by_its_rule(row: int, changes: dict[str, str], rules: set[str]) -> None:
    rows = consistent_rows()
    rows[row] |= changes
    rules_found = set(found(audit(rows)))
    assert rules <= rules_found if rules else rules_found == set()


def test_every_rule_has_a_test_with_a_finding() -> None:
    broken = {rule for _, _, rules in BROKEN for rule in rules}
    assert {rule.name for rule in RULES} - broken == {"SpeedupBasis", "RepeatedSetting"}


def test_one_setting_with_two_values_is_reported_with_both_rows() -> None:
    other = consistent_rows()
    other[3]["TPOT P50 (ms)"] = "30.0"
    (finding,) = [each for each in audit(consistent_rows(), other).findings if each.rule == "RepeatedSetting"]
    assert finding.arithmetic == ["t0 row 4: 14.0", "t1 row 4: 30.0"]


def test_column_with_two_speedup_bases_is_reported() -> None:
    def bases(prefill_ms: float) -> list[str]:
        columns = ("method", "k", "TPOT P50 (ms)", "speedup")
        rows = [{name: row[name] for name in columns} for row in consistent_rows(prefill_ms=prefill_ms)]
        assert found(audit(rows, concurrency="8")) == []
        rows[2]["speedup"] = f"{float(rows[0]['TPOT P50 (ms)']) / float(rows[2]['TPOT P50 (ms)']):.2f}"
        return found(audit(rows, concurrency="8"))

    assert bases(prefill_ms=1000) == ["SpeedupBasis"]
    assert bases(prefill_ms=50) == []  # prefill is too small a share of the request to distinguish the bases


def test_loss_that_rounds_to_minus_zero_is_accepted() -> None:
    rows = consistent_rows(0.310332835411577, 46.0, 10.0, (0, 1, 15))
    assert rows[-1]["cost reduction"] == "-0.0%"
    assert found(audit(rows)) == []


def test_rows_that_differ_in_an_unknown_setting_are_not_compared() -> None:
    rows = [{**row, "dataset": "a"} for row in consistent_rows()] + [
        {**row, "dataset": "b"} for row in consistent_rows(0.4)
    ]
    report = audit(rows)
    assert (found(report), report.settings) == ([], ["dataset"])
    assert "RepeatedSetting" in found(audit([{key: row[key] for key in row if key != "dataset"} for row in rows]))


POST = """
| Setup | Spec tokens | Acceptance | Acceptance length | TPOT (ms) | TTFT p95 | Speedup | tokens/sec | latency (s) |
|---|---|---|---|---|---|---|---|---|
| No spec | - | - | - | 20.1 | 210 | 1.0x | 49 | 4.1 |
| EAGLE-3 | 3 | 62% | 2.86 | 9.0 | 240 | 2.2x | 110 | 1.9 |
| EAGLE-3 | 5 | 71% | 3.2 | 7.1 | 245 | 3.6x | 140 | 1.5 |
"""


def test_blog_post_headings_are_read_and_unread_columns_are_not_settings() -> None:
    report = audit_document(read_document(POST, "post.md", {"concurrency": "1"}))
    steps = {"AcceptanceByDraftLength", "StepTimeByDraftLength"}
    assert set(found(report)) == steps | {"SpeedupAboveTokens", "SpeedupAboveParts", "ThroughputRatio"}
    assert report.settings == []
    assert {rule.rule for rule in report.rule_usage if rule.comparisons} > {"SpeedupBasis", "ThroughputAboveStreams"}
    unread = [limit for limit in report.limits if "was not read" in limit]
    assert [limit.split("'")[1] for limit in unread] == ["TTFT p95", "latency (s)"]


def test_second_text_column_for_the_method_is_a_setting() -> None:
    rows = [{"method": "eagle3", "variant": name, "k": 3, "AL": length} for name, length in (("a", 2.5), ("b", 2))]
    report = audit(rows)
    assert (found(report), report.settings) == ([], ["variant"])


def test_known_faults_of_the_published_benchmark_are_found() -> None:
    report = audit_document(read_document(published_text("production-benchmark"), "production-benchmark.json", {}))
    messages = {finding.rule: finding.message for finding in report.findings}
    assert messages.keys() == {"StepTimeByDraftLength", "SpeedupBasis", "ThroughputRatio", "EngineRelease"}
    assert "k=1 implies a step of 67 ms, longer than the 60 ms of k=3" in messages["StepTimeByDraftLength"]
    assert "it is the TPOT ratio for k=1, k=3, and less than it for k=5, k=7, k=10, k=15" in messages["SpeedupBasis"]
    assert "2.40 disagrees with its own speedup of 1.98" in messages["ThroughputRatio"]
    assert "vllm 0.7.3 does not have eagle3" in messages["EngineRelease"]


def test_published_example_contradicts_its_own_formula() -> None:
    (finding,) = audit_document(read_document(published_text("free-lunch"), "free-lunch.json", {})).findings
    assert finding.rule == "AcceptanceLength"
    assert "= 3.689" in finding.arithmetic[0]
    assert published_names() == ["free-lunch", "production-benchmark"]


@pytest.mark.draws
def test_simulated_runs_have_no_findings() -> None:
    """One synthetic engine with three draft lengths and step times that grow with them."""
    rows = []
    for drafts, step in ((1, 10.6), (3, 11.8), (5, 13.0)):
        world = SyntheticRun(prompts=30, drafts=drafts, step_ms={"ngram": step}, concurrency=(1, 4))
        (table,) = run_document(world.plan, run_of_world(world)).tables.values()
        rows += [row for row in table if drafts == 1 or not row.is_baseline]
    report = audit_document(AuditDocument("a world", {"chat": with_labels(rows)}))
    rules_checked = {rule.rule for rule in report.rule_usage if rule.comparisons}
    assert found(report) == []
    assert rules_checked >= {
        "PossibleAcceptance",
        "AcceptanceLength",
        "StepTimeByDraftLength",
        "SpeedupAboveTokens",
        "ThroughputRatio",
    }


@pytest.mark.parametrize("value", [0.0, 20.0])
def test_throughput_interval_that_reaches_0_does_not_stop_the_audit(value: float) -> None:
    """Few repeats with a large spread give such an interval; a throughput of 0 occurs in older summaries."""
    world = SyntheticRun(prompts=12, categories=("code",))
    summary = run_of_world(world)
    cells = []
    for cell in summary.cells:
        tps = cell.figures["output_tps"]
        assert tps.interval is not None
        bounds = tps.interval.model_copy(update={"low": 0.0})
        changed = tps.model_copy(update={"value": value, "interval": bounds})
        cells.append(cell.model_copy(update={"figures": {**cell.figures, "output_tps": changed}}))
    assert audit_document(run_document(world.plan, summary.model_copy(update={"cells": cells}))).findings == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.81", (0.81, 0.805, 0.815)), ("81%", (81, 80.5, 81.5)), ("2.89x", (2.89, 2.885, 2.895)),
        ("**2.9×**", (2.9, 2.85, 2.95)), ("$1,200", (1200, 1199.5, 1200.5)), ("42.3 ms", (42.3, 42.25, 42.35)),
    ],
)  # fmt: skip
def test_number_has_the_range_of_its_rounding(text: str, expected: tuple[float, float, float]) -> None:
    found = read_number(text)
    assert found is not None
    number, _ = found
    assert (number.value, number.low, number.high) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "–", "n/a", " - "])
def test_missing_cells_have_no_number(text: str) -> None:
    assert read_number(text) is None


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0, 0.05), st.floats(0, 0.05))
def test_interval_arithmetic_contains_every_value_rounding_allows(
    one: float, two: float, off: float, away: float
) -> None:
    first, second = PrintedNumber(one, one - off, one + off), PrintedNumber(two, two - away, two + away)
    for sign in (-1, 1):
        x, y = one + sign * off, two - sign * away
        for made, truth in (
            (first + second, x + y),
            (first * second, x * y),
            (first / second, x / y),
            (first - second, x - y),
        ):
            assert made.low - 1e-9 <= truth <= made.high + 1e-9


TITLES = [
    ("TPOT P50 (ms)", Quantity.TPOT, 1.0),
    ("tpot_ms", Quantity.TPOT, 1.0),
    ("TTFT (s)", Quantity.TTFT, 1000.0),
    ("Accept rate", Quantity.ACCEPTANCE_RATE, 1.0),
    ("E2E speed-up", Quantity.E2E_SPEEDUP, 1.0),
    ("Speedup", Quantity.SPEEDUP, 1.0),
    ("tok/s", Quantity.THROUGHPUT, 1.0),
    ("$/h", Quantity.PRICE, 1.0),
    ("Req/h", Quantity.REQUESTS_PER_HOUR, 1.0),
    ("num_speculative_tokens", Quantity.DRAFT_LENGTH, 1.0),
    ("Batch size", Quantity.CONCURRENCY, 1.0),
    ("Cost per 1M tokens", Quantity.COST_PER_MILLION, 1.0),
    ("TPOT P95 (ms)", None, 1.0),
    ("TPOT (P95)", None, 1.0),
    ("E2E (min)", None, 1.0),
    ("TTFT (median, s)", Quantity.TTFT, 1000.0),
    ("TPOT (µs)", Quantity.TPOT, 0.001),
    ("Acceptance rate (%)", Quantity.ACCEPTANCE_RATE, 0.01),
    ("Dataset", None, 1.0),
    ("τ", Quantity.ACCEPTANCE_LENGTH, 1.0),
]


@pytest.mark.parametrize(("title", "name", "factor"), TITLES)
def test_columns_are_recognised_by_their_usual_names(title: str, name: Quantity | None, factor: float) -> None:
    read_as = read_heading(title)
    assert read_as.name == name
    assert name is None or factor_of(name, heading_unit(read_as), "") == factor


@pytest.mark.parametrize(
    ("table", "name", "expected"),
    [
        ("method,TTFT\nnone,0.5 s\n", Quantity.TTFT, 500.0),
        ("method,TTFT (s)\nnone,500 ms\n", Quantity.TTFT, 500.0),
        ("method,TTFT (s)\nnone,0.5\n", Quantity.TTFT, 500.0),
        ("method,acceptance rate (%)\nnone,62\n", Quantity.ACCEPTANCE_RATE, 0.62),
        ("method,acceptance rate\nnone,62%\n", Quantity.ACCEPTANCE_RATE, 0.62),
        ("method,tok/s\nnone,1.2k\n", Quantity.THROUGHPUT, 1200.0),
    ],
)
def test_units_of_cells_and_headings_are_converted(table: str, name: Quantity, expected: float) -> None:
    (row,) = read_document(table, "t.csv", {}).rows
    assert row.values[name].value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("method,TPOT\nnone,42.3 ms\neagle3,0.0198\n", "row 2, TPOT: has no unit"),
        ("method,TPOT (ms)\nnone,42 k\n", "not a unit of tpot_ms"),
        ("method,speedup\neagle3,+89%\n", "not a unit of speedup"),
        ('method,TPOT (ms)\nnone,"42,3"\n', "'42,3' is not a number"),
        ("method,TPOT (ms)\nnone,0\n", "tpot_ms is never 0"),
        ("method,TPOT (ms)\nnone,-4\n", "tpot_ms is never negative"),
        ("method,k,AL\neagle3,2.5,2\n", "k is a whole number"),
        ("method,k,AL\neagle3,3,1e400\n", "too large"),
        ("method,TPOT (ms)\nnone,42,3\n", "row 1: has 3 cells under 2 headings"),
        ("| method | AL |\n|---|---|\n| none | 2 | 3 |\n", "row 1: has 3 cells under 2 headings"),
        ("method,AL,AL\nnone,1,2\n", "two columns have this heading"),
        ('{"facts": [1], "tables": [{"rows": [{"AL": 2}]}]}', "facts: is not an object"),
        ('{"tables": [{"facts": "x", "rows": [{"AL": 2}]}]}', "tables[0]: facts: is not an object"),
    ],
)
def test_impossible_number_is_rejected_with_its_cell(table: str, problem: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_document(table, "t.json" if table.startswith("{") else "t.csv", {})
    assert any(problem in str(each) for each in caught.value.problems), caught.value


def test_tables_with_the_same_name_are_all_read() -> None:
    tables = [{"name": "t", "rows": [{"method": "none", "tpot_ms": time}]} for time in (3, 5)]
    report = audit_document(read_document(json.dumps({"tables": tables}), "t.json", {}))
    assert (report.tables, report.rows, [each.rule for each in report.findings]) == (2, 2, ["RepeatedSetting"])


def test_second_column_of_one_quantity_is_reported_and_not_read() -> None:
    document = read_document("k,TPOT mean (ms),TPOT p50 (ms),AL\n0,40,39,1\n", "t.csv", {"k": "7"})
    assert document.rows[0].values[Quantity.TPOT].value == 40
    assert document.rows[0].drafts is not None
    assert document.rows[0].drafts.value == 0  # the value in a row overrides the value for all rows
    assert any("'TPOT p50 (ms)' was not read" in limit for limit in audit_document(document).limits)


def test_large_draft_length_does_not_overflow_the_audit() -> None:
    rows = "method,k,acceptance rate,AL\neagle3,1000000000,0.5,2\neagle3,999,62,2\n"
    found = {each.rule for each in audit_document(read_document(rows, "t.csv", {})).findings}
    assert found == {"PossibleAcceptance"}


def test_markdown_and_csv_give_the_same_rows() -> None:
    titles = list(consistent_rows()[0])
    lines = ["# Methods", "", "| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(str(row[title]) for title in titles) + " |" for row in consistent_rows()]
    csv = "\n".join([",".join(titles), *(",".join(f'"{row[title]}"' for title in titles) for row in consistent_rows())])
    rows = consistent_rows()
    markdown_rows = read_document("\n".join(lines), "post.md", {}).rows
    assert [row.table for row in markdown_rows] == ["Methods"] * len(rows)
    values = [row.values for row in markdown_rows]
    assert values == [row.values for row in read_document(csv, "table.csv", {}).rows]


def test_every_bad_cell_is_reported() -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_document("k,TPOT (ms)\n3,fast\nmany,12\n", "t.csv", {})
    assert [problem.path for problem in caught.value.problems] == ["t.csv, row 1, TPOT (ms)", "t.csv, row 2, k"]


@pytest.mark.parametrize("text", ["", "{", '{"tables": 1}', '{"tables": [{"rows": 1}]}', "only words\n"])
def test_text_without_a_table_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSpec):
        read_document(text, "t.json" if text.startswith("{") else "t.md", {})
