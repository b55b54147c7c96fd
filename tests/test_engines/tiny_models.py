"""Makes tiny models with torch and transformers, in the engines' own environment: a target, drafters, Medusa heads.

Called as a program by the tests, whose own environment has no torch. The target is trained on four sentences for some
seconds, so that drafters agree with it often, but not always.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HEADS = 3
CHAT = "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}\n{% endfor %}<|assistant|>"
TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "say the same thing again and again and again",
    "one two three four five six seven eight nine ten",
    "how many tokens are there in an answer of a tiny model",
]


def main(folder: Path) -> None:
    """Make all models and print their paths."""
    torch.manual_seed(20)
    tokenizer = make_tokenizer()
    target = make_model(len(tokenizer), layers=2)
    teach(target, tokenizer)
    noisy = make_model(len(tokenizer), layers=2)
    noisy.load_state_dict(with_noise(target.state_dict(), 1.2))
    shallow = make_model(len(tokenizer), layers=1)
    shallow.load_state_dict(target.state_dict(), strict=False)
    strange = make_model(len(tokenizer) + 8, layers=1)
    for name, model in {"target": target, "noisy": noisy, "shallow": shallow, "strange": strange}.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    save_file(train_heads(target, tokenizer), folder / "medusa_lm_head.safetensors")
    heads = {"heads": str(folder / "medusa_lm_head.safetensors")}
    made = {name: str(folder / name) for name in ("target", "noisy", "shallow", "strange")}
    sys.stdout.write(json.dumps(made | heads))


def make_tokenizer() -> Any:
    """Train a byte-level tokenizer on a few lines; it covers every character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXT, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=CHAT
    )


def make_model(vocabulary: int, layers: int) -> Any:
    """Make a Llama with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def with_noise(weights: dict[str, Any], share: float) -> dict[str, Any]:
    """Add noise to every matrix except embeddings, as a share of its standard deviation."""
    return {
        name: one + share * one.std() * torch.randn_like(one) if one.ndim == 2 and "embed" not in name else one
        for name, one in weights.items()
    }


def lines(tokenizer: Any, count: int, length: int) -> Any:
    """Rows of tokens: each repeats one sentence three times with an end token, from a random offset."""
    rows = []
    for number in range(count):
        once = tokenizer(TEXT[number % len(TEXT)] + "\n")["input_ids"]
        ids = (once * 3 + [tokenizer.eos_token_id]) * length
        start = int(torch.randint(0, length, ()))
        rows.append(ids[start : start + length])
    return torch.tensor(rows)


def teach(model: Any, tokenizer: Any) -> None:
    """Train the model to continue the sentences."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(120):
        optimiser.zero_grad()
        rows = lines(tokenizer, 16, 48)
        model(rows, labels=rows).loss.backward()
        optimiser.step()


def train_heads(target: Any, tokenizer: Any) -> dict[str, Any]:
    """Fit heads of one residual and one output layer to the target's own output."""
    with torch.inference_mode():
        ids = target.generate(
            lines(tokenizer, 16, 12), max_new_tokens=60, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        states = target(ids, output_hidden_states=True).hidden_states[-1]
    states, ids = states.clone(), ids.clone()
    tensors: dict[str, Any] = {}
    for head in range(HEADS):
        reach = head + 2  # the target's own head predicts the next token, head 0 the one after it
        residual = torch.nn.Linear(64, 64)
        final = torch.nn.Linear(64, target.config.vocab_size, bias=False)
        optimiser = torch.optim.Adam([*residual.parameters(), *final.parameters()], lr=0.02)
        hidden, targets = states[:, :-reach].reshape(-1, 64), ids[:, reach:].reshape(-1)
        for _ in range(80):
            optimiser.zero_grad()
            logits = final(hidden + torch.nn.functional.silu(residual(hidden)))
            torch.nn.functional.cross_entropy(logits, targets).backward()
            optimiser.step()
        tensors[f"{head}.0.linear.weight"] = residual.weight.detach().contiguous()
        tensors[f"{head}.0.linear.bias"] = residual.bias.detach().contiguous()
        tensors[f"{head}.1.weight"] = final.weight.detach().contiguous()
    return tensors


if __name__ == "__main__":
    main(Path(sys.argv[1]))
