"""The applicability table: the conditions under which figures hold, with this run's value or a dash."""

from __future__ import annotations

from specbench_api.spec.model import Adapter, Target
from specbench_client.report.html import page_topics
from specbench_client.report.text.applicability import (
    APPLICABILITY_COLUMNS,
    APPLICABILITY_TITLE,
    applicability_line,
    applicability_table,
)
from specbench_client.report.text.cells import markdown
from specbench_client.report.text.text_table import DASH
from specbench_testing.observed_launches import observed_launch
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

WORLD = SyntheticRun(prompts=6, concurrency=(1, 2), edits={"spec.workloads[0].dataset.languages": ["de", "ko"]})
SEEN = (
    observed_launch("none", 0, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
    observed_launch("ngram", 1, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
)
CHECKLIST = ["Workload", "Batch", "Output length", "Acceptance", "Memory", "Engine"]
TRANSFER = ["Prompt cache", "Language", "Sampling", "Model", "Quantisation", "Hardware"]


def applicability_values(world: SyntheticRun, corruptions: Corruptions) -> dict[str, str]:
    return {row[0]: row[1] for row in applicability_table(world.plan, run_of_world(world, corruptions)).rows}


def test_table_lists_six_checklist_rows_and_then_transfer_conditions() -> None:
    sheet = applicability_table(WORLD.plan, run_of_world(WORLD))
    assert [row[0] for row in sheet.rows] == [*CHECKLIST, *TRANSFER]
    assert all(len(row) == len(APPLICABILITY_COLUMNS) and all(row) for row in sheet.rows)


def test_an_adapter_is_part_of_the_models_name() -> None:
    adapted = Target(name="acme/tiny", adapter=Adapter(name="sql", model="acme/sql"))
    plan, summary = WORLD.plan.model_copy(update={"target": adapted}), run_of_world(WORLD)
    values = {row[0]: row[1] for row in applicability_table(plan, summary).rows}
    assert values["Model"] == "acme/tiny, revision main, with adapter acme/sql"
    assert "acme/tiny with adapter acme/sql (quantisation unknown)" in applicability_line(plan, summary)


def test_memory_row_shows_the_kv_cache_share_a_drafter_takes() -> None:
    seen = (observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert applicability_values(WORLD, Corruptions(launches=seen))["Memory"] == "ngram takes 25.0% of the KV cache"


def test_applicability_is_in_html_markdown_and_terminal_output() -> None:
    plan, summary = WORLD.plan, run_of_world(WORLD, Corruptions(launches=SEEN))
    assert page_topics(plan, summary)[-1].title == APPLICABILITY_TITLE
    assert f"## {APPLICABILITY_TITLE}" in markdown(plan, summary)
    line = applicability_line(plan, summary)
    assert line.startswith("these prompts and their language, ")
    assert all(word in line for word in ("bfloat16, fp8", "4 × H100", "concurrency 1, 2"))
    assert "quantisation unknown" in applicability_line(plan, run_of_world(WORLD))


def test_known_conditions_are_shown_and_unknown_ones_are_a_dash() -> None:
    values = applicability_values(WORLD, Corruptions(launches=SEEN))
    assert values["Batch"] == "concurrency 1, 2"
    assert values["Prompt cache"] == "disabled"
    assert (values["Language"], values["Quantisation"], values["Hardware"]) == ("de, ko", "bfloat16, fp8", "4 × H100")
    assert values["Engine"].endswith(" 0.33.0")
    assert values["Acceptance"].startswith("ngram ")
    assert f"at most {WORLD.tokens[1]}" in values["Output length"]
    unknown = applicability_values(WORLD, Corruptions())
    assert {unknown[name] for name in ("Memory", "Quantisation", "Hardware")} == {DASH}
