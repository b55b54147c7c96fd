"""Writes models without weights: just enough of a config.json for an engine's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specbench_api.spec.drafter import Method

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_QWEN = {**_LLAMA, "model_type": "qwen3", "head_dim": 16}
_DEEPSEEK = {
    **_LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 1,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
}  # fmt: skip

_DFLASH: dict[str, Any] = {
    **_QWEN, "architectures": ["DFlashDraftModel"], "block_size": 8, "num_target_layers": 2,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]},
}  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "qwen": {**_QWEN, "architectures": ["Qwen3ForCausalLM"]},
    "deepseek": _DEEPSEEK,
    "eagle-head": {**_LLAMA, "num_hidden_layers": 1},
    "eagle3-head": {**_LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1},
    "dflash-head": _DFLASH,
    "xpress-head": {**_DFLASH, "architectures": ["Qwen3XPressModel"]},
    "dflash2-head": {**_DFLASH, "architectures": ["DFlash2DraftModel"]},
    "lilicorr-head": {
        **_DFLASH, "architectures": ["LiLiCorrDraftModel"], "lilicorr_hidden_size": 16, "lilicorr_candidate_topk": 4,
    },
    "dspark-head": {
        **_QWEN, "architectures": ["Qwen3DSparkModel"], "block_size": 8, "target_layer_ids": [0, 1],
    },
}  # fmt: skip

TARGETS = {Method.MTP: "deepseek", Method.DFLASH: "qwen", Method.DSPARK: "qwen"}
"""Methods whose drafter exists for one family of targets; all others use `llama`."""
DRAFTERS = {
    Method.DRAFT_MODEL: "llama",
    Method.PARD: "llama",
    Method.EAGLE: "eagle-head",
    Method.EAGLE3: "eagle3-head",
    Method.DFLASH: "dflash-head",
    Method.DSPARK: "dspark-head",
}


FURTHER_HEADS = ("xpress-head", "dflash2-head", "lilicorr-head")
"""Drafters of method dflash, whose architecture selects another algorithm."""


def write_models(folder: Path) -> None:
    """Write one folder per model with its config.json."""
    for name, config in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
