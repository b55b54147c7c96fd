"""What figures hold for stands with every result: each thing to look at once, with what it was here, or a dash."""

from __future__ import annotations

import pytest

from specbench_client.report.answers import topics_of
from specbench_client.report.holds import COLUMNS, TITLE, holds_line, holds_sheet
from specbench_client.report.sheets import DASH
from specbench_client.report.tables import markdown
from specbench_testing.launched import launched
from specbench_testing.records import Lies, World, run_of_world

WORLD = World(prompts=6, concurrency=(1, 2), edits={"spec.workloads[0].dataset.languages": ["de", "ko"]})
SEEN = (
    launched("none", 0, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
    launched("ngram", 1, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
)
CHECKLIST = ["Workload", "Batch", "Output length", "Acceptance", "Memory", "Engine"]
TRANSFER = ["Language", "Sampling", "Model", "Quantisation", "Hardware"]


def here(world: World, lies: Lies) -> dict[str, str]:
    return {row[0]: row[1] for row in holds_sheet(world.plan, run_of_world(world, lies)).rows}


def test_the_checklist_of_six_comes_first_and_what_does_not_carry_over_is_named() -> None:
    sheet = holds_sheet(WORLD.plan, run_of_world(WORLD))
    assert [row[0] for row in sheet.rows] == [*CHECKLIST, *TRANSFER]
    assert all(len(row) == len(COLUMNS) and all(row) for row in sheet.rows)


def test_what_was_told_stands_there() -> None:
    told = here(WORLD, Lies(launches=SEEN))
    assert told["Batch"] == "concurrency 1, 2"
    assert (told["Language"], told["Quantisation"], told["Hardware"]) == ("de, ko", "bfloat16, fp8", "4 × H100")
    assert told["Engine"].endswith(" 0.33.0")
    assert told["Acceptance"].startswith("ngram ")
    assert f"at most {WORLD.tokens[1]}" in told["Output length"]


@pytest.mark.parametrize("name", ["Memory", "Quantisation", "Hardware"])
def test_what_nobody_told_is_a_dash(name: str) -> None:
    assert here(WORLD, Lies())[name] == DASH


def test_what_a_drafter_takes_of_the_memory_is_told() -> None:
    seen = (launched("none", 0, kv_cache_tokens=1000), launched("ngram", 1, kv_cache_tokens=750))
    assert here(WORLD, Lies(launches=seen))["Memory"] == "ngram takes 25.0% of the KV cache"


def test_it_stands_on_the_page_in_markdown_and_in_a_line_of_the_terminal() -> None:
    plan, summary = WORLD.plan, run_of_world(WORLD, Lies(launches=SEEN))
    assert topics_of(plan, summary)[-1].title == TITLE
    assert f"## {TITLE}" in markdown(plan, summary)
    line = holds_line(plan, summary)
    assert line.startswith("for these prompts and their language, ")
    assert all(word in line for word in ("bfloat16, fp8", "4 × H100", "concurrency 1, 2"))
    assert "quantisation not told" in holds_line(plan, run_of_world(WORLD))
