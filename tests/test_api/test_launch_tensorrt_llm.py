"""TensorRT-LLM: one golden configuration file per drafter, and the message of each rejection."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.launch.launcher import CONFIG_FOLDER, LaunchSpec
from specbench_api.launch.supported_methods import TENSORRT_LLM_CELLS
from specbench_api.launch.tensorrt_llm import DECODING_TYPES, NEWER_DECODING_TYPES
from specbench_api.plan.expansion import expand
from specbench_api.spec.drafter import Method
from specbench_testing.planned_launches import launches_of, refusal_of
from specbench_testing.resources import run_of

BASELINE = """\
enable_iter_perf_stats: true
kv_cache_config:
  enable_block_reuse: false
return_perf_metrics: true
stream_interval: 1
"""
NGRAM = """\
disable_overlap_scheduler: true
enable_iter_perf_stats: true
kv_cache_config:
  enable_block_reuse: false
return_perf_metrics: true
speculative_config:
  decoding_type: NGram
  is_public_pool: false
  max_draft_len: 3
  max_matching_ngram_size: 4
stream_interval: 1
"""
HEAD = {"model": "acme/head"}
GOLDEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ngram": (
        {"method": "ngram", "promptLookupMax": 6},
        {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 6, "is_public_pool": False},
    ),
    "draft-model": (
        {"method": "draft_model", "model": "/m/draft", "numSpeculativeTokens": 5},
        {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model_dir": "/m/draft"},
    ),
    "eagle3": (
        {"method": "eagle3", **HEAD, "speculativeConfig": {"max_concurrency": 8}},
        {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "acme/head", "max_concurrency": 8},
    ),
    "mtp": (
        {"method": "mtp", "numSpeculativeTokens": 1},
        {"decoding_type": "MTP", "num_nextn_predict_layers": 1},
    ),
    "custom": (
        {"method": "custom", "algorithm": "PARD", **HEAD},
        {"decoding_type": "PARD", "max_draft_len": 3, "speculative_model_dir": "acme/head"},
    ),
    "draft-lengths": (
        {
            "method": "draft_model",
            **HEAD,
            "draftLengths": [
                {"batchSize": 3, "tokens": 3},
                {"batchSize": 7, "tokens": 2},
                {"batchSize": 8, "tokens": 0},
            ],
        },
        {
            "decoding_type": "DraftTarget",
            "max_draft_len": 3,
            "speculative_model_dir": "acme/head",
            "draft_len_schedule": {1: 3, 4: 2, 8: 0},
        },
    ),
}


def tensorrt(*drafters: dict[str, Any], **engine: Any) -> dict[str, Any]:
    """Edits of a run: TensorRT-LLM, and drafters named by their index."""
    arms = [{"name": f"arm{row}", **drafter} for row, drafter in enumerate(drafters)]
    return {"spec.engine": {"kind": "tensorrt-llm", **engine}, "spec.drafters": arms}


def launch(*drafters: dict[str, Any], **engine: Any) -> LaunchSpec:
    """The launch of the first drafter's arm, or of the baseline."""
    return launches_of(tensorrt(*drafters, **engine))["arm0" if drafters else "none"]


def config(*drafters: dict[str, Any], **engine: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(launch(*drafters, **engine).configs["config.yaml"])
    return found


def rejected(*drafters: dict[str, Any], **engine: Any) -> str:
    return refusal_of(tensorrt(*drafters, **engine))


def test_the_configuration_file_has_sorted_keys() -> None:
    assert launch().configs == {"config.yaml": BASELINE}
    assert launch({"method": "ngram"}).configs == {"config.yaml": NGRAM}


@pytest.mark.parametrize("name", GOLDEN)
def test_an_arm_has_the_configuration_of_the_baseline_plus_its_drafter(name: str) -> None:
    drafter, expected = GOLDEN[name]
    arms = launches_of(tensorrt(drafter))
    baseline, drafting = (yaml.safe_load(arms[arm].configs["config.yaml"]) for arm in ("none", "arm0"))
    assert drafting == {**baseline, "speculative_config": expected}
    assert arms["none"].args == arms["arm0"].args


NEWER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ngram": (
        {"method": "ngram"},
        {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4, "is_public_pool": False},
    ),
    "draft-model": (
        {"method": "draft_model", **HEAD},
        {"decoding_type": "Draft_Target", "max_draft_len": 3, "speculative_model_dir": "acme/head"},
    ),
    "eagle3": (
        {"method": "eagle3", **HEAD},
        {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model_dir": "acme/head"},
    ),
    "eagle3-with-a-tree": (
        {"method": "eagle3", **HEAD, "eagleTopk": 4, "numDraftTokens": 13},
        {
            "decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model_dir": "acme/head",
            "use_dynamic_tree": True, "dynamic_tree_max_topK": 4, "max_total_draft_tokens": 12,
        },
    ),
    "mtp": ({"method": "mtp"}, {"decoding_type": "MTP", "max_draft_len": 3}),
    "mtp-with-a-tree": (
        {"method": "mtp", "eagleTopk": 4, "numDraftTokens": 13},
        {
            "decoding_type": "MTP", "max_draft_len": 3,
            "use_dynamic_tree": True, "dynamic_tree_max_topK": 4, "max_total_draft_tokens": 12,
        },
    ),
    "suffix": ({"method": "suffix"}, {"decoding_type": "SA", "max_draft_len": 3}),
    **{
        method: (
            {"method": method, **HEAD},
            {"decoding_type": name, "max_draft_len": 3, "speculative_model_dir": "acme/head"},
        )
        for method, name in (("pard", "PARD"), ("dflash", "DFlash"), ("dspark", "DSpark"))
    },
}  # fmt: skip


@pytest.mark.parametrize("version", ["1.3.0", "1.3.0rc5", "v1.4.0rc1", "nightly"])
@pytest.mark.parametrize("name", NEWER)
def test_from_1_3_on_methods_have_other_names(name: str, version: str) -> None:
    drafter, expected = NEWER[name]
    found = config(drafter, version=version)
    assert found["speculative_config"] == expected
    assert found.get("disable_overlap_scheduler", False) is (name == "ngram")


@pytest.mark.parametrize("version", ["1.3.0", "v1.4.0rc1", "nightly"])
def test_mtp_heads_may_be_a_separate_checkpoint_from_1_3_0_on(version: str) -> None:
    found = config({"method": "mtp", **HEAD}, version=version)["speculative_config"]
    assert found == {"decoding_type": "MTP", "max_draft_len": 3, "speculative_model_dir": "acme/head"}


def test_every_supported_method_has_a_golden_configuration() -> None:
    supported = {method for method, cell in TENSORRT_LLM_CELLS.items() if cell.supported} - {Method.NONE}
    for golden, types, release in ((GOLDEN, DECODING_TYPES, "1.2.1"), (NEWER, NEWER_DECODING_TYPES, "1.3.0")):
        methods = {Method(drafter["method"]) for drafter, _ in golden.values()}
        assert methods | {Method.CUSTOM} == {*types, Method.CUSTOM}
        assert {*types, Method.CUSTOM} == {method for method in supported if TENSORRT_LLM_CELLS[method].has(release)}


def test_the_command_has_the_model_tensor_parallel_size_and_configuration_file() -> None:
    found = launch(tensorParallelSize=4, args=["--max_batch_size=64"])
    assert " ".join(found.args) == (
        f"acme/tiny --tp_size 4 --extra_llm_api_options {CONFIG_FOLDER}/config.yaml --max_batch_size=64"
    )
    assert (found.image, found.port) == ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", 8000)
    assert (found.command, found.image_program, found.local_programs) == (
        None,
        ("trtllm-serve",),
        (("trtllm-serve",),),
    )
    tags = [launch(version=version).image.rpartition(":")[2] for version in ("1.1.0", "v1.1.0", "vnext")]
    assert tags == ["1.1.0", "1.1.0", "vnext"]


@pytest.mark.parametrize(
    ("model", "first", "served"),
    [
        ({}, "acme/tiny", "acme/tiny"),
        ({"path": "/m/folder/"}, "/m/folder/", "folder"),
        ({"pvc": {"claimName": "c", "path": "deep/tiny"}}, "/models/deep/tiny", "tiny"),
    ],
    ids=str,
)
def test_a_local_model_is_served_under_the_name_of_its_folder(model: dict[str, Any], first: str, served: str) -> None:
    found = launches_of({**tensorrt(), "spec.model": {"name": "acme/tiny", **model}})["none"]
    assert (found.args[0], found.served_model) == (first, served)


def test_revision_and_tokenizer_of_the_model_are_passed_to_the_engine() -> None:
    edits = {**tensorrt(), "spec.model": {"name": "acme/tiny", "revision": "abc", "tokenizer": "acme/t"}}
    found = launches_of({**edits, "spec.promptCache": "AsServed"})["none"]
    written = yaml.safe_load(found.configs["config.yaml"])
    assert written["revision"] == "abc"
    assert "kv_cache_config" not in written, "blocks are reused if that is measured"
    assert found.args[found.args.index("--tokenizer") + 1] == "acme/t"


def test_without_equalizing_tensorrt_llm_keeps_its_defaults_and_statistics() -> None:
    user_config = {"stream_interval": 4, "kv_cache_config": {"enable_block_reuse": False}}
    assert config({"method": "ngram"}, equalizeArms="Disabled", config=user_config) == {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
        **user_config,
        "speculative_config": {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4},
    }


EAGLE3 = {"method": "eagle3", **HEAD}
TWO_MODEL_EAGLE = {**EAGLE3, "speculativeConfig": {"eagle3_one_model": False}}


@pytest.mark.parametrize(
    ("drafters", "without"),
    [
        ([EAGLE3], False),
        ([{"method": "mtp"}], False),
        ([EAGLE3, {"method": "ngram"}], True),
        ([{"method": "draft_model", **HEAD}], True),
        ([TWO_MODEL_EAGLE], True),
    ],
    ids=str,
)
def test_if_one_arm_disables_the_overlap_scheduler_all_arms_do(drafters: list[dict[str, Any]], without: bool) -> None:
    disabled = {
        name: yaml.safe_load(found.configs["config.yaml"]).get("disable_overlap_scheduler")
        for name, found in launches_of(tensorrt(*drafters)).items()
    }
    assert set(disabled.values()) == ({True} if without else {None})


def test_a_baseline_without_the_overlap_scheduler_has_different_point_hashes() -> None:
    """Its points have other hashes, so that a store does not mix the two up."""
    plain, without = (expand(run_of(tensorrt(*arms))) for arms in ([EAGLE3], [EAGLE3, {"method": "ngram"}]))
    hashes = [{point.hash for point in plan.points if point.arm == "none"} for plan in (plain, without)]
    assert not hashes[0] & hashes[1]
    assert (plain.engine.config, without.engine.config) == ({}, {"disable_overlap_scheduler": True})


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--tensor_parallel_size=2", "set spec.engine.tensorParallelSize"),
        ("--config=x.yaml", "set spec.engine.config"),
        ("--extra_llm_api_options=x.yaml", "set spec.engine.config"),
        ("--tokenizer=x", "set spec.model.tokenizer"),
        ("--revision=x", "set spec.model.revision"),
        ("--served_model_name=x", "set spec.model.name"),
        ("--port=1", "remove it: specbench sets it for every arm"),
    ],
)
def test_rejects_an_argument_that_contradicts_a_managed_flag_with_its_field(argument: str, expected: str) -> None:
    problem = rejected(args=["--max_batch_size=8", argument])
    assert problem.startswith(f"spec.engine.args[1]: {argument!r} contradicts ")
    assert problem.endswith(f" ({expected})")


TREES = "TensorRT-LLM drafts trees only with eagle3 and mtp, from 1.3 on"
FIRST_LENGTH = (
    "draftLengths: TensorRT-LLM starts with numSpeculativeTokens (3) and never drafts more"
    " (set tokens of the smallest batchSize to 3, and of no other to more)"
)
REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "revision": (
        {**EAGLE3, "revision": "v2"},
        (
            "revision: TensorRT-LLM downloads a draft model only at revision main"
            " (download that revision and give its path as model)"
        ),
    ),
    "draft-tensor-parallel-size": (
        {**EAGLE3, "draftTensorParallelSize": 1},
        "draftTensorParallelSize: TensorRT-LLM splits the drafter like the target (remove it)",
    ),
    "prompt-lookup-min": (
        {"method": "ngram", "promptLookupMin": 2},
        "promptLookupMin: TensorRT-LLM looks up suffixes from one token on (set only promptLookupMax)",
    ),
    "token-map": (
        {"method": "mtp", "tokenMap": "x"},
        "tokenMap: TensorRT-LLM does not support a token map (remove it)",
    ),
    "eagle-topk": (
        {**EAGLE3, "eagleTopk": 2},
        f"eagleTopk: {TREES} (remove it, or use one of these methods and engine.version 1.3 or later)",
    ),
    "num-draft-tokens": (
        {**EAGLE3, "numDraftTokens": 9},
        (
            "numDraftTokens: for a chain of 3 drafts TensorRT-LLM always verifies 4 tokens"
            " (remove it, or set eagleTopk for a tree)"
        ),
    ),
    "mtp-with-a-model": (
        {"method": "mtp", **HEAD},
        (
            "model: TensorRT-LLM uses the heads in the target's own checkpoint"
            " (remove it, or use engine.version 1.3.0 or later)"
        ),
    ),
    "custom-algorithm-with-its-own-method": (
        {"method": "custom", "algorithm": "Eagle3", **HEAD},
        "algorithm: Eagle3 is method eagle3 (set method: eagle3)",
    ),
    "draft-lengths-with-eagle3": (
        {**EAGLE3, "draftLengths": [{"batchSize": 4, "tokens": 3}]},
        (
            "draftLengths: TensorRT-LLM 1.2 supports draft lengths by batch size only for ngram and draft_model"
            " (remove it, or use ngram or draft_model)"
        ),
    ),
    "draft-lengths-start-below-num-speculative-tokens": (
        {"method": "ngram", "draftLengths": [{"batchSize": 4, "tokens": 2}, {"batchSize": 8, "tokens": 3}]},
        FIRST_LENGTH,
    ),
    "draft-lengths-increase": (
        {"method": "ngram", "draftLengths": [{"batchSize": 4, "tokens": 3}, {"batchSize": 8, "tokens": 4}]},
        FIRST_LENGTH,
    ),
    "speculative-config-sets-a-field": (
        {**EAGLE3, "speculativeConfig": {"max_draft_len": 5}},
        (
            "speculativeConfig.max_draft_len: 5 contradicts 3, which specbench sets"
            " (set the drafter's field instead, or remove it)"
        ),
    ),
    "speculative-config-sets-a-managed-key": (
        {"method": "ngram", "speculativeConfig": {"is_public_pool": True}},
        (
            "speculativeConfig.is_public_pool: true contradicts false, which specbench sets"
            " (set the drafter's field instead, or remove it)"
        ),
    ),
    "speculative-config-sets-an-alias-of-model": (
        {**EAGLE3, "speculativeConfig": {"speculative_model": "x"}},
        "speculativeConfig.speculative_model: is another name of the drafter's model (set model)",
    ),
    **{
        f"{method}-before-1.3": (
            {"method": method, **({} if method == "suffix" else HEAD)},
            f"method: tensorrt-llm does not support {method}: ",
        )
        for method in ("suffix", "pard", "dflash", "dspark")
    },
    **{
        algorithm: ({"method": "custom", "algorithm": algorithm}, f"algorithm: {algorithm} {reason} (")
        for algorithm, reason in (
            ("AUTO", "chooses n-grams of its own and ignores numSpeculativeTokens"),
            ("SaveState", "only stores hidden states and drafts nothing"),
            ("UserProvided", "needs a Python object, which no configuration file can contain"),
        )
    },
    "speculation-disabled-by-acceptance": (
        {**EAGLE3, "speculativeConfig": {"acceptance_window": 9}},
        (
            "speculativeConfig.acceptance_window: permanently disables speculation during a measurement"
            " when acceptance is low (remove it)"
        ),
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_settings_that_tensorrt_llm_does_not_support_are_rejected(name: str) -> None:
    drafter, expected = REJECTED[name]
    assert rejected(drafter).startswith(f"spec.drafters[0].{expected}")


LENGTHS = {"method": "ngram", "draftLengths": [{"batchSize": 4, "tokens": 3}]}
PYTHON_OBJECT = {"method": "custom", "algorithm": "User_Provided"}
TREE = "numDraftTokens: a dynamic tree of depth 3 and eagleTopk 2 verifies 4 to 7 tokens"


@pytest.mark.parametrize(
    ("drafter", "version", "expected"),
    [
        ({"method": "mtp", **HEAD}, "1.3.0rc5", "model: TensorRT-LLM uses the heads in the target's own checkpoint"),
        ({**EAGLE3, "eagleTopk": 2, "numDraftTokens": 8}, "1.3.0", TREE),
        ({**EAGLE3, "eagleTopk": 2, "numDraftTokens": 3}, "1.3.0", TREE),
        ({**EAGLE3, "numDraftTokens": 9}, "1.3.0", "numDraftTokens: for a chain of 3 drafts TensorRT-LLM always"),
        (PYTHON_OBJECT, "1.3.0", "algorithm: User_Provided needs a Python object"),
        *(
            (LENGTHS, version, f"draftLengths: TensorRT-LLM {version} interprets a schedule of draft lengths")
            for version in ("1.3.0", "1.3.0rc5", "1.4", "nightly")
        ),
    ],
)
def test_settings_that_a_release_does_not_support_are_rejected(
    drafter: dict[str, Any], version: str, expected: str
) -> None:
    assert rejected(drafter, version=version).startswith(f"spec.drafters[0].{expected}")


OF_ITSELF = " (remove it: specbench sets it for every arm)"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"stream_interval": 5}, "stream_interval: 5 contradicts 1, which specbench sets" + OF_ITSELF),
        ({"stream_interval": True}, "stream_interval: true contradicts 1, which specbench sets" + OF_ITSELF),
        (
            {"kv_cache_config": {"enable_block_reuse": True}},
            "kv_cache_config.enable_block_reuse: true contradicts false, which specbench sets" + OF_ITSELF,
        ),
        (
            {"kv_cache_config": "off"},
            'kv_cache_config: "off" contradicts {"enable_block_reuse": false}, which specbench sets' + OF_ITSELF,
        ),
        (
            {"return_perf_metrics": False},
            "return_perf_metrics: false contradicts true, which specbench sets" + OF_ITSELF,
        ),
        ({"enable_iter_perf_stats": "no"}, 'enable_iter_perf_stats: "no" contradicts true, which'),
        (
            {"speculative_config": "x"},
            'speculative_config: "x" must be set elsewhere (set spec.drafters[], which has speculativeConfig for',
        ),
        *(
            ({key: "x"}, f'{key}: "x" must be set elsewhere (set spec.{field})')
            for key, field in (
                ("tensor_parallel_size", "engine.tensorParallelSize"),
                ("model", "model"),
                ("tokenizer", "model.tokenizer"),
                ("revision", "model.revision"),
            )
        ),
        (
            {"disable_overlap_scheduler": False},
            "disable_overlap_scheduler: false contradicts true: arm1 runs without overlap scheduler",
        ),
    ],
    ids=str,
)
def test_a_key_that_contradicts_a_managed_one_is_rejected(keys: dict[str, Any], expected: str) -> None:
    assert rejected(EAGLE3, {"method": "ngram"}, config=keys).startswith(f"spec.engine.config.{expected}")


def test_the_overlap_scheduler_may_be_enabled_where_no_arm_disables_it() -> None:
    assert launch(EAGLE3, config={"disable_overlap_scheduler": False}).args


@pytest.mark.parametrize(
    ("kind", "name"),
    [("tensorrt-llm", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"), ("sglang", "SGLANG_SIMULATE_ACC_LEN")],
)
def test_a_variable_that_makes_acceptance_up_is_rejected(kind: str, name: str) -> None:
    env = [{"name": "A"}, {"name": name, "value": "3"}]
    problem = refusal_of({"spec.engine": {"kind": kind, "env": env}, "spec.drafters": []})
    assert problem.startswith(f"spec.engine.env[1].name: {name} makes acceptance up")


@pytest.mark.parametrize("version", ["1.2.0rc6", "1.2.1"])
def test_draft_lengths_are_rendered_for_releases_that_support_them(version: str) -> None:
    lengths = [{"batchSize": 4, "tokens": 3}]
    found = config({"method": "ngram", "draftLengths": lengths}, version=version)
    assert found["speculative_config"]["draft_len_schedule"] == {1: 3}


KEYS = st.sampled_from(["a", "kv_cache_config", "dtype", "cuda_graph_config"])
VALUES = st.one_of(st.integers(0, 3), st.booleans(), st.text("xyz", max_size=3))


@given(st.dictionaries(KEYS, st.dictionaries(st.sampled_from(["b", "c"]), VALUES, max_size=2), max_size=4))
def test_the_configuration_contains_every_user_key_and_every_managed_key(keys: dict[str, dict[str, Any]]) -> None:
    found, managed = config(config=keys), yaml.safe_load(BASELINE)
    for key, inner in keys.items():
        assert found[key] == {**inner, **managed.get(key, {})}
    assert {key: found[key] for key in managed if key not in keys} == {
        key: value for key, value in managed.items() if key not in keys
    }
