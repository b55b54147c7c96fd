"""Makes a Llama of a given shape with random weights, its layer-truncated draft model, and Medusa heads.

Runs as a program in the engines' Python: `models.py SHAPE_JSON DEVICE FOLDER`. It prints the paths by role as JSON,
with `agreement`, the share of positions at which the draft model chooses the target's token.

The later layers of the target are damped until the draft model agrees with it about as often as a good real one does.
Acceptance is therefore set by construction, so that accepted and rejected drafts both occur. The heads are not fitted:
almost none of their drafts are accepted.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer

TINY_MODELS = Path(__file__).parents[2] / "tests" / "test_engines" / "tiny_models.py"
CONTEXT = 4096
AGREEMENT = 0.6
HALVINGS_MAX = 10
SEED = 20
TESTS_VOCABULARY = 320


def main(shape: dict[str, Any], device: str, folder: Path) -> None:
    """Make everything and print it."""
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer(shape["vocabulary"])
    with torch.inference_mode():
        target = make_model(shape, shape["layers"], device)
        target.get_output_embeddings().weight[tokens_without_text(tokenizer)] = 0
        agreement = damp_later_layers(target, shape)
        draft = make_model(shape, shape["draft_layers"], device)
        draft.load_state_dict(target.state_dict(), strict=False)
        heads = make_heads(shape, target.dtype, device)
    for name, model in {"target": target, "truncated": draft}.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    save_file(heads, folder / "medusa_lm_head.safetensors")
    made = {name: str(folder / name) for name in ("target", "truncated")}
    made["medusa"] = str(folder / "medusa_lm_head.safetensors")
    sys.stdout.write(json.dumps(made | {"agreement": agreement}))


def make_tokenizer(vocabulary: int) -> Any:
    """Return the tests' tokenizer with as many tokens as the model has; the additional ones are words that no text has.

    Random weights choose any token, and each needs a text, or the answers would be empty.
    """
    small = runpy.run_path(str(TINY_MODELS))["make_tokenizer"]()
    content = json.loads(small.backend_tokenizer.to_str())
    words = content["model"]["vocab"]
    words.update({f"Ġw{number}": number for number in range(len(words), vocabulary)})
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        bos_token=small.bos_token,
        eos_token=small.eos_token,
        chat_template=small.chat_template,
    )


def tokens_without_text(tokenizer: Any) -> list[int]:
    """Return special tokens and parts of characters. Engines hold their chunks back; a logit of 0 is never the largest.

    All of them are among the tests' tokens, the first of the vocabulary.
    """
    texts = {token: tokenizer.decode([token], skip_special_tokens=True) for token in range(TESTS_VOCABULARY)}
    return [token for token, text in texts.items() if not text or "\ufffd" in text]


def make_model(shape: dict[str, Any], layers: int, device: str) -> Any:
    """Return a Llama with random weights in bfloat16, created on the device."""
    config = transformers.LlamaConfig(
        vocab_size=shape["vocabulary"], hidden_size=shape["hidden"], intermediate_size=shape["intermediate"],
        num_hidden_layers=layers, num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
        max_position_embeddings=CONTEXT, tie_word_embeddings=shape["tied"], bos_token_id=0, eos_token_id=1,
        # About Llama's own 0.02 for its own widths. A small model with 0.02 would repeat its last token.
        initializer_range=shape["hidden"] ** -0.5,
    )  # fmt: skip
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def damp_later_layers(target: Any, shape: dict[str, Any]) -> float:
    """Halve what the layers after the draft model's add, until both often choose the same token; return how often.

    Halving is exact in bfloat16.
    """
    ids = torch.randint(2, shape["vocabulary"], (4, 64), device=target.device)
    layers = target.model.layers
    agreement = 0.0
    for _ in range(HALVINGS_MAX + 1):
        chosen = target(ids, use_cache=False).logits.argmax(-1)
        target.model.layers = layers[: shape["draft_layers"]]
        drafted = target(ids, use_cache=False).logits.argmax(-1)
        target.model.layers = layers
        agreement = float((chosen == drafted).float().mean())
        if agreement >= AGREEMENT:
            break
        for layer in layers[shape["draft_layers"] :]:
            layer.self_attn.o_proj.weight.mul_(0.5)
            layer.mlp.down_proj.weight.mul_(0.5)
    return round(agreement, 3)


def make_heads(shape: dict[str, Any], dtype: Any, device: str) -> dict[str, Any]:
    """Return random Medusa heads: one residual and one output layer each."""
    hidden, tensors = shape["hidden"], dict[str, Any]()
    options = {"dtype": dtype, "device": device}
    for head in range(shape["medusa_heads"]):
        tensors[f"{head}.0.linear.weight"] = torch.randn(hidden, hidden, **options) * 0.02
        tensors[f"{head}.0.linear.bias"] = torch.zeros(hidden, **options)
        tensors[f"{head}.1.weight"] = torch.randn(shape["vocabulary"], hidden, **options) * 0.02
    return tensors


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
