"""Converts the demo's model to a Hugging Face folder, and copies it with noise in its weights as an imperfect drafter.

Runs as a program in the engines' environment, with the 4-bit file and the output folder as arguments. Existing
folders are kept: a conversion takes half a minute and 540 MB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

NOISE = 0.1
"""Share of a matrix's standard deviation; about half of three greedy drafts are then accepted."""


def main(source: Path, folder: Path) -> None:
    """Make the missing folders and print the paths of both."""
    target, noisy = folder / "SmolLM2-135M-Instruct", folder / "SmolLM2-135M-Instruct-noise"
    if not (target.exists() and noisy.exists()):
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source.parent,
            gguf_file=source.name,
            dtype=torch.bfloat16,
            # Packed weights can be used but not saved.
            quantization_config=transformers.GgufConfig(dequantize=True),
        )
        publish(model, tokenizer, target)
        torch.manual_seed(20)
        with torch.inference_mode():
            for name, weight in model.named_parameters():
                if weight.ndim == 2 and "embed" not in name:
                    weight.add_(torch.randn_like(weight), alpha=NOISE * float(weight.float().std()))
        publish(model, tokenizer, noisy)
    sys.stdout.write(json.dumps({"target": str(target), "noisy": str(noisy)}))


def publish(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save to a temporary folder, then rename it: a reader never sees an incomplete model."""
    partial = folder.with_name(f".{folder.name}")
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if not folder.exists():
        partial.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
