"""What figures hold for stands with every result: each thing to look at once, with what it was here, or a dash."""

from __future__ import annotations

import pytest

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
TRANSFER = ["Language", "Sampling", "Model", "Quantisation", "Hardware"]


def here(world: SyntheticRun, lies: Corruptions) -> dict[str, str]:
    return {row[0]: row[1] for row in applicability_table(world.plan, run_of_world(world, lies)).rows}


def test_the_checklist_of_six_comes_first_and_what_does_not_carry_over_is_named() -> None:
    sheet = applicability_table(WORLD.plan, run_of_world(WORLD))
    assert [row[0] for row in sheet.rows] == [*CHECKLIST, *TRANSFER]
    assert all(len(row) == len(APPLICABILITY_COLUMNS) and all(row) for row in sheet.rows)


def test_what_was_told_stands_there() -> None:
    told = here(WORLD, Corruptions(launches=SEEN))
    assert told["Batch"] == "concurrency 1, 2"
    assert (told["Language"], told["Quantisation"], told["Hardware"]) == ("de, ko", "bfloat16, fp8", "4 × H100")
    assert told["Engine"].endswith(" 0.33.0")
    assert told["Acceptance"].startswith("ngram ")
    assert f"at most {WORLD.tokens[1]}" in told["Output length"]


@pytest.mark.parametrize("name", ["Memory", "Quantisation", "Hardware"])
def test_what_nobody_told_is_a_dash(name: str) -> None:
    assert here(WORLD, Corruptions())[name] == DASH


def test_what_a_drafter_takes_of_the_memory_is_told() -> None:
    seen = (observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert here(WORLD, Corruptions(launches=seen))["Memory"] == "ngram takes 25.0% of the KV cache"


def test_it_stands_on_the_page_in_markdown_and_in_a_line_of_the_terminal() -> None:
    plan, summary = WORLD.plan, run_of_world(WORLD, Corruptions(launches=SEEN))
    assert page_topics(plan, summary)[-1].title == APPLICABILITY_TITLE
    assert f"## {APPLICABILITY_TITLE}" in markdown(plan, summary)
    line = applicability_line(plan, summary)
    assert line.startswith("these prompts and their language, ")
    assert all(word in line for word in ("bfloat16, fp8", "4 × H100", "concurrency 1, 2"))
    assert "quantisation unknown" in applicability_line(plan, run_of_world(WORLD))
