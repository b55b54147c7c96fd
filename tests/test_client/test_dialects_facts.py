"""Engine facts and counters: recorded pages where available, otherwise shapes taken from the engines' source code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.outcome.provenance import FACTS, Fact, FactName, FactSource, HostFacts, merge_facts
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import Dialect, EngineCounters, counter_difference
from specbench_client.dialects.engine_facts import FactReading, info_labels, is_metrics_page, pages_of, read_facts
from specbench_client.dialects.metrics_page import labels_by_series, totals_by_model
from specbench_client.dialects.registry import DIALECTS
from specbench_client.documents.summary import CounterDeltas, TokenCounters

EVERY = dict.fromkeys(DIALECTS.values())
NOTHING: tuple[Any, ...] = (None, [], {}, "text", 3, {"data": []}, {"data": [None]}, [None], {"internal_states": "x"})

CACHE_OF_0_32 = (  # recorded: vLLM 0.32.0 on a CPU, a baseline; labels that are not read are left out
    'vllm:cache_config_info{_block_size_resolved="True",block_size="128",cache_dtype="auto",'
    'enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",kv_cache_max_concurrency="22.75",'
    'kv_cache_memory_bytes="1073741824",kv_cache_size_tokens="46592",kv_offloading_size="None",num_gpu_blocks="364",'
    'prefix_caching_hash_algo="sha256",sliding_window="None"} 1.0\n'
)
MODELS = {"object": "list", "data": [{"id": "smol", "object": "model", "root": "/models/smol", "max_model_len": 2048}]}
SERVER_INFO = {  # from the source of SGLang 0.5.23 and its neighbours: arguments, the scheduler's info, its state
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "dtype": "bfloat16",
    "quantization": None,
    "kv_cache_dtype": "auto",
    "context_length": None,
    "chunked_prefill_size": 8192,
    "disable_radix_cache": True,
    "cuda_graph_backend_decode": "full",
    "attention_backend": "fa3",
    "max_running_requests": 48,
    "speculative_algorithm": "EAGLE3",
    "api_key": "sk-secret",
    "admin_api_key": "sk-other",
    "ssl_keyfile_password": "hush",
    "tokenizer_path": "meta-llama/Llama-3.1-8B-Instruct",
    "max_total_num_tokens": 400_000,
    "internal_states": [{"memory_usage": {"weight": 14.99, "kvcache": 48.83, "token_capacity": 400_000}}],
    "version": "0.5.23",
}
PROPS = {  # recorded: llama-server of xllamacpp 2026.10, the demo's target; fields that are not read are left out
    "default_generation_settings": {"params": {"seed": 4294967295, "speculative.types": "none"}, "n_ctx": 2048},
    "total_slots": 2,
    "model_alias": "smol",
    "model_ftype": "F16",
    "model_path": "/models/SmolLM2-135M-Instruct.F16.gguf",
    "build_info": "b0-unknown",
}
GGUF_MODELS = {
    "models": [{"name": "smol", "model": "smol", "size": ""}],
    "object": "list",
    "data": [
        {
            "id": "smol",
            "meta": {"n_ctx": 2048, "n_ctx_train": 8192, "n_params": 134515008, "size": 269100288, "ftype": "F16"},
        }
    ],
}


def read(kind: EngineKind, documents: Mapping[str, Any]) -> dict[FactName, Fact]:
    return read_facts(DIALECTS[kind].readings, documents)


def values(facts: Mapping[FactName, Fact]) -> dict[str, Any]:
    return {name.value: fact.value for name, fact in facts.items() if fact.value is not None}


def test_vllm_cache_facts_come_from_metric_labels() -> None:
    documents = {"/v1/models": MODELS, "/version": {"version": "0.32.0"}, "/metrics": info_labels(CACHE_OF_0_32)}
    facts = read(EngineKind.VLLM, documents)
    assert values(facts) == {
        "engine_version": "0.32.0",
        "model": "/models/smol",
        "max_model_len": 2048,
        "kv_cache_tokens": 46592,
        "kv_cache_bytes": 1 << 30,
        "kv_bytes_per_token": 23046,
        "kv_cache_dtype": "auto",
        "prefix_cache": True,
    }
    assert facts[FactName.KV_CACHE_TOKENS].source == "GET /metrics: vllm:cache_config_info.kv_cache_size_tokens"


def test_older_vllm_reports_its_cache_in_blocks_and_missing_facts_stay_unknown() -> None:
    page = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",kv_cache_memory_bytes="None"} 1.0\n'
    facts = read(EngineKind.VLLM, {"/metrics": info_labels(page)})
    assert facts[FactName.KV_CACHE_TOKENS] == Fact.observed(1600, "GET /metrics: vllm:cache_config_info")
    memory = facts[FactName.KV_CACHE_BYTES]
    assert memory.reason == "GET /metrics: vllm:cache_config_info.kv_cache_memory_bytes has no usable value"
    assert facts[FactName.ENGINE_VERSION].reason == "GET /version was not answered"


def test_sglang_facts_come_from_its_effective_arguments() -> None:
    facts = read(EngineKind.SGLANG, {"/server_info": SERVER_INFO, "/v1/models": MODELS})
    facts_by_name = values(facts)
    arguments = facts_by_name.pop("arguments")
    assert facts_by_name == {
        "engine_version": "0.5.23",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "dtype": "bfloat16",
        "quantization": "none",
        "kv_cache_dtype": "auto",
        "max_model_len": 2048,
        "max_running_requests": 48,
        "prefix_cache": False,
        "cuda_graphs": "full",
        "chunked_prefill": 8192,
        "attention_backend": "fa3",
        "weights_bytes": round(14.99 * 2**30),
        "kv_cache_tokens": 400_000,
        "kv_cache_bytes": round(48.83 * 2**30),
        "kv_bytes_per_token": round(48.83 * 2**30 / 400_000),
    }
    assert (arguments["max_running_requests"], arguments["speculative_algorithm"]) == (48, "EAGLE3")


def test_engine_secrets_are_left_out_of_the_results() -> None:
    arguments = read(EngineKind.SGLANG, {"/server_info": SERVER_INFO})[FactName.ARGUMENTS].value
    assert isinstance(arguments, dict)
    assert not {"api_key", "admin_api_key", "ssl_keyfile_password"} & set(arguments)
    assert {"tokenizer_path", "max_total_num_tokens"} <= set(arguments), (
        "names that contain `token` are not always secrets"
    )


def test_sglang_fields_of_other_releases_are_read() -> None:
    info = {"disable_cuda_graph": False, "context_length": 4096}
    facts = read(EngineKind.SGLANG, {"/server_info": info, "/model_info": {"model_path": "m"}})
    facts_by_name = values(facts)
    assert (facts_by_name["cuda_graphs"], facts_by_name["max_model_len"], facts_by_name["model"]) == (True, 4096, "m")
    missing = facts[FactName.MAX_RUNNING_REQUESTS].reason or ""
    assert "internal_states is missing; GET /server_info: max_running_requests" in missing


@pytest.mark.parametrize(("limits", "total"), [([48], 48), ([48, 48], 96), ([48, None], None), ([0], None), ([], None)])
def test_running_requests_of_sglang_are_those_of_all_replicas(limits: list[int | None], total: int | None) -> None:
    states = [{"effective_max_running_requests_per_dp": limit} for limit in limits]
    facts = read(EngineKind.SGLANG, {"/server_info": {"internal_states": states}})
    assert facts[FactName.MAX_RUNNING_REQUESTS].value == total


def test_llama_server_cache_is_the_sum_of_its_slots() -> None:
    assert values(read(EngineKind.LLAMA_CPP, {"/props": PROPS, "/v1/models": GGUF_MODELS})) == {
        "model": "/models/SmolLM2-135M-Instruct.F16.gguf",
        "quantization": "F16",
        "max_model_len": 2048,
        "max_running_requests": 2,
        "kv_cache_tokens": 4096,
        "weights_bytes": 269_100_288,
    }


@pytest.mark.parametrize(
    ("build_info", "tags", "version"),
    [
        ("b6789-0a1b2c3", [], "b6789-0a1b2c3"),
        ("b0-unknown", ["xllamacpp-2026.10.11549"], "xllamacpp-2026.10.11549"),
        ("b6789-0a1b2c3", ["xllamacpp-2026.10.11549"], "b6789-0a1b2c3"),
        ("b0-unknown", [], None),
        ("b0-unknown", ["chat"], None),
        ("b0-unknown", {"xllamacpp-1": 2}, None),
        ("", None, None),
    ],
)
def test_llama_server_built_without_git_is_identified_by_its_wheel(
    build_info: str, tags: Any, version: str | None
) -> None:
    models = {"data": [{**GGUF_MODELS["data"][0], "tags": tags}]}  # type: ignore[dict-item]
    pages = {"/props": {**PROPS, "build_info": build_info}, "/v1/models": models}
    assert values(read(EngineKind.LLAMA_CPP, pages)).get("engine_version") == version
    assert DIALECTS[EngineKind.LLAMA_CPP].identity(pages).version == version


def test_reason_of_a_missing_llama_server_version_names_both_places() -> None:
    fact = read(EngineKind.LLAMA_CPP, {"/props": PROPS, "/v1/models": GGUF_MODELS})[FactName.ENGINE_VERSION]
    assert fact.value is None
    assert fact.reason == (
        "GET /props: build_info has no usable value: this server was built without Git history;"
        " GET /v1/models: data.0.tags is missing"
    )


def test_tensorrt_llm_reports_its_version_and_its_metrics_are_not_read() -> None:
    readings = DIALECTS[EngineKind.TENSORRT_LLM].readings
    assert pages_of(readings) == ("/version", "/v1/models")
    facts = read(EngineKind.TENSORRT_LLM, {"/version": {"version": "1.2.1"}, "/v1/models": MODELS})
    assert values(facts) == {"engine_version": "1.2.1", "model": "smol"}


def test_research_runtime_facts_use_specbench_names() -> None:
    page = {"dtype": "float32", "torch": "2.13.0", "cuda": "none", "gpu": None, "drafter_weights_bytes": 0}
    facts = read(EngineKind.TRANSFORMERS, {"/facts": page, "/version": {"version": "transformers-5.19.0"}})
    assert values(facts) == {
        "engine_version": "transformers-5.19.0",
        "dtype": "float32",
        "torch": "2.13.0",
        "cuda": "none",
        "drafter_weights_bytes": 0,
    }


@pytest.mark.parametrize("dialect", EVERY, ids=lambda dialect: type(dialect).__name__)
def test_nonsense_pages_give_unknown_facts_with_reasons(dialect: Dialect) -> None:
    for nothing in NOTHING:
        facts = read_facts(dialect.readings, dict.fromkeys(pages_of(dialect.readings), nothing))
        facts_by_name = values(facts)
        facts_by_name.pop("arguments", None)  # any object is accepted as arguments
        assert facts_by_name == {}
        assert set(facts) == {reading.fact for reading in dialect.readings}
        assert all(fact.reason for fact in facts.values() if fact.value is None)


@pytest.mark.parametrize("dialect", EVERY, ids=lambda dialect: type(dialect).__name__)
def test_only_the_dialects_metrics_page_is_parsed_as_metrics(dialect: Dialect) -> None:
    pages = [page for page in pages_of(dialect.readings) if is_metrics_page(page)]
    assert pages in ([], [dialect.metrics_path])


def test_values_that_are_not_usable_are_unknown() -> None:
    reading = FactReading(FactName.DTYPE, "/p", ("x",))
    for nothing in (math.nan, math.inf, "", "None", None, [None], {"a": 1}):
        assert read_facts([reading], {"/p": {"x": nothing}})[FactName.DTYPE].value is None
    for value in (0, False, "auto"):
        assert read_facts([reading], {"/p": {"x": value}})[FactName.DTYPE] == Fact.observed(value, "GET /p: x")


def test_labels_may_contain_commas_braces_and_quotes() -> None:
    page = 'a_info{x="1,}",y="say \\"hi\\"\\\\n",z=""} 1\na_info{x="2"} 1\nb 3\n# c_info{x="1"} 1\n'
    assert labels_by_series(page) == {"a_info": {"x": "1,}", "y": 'say "hi"\\n', "z": ""}}


# -- merged facts ------------------------------------------------------------------------------------------------------


def test_every_fact_has_a_value_from_its_first_source_or_a_reason() -> None:
    engine = {
        FactName.GPU: Fact.unknown("GET /facts: gpu has no usable value"),
        FactName.TORCH: Fact.observed("2", "page"),
    }
    place = HostFacts(facts={FactName.GPU: Fact.observed("H200", "label")}, unknown_reason="nobody looked")
    facts = merge_facts(engine, place, "it does not report it over HTTP")
    assert set(facts) == set(FACTS) == set(FactName)
    assert facts[FactName.GPU] == Fact.observed("H200", "label")
    assert facts[FactName.TORCH] == Fact.observed("2", "page")
    reasons = {name: fact.reason for name, fact in facts.items() if fact.value is None}
    expected = {FactSource.ENGINE: "it does not report it over HTTP", FactSource.HOST: "nobody looked"}
    assert reasons == {name: expected[FACTS[name].source] for name in reasons}


def test_fact_unknown_to_every_source_lists_every_reason() -> None:
    engine = {FactName.GPU: Fact.unknown("it has none")}
    place = HostFacts(facts={FactName.GPU: Fact.unknown("the node has no label")})
    assert merge_facts(engine, place, "")[FactName.GPU].reason == "it has none; the node has no label"


@pytest.mark.parametrize("half", [{"value": 1}, {"reason": "x", "value": 1}, {"source": "x"}, {}, {"value": None}])
def test_fact_requires_value_with_source_or_reason(half: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a fact needs either value and source, or reason"):
        Fact.model_validate(half)


def test_unknown_fact_is_stored_as_null_with_its_reason() -> None:
    facts = HostFacts(
        facts={FactName.GPU: Fact.unknown("no label"), FactName.CORES: Fact.observed(8, "node")}, unknown_reason="-"
    )
    written = json.loads(facts.to_json())["facts"]
    assert written == {"gpu": {"value": None, "reason": "no label"}, "cores": {"value": 8, "source": "node"}}
    assert HostFacts.from_json(facts.to_json()) == facts
    later = json.dumps({"facts": {**written, "flux": written["gpu"]}, "unknownReason": "-", "flux": 8})
    assert HostFacts.from_untrusted_json(later.encode()) == facts, "a later operator knows more"


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
    assert VLLM.speculating(None, f"{text}\nvllm:spec_decode_num_accepted_tokens_total 3\n") is True


@pytest.mark.parametrize(
    ("prefix", "total"), [("vllm_", "_total"), ("vllm:", ""), ("vllm_", ""), ("VLLM.", "_total")], ids=str
)
def test_counters_that_a_collector_renamed_are_read(prefix: str, total: str) -> None:
    tokens, drafts = f"{prefix}generation_tokens{total}", f"{prefix}spec_decode_num_drafts{total}"
    assert VLLM.counters(f'{{"{tokens}",engine="0"}} 7\n{{"{drafts}"}} 3\n') == EngineCounters(7, draft_steps=3)
    both = f'{{"{tokens}"}} 7\nvllm:generation_tokens_total 8\n'
    assert VLLM.counters(both).output_tokens == 8, "the engine's own name comes first"


@pytest.mark.parametrize("text", ["", "# nothing\n", "vllm:request_generation_tokens_sum 7\n"])
def test_page_without_counters_names_what_was_searched(text: str) -> None:
    unread = VLLM.counters(text).unread or ""
    assert all(series in unread for series in VLLM.counter_series.values())
    counted = counter_difference(EngineCounters(unread=unread), EngineCounters(output_tokens=3))
    assert counted == CounterDeltas(unread=unread, output_tokens_total=3)


@pytest.mark.parametrize("label", ["model_name", "model"])
def test_counters_of_other_models_are_left_out_and_named(label: str) -> None:
    def text(mine: int, theirs: int) -> str:
        lines = {"a": mine - 1, "b": theirs, "c": 0}
        series = "".join(f'vllm:generation_tokens_total{{{label}="{name}"}} {lines[name]}\n' for name in lines)
        return f"{series}vllm:generation_tokens_total 1\nprocess_start_time_seconds 7.5\n"

    before, after = (VLLM.counters(text(*each), "a") for each in ((10, 500), (40, 900)))
    assert counter_difference(before, after) == CounterDeltas(
        output_tokens=30,
        output_tokens_total=40,
        process_started_s=7.5,
        other_models=["b", "c"],
        all_models=TokenCounters(output_tokens=430),
    )
    assert VLLM.counters(text(10, 500), "another name").output_tokens == 510
    assert VLLM.counters(text(10, 500)) == EngineCounters(510, started_s=7.5)


def test_second_process_of_a_server_is_not_a_restart() -> None:
    first, second = (f'process_start_time_seconds{{pid="{pid}"}} {at}\n' for pid, at in (("1", 7.5), ("2", 9.5)))
    count = "vllm:generation_tokens_total 5\n"
    assert not counter_difference(VLLM.counters(first + count), VLLM.counters(second + first + count)).restarted
    assert counter_difference(VLLM.counters(first + count), VLLM.counters(second + count)).restarted
    assert VLLM.counters("process_start_time_seconds NaN\n").started_s is None


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
        assert dialect.counters(f"{series}_other 1\n{text}").kv_cache_usage == expected
    assert counter_difference(*[EngineCounters(kv_cache_usage=each) for each in (0.5, 0.2)]) == CounterDeltas()


def test_lines_that_are_not_samples_are_skipped() -> None:
    text = 'a 1\na{x="} 3"} 2 1700000000\n\n# a 5\nb NaN\nc +Inf\nd\ne x\n{} 3\nf 1e3\n'
    assert totals_by_model(text) == totals_by_model(f"\ufeff{text}") == {None: {"a": 3.0, "f": 1000.0}}


def test_exemplars_and_float_timestamps_do_not_change_a_value() -> None:
    text = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0"} 40 # {trace_id="a # {b}"} 1.0 1700000000.123\n'
        'vllm:generation_tokens_total{engine="1"} 60 1700000000.123\n'
        "vllm:prompt_tokens_total 50.0 1700000000.5 # {} 3\n"
        'vllm:e2e_bucket{le="+Inf"} 7 # {trace_id="x"} 0.67\n'
    )
    assert totals_by_model(text)[None] == {
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
        ({"output_tokens": 999, "started_s": 6.5}, False),
        ({"started_s": None}, False),
    ],
    ids=str,
)
def test_lower_counts_or_a_later_start_are_a_restart(changed: dict[str, Any], restarted: bool) -> None:
    assert counter_difference(SOME, replace(SOME, **changed)).restarted is restarted
