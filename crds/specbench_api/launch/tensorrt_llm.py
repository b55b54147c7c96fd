"""TensorRT-LLM: `trtllm-serve` on its PyTorch backend, with a configuration file for settings that have no flag.

Unless promptCache is AsServed, every arm runs without reuse of KV blocks. With equalizeArms, every arm runs with one
chunk per iteration and with an n-gram pool per request, and without the overlap scheduler if any arm's drafter runs
without it (`without_overlap`). Statistics are always enabled because the client needs them. The user's keys are merged
into the file; a key that contradicts one of specbench's is reported with both values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from specbench_api.errors import Problem
from specbench_api.launch.arguments import EngineFlags, argument_problems
from specbench_api.launch.launcher import (
    CONFIG_FOLDER,
    GREEDY,
    LOSSY,
    REJECTION,
    TOKEN_MATCH,
    ContextRules,
    DerivedMethod,
    LaunchRequest,
    LaunchSpec,
    Verification,
    default_verification,
    from_batch_size,
    model_sources,
    pinned_revision,
    target_path,
    unknown_verification,
    uri_problems,
)
from specbench_api.launch.supported_methods import TENSORRT_LLM_RELEASE, is_among
from specbench_api.spec.drafter import Drafter, DraftLength, Method
from specbench_api.spec.engine import Engine, EqualizeArms
from specbench_api.spec.model import Target

PORT = 8000
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
CONFIG = "config.yaml"
DEFAULT_LOOKUP = 4
"""Suffix length of TensorRT-LLM's own examples. Always set, because the default differs between releases."""
DECODING_TYPES = {Method.NGRAM: "NGram", Method.DRAFT_MODEL: "DraftTarget", Method.EAGLE3: "Eagle", Method.MTP: "MTP"}
"""TensorRT-LLM's name of each method, up to 1.2."""
NEWER_DECODING_TYPES = {
    **DECODING_TYPES,
    Method.DRAFT_MODEL: "Draft_Target",
    Method.EAGLE3: "Eagle3",
    Method.SUFFIX: "SA",
    Method.PARD: "PARD",
    Method.DFLASH: "DFlash",
    Method.DSPARK: "DSpark",
}
"""From 1.3 on."""
TREE_METHODS = (Method.EAGLE3, Method.MTP)
"""Methods that may draft dynamic trees, from 1.3 on."""
NOT_DRAFTERS = {
    "auto": ("chooses n-grams of its own and ignores numSpeculativeTokens", "set method: ngram"),
    "savestate": ("only stores hidden states and drafts nothing", "remove this drafter"),
    "userprovided": ("needs a Python object, which no configuration file can contain", "use another method"),
}
"""Decoding types that cannot be measured, in lower case and without `_`: why not, and what to do."""
SCHEDULED_METHODS = (Method.NGRAM, Method.DRAFT_MODEL)
"""Methods whose draft length 1.2 can change with the batch size."""
ONE_MODEL_KEYS = ("eagle3_one_model", "mtp_eagle_one_model")
OVERLAP = "disable_overlap_scheduler"
_DRAFTING_KEYS = ("speculative_config", OVERLAP)
NEWER = ">=1.3.dev0"
"""From 1.3 on, methods have other names, a draft model runs inside the target's engine, heads may draft trees, and the
batch sizes of `draft_len_schedule` are upper bounds: larger batches draft nothing."""
SEPARATE_HEADS = ">=1.3.0"
"""Releases that can load MTP heads from another checkpoint; candidates of 1.3.0 until 2026-08 silently ignore it."""
SWITCHES_OFF = (
    "acceptance_window", "acceptance_length_threshold", "acceptance_rate_window_size", "acceptance_rate_threshold",
)  # fmt: skip
_LOSSY_KEYS = {
    "use_relaxed_acceptance_for_thinking": (False, f"relaxed acceptance{LOSSY}"),
    "greedy_sampling": (True, f"typical acceptance{LOSSY}"),
    "posterior_threshold": (None, f"typical acceptance{LOSSY}"),
}
"""Keys by which draft tokens are accepted that the target would not have chosen: their exact value, and the rule."""

_MANAGED = (
    "--tp_size", "--host", "--port", "--extra_llm_api_options", "--tokenizer", "--revision", "--served_model_name",
)  # fmt: skip
PARALLEL_SIZES = ("--pp_size", "--cp_size")
"""Flags of the sizes that multiply the tensor parallel size; a key of `engine.config` has the long name."""
ALIASES = {
    "--config": "--extra_llm_api_options", "--tensor_parallel_size": "--tp_size",
    "--pipeline_parallel_size": "--pp_size", "--moe_expert_parallel_size": "--ep_size",
    "--context_parallel_size": "--cp_size",
}  # fmt: skip
_REMEDIES = {
    "--tp_size": "set spec.engine.tensorParallelSize",
    "--extra_llm_api_options": "set spec.engine.config",
    "--tokenizer": "set spec.model.tokenizer",
    "--revision": "set spec.model.revision",
    "--served_model_name": "set spec.model.name",
}
_FLAGS = EngineFlags(_MANAGED, ALIASES, _REMEDIES, repeatable=("--custom_module_dirs",))
_FIELDS_OF_SPEC = {
    "model": "set spec.model",
    "tokenizer": "set spec.model.tokenizer",
    "revision": "set spec.model.revision",
    "tensor_parallel_size": "set spec.engine.tensorParallelSize",
    "speculative_config": "set spec.drafters[], which has speculativeConfig for further keys",
}
_EVERY_ARM = "remove it: specbench sets it for every arm"

Config = dict[str, Any]


class TensorrtLlmLauncher:
    """Starts `trtllm-serve`."""

    context = ContextRules(("--max_seq_len",), needs_answer_space=False)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line and the configuration file."""
        engine, drafter, (files, hub) = order.engine, order.drafter, model_sources(order)
        own, config = tuple(drafter.args) if drafter else (), _config(order)
        return LaunchSpec(
            image=engine.image or f"{IMAGE}:{_tag(engine.version or TENSORRT_LLM_RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            image_program=("trtllm-serve",),
            local_programs=(("trtllm-serve",),),
            args=(*_alike(order), *engine.args, *own),
            port=PORT,
            env=engine.environment,
            served_model=_served(order.target),
            configs={CONFIG: yaml.safe_dump(config, sort_keys=True, allow_unicode=True)},
            files=files,
            hub=hub,
            drafting=own,
            drafting_config={key: config[key] for key in _DRAFTING_KEYS if key in config} if drafter else {},
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting and repeated arguments and keys, and unsupported settings."""
        engine, drafter, path = order.engine, order.drafter, order.drafter_path
        found = [*argument_problems(order, _FLAGS, _alike(order)), *_engine_problems(order)]
        return [*found, *(_drafter_problems(drafter, engine, path) if drafter else ())]

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:  # noqa: ARG002 -- the drafter sets it
        """Return the methods that the drafter's `speculativeConfig` sets, or TensorRT-LLM's defaults."""
        config = drafter.speculative_config
        rules = {key: rule for key, (exact, rule) in _LOSSY_KEYS.items() if config.get(key, exact) != exact}
        lossy = tuple(f"speculativeConfig.{key}: {_as_json(config[key])}" for key in rules)
        if drafter.method is Method.CUSTOM:
            return unknown_verification(f"algorithm {drafter.algorithm} may draw its drafts in any way", lossy)
        found = default_verification(GREEDY, TOKEN_MATCH, _RULES_READ)
        if rules:
            acceptance = DerivedMethod(next(iter(rules.values())), "; ".join(lossy))
            return Verification(found.drafts, acceptance, lossy)
        if config.get(_REJECTION_KEY) is not True or config.get("sa_config") is not None:
            return found
        source = f"speculativeConfig.{_REJECTION_KEY}"
        why = f"TensorRT-LLM does not document how drafts are drawn with {_REJECTION_KEY}"
        return Verification(DerivedMethod(None, why), DerivedMethod(REJECTION, source))


def without_overlap(engine: Engine, drafters: Sequence[Drafter]) -> Engine:
    """Return the engine without overlap scheduler if equalizeArms is Enabled and one of the drafters requires it.

    TensorRT-LLM would otherwise disable it on that arm only, and the arms would differ in more than their drafter.
    """
    equalized = engine.equalize_arms is EqualizeArms.ENABLED and any(_two_models(each, engine) for each in drafters)
    return engine.model_copy(update={"config": {OVERLAP: True} | engine.config}) if equalized else engine


def _two_models(drafter: Drafter, engine: Engine) -> bool:
    split = any(drafter.speculative_config.get(key) is False for key in ONE_MODEL_KEYS)
    separate = drafter.method is Method.DRAFT_MODEL and not _is_newer(engine)
    return drafter.method is Method.NGRAM or separate or split


def _is_newer(engine: Engine) -> bool:
    """Return whether the engine is 1.3 or later."""
    return is_among(engine.version or TENSORRT_LLM_RELEASE, NEWER)


def _tag(version: str) -> str:
    """Return the image tag of a release, which has no prefix: `1.2.1`."""
    return version[1:] if version[1:2].isdigit() and version.startswith("v") else version


def _alike(order: LaunchRequest) -> tuple[str, ...]:
    """Return the arguments of every arm; the file's name is the same. The model comes first, without a flag."""
    target = order.target
    return (
        target_path(target) or target.name,
        *("--tp_size", str(order.engine.tensor_parallel_size)),
        *(("--tokenizer", target.tokenizer) if target.tokenizer else ()),
        *("--extra_llm_api_options", f"{CONFIG_FOLDER}/{CONFIG}"),
    )


def _served(target: Target) -> str:
    """Return the served model name: for a folder, the folder's own name."""
    path = target_path(target)
    return PurePosixPath(path).name if path else target.name


def _config(order: LaunchRequest) -> Config:
    drafter = order.drafter
    speculation = {"speculative_config": _speculation(drafter, order.engine)} if drafter else {}
    return _merged(order.engine.config, _managed_keys(order)) | speculation


def _managed_keys(order: LaunchRequest) -> Config:
    revision = pinned_revision(order.target)
    equalized = {"stream_interval": 1}
    return {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
        **(equalized if order.engine.equalize_arms is EqualizeArms.ENABLED else {}),
        **({} if order.caches else {"kv_cache_config": {"enable_block_reuse": False}}),
        **({"revision": revision} if revision else {}),
    }


def _speculation(drafter: Drafter, engine: Engine) -> Config:
    return _merged(drafter.speculative_config, _speculative_keys(drafter, engine))


def _speculative_keys(drafter: Drafter, engine: Engine) -> Config:
    """Return the keys that the drafter's fields set."""
    equalized, is_ngram = engine.equalize_arms is EqualizeArms.ENABLED, drafter.method is Method.NGRAM
    newer = _is_newer(engine)
    length = "num_nextn_predict_layers" if drafter.method is Method.MTP and not newer else "max_draft_len"
    lookup = {"max_matching_ngram_size": drafter.prompt_lookup_max or DEFAULT_LOOKUP}
    return {
        "decoding_type": drafter.algorithm or (NEWER_DECODING_TYPES if newer else DECODING_TYPES)[drafter.method],
        length: drafter.num_speculative_tokens,
        **(_tree(drafter) if drafter.branches > 1 else {}),
        **({"speculative_model_dir": drafter.model} if drafter.model else {}),
        **(lookup if is_ngram else {}),
        **({"is_public_pool": False} if is_ngram and equalized else {}),
        **({"draft_len_schedule": _schedule(drafter.draft_lengths)} if drafter.draft_lengths else {}),
    }


_REJECTION_KEY = "use_rejection_sampling"
_RULES_READ = "TensorRT-LLM 1.2 to 1.3 by its llm_args.py, not observed"


def _tree(drafter: Drafter) -> Config:
    """Return the keys of a dynamic tree. TensorRT-LLM does not count the root."""
    nodes = {} if drafter.num_draft_tokens is None else {"max_total_draft_tokens": drafter.num_draft_tokens - 1}
    return {"use_dynamic_tree": True, "dynamic_tree_max_topK": drafter.eagle_topk, **nodes}


def _schedule(lengths: Sequence[DraftLength]) -> dict[int, int]:
    """Return draft tokens by the batch size from which they apply."""
    return {first: row.tokens for first, row in from_batch_size(lengths)}


def _merged(given: Mapping[str, Any], managed: Mapping[str, Any]) -> Config:
    """Return both merged recursively. Contradictions were reported before."""
    both = {key: _merged(given[key], value) for key, value in managed.items() if _are_maps(given.get(key), value)}
    return {**given, **managed, **both}


def _disagreements(given: Mapping[str, Any], managed: Mapping[str, Any], path: str, remedy: str) -> Iterator[Problem]:
    for key in given.keys() & managed.keys():
        mine, theirs = managed[key], given[key]
        if _are_maps(mine, theirs):
            yield from _disagreements(theirs, mine, f"{path}.{key}", remedy)
        elif theirs != mine or type(theirs) is not type(mine):
            yield Problem(
                f"{path}.{key}", f"{_as_json(theirs)} contradicts {_as_json(mine)}, which specbench sets", remedy
            )


def _are_maps(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping)


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _engine_problems(order: LaunchRequest) -> Iterator[Problem]:
    config, path = order.engine.config, "spec.engine.config"
    for key in sorted(_FIELDS_OF_SPEC.keys() & config.keys()):
        yield Problem(f"{path}.{key}", f"{_as_json(config[key])} must be set elsewhere", _FIELDS_OF_SPEC[key])
    ours = {key: value for key, value in _managed_keys(order).items() if key not in _FIELDS_OF_SPEC}
    yield from sorted(_disagreements(config, ours, path, _EVERY_ARM), key=str)
    yield from uri_problems(order.target, "trtllm-serve")


def _drafter_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    reads_heads = is_among(engine.version or TENSORRT_LLM_RELEASE, SEPARATE_HEADS)
    unsupported = (
        ("revision", drafter.revision is not None, "downloads a draft model only at revision main",
         "download that revision and give its path as model"),
        ("draftTensorParallelSize", drafter.draft_tensor_parallel_size is not None,
         "splits the drafter like the target", "remove it"),
        ("promptLookupMin", drafter.prompt_lookup_min is not None, "looks up suffixes from one token on",
         "set only promptLookupMax"),
        ("tokenMap", drafter.token_map is not None, "does not support a token map", "remove it"),
        ("model", drafter.method is Method.MTP and drafter.model is not None and not reads_heads,
         "uses the heads in the target's own checkpoint", "remove it, or use engine.version 1.3.0 or later"),
        ("model", drafter.method is Method.DSPARK and drafter.model is None,
         "needs the drafter's checkpoint", "set it"),
    )  # fmt: skip
    for name, is_set, why, remedy in unsupported:
        if is_set:
            yield Problem(f"{path}.{name}", f"TensorRT-LLM {why}", remedy)
    yield from _name_problems(drafter, engine, path)
    yield from _tree_problems(drafter, engine, path)
    yield from _length_problems(drafter, engine, path)
    yield from _key_problems(drafter, engine, path)
    yield from _overlap_problems(drafter, engine)


def _name_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    """Reject algorithms that are also a method, so that the method's checks apply, and those that are no drafter.

    Eagle3 is the new name of Eagle.
    """
    types = NEWER_DECODING_TYPES if _is_newer(engine) else DECODING_TYPES
    names = {name.lower(): method for method, name in types.items()}
    method = (names | {"eagle": Method.EAGLE3, "eagle3": Method.EAGLE3}).get((drafter.algorithm or "").lower())
    if method:
        yield Problem(f"{path}.algorithm", f"{drafter.algorithm} is method {method}", f"set method: {method}")
    refused = NOT_DRAFTERS.get((drafter.algorithm or "").lower().replace("_", ""))
    if refused:
        yield Problem(f"{path}.algorithm", f"{drafter.algorithm} {refused[0]}", refused[1])


def _tree_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    steps, topk, nodes = drafter.num_speculative_tokens, drafter.branches, drafter.num_draft_tokens
    if topk == 1:
        if nodes not in (None, steps + 1):
            message = f"for a chain of {steps} drafts TensorRT-LLM always verifies {steps + 1} tokens"
            yield Problem(f"{path}.numDraftTokens", message, "remove it, or set eagleTopk for a tree")
    elif drafter.method not in TREE_METHODS or not _is_newer(engine):
        message = "TensorRT-LLM drafts trees only with eagle3 and mtp, from 1.3 on"
        remedy = "remove it, or use one of these methods and engine.version 1.3 or later"
        yield Problem(f"{path}.eagleTopk", message, remedy)
    elif nodes is not None and not steps < nodes <= topk * steps + 1:
        message = (
            f"a dynamic tree of depth {steps} and eagleTopk {topk} verifies {steps + 1} to {topk * steps + 1} tokens"
        )
        yield Problem(f"{path}.numDraftTokens", message, "set it to one of these, or remove it")


def _length_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    if not drafter.draft_lengths:
        return
    where = f"{path}.draftLengths"
    if drafter.method not in SCHEDULED_METHODS:
        message = "TensorRT-LLM 1.2 supports draft lengths by batch size only for ngram and draft_model"
        yield Problem(where, message, "remove it, or use ngram or draft_model")
    elif _is_newer(engine):
        message = f"TensorRT-LLM {engine.version} interprets a schedule of draft lengths differently than 1.2"
        yield Problem(where, message, "remove it, or set draft_len_schedule in speculativeConfig")
    first, most = min(drafter.draft_lengths, key=lambda row: row.batch_size).tokens, drafter.num_speculative_tokens
    if first != most or max(row.tokens for row in drafter.draft_lengths) != most:
        message = f"TensorRT-LLM starts with numSpeculativeTokens ({most}) and never drafts more"
        yield Problem(where, message, f"set tokens of the smallest batchSize to {most}, and of no other to more")


def _key_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    where, given = f"{path}.speculativeConfig", drafter.speculative_config
    remedy = "set the drafter's field instead, or remove it"
    yield from sorted(_disagreements(given, _speculative_keys(drafter, engine), where, remedy), key=str)
    if "speculative_model" in given:  # an alias; TensorRT-LLM would use only one of the two
        yield Problem(f"{where}.speculative_model", "is another name of the drafter's model", "set model")
    for key in sorted(given.keys() & set(SWITCHES_OFF)):
        message = "permanently disables speculation during a measurement when acceptance is low"
        yield Problem(f"{where}.{key}", message, "remove it")


def _overlap_problems(drafter: Drafter, engine: Engine) -> Iterator[Problem]:
    """Report an overlap scheduler that the user enabled although `without_overlap` applies."""
    if (
        engine.equalize_arms is EqualizeArms.ENABLED
        and _two_models(drafter, engine)
        and engine.config.get(OVERLAP) is not True
    ):
        message = (
            f"{_as_json(engine.config.get(OVERLAP))} contradicts true: {drafter.name} runs without overlap scheduler,"
            " so all arms must"
        )
        yield Problem(f"spec.engine.config.{OVERLAP}", message, "remove it, or set spec.engine.equalizeArms: Disabled")
