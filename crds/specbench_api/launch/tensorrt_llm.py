"""TensorRT-LLM's `trtllm-serve`, on its PyTorch backend, with a configuration file for what has no flag.

Levelled on every arm: no reuse of KV blocks, a chunk for every iteration, n-grams that no request inherits from
another, and no overlap scheduler as soon as one arm has a drafter that runs without it (`without_overlap`). The
statistics are always on: they are what is measured.
Keys of the user's own are merged into the file; one that contradicts a key of ours is refused with both values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, given_twice, repeated
from specbench_api.launch.launch import CONFIG_FOLDER, Launch, Order
from specbench_api.launch.support.tensorrt_llm import RELEASE
from specbench_api.launch.weights import models_of, path_of, pinned
from specbench_api.spec.drafter import Drafter, DraftLength, Method
from specbench_api.spec.engine import Engine, EngineKind, Levelling
from specbench_api.spec.target import Target

PORT = 8000
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
CONFIG = "config.yaml"
DEFAULT_LOOKUP = 4
"""What TensorRT-LLM's own examples look up; written out, because releases differ in what they do without it."""
DECODING_TYPES = {Method.NGRAM: "NGram", Method.DRAFT_MODEL: "DraftTarget", Method.EAGLE3: "Eagle", Method.MTP: "MTP"}
TWO_MODELS = (Method.NGRAM, Method.DRAFT_MODEL)
ONE_MODEL_KEYS = ("eagle3_one_model", "mtp_eagle_one_model")
OVERLAP = "disable_overlap_scheduler"
SCHEDULED = SpecifierSet("<1.3", prereleases=True)
"""From 1.3 on the batch sizes of `draft_len_schedule` are upper bounds, and larger batches draft nothing."""
SWITCHES_OFF = (
    "acceptance_window", "acceptance_length_threshold", "acceptance_rate_window_size", "acceptance_rate_threshold",
)  # fmt: skip

_MANAGED = (
    "--tp_size", "--host", "--port", "--extra_llm_api_options", "--tokenizer", "--revision", "--served_model_name",
)  # fmt: skip
_ALIASES = {
    "--config": "--extra_llm_api_options", "--tensor_parallel_size": "--tp_size",
    "--pipeline_parallel_size": "--pp_size", "--moe_expert_parallel_size": "--ep_size",
}  # fmt: skip
_REPEATABLE = ("--custom_module_dirs",)
_REMEDIES = {
    "--tp_size": "set spec.engine.tensorParallelSize",
    "--extra_llm_api_options": "set spec.engine.config",
    "--tokenizer": "set spec.model.tokenizer",
    "--revision": "set spec.model.revision",
    "--served_model_name": "set spec.model.name",
}
_ELSEWHERE = {
    "model": "set spec.model",
    "tokenizer": "set spec.model.tokenizer",
    "revision": "set spec.model.revision",
    "tensor_parallel_size": "set spec.engine.tensorParallelSize",
    "speculative_config": "set spec.drafters[], which has speculativeConfig for further keys",
}
_EVERY_ARM = "leave it out: it is set for every arm alike"

Config = dict[str, Any]


class TensorrtLlmLauncher:
    """Renders a command line of `trtllm-serve` and its configuration file."""

    kind = EngineKind.TENSORRT_LLM

    def launch(self, order: Order) -> Launch:
        """Render both."""
        engine, drafter, (files, hub) = order.engine, order.drafter, models_of(order)
        return Launch(
            image=engine.image or f"{IMAGE}:{_tag(engine.version or RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            image_program=("trtllm-serve",),
            local_programs=(("trtllm-serve",),),
            args=(*_alike(order), *engine.args, *(drafter.args if drafter else ())),
            port=PORT,
            env={variable.name: variable.value for variable in engine.env},
            served_model=_served(order.target),
            configs={CONFIG: yaml.safe_dump(_config(order), sort_keys=True, allow_unicode=True)},
            files=files,
            hub=hub,
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments and keys that contradict managed ones, and what TensorRT-LLM has not."""
        engine, drafter, path = order.engine, order.drafter, order.drafter_path
        found = contradictions(_MANAGED, engine.args, "spec.engine.args", _ALIASES, _REMEDIES, _alike(order))
        found += repeated(engine.args, "spec.engine.args", _ALIASES, _REPEATABLE)
        if drafter:
            found += contradictions(_MANAGED, drafter.args, f"{path}.args", _ALIASES, _REMEDIES, _alike(order))
            found += given_twice(engine.args, drafter.args, f"{path}.args", _ALIASES, _REPEATABLE)
        found += _engine_problems(order)
        return [*found, *(_drafter_problems(drafter, engine, path) if drafter else ())]


def without_overlap(engine: Engine, drafters: Sequence[Drafter]) -> Engine:
    """The engine, without its overlap scheduler where levelling is on and one of the drafters cannot have it.

    TensorRT-LLM would take it from that arm alone, and the arms would differ by more than their drafter.
    """
    levelled = engine.levelling is Levelling.ON and any(map(_two_models, drafters))
    return engine.model_copy(update={"config": {OVERLAP: True} | engine.config}) if levelled else engine


def _two_models(drafter: Drafter) -> bool:
    split = any(drafter.speculative_config.get(key) is False for key in ONE_MODEL_KEYS)
    return drafter.method in TWO_MODELS or split


def _tag(version: str) -> str:
    """Releases are tagged `1.2.1`, whatever people put before it."""
    return version[1:] if version[1:2].isdigit() and version.startswith("v") else version


def _alike(order: Order) -> tuple[str, ...]:
    """What every arm gets: their files have one name. The model comes first: it has no flag."""
    target = order.target
    return (
        path_of(target) or target.name,
        *("--tp_size", str(order.engine.tensor_parallel_size)),
        *(("--tokenizer", target.tokenizer) if target.tokenizer else ()),
        *("--extra_llm_api_options", f"{CONFIG_FOLDER}/{CONFIG}"),
    )


def _served(target: Target) -> str:
    """It serves a folder under the folder's own name."""
    path = path_of(target)
    return PurePosixPath(path).name if path else target.name


def _config(order: Order) -> Config:
    drafter = order.drafter
    speculation = {"speculative_config": _speculation(drafter, order.engine)} if drafter else {}
    return _merged(order.engine.config, _managed_keys(order)) | speculation


def _managed_keys(order: Order) -> Config:
    revision = pinned(order.target)
    levelled = {"kv_cache_config": {"enable_block_reuse": False}, "stream_interval": 1}
    return {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
        **(levelled if order.engine.levelling is Levelling.ON else {}),
        **({"revision": revision} if revision else {}),
    }


def _speculation(drafter: Drafter, engine: Engine) -> Config:
    return _merged(drafter.speculative_config, _speculative_keys(drafter, engine))


def _speculative_keys(drafter: Drafter, engine: Engine) -> Config:
    """What the fields of an arm say, in TensorRT-LLM's words."""
    levelled, is_ngram = engine.levelling is Levelling.ON, drafter.method is Method.NGRAM
    length = "num_nextn_predict_layers" if drafter.method is Method.MTP else "max_draft_len"
    lookup = {"max_matching_ngram_size": drafter.prompt_lookup_max or DEFAULT_LOOKUP}
    return {
        "decoding_type": drafter.algorithm or DECODING_TYPES[drafter.method],
        length: drafter.num_speculative_tokens,
        **({"speculative_model_dir": drafter.model} if drafter.model else {}),
        **(lookup if is_ngram else {}),
        **({"is_public_pool": False} if is_ngram and levelled else {}),
        **({"draft_len_schedule": _schedule(drafter.draft_lengths)} if drafter.draft_lengths else {}),
    }


def _schedule(lengths: Sequence[DraftLength]) -> dict[int, int]:
    """Draft tokens by the batch from which on they hold."""
    rows = sorted(lengths, key=lambda row: row.batch_size)
    begins = [1, *(before.batch_size + 1 for before, _ in pairwise(rows))]
    return {begin: row.tokens for begin, row in zip(begins, rows, strict=True)}


def _merged(given: Mapping[str, Any], managed: Mapping[str, Any]) -> Config:
    """Both, however deep; what they disagree on is refused before."""
    both = {key: _merged(given[key], value) for key, value in managed.items() if _are_maps(given.get(key), value)}
    return {**given, **managed, **both}


def _disagreements(given: Mapping[str, Any], managed: Mapping[str, Any], path: str, remedy: str) -> Iterator[Problem]:
    for key in given.keys() & managed.keys():
        mine, theirs = managed[key], given[key]
        if _are_maps(mine, theirs):
            yield from _disagreements(theirs, mine, f"{path}.{key}", remedy)
        elif theirs != mine or type(theirs) is not type(mine):
            yield Problem(f"{path}.{key}", f"{_told(theirs)} contradicts {_told(mine)}, which specbench sets", remedy)


def _are_maps(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping)


def _told(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _engine_problems(order: Order) -> Iterator[Problem]:
    config, path = order.engine.config, "spec.engine.config"
    for key in sorted(_ELSEWHERE.keys() & config.keys()):
        yield Problem(f"{path}.{key}", f"{_told(config[key])} is not the configuration's to say", _ELSEWHERE[key])
    ours = {key: value for key, value in _managed_keys(order).items() if key not in _ELSEWHERE}
    yield from sorted(_disagreements(config, ours, path, _EVERY_ARM), key=str)
    if order.target.uri:
        yield Problem("spec.model.uri", "trtllm-serve does not fetch from a URI", "use path or pvc, or the hub's name")


def _drafter_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    steps = drafter.num_speculative_tokens
    trees = "verifies chains alone: its trees are marked as not to be used"
    has_not = (
        ("revision", drafter.revision is not None, "fetches a drafter's model at main alone",
         "download that revision and give its path as model"),
        ("draftTensorParallelSize", drafter.draft_tensor_parallel_size is not None,
         "splits the drafter as it splits the target", "leave it out"),
        ("promptLookupMin", drafter.prompt_lookup_min is not None, "looks up suffixes from one token on",
         "set promptLookupMax alone"),
        ("tokenMap", drafter.token_map is not None, "takes no map of tokens beside the drafter's model",
         "leave it out"),
        ("eagleTopk", drafter.eagle_topk not in (None, 1), trees, "leave it out"),
        ("numDraftTokens", drafter.num_draft_tokens not in (None, steps + 1), trees, "leave it out"),
        ("model", drafter.method is Method.MTP and drafter.model is not None,
         "takes the heads of the target's own checkpoint", "leave it out"),
    )  # fmt: skip
    for name, given, what, remedy in has_not:
        if given:
            yield Problem(f"{path}.{name}", f"TensorRT-LLM {what}", remedy)
    yield from _name_problems(drafter, path)
    yield from _length_problems(drafter, engine, path)
    yield from _key_problems(drafter, engine, path)
    yield from _overlap_problems(drafter, engine)


def _name_problems(drafter: Drafter, path: str) -> Iterator[Problem]:
    """What has a method here is checked as that method; Eagle3 is Eagle's newer name."""
    names = {name.lower(): method for method, name in DECODING_TYPES.items()} | {"eagle3": Method.EAGLE3}
    method = names.get((drafter.algorithm or "").lower())
    if method:
        yield Problem(f"{path}.algorithm", f"{drafter.algorithm} is method {method}", f"set method: {method}")


def _length_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    if not drafter.draft_lengths:
        return
    where = f"{path}.draftLengths"
    if drafter.method not in TWO_MODELS:
        message = "TensorRT-LLM 1.2 changes the length of n-grams' and draft models' drafts alone"
        yield Problem(where, message, "leave it out, or use ngram or draft_model")
    elif not _has_schedule(engine.version):
        message = f"TensorRT-LLM {engine.version} reads a schedule of draft lengths in another way than 1.2"
        yield Problem(where, message, "leave it out, or give draft_len_schedule in speculativeConfig")
    first, most = min(drafter.draft_lengths, key=lambda row: row.batch_size).tokens, drafter.num_speculative_tokens
    if first != most or max(row.tokens for row in drafter.draft_lengths) != most:
        message = f"TensorRT-LLM begins at numSpeculativeTokens ({most}) and never drafts more"
        yield Problem(where, message, f"give the smallest batchSize {most} tokens, and none more")


def _has_schedule(version: str | None) -> bool:
    try:
        return SCHEDULED.contains(Version(version or RELEASE))
    except InvalidVersion:
        return True


def _key_problems(drafter: Drafter, engine: Engine, path: str) -> Iterator[Problem]:
    where, given = f"{path}.speculativeConfig", drafter.speculative_config
    remedy = "set this arm's own field, or leave it out"
    yield from sorted(_disagreements(given, _speculative_keys(drafter, engine), where, remedy), key=str)
    if "speculative_model" in given:  # an alias: of the two TensorRT-LLM would take one
        yield Problem(f"{where}.speculative_model", "is this arm's model under another name", "set model")
    for key in sorted(given.keys() & set(SWITCHES_OFF)):
        message = "switches speculation off for good, in the midst of a measurement, when acceptance is low"
        yield Problem(f"{where}.{key}", message, "leave it out")


def _overlap_problems(drafter: Drafter, engine: Engine) -> Iterator[Problem]:
    """The plan says it of every arm (`without_overlap`), unless the user said otherwise."""
    if engine.levelling is Levelling.ON and _two_models(drafter) and engine.config.get(OVERLAP) is not True:
        message = (
            f"{_told(engine.config.get(OVERLAP))} contradicts true: {drafter.name} runs without it, and so must all"
        )
        yield Problem(f"spec.engine.config.{OVERLAP}", message, "leave it out, or set spec.engine.levelling: Off")
