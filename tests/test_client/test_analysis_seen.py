"""What was seen of the arms, in one row each, and what a drafter costs of the KV cache."""

from __future__ import annotations

import pytest

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.summary import ArmSeen, RunSummary
from specbench_client.analysis.summary.seen import SHOWN, arms_seen
from specbench_client.report.html import render_html
from specbench_client.report.seen import SeenRow, seen_rows
from specbench_testing.launched import launched
from specbench_testing.records import Lies, World, run_of_world

WORLD = World(prompts=4, drafters=("ngram", "suffix"))
KV = FactName.KV_CACHE_TOKENS


def rows(*launches: object) -> dict[str, ArmSeen]:
    return {row.arm: row for row in arms_seen(WORLD.plan, launches)}  # type: ignore[arg-type]


def lost(row: ArmSeen) -> float | None:
    assert row.kv_cache_lost is not None
    return row.kv_cache_lost.value


def test_an_arm_has_a_row_once_it_was_launched_in_the_plans_order() -> None:
    found = rows(launched("suffix", 2), launched("none", 0), launched("none", 3))
    assert {arm: row.launches for arm, row in found.items()} == {"none": ["0-a", "3-a"], "suffix": ["2-a"]}
    assert list(found) == ["none", "suffix"]
    assert all(set(row.facts) == set(SHOWN) for row in found.values())


def test_the_kv_cache_that_a_drafter_costs_is_told_against_the_baselines() -> None:
    found = rows(launched("none", 0, kv_cache_tokens=1000), launched("ngram", 1, kv_cache_tokens=750))
    assert lost(found["ngram"]) == pytest.approx(0.25)
    assert found["none"].kv_cache_lost is None


def test_what_varies_from_launch_to_launch_is_told_by_its_median() -> None:
    base = [launched("none", number, kv_cache_tokens=tokens) for number, tokens in enumerate((990, 1000, 1100))]
    mine = [launched("ngram", number, kv_cache_tokens=tokens) for number, tokens in enumerate((400, 500, 600), 3)]
    found = rows(*base, *mine)
    assert found["none"].facts[KV].value == 1000
    assert found["none"].facts[KV].source == "a witness; the median of 3 launches"
    assert lost(found["ngram"]) == pytest.approx(0.5)
    assert found["ngram"].kv_cache_lost is not None
    assert found["ngram"].kv_cache_lost.n == 3


@pytest.mark.parametrize(("baseline", "arm"), [(None, 750), (1000, None), (0, 0)])
def test_a_cost_that_is_not_known_has_no_value(baseline: int | None, arm: int | None) -> None:
    found = rows(launched("none", 0, kv_cache_tokens=baseline), launched("ngram", 1, kv_cache_tokens=arm))
    assert lost(found["ngram"]) is None


def test_without_a_baseline_nothing_is_lost_and_nothing_is_made_up() -> None:
    assert lost(rows(launched("ngram", 1, kv_cache_tokens=750))["ngram"]) is None


def test_words_in_which_the_launches_of_an_arm_differ_are_all_told_in_the_reason() -> None:
    fact = rows(launched("none", 0, dtype="float16"), launched("none", 3, dtype="bfloat16"))["none"].facts
    assert fact[FactName.DTYPE].reason == "its launches differ: float16, bfloat16"


def test_a_launch_that_does_not_tell_leaves_the_word_to_one_that_does() -> None:
    facts = rows(launched("none", 0, dtype=None), launched("none", 3, dtype="float16"))["none"].facts
    assert facts[FactName.DTYPE].value == "float16"
    assert facts[FactName.GPU].reason == "whoever drove the engine did not see where it runs"


SEEN = Lies(
    launches=(
        launched("none", 0, engine_version="0.33.0", gpu="NVIDIA H200", gpu_count=2, dtype="bfloat16",
                 max_model_len=8192, kv_cache_tokens=400_000),
        launched("ngram", 1, engine_version="0.33.0", cpu="A processor", dtype="bfloat16", quantization="fp8",
                 kv_cache_tokens=300_000, drafter_weights_bytes=3 << 20),
    )
)  # fmt: skip


def test_a_reader_sees_engine_machine_and_cost_of_each_arm_and_a_dash_for_what_nobody_told() -> None:
    assert seen_rows(run_of_world(WORLD, SEEN)) == [
        SeenRow("none", 1, "0.33.0", "2 × NVIDIA H200", "bfloat16", "8,192", "400,000", "–", "–"),
        SeenRow("ngram", 1, "0.33.0", "A processor", "bfloat16, fp8", "–", "300,000", "25.0%", "3 MiB"),
    ]


@pytest.mark.usefixtures("undrawn")
def test_the_report_has_a_section_of_what_was_seen_where_anything_was() -> None:
    summary = run_of_world(WORLD, SEEN)
    page = render_html(WORLD.plan, summary)
    assert ">What was seen</h2>" in page
    assert "2 × NVIDIA H200" in page
    assert RunSummary.from_json(summary.to_json()) == summary
    assert "What was seen" not in render_html(WORLD.plan, run_of_world(WORLD))
