"""llama.cpp: one golden command line per method, and the message of each rejection."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.launch.llama_cpp import ALGORITHMS, TYPES
from specbench_api.launch.supported_methods import LLAMA_CPP_CELLS
from specbench_api.spec.drafter import Method
from specbench_testing.planned_launches import launch_of, launches_of, refusal_of

LLAMA: dict[str, Any] = {
    "spec.engine.kind": "llama-cpp",
    "spec.model": {"name": "acme/tiny", "path": "/m/tiny.gguf"},
    "spec.load.concurrency": [1, 4],
}
COMMON = ("--model", "/m/tiny.gguf", "--alias", "acme/tiny", "--parallel", "4", "--metrics", "--slots")
GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "draft-model": (
        {"method": "draft_model", "model": "d.gguf", "numSpeculativeTokens": 5},
        "--spec-type draft-simple --model-draft d.gguf --spec-draft-n-max 5",
    ),
    "ngram": (
        {"method": "ngram", "numSpeculativeTokens": 6},
        "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 6",
    ),
    "eagle3": (
        {"method": "eagle3", "model": "/m/head.gguf"},
        "--spec-type draft-eagle3 --model-draft /m/head.gguf --spec-draft-n-max 3",
    ),
    "mtp": ({"method": "mtp", "numSpeculativeTokens": 2}, "--spec-type draft-mtp --spec-draft-n-max 2"),
    "mtp-separate-model": (
        {"method": "mtp", "model": "/m/mtp.gguf"},
        "--spec-type draft-mtp --model-draft /m/mtp.gguf --spec-draft-n-max 3",
    ),
    "dflash": (
        {"method": "dflash", "model": "acme/dflash-GGUF", "numSpeculativeTokens": 15},
        "--spec-type draft-dflash --hf-repo-draft acme/dflash-GGUF --spec-draft-n-max 15",
    ),
    "dspark": (
        {"method": "dspark", "model": "./dspark.gguf", "numSpeculativeTokens": 7},
        "--spec-type draft-dspark --model-draft ./dspark.gguf --spec-draft-n-max 7",
    ),
    "map-k": (
        {"method": "custom", "algorithm": "ngram-map-k", "args": ["--spec-ngram-map-k-size-n=4"]},
        "--spec-type ngram-map-k --spec-ngram-map-k-size-m 3 --spec-ngram-map-k-size-n 4",
    ),
    "map-k4v": (
        {"method": "custom", "algorithm": "ngram-map-k4v", "numSpeculativeTokens": 8},
        "--spec-type ngram-map-k4v --spec-ngram-map-k4v-size-m 8",
    ),
    "mod": (
        {"method": "custom", "algorithm": "ngram-mod", "args": ["--spec-ngram-mod-n-match", "6"]},
        "--spec-type ngram-mod --spec-ngram-mod-n-max 3 --spec-ngram-mod-n-min 3 --spec-ngram-mod-n-match 6",
    ),
    "mod-long": (
        {"method": "custom", "algorithm": "ngram-mod", "numSpeculativeTokens": 64},
        "--spec-type ngram-mod --spec-ngram-mod-n-max 64 --spec-ngram-mod-n-min 48",
    ),
    "mod-with-its-own-minimum": (
        {"method": "custom", "algorithm": "ngram-mod", "args": ["--spec-ngram-mod-n-min=2"]},
        "--spec-type ngram-mod --spec-ngram-mod-n-max 3 --spec-ngram-mod-n-min 2",
    ),
    "cache": ({"method": "custom", "algorithm": "ngram-cache", "numSpeculativeTokens": 8}, "--spec-type ngram-cache"),
}


def rejected(drafter: dict[str, Any]) -> str:
    return refusal_of({**LLAMA, "spec.drafters": [{"name": "d", **drafter}]})


@pytest.mark.parametrize("name", GOLDEN)
def test_each_method_has_its_command_line(name: str) -> None:
    drafter, line = GOLDEN[name]
    arms = launches_of({**LLAMA, "spec.drafters": [{"name": "d", **drafter}]})
    assert (arms["none"].args, arms["d"].args) == (COMMON, (*COMMON, *line.split()))
    models = {"spec.drafters[0].model": drafter["model"]} if "model" in drafter else {}
    is_on_hub = "--hf-repo-draft" in line
    assert (arms["d"].files, arms["d"].hub) == (
        {"spec.model.path": "/m/tiny.gguf", **({} if is_on_hub else models)},
        models if is_on_hub else {},
    )


def test_every_supported_method_has_a_llama_cpp_spec_type() -> None:
    launched = {method for method, cell in LLAMA_CPP_CELLS.items() if cell.supported} - {Method.NONE, Method.CUSTOM}
    assert launched == set(TYPES)


@pytest.mark.parametrize(
    ("drafter", "expected"),
    [
        (
            {"method": "custom", "algorithm": "ngram-simple"},
            "algorithm: 'ngram-simple' is not a custom method of llama.cpp (set method: ngram)",
        ),
        (
            {"method": "custom", "algorithm": "ngram-mod,draft-simple"},
            (
                "algorithm: 'ngram-mod,draft-simple' is not a custom method of llama.cpp"
                f" (use one of {', '.join(ALGORITHMS)})"
            ),
        ),
        (
            {"method": "custom", "algorithm": "ngram-mod", "model": "/m/x.gguf"},
            "model: ngram-mod drafts from the text and uses no model (remove model)",
        ),
        (
            {"method": "custom", "algorithm": "ngram-cache"},
            ("numSpeculativeTokens: ngram-cache drafts up to 8 tokens, which llama-server cannot change (set it to 8)"),
        ),
        (
            {"method": "custom", "algorithm": "ngram-mod", "args": ["-t", "1", "--spec-ngram-map-k-size-n=4"]},
            "args[2]: --spec-ngram-map-k-size-n has no effect with --spec-type ngram-mod (remove it)",
        ),
        *(
            (
                {"method": "ngram", "numSpeculativeTokens": tokens, "promptLookupMax": tokens + 1},
                "numSpeculativeTokens: llama.cpp drafts nothing with fewer tokens",
            )
            for tokens in (3, 7)
        ),
        (
            {"method": "ngram", "numSpeculativeTokens": 8, "promptLookupMin": 2},
            "promptLookupMin: llama.cpp looks up n-grams of a single length (set only promptLookupMax)",
        ),
        ({"method": "dspark"}, "model: llama.cpp drafts nothing without the drafter's checkpoint (set it)"),
        ({"method": "mtp", "tokenMap": "acme/map"}, "tokenMap: is not supported by llama.cpp"),
        (
            {"method": "draft_model", "model": "/m/d.gguf", "args": ["--spec-ngram-mod-n-match=4"]},
            "args[0]: --spec-ngram-mod-n-match has no effect with --spec-type draft-simple (remove it)",
        ),
    ],
)
def test_settings_that_llama_server_would_ignore_are_rejected(drafter: dict[str, Any], expected: str) -> None:
    assert rejected(drafter).startswith(f"spec.drafters[0].{expected}")


@pytest.mark.parametrize("flag", [flag for flag in ALGORITHMS.values() if flag])
def test_a_flag_for_the_draft_length_is_rejected_in_favour_of_num_speculative_tokens(flag: str) -> None:
    algorithm = next(name for name, its in ALGORITHMS.items() if its == flag)
    problem = rejected({"method": "custom", "algorithm": algorithm, "args": [f"{flag}=9"]})
    assert problem.startswith(f"spec.drafters[0].args[0]: '{flag}=9' contradicts ")
    assert problem.endswith("(set drafters[].numSpeculativeTokens)")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("draftLengths", [{"batchSize": 1, "tokens": 4}]),
        ("speculativeConfig", {"draft_p_min": 0.5}),
        ("draftTensorParallelSize", 2),
        ("revision", "v2"),
        ("eagleTopk", 4),
        ("numDraftTokens", 16),
    ],
)
def test_a_field_that_llama_cpp_does_not_support_is_rejected(field: str, value: object) -> None:
    problem = rejected({"method": "eagle3", "model": "/m/head.gguf", field: value})
    remedy = "remove it; put llama-server's own flags into args"
    assert problem == f"spec.drafters[0].{field}: is not supported by llama.cpp ({remedy})"


@pytest.mark.parametrize(
    ("args", "remedy"),
    [
        (["--spec-default"], "set drafters[].method: every arm would draft, also the baseline"),
        (["-hfrd", "acme/d"], "remove it: specbench sets it for every arm"),
        (["--spec-synth-len", "3"], "remove it; use engine.kind simulator for a known acceptance"),
        (["--spec_synth_rates=0.5,0.2"], "remove it; use engine.kind simulator for a known acceptance"),
    ],
)
def test_arguments_that_would_make_the_baseline_draft_or_acceptance_up_are_rejected(
    args: list[str], remedy: str
) -> None:
    problem = refusal_of({**LLAMA, "spec.engine.args": args})
    assert problem.startswith(f"spec.engine.args[0]: '{' '.join(args)}' contradicts ")
    assert problem.endswith(f"({remedy})")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LLAMA_ARG_SPEC_SYNTH_LEN", "makes acceptance up"),
        ("LLAMA_ARG_SPEC_SYNTH_RATES", "makes acceptance up"),
        ("LLAMA_ARG_SPEC_TYPE", "configures drafting on every arm, also the baseline"),
        ("LLAMA_ARG_MODEL_DRAFT", "configures drafting on every arm, also the baseline"),
    ],
)
def test_variables_that_would_do_so_are_rejected_wherever_they_are_set(name: str, expected: str) -> None:
    source = {"configMapKeyRef": {"name": "tuning", "key": "spec"}}
    template = {"spec": {"containers": [{"name": "engine", "env": [{"name": name, "valueFrom": source}]}]}}
    for path, edits in (
        ("spec.engine.env[1]", {"spec.engine.env": [{"name": "A"}, {"name": name, "value": "1"}]}),
        ("spec.placement.template.spec.containers[0].env[0]", {"spec.placement.template": template}),
    ):
        assert refusal_of({**LLAMA, **edits}).startswith(f"{path}.name: {name} {expected}")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (
            {"spec.model": {"name": "acme/tiny", "revision": "v9"}},
            "spec.model.revision: llama-server downloads models only at their default revision",
        ),
        (
            {"spec.placement": {"gpus": 1, "gpuResourceName": "gpu.intel.com/i915"}},
            "spec.engine.image: no image of llama.cpp is known for gpu.intel.com/i915",
        ),
    ],
)
def test_what_llama_server_would_ignore_or_has_no_image_for_is_rejected(edits: dict[str, Any], expected: str) -> None:
    assert refusal_of({**LLAMA, **edits}).startswith(expected)


@pytest.mark.parametrize(
    ("placement", "engine", "image"),
    [
        ({}, {}, "ghcr.io/ggml-org/llama.cpp:server"),
        ({}, {"version": "b11434"}, "ghcr.io/ggml-org/llama.cpp:server-b11434"),
        ({"gpus": 1}, {}, "ghcr.io/ggml-org/llama.cpp:server-cuda"),
        ({"gpus": 2}, {"version": "b11434"}, "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"),
        ({"gpus": 1, "gpuResourceName": "nvidia.com/mig-1g.10gb"}, {}, "ghcr.io/ggml-org/llama.cpp:server-cuda"),
        ({"gpus": 1, "gpuResourceName": "amd.com/gpu"}, {}, "ghcr.io/ggml-org/llama.cpp:server-rocm"),
        ({"gpus": 1, "gpuResourceName": "gpu.intel.com/i915"}, {"image": "acme/llama:sycl"}, "acme/llama:sycl"),
        ({}, {"version": "b11434", "image": "acme/llama:1"}, "acme/llama:1"),
    ],
)
def test_the_image_is_for_the_vendor_and_the_version_unless_one_is_set(
    placement: dict[str, Any], engine: dict[str, str], image: str
) -> None:
    edits = {**LLAMA, "spec.engine": {"kind": "llama-cpp", **engine}, "spec.placement": placement}
    assert launch_of(edits).image == image


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, ("--hf-repo", "acme/tiny")),
        ({"path": "/m/t.gguf", "revision": "v9"}, ("--model", "/m/t.gguf")),
        ({"pvc": {"claimName": "c", "path": "/t.gguf"}}, ("--model", "/models/t.gguf")),
    ],
)
def test_the_model_source_selects_the_model_flag(model: dict[str, Any], expected: tuple[str, str]) -> None:
    assert launch_of({**LLAMA, "spec.model": {"name": "acme/tiny", **model}}).args[:2] == expected
