"""SGLang: one golden command line for each drafter, and the message of each rejection.

The argument parser of sglang 0.5.23 accepted every line here once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.launch.launcher import CONFIG_FOLDER, LaunchSpec
from specbench_api.launch.sglang import ALGORITHMS
from specbench_api.launch.supported_methods import SGLANG_CELLS
from specbench_api.spec.drafter import Method
from specbench_testing.planned_launches import launches_of, refusals_of

COMMON = (
    "--model-path acme/tiny --served-model-name acme/tiny --tp-size 1 --enable-metrics --enable-cache-report"
    " --disable-radix-cache --max-running-requests 8 --sampling-defaults openai --stream-interval 1"
)
HEAD = {"model": "acme/head"}
PATH = "--speculative-draft-model-path acme/head"
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "ngram": ({"method": "ngram"}, "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4"),
    "draft-model": (
        {"method": "draft_model", **HEAD, "revision": "v2"},
        f"--speculative-algorithm STANDALONE {PATH} --speculative-draft-model-revision v2 {CHAIN}",
    ),
    "eagle": (
        {"method": "eagle", **HEAD, "tokenMap": "acme/map"},
        f"--speculative-algorithm EAGLE {PATH} {CHAIN} --speculative-token-map acme/map",
    ),
    "tree-of-the-maximum-size": (
        {"method": "eagle3", **HEAD, "eagleTopk": 2, "numDraftTokens": 11},
        (
            f"--speculative-algorithm EAGLE3 {PATH} --speculative-num-steps 3 --speculative-eagle-topk 2"
            " --speculative-num-draft-tokens 11"
        ),
    ),
    "tree": (
        {"method": "eagle", **HEAD, "eagleTopk": 4, "numDraftTokens": 16},
        (
            f"--speculative-algorithm EAGLE {PATH} --speculative-num-steps 3 --speculative-eagle-topk 4"
            " --speculative-num-draft-tokens 16"
        ),
    ),
    "eagle3": ({"method": "eagle3", **HEAD}, f"--speculative-algorithm EAGLE3 {PATH} {CHAIN}"),
    "mtp": ({"method": "mtp"}, f"--speculative-algorithm NEXTN {CHAIN}"),
    "mtp-separate-model": ({"method": "mtp", **HEAD}, f"--speculative-algorithm NEXTN {PATH} {CHAIN}"),
    "mtp-token-map": (
        {"method": "mtp", "tokenMap": "acme/map"},
        f"--speculative-algorithm NEXTN {CHAIN} --speculative-token-map acme/map",
    ),
    "mtp-draft-lengths": (
        {"method": "mtp", "draftLengths": [{"batchSize": 4, "tokens": 3}]},
        (
            f"--speculative-algorithm NEXTN {CHAIN} --speculative-adaptive"
            f" --speculative-adaptive-config {CONFIG_FOLDER}/adaptive.json"
        ),
    ),
    "dflash": (
        {"method": "dflash", **HEAD, "numSpeculativeTokens": 15},
        f"--speculative-algorithm DFLASH {PATH} --speculative-num-draft-tokens 16",
    ),
    "dspark": (
        {"method": "dspark", **HEAD, "numSpeculativeTokens": 7},
        f"--speculative-algorithm DSPARK {PATH} --speculative-dspark-block-size 7",
    ),
    "custom": (
        {"method": "custom", "algorithm": "UNO", "args": ["--uno-lora-path=acme/lora"]},
        f"--speculative-algorithm UNO {CHAIN} --uno-lora-path=acme/lora",
    ),
    "draft-lengths": (
        {"method": "eagle3", **HEAD, "draftLengths": [{"batchSize": 4, "tokens": 3}, {"batchSize": 16, "tokens": 0}]},
        (
            f"--speculative-algorithm EAGLE3 {PATH} {CHAIN} --speculative-adaptive"
            f" --speculative-adaptive-config {CONFIG_FOLDER}/adaptive.json"
        ),
    ),
}


def sglang(drafter: dict[str, Any] | None = None, **engine: Any) -> dict[str, Any]:
    """Edits of a run: SGLang, concurrency 8, and at most one drafter."""
    drafters = [{"name": "arm", **drafter}] if drafter else []
    return {
        "spec.engine": {"kind": "sglang", **engine},
        "spec.load": {"concurrency": [1, 8]},
        "spec.drafters": drafters,
    }


def launch(drafter: dict[str, Any] | None = None, **engine: Any) -> LaunchSpec:
    """The launch of the drafter's arm, or of the baseline."""
    return launches_of(sglang(drafter, **engine))["arm" if drafter else "none"]


def rejected(drafter: dict[str, Any] | None = None, **engine: Any) -> list[str]:
    return refusals_of(sglang(drafter, **engine))


@pytest.mark.parametrize("name", GOLDEN)
def test_an_arm_has_the_command_of_the_baseline_followed_by_its_drafter(name: str) -> None:
    drafter, expected = GOLDEN[name]
    assert " ".join(launch().args) == COMMON
    assert " ".join(launch(drafter).args) == f"{COMMON} {expected}"


def test_every_supported_method_has_a_golden_line() -> None:
    methods = {Method(drafter["method"]) for drafter, _ in GOLDEN.values()}
    assert methods == {method for method, cell in SGLANG_CELLS.items() if cell.supported} - {Method.NONE}
    assert methods == {*ALGORITHMS, Method.CUSTOM}


def test_the_image_runs_python3_and_a_local_launch_runs_python() -> None:
    found = launch()
    assert (found.image, found.port, found.served_model) == ("lmsysorg/sglang:v0.5.23", 30000, "acme/tiny")
    assert (found.command, found.image_program) == (None, ("python3", "-m", "sglang.launch_server"))
    assert found.local_programs == (("python", "-m", "sglang.launch_server"),)


@pytest.mark.parametrize(("version", "tag"), [("0.5.20", "v0.5.20"), ("v0.5.20", "v0.5.20"), ("latest", "latest")])
def test_the_version_selects_the_image_tag(version: str, tag: str) -> None:
    assert launch(version=version).image == f"lmsysorg/sglang:{tag}"


def test_health_checks_do_not_generate_tokens_unless_the_user_sets_the_variable() -> None:
    variable = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    assert launch().env == {variable: "0"}
    assert launch(env=[{"name": variable, "value": "1"}, {"name": "A", "value": "b"}]).env == {variable: "1", "A": "b"}


def test_without_equalizing_sglang_keeps_its_defaults_and_metrics() -> None:
    model = "--model-path acme/tiny --served-model-name acme/tiny --tp-size 4"
    bare = sglang(tensorParallelSize=4, equalizeArms="Disabled", args=["--stream-interval=2"])
    for cache, flag in (("Disabled", " --disable-radix-cache"), ("AsServed", "")):
        found = launches_of({**bare, "spec.promptCache": cache})["none"]
        assert " ".join(found.args) == f"{model} --enable-metrics --enable-cache-report{flag} --stream-interval=2"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"revision": "abc"}, "--model-path acme/tiny --revision abc --served-model-name acme/tiny"),
        ({"path": "/m/tiny", "revision": "abc"}, "--model-path /m/tiny --served-model-name acme/tiny"),
        ({"pvc": {"claimName": "c", "path": "/t"}}, "--model-path /models/t --served-model-name acme/tiny"),
        ({"tokenizer": "acme/t"}, "--model-path acme/tiny --served-model-name acme/tiny --tokenizer-path acme/t"),
    ],
    ids=str,
)
def test_the_model_source_selects_the_path_and_the_served_name_stays_the_same(
    model: dict[str, Any], expected: str
) -> None:
    found = launches_of({**sglang(), "spec.model": {"name": "acme/tiny", **model}})["none"]
    assert " ".join(found.args).split(" --tp-size")[0] == expected


def test_local_models_are_files_and_other_models_are_hub_repositories() -> None:
    edits = {**sglang({"method": "eagle3", "model": "./head"}), "spec.model": {"name": "t", "path": "/m/t"}}
    local, remote = launches_of(edits)["arm"], launch({"method": "eagle3", **HEAD})
    assert (local.files, local.hub) == ({"spec.model.path": "/m/t", "spec.drafters[0].model": "./head"}, {})
    assert (remote.files, remote.hub) == ({}, {"spec.model.name": "acme/tiny", "spec.drafters[0].model": "acme/head"})


def test_draft_lengths_become_a_config_file_with_one_candidate_per_batch_range() -> None:
    found = launch(GOLDEN["draft-lengths"][0])
    assert found.configs == {"adaptive.json": '{"1": {"candidate_steps": [3]}, "5": {"candidate_steps": [0]}}\n'}
    assert launch(GOLDEN["eagle3"][0]).configs == {}


def steps_of(slots: dict[str, dict[str, list[int]]], batch: int) -> int:
    """Candidate steps as SGLang looks them up: from the last slot that begins at or before this batch size."""
    begins = max(int(begin) for begin in slots if int(begin) <= batch)
    return slots[str(begins)]["candidate_steps"][0]


@given(
    st.dictionaries(st.integers(1, 64), st.integers(0, 8), min_size=1, max_size=8).filter(
        lambda rows: any(rows.values())
    )
)
def test_each_batch_size_uses_the_draft_length_of_the_smallest_row_that_covers_it(rows: dict[int, int]) -> None:
    lengths = [{"batchSize": batch, "tokens": tokens} for batch, tokens in rows.items()]
    drafter = {"method": "eagle3", **HEAD, "numSpeculativeTokens": max(rows.values()), "draftLengths": lengths}
    slots = json.loads(launch(drafter).configs["adaptive.json"])
    for batch in range(1, 70):
        row = min((size for size in rows if batch <= size), default=max(rows))
        assert steps_of(slots, batch) == rows[row]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--model", "x"], "set spec.model"),
        (["--revision=x"], "set spec.model.revision"),
        (["--served-model-name=x"], "it is spec.model.name"),
        (["--tensor-parallel-size=2"], "set spec.engine.tensorParallelSize"),
        (["--tp", "2"], "set spec.engine.tensorParallelSize"),
        (["--config=x.yaml"], "put its arguments into args, so that they can be checked against those of specbench"),
        (["--speculative-algorithm=NGRAM"], "set drafters[].method"),
        (["--speculative-draft-model", "x"], "set drafters[].model"),
        (["--speculative-draft-model-revision", "x"], "set drafters[].revision"),
        (["--speculative-num-steps=5"], "set drafters[].numSpeculativeTokens"),
        (["--speculative-eagle-topk=5"], "set drafters[].eagleTopk"),
        (
            ["--speculative-dflash-block-size=5"],
            "set drafters[].numSpeculativeTokens, and numDraftTokens for a tree",
        ),
        (["--speculative-token-map=x"], "set drafters[].tokenMap"),
        (["--speculative-adaptive"], "set drafters[].draftLengths"),
        (["--max-running-requests=1"], "it is spec.load.slots, or else the highest of spec.load.concurrency"),
        (["--max-running", "1"], "it is spec.load.slots, or else the highest of spec.load.concurrency"),
        (["--disable-radix-cache"], "remove it"),
        (["--sampling-defaults=model"], "or set spec.engine.equalizeArms: Disabled"),
        (["--stream-interval=8"], "or set spec.engine.equalizeArms: Disabled"),
        (["--enable-metrics"], "remove it"),
        (["--enable-cache-report"], "remove it"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_rejects_an_argument_that_contradicts_a_managed_flag_with_its_field(args: list[str], expected: str) -> None:
    (problem,) = rejected(args=["--dtype=bfloat16", *args])
    same = expected == "remove it"
    what = "is already set by specbench" if same else "contradicts "
    assert problem.startswith(f"spec.engine.args[1]: '{' '.join(args)}' {what}")
    assert problem.endswith(f" ({expected})")


def test_a_contradiction_reports_both_values() -> None:
    assert rejected(GOLDEN["mtp"][0] | {"args": ["--speculative-num-steps=5", "--max-running", "9"]}) == [
        (
            "spec.drafters[0].args[0]: '--speculative-num-steps=5' contradicts '--speculative-num-steps 3', which"
            " specbench sets (set drafters[].numSpeculativeTokens)"
        ),
        (
            "spec.drafters[0].args[1]: '--max-running 9' contradicts '--max-running-requests 8', which specbench sets"
            " (it is spec.load.slots, or else the highest of spec.load.concurrency)"
        ),
    ]


EAGLE3 = {"method": "eagle3", **HEAD}


REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "speculative-config": (
        {**EAGLE3, "speculativeConfig": {"a": 1}},
        "speculativeConfig: SGLang configures speculation by flags only (put them into this drafter's args)",
    ),
    "draft-tp": (
        {**EAGLE3, "draftTensorParallelSize": 1},
        "draftTensorParallelSize: SGLang splits the drafter like the target (remove it)",
    ),
    "revision-without-model": (
        {"method": "ngram", "revision": "v2"},
        "revision: SGLang uses no draft model, so it has no revision (remove it, or set model)",
    ),
    "prompt-lookup-min": (
        {"method": "ngram", "promptLookupMin": 2},
        "promptLookupMin: SGLang looks up suffixes of every length (remove it)",
    ),
    "prompt-lookup-max": (
        {"method": "ngram", "promptLookupMax": 5},
        (
            "promptLookupMax: SGLang limits the suffix together with the draft"
            " (put --speculative-ngram-max-trie-depth into this drafter's args)"
        ),
    ),
    "chain-with-num-draft-tokens": (
        {**EAGLE3, "numDraftTokens": 8},
        (
            "numDraftTokens: for a chain of 3 drafts SGLang always verifies 4 tokens"
            " (remove it, or set eagleTopk for a tree)"
        ),
    ),
    "tree-without-num-draft-tokens": (
        {**EAGLE3, "eagleTopk": 2},
        (
            "numDraftTokens: a tree of depth 3 and eagleTopk 2 has at most 11 nodes, including the root"
            " (set it to the number to verify: 2 to 11)"
        ),
    ),
    "tree-too-large": (
        {**EAGLE3, "eagleTopk": 2, "numDraftTokens": 12},
        (
            "numDraftTokens: a tree of depth 3 and eagleTopk 2 has at most 11 nodes, including the root"
            " (set it to the number to verify: 2 to 11)"
        ),
    ),
    "draft-lengths-with-ngram": (
        {"method": "ngram", "draftLengths": [{"batchSize": 8, "tokens": 3}]},
        (
            "draftLengths: SGLang supports draft lengths by batch size only for chains of eagle, eagle3 and mtp, and"
            " ignores them otherwise (remove it, or use one of these methods without eagleTopk)"
        ),
    ),
    "draft-lengths-with-a-tree": (
        {**EAGLE3, "eagleTopk": 2, "numDraftTokens": 8, "draftLengths": [{"batchSize": 8, "tokens": 3}]},
        (
            "draftLengths: SGLang supports draft lengths by batch size only for chains of eagle, eagle3 and mtp, and"
            " ignores them otherwise (remove it, or use one of these methods without eagleTopk)"
        ),
    ),
    "draft-lengths-above-num-speculative-tokens": (
        {**EAGLE3, "draftLengths": [{"batchSize": 1, "tokens": 5}]},
        "draftLengths: the longest is 5, but numSpeculativeTokens is 3 (make them equal)",
    ),
    "custom-algorithm-with-its-own-method": (
        {"method": "custom", "algorithm": "nextn"},
        "algorithm: nextn is method mtp (set method: mtp)",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_settings_that_sglang_rejects_or_corrects_are_rejected(name: str) -> None:
    drafter, expected = REJECTED[name]
    (problem,) = rejected(drafter)
    assert problem.startswith(f"spec.drafters[0].{expected}")
