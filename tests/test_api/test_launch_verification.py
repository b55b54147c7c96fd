"""How each engine draws and accepts drafts above temperature 0, by its command line."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.launch.launcher import DerivedMethod, Verification
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.plan.expansion import expand, lossy_arms
from specbench_testing.resources import run_of

HEAD = {"model": "acme/head"}
MTP = {"method": "mtp", "numSpeculativeTokens": 3}
GGUF = {"method": "draft_model", "model": "/models/draft.gguf"}
FLY = {"speculativeConfig": {"rejection_sample_method": "fly"}}
RELAXED = {"speculativeConfig": {"use_relaxed_acceptance_for_thinking": True, "relaxed_topk": 10}}
SINGLE = "--speculative-accept-threshold-single"


def edits(kind: str, drafter: dict[str, Any], **engine: Any) -> dict[str, Any]:
    model = {"name": "m", "path": "/models/m.gguf"} if kind == "llama-cpp" else {"name": "acme/tiny"}
    arm = {"name": "arm", **drafter}
    return {"spec.model": model, "spec.engine": {"kind": kind, **engine}, "spec.drafters": [arm]}


def verification(kind: str, drafter: dict[str, Any], **engine: Any) -> Verification:
    plan = expand(run_of(edits(kind, drafter, **engine)))
    chosen = plan.arm("arm").drafter
    assert chosen is not None
    return LAUNCHERS[plan.engine.kind].verification(plan.engine, chosen)


def names(found: Verification) -> tuple[str | None, str | None]:
    return found.drafts.name, found.acceptance.name


@pytest.mark.parametrize(
    ("kind", "drafter", "drafts", "acceptance", "source"),
    [
        ("vllm", {"method": "eagle3", **HEAD}, "greedy", "rejection sampling", "default of vllm 0.33.0"),
        ("vllm", {"method": "ngram"}, "greedy", "rejection sampling", "default of vllm 0.33.0"),
        ("sglang", {"method": "eagle3", **HEAD}, "greedy", "token match", "default of sglang 0.5.23"),
        ("sglang", {"method": "ngram"}, "greedy", "token match", "default of sglang 0.5.23"),
        ("sglang", {"method": "dspark", **HEAD}, "probabilistic", "rejection sampling", "default of sglang 0.5.23"),
        ("llama-cpp", GGUF, "greedy", "token match", "default of llama.cpp b11368 and later"),
        (
            "transformers", {"method": "draft_model", **HEAD},
            "probabilistic", "rejection sampling", "default of transformers 5.19.0",
        ),
        ("transformers", {"method": "ngram"}, "greedy", "token match", "default of transformers 5.19.0"),
        ("sglang", MTP, "greedy", "token match", "default of sglang 0.5.23, except on ROCm, where it draws chains"),
        (
            "vllm", {"method": "ngram", "speculativeConfig": {"draft_sample_method": "probabilistic"}},
            "greedy", "rejection sampling", "default of vllm 0.33.0",
        ),
    ],
)  # fmt: skip
def test_defaults_name_the_release_that_they_are_from(
    kind: str, drafter: dict[str, Any], drafts: str, acceptance: str, source: str
) -> None:
    assert verification(kind, drafter) == Verification(DerivedMethod(drafts, source), DerivedMethod(acceptance, source))


@pytest.mark.parametrize(
    ("kind", "drafter", "engine", "drafts", "acceptance", "sources"),
    [
        (
            "vllm", {**MTP, "speculativeConfig": {"draft-sample-method": "probabilistic"}}, {},
            "probabilistic", "rejection sampling", ("speculativeConfig.draft_sample_method", "default of vllm 0.33.0"),
        ),
        (
            "vllm", {**MTP, "speculativeConfig": {"rejection_sample_method": "block"}}, {},
            "greedy", "block verification", ("default of vllm 0.33.0", "speculativeConfig.rejection_sample_method"),
        ),
        (
            "sglang", {**MTP, "args": ["--speculative-use-rejection-sampling"]}, {},
            "probabilistic", "rejection sampling", ("--speculative-use-rejection-sampling",) * 2,
        ),
        (
            "sglang", {"method": "eagle3", **HEAD}, {"args": ["--speculative-use-block"]},
            "probabilistic", "block verification", ("--speculative-use-block-verification",) * 2,
        ),
        (
            "sglang", {"method": "dspark", **HEAD}, {"env": [{"name": "SGLANG_DSPARK_USE_GREEDY_DRAFT", "value": "1"}]},
            "greedy", "rejection sampling", ("SGLANG_DSPARK_USE_GREEDY_DRAFT", "default of sglang 0.5.23"),
        ),
        (
            "llama-cpp", {**GGUF, "args": ["--spec-draft-sampling=probabilistic"]}, {},
            "probabilistic", "rejection sampling", ("--spec-draft-sampling",) * 2,
        ),
        (
            "llama-cpp", {**GGUF, "args": ["--spec_draft_sampling", "greedy"]}, {},
            "greedy", "token match", ("--spec-draft-sampling",) * 2,
        ),
    ],
)  # fmt: skip
def test_options_are_the_source_of_what_they_set(  # noqa: PLR0917 -- the columns of the table
    kind: str, drafter: dict[str, Any], engine: dict[str, Any], drafts: str, acceptance: str, sources: tuple[str, str]
) -> None:
    found = verification(kind, drafter, **engine)
    assert names(found) == (drafts, acceptance)
    assert (found.drafts.source, found.acceptance.source) == sources
    assert not found.lossy


@pytest.mark.parametrize(
    ("kind", "drafter", "acceptance", "option"),
    [
        ("vllm", {**MTP, **FLY}, "FLy (lossy)", "speculativeConfig.rejection_sample_method: fly"),
        ("vllm", {"method": "ngram", **FLY}, "FLy (lossy)", "speculativeConfig.rejection_sample_method: fly"),
        ("sglang", {**MTP, "args": [SINGLE, "0.5"]}, "acceptance thresholds (lossy)", f"{SINGLE} 0.5"),
        ("sglang", {"method": "ngram", "args": [f"{SINGLE}=.9"]}, "acceptance thresholds (lossy)", f"{SINGLE} .9"),
        ("sglang", {"method": "dflash", **HEAD, "args": [SINGLE, "0.5"]}, None, f"{SINGLE} 0.5"),
        (
            "tensorrt-llm", {**MTP, **RELAXED}, "relaxed acceptance (lossy)",
            "speculativeConfig.use_relaxed_acceptance_for_thinking: true",
        ),
        (
            "tensorrt-llm", {"method": "eagle3", **HEAD, "speculativeConfig": {"posterior_threshold": 0.1}},
            "typical acceptance (lossy)", "speculativeConfig.posterior_threshold: 0.1",
        ),
    ],
)  # fmt: skip
def test_lossy_options_are_allowed_and_named(
    kind: str, drafter: dict[str, Any], acceptance: str | None, option: str
) -> None:
    assert verification(kind, drafter).acceptance.name == acceptance
    assert lossy_arms(expand(run_of(edits(kind, drafter)))) == {"arm": (option,)}


def test_threshold_for_all_arms_is_lossy_only_where_drafts_are_verified() -> None:
    plan = expand(run_of(edits("sglang", MTP, args=["--speculative-accept-threshold-acc=0.7"])))
    assert [arm.name for arm in plan.arms] == ["none", "arm"]
    assert lossy_arms(plan) == {"arm": ("--speculative-accept-threshold-acc 0.7",)}


@pytest.mark.parametrize(
    ("kind", "drafter"),
    [
        ("vllm", {**MTP, "speculativeConfig": {"rejection_sample_method": "standard"}}),
        ("sglang", {**MTP, "args": [SINGLE, "1.0"]}),
        ("sglang", {"method": "dspark", **HEAD, "args": [SINGLE, "0.5"]}),
        ("tensorrt-llm", {**MTP, "speculativeConfig": {"use_relaxed_acceptance_for_thinking": False}}),
        ("llama-cpp", {**GGUF, "args": ["--spec-draft-p-min", "0.9"]}),
    ],
)
def test_options_that_keep_the_distribution_are_not_lossy(kind: str, drafter: dict[str, Any]) -> None:
    assert lossy_arms(expand(run_of(edits(kind, drafter)))) == {}


@pytest.mark.parametrize(("value", "partial"), [(True, True), (False, False), (None, False)])
def test_adaptive_verification_leaves_drafts_out_that_vllm_counts(value: bool | None, partial: bool) -> None:
    config = {} if value is None else {"speculativeConfig": {"enable-adaptive-verification": value}}
    assert verification("vllm", {"method": "dspark", **HEAD, **config}).partial is partial


@pytest.mark.parametrize(
    ("kind", "drafter", "expected", "why"),
    [
        (
            "vllm", {"method": "custom", "algorithm": "custom_class", "model": "my.Proposer"},
            (None, None), "a custom class",
        ),
        ("sglang", {"method": "custom", "algorithm": "UNO"}, (None, None), "algorithm UNO may draw"),
        ("sglang", {"method": "dflash", **HEAD}, (None, None), "a candidate selector or LiLiCorr"),
        ("simulator", {"method": "ngram"}, (None, None), "the simulator accepts drafts at random"),
        ("tensorrt-llm", MTP, ("greedy", "token match"), "not observed"),
        (
            "tensorrt-llm", {**MTP, "speculativeConfig": {"use_rejection_sampling": True}},
            (None, "rejection sampling"), "",
        ),
        (
            "llama-cpp", {"method": "ngram", "args": ["--spec-draft-sampling", "probabilistic"]},
            ("greedy", "token match"), "",
        ),
    ],
)  # fmt: skip
def test_methods_that_do_not_follow_from_the_command_are_unknown_with_a_reason(
    kind: str, drafter: dict[str, Any], expected: tuple[str | None, str | None], why: str
) -> None:
    found = verification(kind, drafter)
    assert names(found) == expected
    assert why in found.drafts.source
