"""vLLM: golden command lines, and settings that vLLM would reject or silently ignore.

The argument parser of vllm 0.33.0 accepted every line here; hack/engine-parsers repeats that check.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.supported_methods import (
    VLLM_CELLS,
    VLLM_RELEASE,
)
from specbench_api.spec.drafter import Method
from specbench_testing.planned_launches import launches_of, refusal_of

VLLM = {"spec.engine.kind": "vllm", "spec.model": {"name": "acme/tiny"}}
COMMON = (
    "acme/tiny", "--served-model-name", "acme/tiny", "--tensor-parallel-size", "1", "--stream-interval", "1",
    "--enable-prompt-tokens-details", "--no-enable-prefix-caching", "--generation-config", "vllm",
)  # fmt: skip
DETAILED = ("--per-request-spec-decode-metrics", "detailed")


def launch_of(edits: dict[str, Any], arm: str = "none") -> LaunchSpec:
    """The launch of one arm of the edited run."""
    return launches_of({**VLLM, **edits})[arm]


def drafting(**fields: Any) -> dict[str, Any]:
    """Edits that set a single drafter with these fields."""
    return {"spec.drafters": [{"name": "d", **fields}]}


def config_of(edits: dict[str, Any]) -> Any:
    """The parsed value of --speculative-config."""
    args = launch_of(edits, "d").args
    return json.loads(args[args.index("--speculative-config") + 1])


def rejected(edits: dict[str, Any]) -> str:
    """The only problem of the edited run."""
    return refusal_of({**VLLM, **edits})


GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "ngram": ({}, '{"method":"ngram","num_speculative_tokens":3}'),
    "draft_model": ({"model": "acme/d"}, '{"method":"draft_model","model":"acme/d","num_speculative_tokens":3}'),
    "eagle": ({"model": "acme/d"}, '{"method":"eagle","model":"acme/d","num_speculative_tokens":3}'),
    "eagle3": ({"model": "acme/d"}, '{"method":"eagle3","model":"acme/d","num_speculative_tokens":3}'),
    "mtp": ({}, '{"method":"mtp","num_speculative_tokens":3}'),
    "medusa": ({"model": "acme/d"}, '{"method":"medusa","model":"acme/d","num_speculative_tokens":3}'),
    "suffix": ({}, '{"method":"suffix","num_speculative_tokens":3}'),
    "pard": (
        {"model": "acme/d"},
        '{"method":"draft_model","model":"acme/d","num_speculative_tokens":3,"parallel_drafting":true}',
    ),
    "dflash": ({"model": "acme/d"}, '{"method":"dflash","model":"acme/d","num_speculative_tokens":3}'),
    "dspark": ({"model": "acme/d"}, '{"method":"dspark","model":"acme/d","num_speculative_tokens":3}'),
    "custom": (
        {"algorithm": "custom_class", "model": "mine.Drafter"},
        '{"method":"custom_class","model":"mine.Drafter","num_speculative_tokens":3}',
    ),
}
VERSIONS = {"medusa": "0.32.0"}


def test_every_supported_method_has_a_golden_line() -> None:
    assert sorted(GOLDEN) == sorted(method for method in Method if method != "none" and VLLM_CELLS[method].supported)


def test_the_baseline_has_only_the_common_arguments() -> None:
    baseline = launch_of({})
    assert baseline.args == COMMON
    assert (baseline.image, baseline.port) == ("vllm/vllm-openai:v0.33.0", 8000)
    assert (baseline.command, baseline.local_programs) == (None, (("vllm", "serve"),))
    assert (baseline.served_model, baseline.files, baseline.hub) == ("acme/tiny", {}, {"spec.model.name": "acme/tiny"})


@pytest.mark.parametrize("method", GOLDEN)
def test_a_drafter_adds_one_line_of_json_to_the_common_arguments(method: str) -> None:
    fields, config = GOLDEN[method]
    engine = {"kind": "vllm", "version": VERSIONS.get(method, VLLM_RELEASE)}
    launch = launch_of({"spec.engine": engine, **drafting(method=method, **fields)}, "d")
    assert launch.args == (*COMMON, "--speculative-config", config, *DETAILED)


def test_without_equalizing_only_flags_that_the_client_needs_are_set() -> None:
    engine = {"kind": "vllm", "equalizeArms": "Disabled", "args": ["--enable-prefix-caching"]}
    launch = launch_of({"spec.engine": engine, "spec.promptCache": "AsServed"})
    assert launch.args == (*COMMON[:8], "--enable-prefix-caching")
    assert launch.env == {"VLLM_SERVER_DEV_MODE": "1"}


def test_the_prefix_cache_is_off_unless_it_is_measured_as_served() -> None:
    flag = "--no-enable-prefix-caching"
    for equalize in ("Enabled", "Disabled"):
        engine = {"kind": "vllm", "equalizeArms": equalize}
        assert flag in launch_of({"spec.engine": engine}).args
        assert flag not in launch_of({"spec.engine": engine, "spec.promptCache": "AsServed"}).args


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"method": "ngram", "promptLookupMin": 2, "promptLookupMax": 4},
            {"prompt_lookup_min": 2, "prompt_lookup_max": 4},
        ),
        ({"method": "ngram", "numSpeculativeTokens": 7}, {"num_speculative_tokens": 7}),
        ({"method": "eagle3", "model": "a/d", "draftTensorParallelSize": 1}, {"draft_tensor_parallel_size": 1}),
        ({"method": "eagle3", "model": "a/d", "revision": "abc"}, {"revision": "abc"}),
        ({"method": "eagle3", "model": "a/d", "eagleTopk": 1}, {}),
        ({"method": "mtp", "model": "a/d"}, {"model": "a/d"}),
        (
            {"method": "ngram", "draftLengths": [{"batchSize": 8, "tokens": 1}, {"batchSize": 2, "tokens": 3}]},
            {"num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 8, 1]]},
        ),
        (
            {"method": "eagle3", "model": "a/d", "speculativeConfig": {"parallel-drafting": True, "max_model_len": 8}},
            {"parallel_drafting": True, "max_model_len": 8},
        ),
        (
            {"method": "custom", "algorithm": "ngram_gpu", "speculativeConfig": {"prompt_lookup_max": 3}},
            {"prompt_lookup_max": 3},
        ),
        ({"method": "ngram", "speculativeConfig": {"num-speculative-tokens": 3}}, {}),
        # vLLM looks up exactly the given length, so one length is rendered as both.
        ({"method": "ngram", "promptLookupMin": 4}, {"prompt_lookup_min": 4, "prompt_lookup_max": 4}),
        ({"method": "ngram", "promptLookupMax": 4}, {"prompt_lookup_min": 4, "prompt_lookup_max": 4}),
    ],
    ids=str,
)  # fmt: skip
def test_each_field_of_a_drafter_becomes_a_key_of_the_speculative_config(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    names = {"custom": fields.get("algorithm")}
    always = {"method": names.get(fields["method"], fields["method"]), "num_speculative_tokens": 3}
    model = {"model": fields["model"]} if "model" in fields else {}
    assert config_of(drafting(**fields)) == {**always, **model, **expected}


@given(st.dictionaries(st.integers(1, 4096), st.integers(0, 3), min_size=1, max_size=16))
def test_the_draft_length_schedule_covers_every_batch_size_exactly_once(lengths: dict[int, int]) -> None:
    rows = [{"batchSize": size, "tokens": tokens} for size, tokens in lengths.items()]
    schedule = config_of(drafting(method="ngram", draftLengths=rows))["num_speculative_tokens_per_batch_size"]
    covered = [(size, tokens) for begin, end, tokens in schedule for size in range(begin, end + 1)]
    expected = [(size, lengths[min(end for end in lengths if end >= size)]) for size in range(1, max(lengths) + 1)]
    assert covered == expected


@pytest.mark.parametrize(
    ("model", "args", "files", "hub"),
    [
        ({"name": "a/b", "revision": "abc"}, ("a/b", "--served-model-name", "a/b", "--revision", "abc"), [], ["name"]),
        ({"name": "a/b", "path": "/m/b"}, ("/m/b", "--served-model-name", "a/b"), ["path"], []),
        (
            {"name": "a/b", "pvc": {"claimName": "c", "path": "/b"}},
            ("/models/b", "--served-model-name", "a/b"), ["pvc"], [],
        ),
        (
            {"name": "a/b", "uri": "s3://bucket/b", "tokenizer": "a/t"},
            ("s3://bucket/b", "--served-model-name", "a/b", "--load-format", "runai_streamer", "--tokenizer", "a/t"),
            [], [],
        ),
    ],
    ids=["hub", "path", "pvc", "s3"],
)  # fmt: skip
def test_the_model_source_selects_the_model_arguments(
    model: dict[str, Any], args: tuple[str, ...], files: list[str], hub: list[str]
) -> None:
    launch = launch_of({"spec.model": model, "spec.drafters": []})
    assert launch.args == (*args, *COMMON[3:])
    assert [list(launch.files), list(launch.hub)] == [[f"spec.model.{name}" for name in each] for each in (files, hub)]


@pytest.mark.parametrize(
    ("fields", "files", "hub"),
    [
        ({"method": "eagle3", "model": "/m/head"}, {"spec.drafters[0].model": "/m/head"}, {}),
        ({"method": "eagle3", "model": "acme/head"}, {}, {"spec.drafters[0].model": "acme/head"}),
        ({"method": "custom", "algorithm": "custom_class", "model": "my.Drafter"}, {}, {}),
    ],
    ids=["path", "hub", "class"],
)
def test_a_drafter_model_is_a_path_a_hub_repository_or_a_class(
    fields: dict[str, Any], files: dict[str, str], hub: dict[str, str]
) -> None:
    launch = launch_of(drafting(**fields), "d")
    assert (launch.files, launch.hub) == (files, {"spec.model.name": "acme/tiny", **hub})


@pytest.mark.parametrize(
    ("engine", "image"),
    [
        ({"version": "0.32.0"}, "vllm/vllm-openai:v0.32.0"),
        ({"version": "v0.32.0"}, "vllm/vllm-openai:v0.32.0"),
        ({"version": "nightly"}, "vllm/vllm-openai:nightly"),
        ({"image": "mine:1", "version": "0.32.0"}, "mine:1"),
    ],
)
def test_the_version_selects_the_image_unless_an_image_is_set(engine: dict[str, str], image: str) -> None:
    assert launch_of({"spec.engine": {"kind": "vllm", **engine}}).image == image


NOT_EQUALIZED = "or set spec.engine.equalizeArms: Disabled"
AS_SERVED = "or set spec.promptCache: AsServed"


@pytest.mark.parametrize(
    ("args", "managed", "expected"),
    [
        (["--no-enable_prefix_caching"], "--no-enable-prefix-caching", AS_SERVED),
        (["--disable-prefix-caching"], "--no-enable-prefix-caching", AS_SERVED),
        (["--no_enable_prefix-caching"], "--no-enable-prefix-caching", AS_SERVED),
        (["--no-generation-config"], "--generation-config vllm", NOT_EQUALIZED),
        (["--enable-prefix-cach"], "--no-enable-prefix-caching", AS_SERVED),
        (["--generation_config", "auto"], "--generation-config vllm", NOT_EQUALIZED),
        (["-tp", "2"], "--tensor-parallel-size 1", "set spec.engine.tensorParallelSize"),
        (["-tp=2"], "--tensor-parallel-size 1", "set spec.engine.tensorParallelSize"),
        (["--tensor-par", "2"], "--tensor-parallel-size 1", "set spec.engine.tensorParallelSize"),
        (["--stream_interval=8"], "--stream-interval 1", "remove it: specbench sets it for every arm"),
        (["--model", "a/b"], "--model acme/tiny", "set spec.model"),
        (["--served", "x"], "--served-model-name acme/tiny", "it is spec.model.name"),
        (
            ["--no-enable-prompt-tokens-details"],
            "--enable-prompt-tokens-details",
            "remove it: specbench sets it for every arm",
        ),
        *(
            (args, None, "")
            for args in (
                ["--speculative_config={}"],
                ["-sc", "{}"],
                ["-sc={}"],
                ["--speculative-config.method", "ngram"],
                ["--spec-method", "ngram"],
                ["--spec_tokens=2"],
                ["--spec-model", "a/b"],
                ["--per-request-spec", "summary"],
                ["--config", "mine.yaml"],
                ["--disable-log-stats"],
                ["--port=1"],
                ["--host", "x"],
            )
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_managed_flag_in_any_spelling_is_rejected_with_both_values(
    args: list[str], managed: str | None, expected: str
) -> None:
    found = rejected({"spec.engine": {"kind": "vllm", "args": ["--max-model-len=512", *args]}})
    written = " ".join(args)
    what = f"{managed!r}, which specbench sets ({expected})" if managed else "a flag that specbench manages ("
    assert found.startswith(f"spec.engine.args[1]: {written!r} contradicts {what}")


@pytest.mark.parametrize(
    "args",
    [
        ["--tokenizer-mode", "slow"],
        ["--enable-log-requests"],
        ["--max_num_seqs=64"],
        ["-O3"],
        ["--load-format=auto"],
        ["--model-impl", "auto"],
    ],
    ids=" ".join,
)
def test_other_flags_of_the_user_are_forwarded_unchanged(args: list[str]) -> None:
    assert launch_of({"spec.engine": {"kind": "vllm", "args": args}}).args == (*COMMON, *args)


MADE_UP = "makes acceptance up, so that the text is not the model's (remove it; use engine.kind simulator"
HEAD = {"method": "eagle3", "model": "a/d"}
CHAINS = "vLLM only drafts chains, not trees (remove it, or use engine.kind sglang, which supports it)"
PRUNED = "vLLM reads a pruned vocabulary from the head itself (remove it, or use engine.kind sglang"


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        (HEAD | {"eagleTopk": 4}, "eagleTopk", CHAINS),
        (HEAD | {"numDraftTokens": 9}, "numDraftTokens", CHAINS),
        ({"method": "eagle", "model": "a/d", "tokenMap": "/m"}, "tokenMap", PRUNED),
        (
            {"method": "mtp", "revision": "v2"}, "revision",
            "vLLM takes the heads from the target's checkpoint (set spec.model.revision instead, or set model)",
        ),
        *(
            (
                {"method": method, "model": model}, "model",
                f"vLLM uses method {other} for a model whose name contains '{fragment}', like '{model}' (set method:",
            )
            for method, model, fragment, other in (
                ("draft_model", "acme/EAGLE-tiny", "eagle-", "eagle"),
                ("draft_model", "acme/tiny_eagle3", "eagle3", "eagle3"),
                ("pard", "/models/DFlash/x", "dflash", "dflash"),
                ("mtp", "acme/dspark-tiny", "dspark", "dspark"),
            )
        ),
        (
            HEAD | {"draftTensorParallelSize": 3}, "draftTensorParallelSize",
            "vLLM splits a drafter like the target (1) or not at all, but not over 3 (set it to 1)",
        ),
        (
            {"method": "ngram", "draftTensorParallelSize": 1}, "draftTensorParallelSize",
            "this method has no draft model to split (remove it)",
        ),
        ({"method": "suffix", "revision": "x"}, "revision", "vLLM uses no model for this method (remove it)"),
        (
            {"method": "ngram", "draftLengths": [{"batchSize": 1, "tokens": 9}]}, "draftLengths[0].tokens",
            "vLLM never drafts more than numSpeculativeTokens (3), but tokens is 9 (set it to at most 3",
        ),
        (
            {"method": "suffix", "draftLengths": [{"batchSize": 1, "tokens": 1}]}, "draftLengths",
            "vLLM ignores draft lengths with suffix and uses numSpeculativeTokens (remove it)",
        ),
        (
            {"method": "ngram", "draftLengths": [{"batchSize": 1, "tokens": 1}], "args": ["-dp=2"]}, "draftLengths",
            "vLLM ignores draft lengths with data parallelism and uses numSpeculativeTokens (remove it)",
        ),
        (
            {"method": "custom", "algorithm": "medusa"}, "algorithm",
            "vLLM 0.33.0 has no drafting method 'medusa' (use one of ngram_gpu, custom_class,",
        ),
        (
            {"method": "custom", "algorithm": "extract_hidden_states"}, "algorithm",
            "vLLM 0.33.0 has no drafting method 'extract_hidden_states'",
        ),
        ({"method": "custom", "algorithm": "custom_class"}, "model", "custom_class needs a class (set model to it"),
        (
            {"method": "ngram", "speculativeConfig": {"num-speculative-tokens": 5}},
            "speculativeConfig.num-speculative-tokens",
            "num-speculative-tokens 5 contradicts num_speculative_tokens 3 of this drafter (set numSpeculativeTokens)",
        ),
        (
            {"method": "ngram", "speculativeConfig": {"prompt_lookup_max": 5}}, "speculativeConfig.prompt_lookup_max",
            "prompt_lookup_max 5 contradicts the field of this drafter, which is not set (set promptLookupMax)",
        ),
        (
            {"method": "pard", "model": "a/d", "speculativeConfig": {"parallel_drafting": False}},
            "speculativeConfig.parallel_drafting",
            "parallel_drafting false contradicts parallel_drafting true of this drafter (remove it: it",
        ),
        (
            {"method": "ngram", "speculativeConfig": {"rejection_sample_method": "synthetic"}},
            "speculativeConfig.rejection_sample_method", f"rejection_sample_method {MADE_UP}",
        ),
        (
            {"method": "ngram", "speculativeConfig": {"synthetic-acceptance-length": 2}},
            "speculativeConfig.synthetic-acceptance-length", f"synthetic-acceptance-length {MADE_UP}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)  # fmt: skip
def test_settings_that_vllm_rejects_or_ignores_are_rejected(fields: dict[str, Any], path: str, expected: str) -> None:
    assert rejected(drafting(**fields)).startswith(f"spec.drafters[0].{path}: {expected}")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        *(
            (
                {"spec.model": {"name": "a/b", "uri": uri}},
                "spec.model.uri: vLLM loads models from an object store (s3://…) or the hub, not from",
            )
            for uri in ("hf://acme/tiny", "https://example.org/tiny")
        ),
        (
            {"spec.model": {"name": "acme/tiny-eagle3"}, **drafting(method="mtp")},
            "spec.model: vLLM uses method eagle3 for a model whose name contains 'eagle3'",
        ),
        (
            {"spec.model": {"name": "a/b", "uri": "s3://b/m"}, "spec.engine.args": ["--load-format=auto"]},
            "spec.engine.args[0]: '--load-format=auto' contradicts '--load-format runai_streamer'",
        ),
    ],
)
def test_a_target_that_vllm_cannot_load_is_rejected(edits: dict[str, Any], expected: str) -> None:
    assert rejected(edits).startswith(expected)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ({}, "vllm 0.33.0 has no medusa, only releases <0.33 do"),
        ({"version": "v0.33.1"}, "vllm v0.33.1 has no medusa, only releases <0.33 do"),
        ({"version": "0.32.0"}, None),
        ({"image": "mine:1"}, None),
    ],
    ids=["default", "later", "earlier", "an image of any release"],
)
def test_medusa_is_supported_only_by_releases_that_have_it(engine: dict[str, str], reason: str | None) -> None:
    edits = {"spec.engine": {"kind": "vllm", **engine}, **drafting(method="medusa", model="a/d")}
    if reason is None:
        assert config_of(edits)["method"] == "medusa"
    else:
        expected = f"vllm does not support medusa: {reason} (use eagle3, or engine.version 0.32.0)"
        assert rejected(edits) == f"spec.drafters[0].method: {expected}"


def test_releases_without_acceptance_per_request_are_rejected_on_drafting_arms() -> None:
    old = {"spec.engine": {"kind": "vllm", "version": "0.28.0"}}
    assert launch_of({**old, "spec.drafters": []}).args == COMMON
    assert rejected(old).startswith("spec.engine.version: vLLM 0.28.0 does not report acceptance per request")


@pytest.mark.parametrize("version", ["0.29.0", "nightly", "0.34.0"])
def test_later_releases_may_have_further_algorithms(version: str) -> None:
    edits = {"spec.engine": {"kind": "vllm", "version": version}, **drafting(method="custom", algorithm="new_thing")}
    assert config_of(edits)["method"] == "new_thing"


@pytest.mark.parametrize(
    ("model", "fields", "revision"),
    [
        ({}, {"method": "mtp"}, "v9"),
        ({}, {"method": "dspark"}, "v9"),
        ({}, {"method": "custom", "algorithm": "deepseek_mtp"}, "v9"),
        ({}, {"method": "mtp", "model": "acme/heads"}, None),
        ({}, {"method": "mtp", "model": "acme/heads", "revision": "v2"}, "v2"),
        ({}, {"method": "eagle3", "model": "acme/heads"}, None),
        ({}, {"method": "ngram"}, None),
        ({"path": "/models/tiny"}, {"method": "mtp"}, None),
    ],
)
def test_heads_of_the_target_are_loaded_at_its_revision(
    model: dict[str, str], fields: dict[str, Any], revision: str | None
) -> None:
    pinned = {"spec.model": {"name": "acme/tiny", "revision": "v9", **model}}
    assert config_of({**pinned, **drafting(**fields)}).get("revision") == revision
