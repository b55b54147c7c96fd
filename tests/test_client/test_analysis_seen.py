"""Environment of each arm, its share of the KV cache, and the conditions under which the figures hold."""

from __future__ import annotations

import pytest

from specbench_api.outcome.provenance import FactName
from specbench_client.analysis.summary.run import SHOWN_FACTS, arm_environments
from specbench_client.documents.summary import ArmEnvironment
from specbench_client.report.html import render_html
from specbench_client.report.text.applicability import (
    APPLICABILITY_TITLE,
    applicability_line,
    applicability_table,
    environments_table,
)
from specbench_client.report.text.run_report import markdown, run_topics
from specbench_client.report.text.text_table import DASH
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=4, drafters=("ngram", "suffix"))
KV = FactName.KV_CACHE_TOKENS


def rows(*launches: object) -> dict[str, ArmEnvironment]:
    return {row.arm: row for row in arm_environments(WORLD.plan, launches)}  # type: ignore[arg-type]


def kv_cache_lost(row: ArmEnvironment) -> float | None:
    return present(row.kv_cache_lost).value


def test_launched_arms_have_one_row_in_plan_order() -> None:
    found = rows(observed_launch("suffix", 2), observed_launch("none", 0), observed_launch("none", 3))
    assert {arm: row.launches for arm, row in found.items()} == {"none": ["0-a", "3-a"], "suffix": ["2-a"]}
    assert list(found) == ["none", "suffix"]
    assert all(set(row.facts) == set(SHOWN_FACTS) for row in found.values())


def test_kv_cache_loss_is_relative_to_the_baseline() -> None:
    found = rows(observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert kv_cache_lost(found["ngram"]) == pytest.approx(0.25)
    assert found["none"].kv_cache_lost is None


def test_values_that_vary_between_launches_are_reported_as_median() -> None:
    base = [observed_launch("none", number, kv_cache_tokens=tokens) for number, tokens in enumerate((990, 1000, 1100))]
    mine = [
        observed_launch("ngram", number, kv_cache_tokens=tokens) for number, tokens in enumerate((400, 500, 600), 3)
    ]
    found = rows(*base, *mine)
    assert found["none"].facts[KV].value == 1000
    assert found["none"].facts[KV].source == "a witness; the median of 3 launches"
    assert kv_cache_lost(found["ngram"]) == pytest.approx(0.5)
    assert present(found["ngram"].kv_cache_lost).n == 3


@pytest.mark.parametrize(("baseline", "arm"), [(None, 750), (1000, None), (0, 0)])
def test_unknown_kv_cache_loss_has_no_value(baseline: int | None, arm: int | None) -> None:
    mine = observed_launch("ngram", 1, kv_cache_tokens=arm)
    assert kv_cache_lost(rows(observed_launch("none", 0, kv_cache_tokens=baseline), mine)["ngram"]) is None
    assert kv_cache_lost(rows(mine)["ngram"]) is None, "without a baseline"


def test_texts_that_differ_between_launches_are_listed_in_the_reason() -> None:
    fact = rows(observed_launch("none", 0, dtype="float16"), observed_launch("none", 3, dtype="bfloat16"))["none"].facts
    assert fact[FactName.DTYPE].reason == "its launches differ: float16, bfloat16"


def test_known_value_of_another_launch_is_used() -> None:
    facts = rows(observed_launch("none", 0, dtype=None), observed_launch("none", 3, dtype="float16"))["none"].facts
    assert facts[FactName.DTYPE].value == "float16"
    assert facts[FactName.GPU].reason == "it was not reported where the engine runs"


SEEN = Corruptions(
    launches=(
        observed_launch("none", 0, engine_version="0.33.0", gpu="NVIDIA H200", gpu_count=2, dtype="bfloat16",
                 max_model_len=8192, kv_cache_tokens=400_000),
        observed_launch("ngram", 1, engine_version="0.33.0", cpu="A processor", dtype="bfloat16", quantization="fp8",
                 kv_cache_tokens=300_000, drafter_weights_bytes=3 << 20),
    )
)  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_environment_rows_show_engine_machine_and_cost_with_dashes() -> None:
    summary = run_of_world(WORLD, SEEN)
    assert environments_table(summary).rows == [
        ["none", "1", "0.33.0", "2 × NVIDIA H200", "bfloat16", "8,192", "400,000", "–", "–"],
        ["ngram", "1", "0.33.0", "A processor", "bfloat16, fp8", "–", "300,000", "25.0%", "3 MiB"],
    ]
    assert ">Engines and hardware</h2>" in render_html(WORLD.plan, summary)
    assert "Engines and hardware" not in render_html(WORLD.plan, run_of_world(WORLD))


GERMAN = SyntheticRun(prompts=6, concurrency=(1, 2), edits={"spec.workloads[0].dataset.languages": ["de", "ko"]})
ON_H100 = (
    observed_launch("none", 0, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
    observed_launch("ngram", 1, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
)


def applicability_values(world: SyntheticRun, corruptions: Corruptions) -> dict[str, str]:
    return {row[0]: row[1] for row in applicability_table(world.plan, run_of_world(world, corruptions)).rows}


def test_memory_row_shows_the_kv_cache_share_a_drafter_takes() -> None:
    seen = (observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert applicability_values(GERMAN, Corruptions(launches=seen))["Memory"] == "ngram takes 25.0% of the KV cache"


def test_applicability_is_in_html_markdown_and_terminal_output() -> None:
    plan, summary = GERMAN.plan, run_of_world(GERMAN, Corruptions(launches=ON_H100))
    assert APPLICABILITY_TITLE in [topic.title for topic in run_topics(plan, summary)]
    assert f"## {APPLICABILITY_TITLE}" in markdown(plan, summary)
    line = applicability_line(plan, summary)
    assert line.startswith("these prompts and their language, ")
    assert all(word in line for word in ("bfloat16, fp8", "4 × H100", "concurrency 1, 2"))
    assert "quantisation unknown" in applicability_line(plan, run_of_world(GERMAN))


def test_known_conditions_are_shown_and_unknown_ones_are_a_dash() -> None:
    values = applicability_values(GERMAN, Corruptions(launches=ON_H100))
    assert values["Batch"] == "concurrency 1, 2"
    assert values["Prompt cache"] == "disabled"
    assert (values["Language"], values["Quantisation"], values["Hardware"]) == ("de, ko", "bfloat16, fp8", "4 × H100")
    assert values["Engine"].endswith(" 0.33.0")
    assert values["Acceptance"].startswith("ngram ")
    assert f"at most {GERMAN.tokens[1]}" in values["Output length"]
    unknown = applicability_values(GERMAN, Corruptions())
    assert {unknown[name] for name in ("Memory", "Quantisation", "Hardware")} == {DASH}
