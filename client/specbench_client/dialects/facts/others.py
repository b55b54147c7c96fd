"""What the other engines tell: llama.cpp its file and its context, our research runtime all, TensorRT-LLM a version.

llama.cpp divides its context among its slots, so its KV cache holds what they hold together. The research runtime has
a page of its own, on which a fact has the name that it has here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_client.dialects.facts.reading import Reading, count, of_object
from specbench_client.dialects.facts.vllm import MODELS, VERSION

PROPS = "/props"
OWN_PAGE = "/facts"
_SETTINGS = "default_generation_settings"


@of_object
def _of_all_slots(props: Mapping[str, Any]) -> JsonValue:
    settings = props.get(_SETTINGS)
    each = count(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = count(props.get("total_slots"))
    return each * slots if isinstance(each, int) and isinstance(slots, int) else None


LLAMA_CPP: tuple[Reading, ...] = (
    Reading(FactName.ENGINE_VERSION, PROPS, ("build_info",)),
    Reading(FactName.MODEL, PROPS, ("model_path",)),
    Reading(FactName.QUANTIZATION, PROPS, ("model_ftype",)),
    Reading(FactName.MAX_MODEL_LEN, PROPS, (_SETTINGS, "n_ctx"), count),
    Reading(FactName.MAX_RUNNING_REQUESTS, PROPS, ("total_slots",), count),
    Reading(FactName.KV_CACHE_TOKENS, PROPS, (), _of_all_slots),
    Reading(FactName.WEIGHTS_BYTES, "/v1/models", ("data", 0, "meta", "size"), count),
)
TENSORRT_LLM: tuple[Reading, ...] = (VERSION, Reading(FactName.MODEL, "/v1/models", ("data", 0, "id")))
TRANSFORMERS: tuple[Reading, ...] = (
    VERSION,
    Reading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), count),
    *(
        Reading(name, OWN_PAGE, (name.value,))
        for name in (
            FactName.MODEL,
            FactName.DTYPE,
            FactName.QUANTIZATION,
            FactName.MAX_RUNNING_REQUESTS,
            FactName.PREFIX_CACHE,
            FactName.CUDA_GRAPHS,
            FactName.ATTENTION_BACKEND,
            FactName.TORCH,
            FactName.CUDA,
            FactName.GPU,
            FactName.DRAFTER_VOCABULARY,
            FactName.WEIGHTS_BYTES,
            FactName.DRAFTER_WEIGHTS_BYTES,
            FactName.KV_BYTES_PER_TOKEN,
            FactName.GPU_MEMORY_USED_BYTES,
        )
    ),
)
OPENAI: tuple[Reading, ...] = (VERSION, *MODELS)
"""Of an endpoint of which nothing else is known: what several engines tell alike."""
