"""What the runtime is made of, for its page `/facts`: read off the loaded models, never off the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from specbench_client.research.settings import Settings

NONE = "none"


def facts_of(settings: Settings, model: Any, drafter: Any) -> Mapping[str, str | int | None]:
    """See `Runtime.facts`. `drafter`: a model or Medusa heads; None: it has no weights of its own."""
    on_gpu = model.device.type == "cuda"
    return {
        "model": settings.model,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": _quantization(model),
        "max_running_requests": 1,
        "prefix_cache": False,
        "cuda_graphs": False,
        "attention_backend": getattr(model.config, "_attn_implementation", None),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or NONE,
        "gpu": torch.cuda.get_device_name(model.device) if on_gpu else None,
        "drafter_vocabulary": _vocabulary(drafter),
        "weights_bytes": _bytes(model),
        "drafter_weights_bytes": 0 if drafter is None else _bytes(drafter),
        "kv_bytes_per_token": _kv_bytes_per_token(model),
        "gpu_memory_used_bytes": torch.cuda.memory_reserved(model.device) if on_gpu else None,
    }


def _bytes(model: Any) -> int:
    """Of its parameters; those that two layers share are there once."""
    return sum(one.numel() * one.element_size() for one in model.parameters())


def _quantization(model: Any) -> str:
    told = getattr(model.config, "quantization_config", None)
    return NONE if told is None else str(getattr(told, "quant_method", "unnamed"))


def _vocabulary(drafter: Any) -> int | None:
    """Of a draft model; Medusa's heads have the target's, and no config."""
    config = getattr(drafter, "config", None)
    return None if config is None else int(config.get_text_config().vocab_size)


def _kv_bytes_per_token(model: Any) -> int | None:
    """A key and a value of every layer, for models whose layers all keep both."""
    config = model.config.get_text_config()
    layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if layers is None or heads is None:
        return None
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    pairs = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * layers * pairs * width * torch.empty((), dtype=model.dtype).element_size())
