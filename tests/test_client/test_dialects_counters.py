"""Engine counters: parsing metrics pages, and differences that detect a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specbench_api.outcome.summary import CounterDeltas
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import Dialect, EngineCounters, counter_difference
from specbench_client.dialects.prometheus import totals_by_series
from specbench_client.dialects.registry import DIALECTS

VLLM = DIALECTS[EngineKind.SIMULATOR]
LLAMA = DIALECTS[EngineKind.LLAMA_CPP]
SGLANG = DIALECTS[EngineKind.SGLANG]
TENSORRT_LLM = DIALECTS[EngineKind.TENSORRT_LLM]
SOME = EngineCounters(100, 50, 0, 10, 30, 20, started_s=7.5)


def page(prefix: str, label: str = "", **values: float) -> str:
    lines = [f"# TYPE {prefix}{name} counter\n{prefix}{name}{label} {value}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def test_vllm_page_is_read_and_its_workers_are_added_up() -> None:
    text = "process_start_time_seconds 7.5\n"
    for worker in "01":
        label = f'{{engine="{worker}",model_name="a b}}"}}'
        text += page("vllm:", label, generation_tokens_total=50, prompt_tokens_total=25, prompt_tokens_cached_total=0)
        text += page("vllm:spec_decode_", label, num_drafts_total=5.0, num_draft_tokens_total=15.0)
        text += page("vllm:spec_decode_", label, num_accepted_tokens_total=10.0, num_drafts_created=1.7e9)
    assert VLLM.counters(text) == SOME
    assert VLLM.speculating(None, text) is True


def test_vllm_baseline_has_no_speculation_counters() -> None:
    text = page("vllm:", '{engine="0"}', generation_tokens_total=3.0)
    assert VLLM.counters(text) == EngineCounters(output_tokens=3)
    assert VLLM.speculating(None, text) is False
    assert VLLM.speculating(None, "") is None


def test_llama_cpp_page_is_read() -> None:
    """Its prompt_tokens_total counts only the computed tokens, as a run with 1,000 cached ones per request showed."""
    text = page("llamacpp:", tokens_predicted_total=100, prompt_tokens_total=40, prompt_tokens_cached_total=10)
    text += page("llamacpp:spec_decode_", num_drafts_total=10, num_draft_tokens_total=30, num_accepted_tokens_total=20)
    text += 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\n'
    assert LLAMA.counters(text) == replace(SOME, cached_tokens=10, started_s=None)


def test_sglang_page_is_read_without_deriving_accepted_drafts() -> None:
    text = ""
    for streamed in ("true", "false"):
        label = f'{{engine_type="unified",is_streaming="{streamed}",model_name="m"}}'
        text += page("sglang:", label, generation_tokens_total=50, prompt_tokens_total=25)
    text += page("sglang:", '{cache_source="device"}', cached_tokens_total=0)
    text += page("sglang:", '{engine_type="unified"}', spec_verify_calls_total=10, spec_accept_length=2.5)
    assert SGLANG.counters(text) == EngineCounters(100, 50, 0, draft_steps=10)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"speculative_algorithm": "EAGLE3"}, True),
        ({"speculative_algorithm": None}, False),
        ({"model_path": "m"}, None),
        ([], None),
        (None, None),
    ],
)
def test_sglang_arguments_show_whether_it_speculates(state: object, expected: bool | None) -> None:
    assert SGLANG.speculating(state, "") is expected


def test_tensorrt_llm_has_no_counters() -> None:
    """Its pages count requests but no tokens; iteration statistics are returned once and are not cumulative."""
    iterations = '[{"iter": 1, "specDecodingStats": {"numDraftTokens": 3, "numAcceptedTokens": 2}}]'
    for text in (page("", request_success_total=3), iterations, "[]", ""):
        assert TENSORRT_LLM.counters(text) == EngineCounters()
        assert TENSORRT_LLM.speculating(None, text) is None
    assert TENSORRT_LLM.metrics_path != "/metrics", "reading its /metrics page clears the statistics"


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ([{"speculative": True}, {"speculative": True}], True),
        ([{"speculative": True}, {"speculative": False}], False),
        ([{"speculative": False}], False),
        ([{}], None),
        ([], None),
        (None, None),
        ({"error": "slots are off"}, None),
    ],
)
def test_llama_cpp_slots_show_whether_it_speculates(slots: object, expected: bool | None) -> None:
    assert LLAMA.speculating(slots, "") is expected


@pytest.mark.parametrize(("dialect", "series"), [(VLLM, "vllm:kv_cache_usage_perc"), (SGLANG, "sglang:token_usage")])
def test_usage_of_the_kv_cache_is_the_mean_over_workers(dialect: Dialect, series: str) -> None:
    """It is a gauge, so a difference of two readings has none."""
    for used, expected in ((("0.25", "0.75"), 0.5), (("0", "0"), 0), (("0.5", "NaN"), None), (("40", "0"), None)):
        text = "".join(f'{series}{{engine="{worker}"}} {each}\n' for worker, each in enumerate(used))
        assert dialect.counters(f"{series}_other 1\n{text}") == EngineCounters(kv_cache_usage=expected)
    assert counter_difference(*[EngineCounters(kv_cache_usage=each) for each in (0.5, 0.2)]) == CounterDeltas()


def test_lines_that_are_not_samples_are_skipped() -> None:
    text = 'a 1\na{x="} 3"} 2 1700000000\n\n# a 5\nb NaN\nc +Inf\nd\ne x\n{} 3\nf 1e3\n'
    assert totals_by_series(text) == {"a": 3.0, "f": 1000.0}


def test_exemplars_and_float_timestamps_do_not_change_a_value() -> None:
    text = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0"} 40 # {trace_id="a # {b}"} 1.0 1700000000.123\n'
        'vllm:generation_tokens_total{engine="1"} 60 1700000000.123\n'
        "vllm:prompt_tokens_total 50.0 1700000000.5 # {} 3\n"
        'vllm:e2e_bucket{le="+Inf"} 7 # {trace_id="x"} 0.67\n'
    )
    assert totals_by_series(text) == {
        "vllm:generation_tokens_total": 100.0,
        "vllm:prompt_tokens_total": 50.0,
        "vllm:e2e_bucket": 7.0,
    }
    assert VLLM.counters(text) == EngineCounters(output_tokens=100, prompt_tokens=50)


def test_difference_is_the_count_between_two_readings() -> None:
    after = EngineCounters(150, 60, 0, 12, 36, 25, started_s=7.5)
    assert counter_difference(SOME, after) == CounterDeltas(
        output_tokens=50,
        prompt_tokens=10,
        cached_tokens=0,
        draft_steps=2,
        drafted_tokens=6,
        accepted_tokens=5,
        process_started_s=7.5,
        output_tokens_total=150,
        prompt_tokens_total=60,
    )


def test_counter_missing_on_one_side_is_missing_in_the_difference() -> None:
    assert counter_difference(
        EngineCounters(output_tokens=1), EngineCounters(output_tokens=3, draft_steps=4)
    ) == CounterDeltas(output_tokens=2, output_tokens_total=3)


@pytest.mark.parametrize(
    ("changed", "restarted"),
    [
        ({"output_tokens": 99}, True),
        ({"output_tokens": 999, "started_s": 8.5}, True),
        ({"output_tokens": 999}, False),
        ({"started_s": None}, False),
    ],
    ids=str,
)
def test_lower_counts_or_another_start_time_are_a_restart(changed: dict[str, Any], restarted: bool) -> None:
    assert counter_difference(SOME, replace(SOME, **changed)).restarted is restarted
