"""A drafter as vLLM's `--speculative-config`, and what of it vLLM has not.

One line of JSON with its keys in order, so that the same drafter is always the same argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from specbench_api.errors import Problem
from specbench_api.launch.launch import Order
from specbench_api.launch.support.vllm import ALGORITHMS, RELEASE
from specbench_api.spec.drafter import TEXT_ALONE, Drafter, DraftLength, Method

CUSTOM_CLASS = "custom_class"
"""The algorithm whose model is no model but a Python class."""
_METHODS = {Method.PARD: "draft_model"}
"""Where vLLM's name of a method is not ours."""
_FIELDS = {
    "method": "set method, or method: custom with algorithm",
    "model": "set model",
    "revision": "set revision",
    "num_speculative_tokens": "set numSpeculativeTokens",
    "draft_tensor_parallel_size": "set draftTensorParallelSize",
    "tensor_parallel_size": "set draftTensorParallelSize",
    "prompt_lookup_min": "set promptLookupMin",
    "prompt_lookup_max": "set promptLookupMax",
    "num_speculative_tokens_per_batch_size": "set draftLengths",
}
"""Keys that a field of the drafter sets, or would set."""
_INVENTED = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
_SGLANG_HAS = "leave it out, or use engine kind sglang, which has it"


def rendered(drafter: Drafter) -> str:
    """The argument: what the drafter's fields say, and its further keys."""
    return json.dumps({**_further(drafter), **_config(drafter)}, sort_keys=True, separators=(",", ":"))


def speculation_problems(order: Order) -> list[Problem]:
    """What vLLM would refuse at its start, or take in silence and not do."""
    drafter, path = order.drafter, order.drafter_path
    if drafter is None:
        return []
    return [
        *_name_problems(drafter, order.engine.version, path),
        *_knob_problems(drafter, path),
        *_parallel_problems(drafter, order.engine.tensor_parallel_size, path),
        *_length_problems(drafter, path),
        *_key_problems(drafter, path),
    ]


def _config(drafter: Drafter) -> dict[str, Any]:
    given = {
        "method": drafter.algorithm or _METHODS.get(drafter.method, str(drafter.method)),
        "model": drafter.model,
        "revision": drafter.revision,
        "num_speculative_tokens": drafter.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": _schedule(drafter.draft_lengths) or None,
        "draft_tensor_parallel_size": drafter.draft_tensor_parallel_size,
        "prompt_lookup_min": drafter.prompt_lookup_min,
        "prompt_lookup_max": drafter.prompt_lookup_max,
        "parallel_drafting": True if drafter.method is Method.PARD else None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _further(drafter: Drafter) -> dict[str, Any]:
    """Keys as vLLM reads them: it takes `-` for `_`."""
    return {key.replace("-", "_"): value for key, value in drafter.speculative_config.items()}


def _schedule(lengths: list[DraftLength]) -> list[list[int]]:
    """Ranges of batch sizes, each with its ends, from 1 on. vLLM keeps the last one's length beyond it."""
    rows = sorted(lengths, key=lambda row: row.batch_size)
    begins = [1, *(before.batch_size + 1 for before, _ in pairwise(rows))]
    return [[begin, row.batch_size, row.tokens] for begin, row in zip(begins, rows, strict=False)]


def _name_problems(drafter: Drafter, version: str | None, path: str) -> list[Problem]:
    name = drafter.algorithm
    if name == CUSTOM_CLASS and not drafter.model:
        return [Problem(f"{path}.model", "custom_class needs the class", "set model to it, like my_module.MyProposer")]
    if name is None or name in ALGORITHMS or (version or RELEASE).removeprefix("v") != RELEASE:
        return []
    message = f"vLLM {RELEASE} has no method {name!r} that drafts"
    return [Problem(f"{path}.algorithm", message, f"one of {', '.join(ALGORITHMS)}")]


def _knob_problems(drafter: Drafter, path: str) -> list[Problem]:
    """What belongs to other engines, and what is a model's where there is none: vLLM would not look at it."""
    alone = drafter.method in TEXT_ALONE
    has_not = (
        ("eagleTopk", (drafter.eagle_topk or 1) > 1, "drafts chains and no trees", _SGLANG_HAS),
        ("numDraftTokens", drafter.num_draft_tokens is not None, "drafts chains and no trees", _SGLANG_HAS),
        ("tokenMap", drafter.token_map is not None, "reads a pruned vocabulary from the head itself", _SGLANG_HAS),
        ("revision", alone and drafter.revision is not None, "drafts from the text alone", "leave it out"),
    )
    return [Problem(f"{path}.{name}", f"vLLM {what}", remedy) for name, given, what, remedy in has_not if given]


def _parallel_problems(drafter: Drafter, target: int, path: str) -> list[Problem]:
    asked, where = drafter.draft_tensor_parallel_size, f"{path}.draftTensorParallelSize"
    if asked is None:
        return []
    if drafter.method in TEXT_ALONE or drafter.algorithm == CUSTOM_CLASS:
        return [Problem(where, "no model of the drafter's own is split here", "leave it out")]
    if asked in (1, target):
        return []
    message = f"vLLM splits a drafter as it splits the target ({target}) or not at all, and not over {asked}"
    return [Problem(where, message, f"1 or {target}" if target > 1 else "1")]


def _length_problems(drafter: Drafter, path: str) -> list[Problem]:
    most = drafter.num_speculative_tokens
    return [
        Problem(
            f"{path}.draftLengths[{row}].tokens",
            f"vLLM never drafts more than numSpeculativeTokens ({most}), and {length.tokens} is asked",
            f"at most {most}, or a larger numSpeculativeTokens",
        )
        for row, length in enumerate(drafter.draft_lengths)
        if length.tokens > most
    ]


def _key_problems(drafter: Drafter, path: str) -> list[Problem]:
    ours = _config(drafter)
    found = []
    for key, value in drafter.speculative_config.items():
        name = key.replace("-", "_")
        where = f"{path}.speculativeConfig.{key}"
        if _owned(name, drafter, ours) and (name not in ours or ours[name] != value):
            found.append(_contradicting(where, key, value, ours, name))
        if name in _INVENTED or (name == "rejection_sample_method" and value == "synthetic"):
            message = "synthetic acceptance is made up, and the text that comes of it is no model's"
            found.append(Problem(where, message, "remove it; engine kind simulator is for a known acceptance"))
    return found


def _owned(name: str, drafter: Drafter, ours: Mapping[str, Any]) -> bool:
    """The lookup's fields are method ngram's alone: what else looks up n-grams has them as further keys."""
    free = name.startswith("prompt_lookup") and drafter.method is not Method.NGRAM
    return name in ours or (name in _FIELDS and not free)


def _contradicting(where: str, key: str, value: Any, ours: Mapping[str, Any], name: str) -> Problem:
    """Both values, ours as the field of the drafter has it."""
    left_out = "a field of this arm, which leaves it out"
    other = f"{name} {json.dumps(ours[name])} of this arm" if name in ours else left_out
    remedy = _FIELDS.get(name, "remove it: it follows from method")
    return Problem(where, f"{key} {json.dumps(value)} contradicts {other}", remedy)
