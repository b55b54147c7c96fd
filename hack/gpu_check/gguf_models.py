"""Converts the models with random weights to GGUF files in float16, for llama.cpp.

Runs as a program in the engines' Python: `gguf_models.py FOLDER FILE …`, pairs of a Hugging Face folder and the file to
write. llama.cpp's own converter refuses tokenizers that it does not know by a hash of their output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file

LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
OTHER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
SPECIAL = ("<s>", "</s>")


def convert(folder: Path, file: Path) -> None:
    """Write one model."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    add_tokenizer(writer, folder)
    for part in sorted(folder.glob("*.safetensors")):
        for name, weights in load_file(part).items():
            if name != "lm_head.weight" or not config["tie_word_embeddings"]:
                writer.add_tensor(renamed(name), as_stored(name, weights, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: Any, folder: Path) -> None:
    """Add the byte-level tokenizer and its chat template."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in model["merges"]])
    writer.add_bos_token_id(tokens.index(SPECIAL[0]))
    writer.add_eos_token_id(tokens.index(SPECIAL[1]))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


def renamed(name: str) -> str:
    """Return GGUF's name of a tensor."""
    stem = name.removesuffix(".weight")
    if stem in OTHER:
        return f"{OTHER[stem]}.weight"
    _, _, number, rest = stem.split(".", 3)
    return f"blk.{number}.{LAYER[rest]}.weight"


def as_stored(name: str, weights: Any, config: dict[str, Any]) -> Any:
    """Return a matrix as float16 and a vector as float32; rows of queries and keys in the order of GGUF's RoPE."""
    if weights.ndim == 1:
        return weights.float().numpy()
    for projection, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if projection in name:
            rows, columns = weights.shape
            paired = weights.reshape(config[heads], 2, rows // config[heads] // 2, columns)
            weights = paired.swapaxes(1, 2).reshape(rows, columns)
    return weights.to(torch.float16).numpy()


if __name__ == "__main__":
    for source, target in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        convert(Path(source), Path(target))
