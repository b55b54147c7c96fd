"""vLLM: `vllm serve`.

With equalizeArms, every arm runs with vLLM's own sampling defaults instead of the model's. Unless promptCache is
AsServed, every arm runs without prefix cache. (With the cache, a repeated prompt skips its prefill, and a request that
hits it completely is counted as a draft step that did not happen.) The client always needs one chunk per step and the
number of cached prompt tokens. Acceptance per request is only requested on arms that speculate, because vLLM does not
start with that flag otherwise.

Remaining differences between arms are vLLM's own and part of the drafter's cost: suffix decoding, custom classes and
parallel draft models run on its older model runner, some of them without asynchronous scheduling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api.errors import Problem
from specbench_api.launch.arguments import (
    NO_SYNTHETIC,
    SYNTHETIC,
    EngineFlags,
    argument_problems,
    flag_of,
)
from specbench_api.launch.launcher import (
    BLOCK,
    GREEDY,
    LEADER,
    LOSSY,
    RANK,
    REJECTION,
    ContextRules,
    DerivedMethod,
    LaunchRequest,
    LaunchSpec,
    Verification,
    default_verification,
    from_batch_size,
    model_sources,
    pinned_revision,
    release_tag,
    target_path,
    unknown_verification,
)
from specbench_api.launch.supported_methods import VLLM_ALGORITHMS, VLLM_RELEASE, is_among
from specbench_api.spec.drafter import TEXT_ONLY, Drafter, DraftLength, Method
from specbench_api.spec.engine import Engine, EqualizeArms
from specbench_api.spec.model import Adapter, Target

# The drafter as vLLM's `--speculative-config`, and the settings that vLLM does not support. It is one line of JSON with
# sorted keys, so that the same drafter always results in the same argument.

CUSTOM_CLASS = "custom_class"
"""The algorithm whose `model` is a Python class instead of a model."""
_METHODS = {Method.PARD: "draft_model"}
"""Methods that have another name in vLLM."""
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
"""Keys that a field of the drafter sets, with that field."""
_DETECTED = (Method.DRAFT_MODEL, Method.PARD, Method.MTP)
"""Methods that vLLM replaces if the name of the model contains one of these fragments."""
_DETECTED_NAMES = {
    "eagle-": Method.EAGLE, "eagle3": Method.EAGLE3, "dflash": Method.DFLASH, "dspark": Method.DSPARK,
}  # fmt: skip
_SYNTHETIC = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
_DRAFTS_FROM_TEXT = ("ngram", "ngram_gpu", "suffix")
_RULES = {"standard": REJECTION, "block": BLOCK, "fly": f"FLy{LOSSY}"}
"""vLLM's verification methods. FLy accepts some of the target's unlikely tokens, also at temperature 0."""
_SGLANG_HAS = "remove it, or use engine.kind sglang, which supports it"


def rendered(drafter: Drafter, target: Target) -> str:
    """Return the argument from the drafter's fields and its further keys."""
    return json.dumps({**_further(drafter), **_config(drafter, target)}, sort_keys=True, separators=(",", ":"))


def speculation_problems(order: LaunchRequest) -> list[Problem]:
    """Return settings that vLLM would reject at its start, or silently ignore."""
    drafter, path = order.drafter, order.drafter_path
    if drafter is None:
        return []
    return [
        *_name_problems(drafter, order.engine.version, path),
        *_detection_problems(drafter, order.target, path),
        *_knob_problems(drafter, path),
        *_parallel_problems(drafter, order.engine.tensor_parallel_size, path),
        *_length_problems(drafter, path),
        *_key_problems(drafter, order.target, path),
    ]


def _has_heads_in_target(drafter: Drafter) -> bool:
    """Return whether vLLM takes the drafter's weights from the target's checkpoint."""
    is_mtp = drafter.method is Method.MTP or (drafter.algorithm or "").endswith("_mtp")
    return drafter.model is None and (is_mtp or drafter.method is Method.DSPARK)


def _config(drafter: Drafter, target: Target) -> dict[str, Any]:
    # vLLM loads heads of the target's checkpoint by the target's name, at this revision and not at the target's.
    revision = pinned_revision(target) if _has_heads_in_target(drafter) else drafter.revision
    given = {
        "method": _config_method(drafter),
        "model": drafter.model,
        "revision": revision,
        "num_speculative_tokens": drafter.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": _schedule(drafter.draft_lengths) or None,
        "draft_tensor_parallel_size": drafter.draft_tensor_parallel_size,
        # vLLM sets the one that is missing to the other, so it looks up exactly this length.
        "prompt_lookup_min": drafter.prompt_lookup_min or drafter.prompt_lookup_max,
        "prompt_lookup_max": drafter.prompt_lookup_max or drafter.prompt_lookup_min,
        "parallel_drafting": True if drafter.method is Method.PARD else None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _config_method(drafter: Drafter) -> str:
    return drafter.algorithm or _METHODS.get(drafter.method, str(drafter.method))


def _further(drafter: Drafter) -> dict[str, Any]:
    """Return the user's keys in vLLM's spelling, which treats `-` as `_`."""
    return {key.replace("-", "_"): value for key, value in drafter.speculative_config.items()}


def _schedule(lengths: list[DraftLength]) -> list[list[int]]:
    """Return ranges [first batch, last batch, tokens] from batch size 1. Beyond the last, vLLM keeps its length."""
    return [[first, row.batch_size, row.tokens] for first, row in from_batch_size(lengths)]


def _name_problems(drafter: Drafter, version: str | None, path: str) -> list[Problem]:
    name = drafter.algorithm
    if name == CUSTOM_CLASS and not drafter.model:
        return [Problem(f"{path}.model", "custom_class needs a class", "set model to it, such as my_module.MyProposer")]
    if name is None or name in VLLM_ALGORITHMS or (version or VLLM_RELEASE).removeprefix("v") != VLLM_RELEASE:
        return []
    message = f"vLLM {VLLM_RELEASE} has no drafting method {name!r}"
    return [Problem(f"{path}.algorithm", message, f"use one of {', '.join(VLLM_ALGORITHMS)}")]


def _detection_problems(drafter: Drafter, target: Target, path: str) -> list[Problem]:
    """Return a model whose name makes vLLM use another method than the one that was set."""
    in_target = _has_heads_in_target(drafter)
    if drafter.method not in _DETECTED and not (drafter.algorithm or "").endswith("_mtp"):
        return []
    model = (target_path(target) or target.uri or target.name) if in_target else drafter.model or ""
    fragment = next((each for each in _DETECTED_NAMES if each in model.lower()), None)
    if fragment is None:
        return []
    other = _DETECTED_NAMES[fragment]
    message = f"vLLM uses method {other} for a model whose name contains {fragment!r}, like {model!r}"
    where = "spec.model" if in_target else f"{path}.model"
    return [Problem(where, message, f"set method: {other}, or use a copy in a folder with another name")]


def _knob_problems(drafter: Drafter, path: str) -> list[Problem]:
    """Return settings that vLLM would ignore: those of other engines, and a model revision without a model."""
    text_only, in_target = drafter.method in TEXT_ONLY, _has_heads_in_target(drafter)
    unsupported = (
        ("eagleTopk", drafter.branches > 1, "only drafts chains, not trees", _SGLANG_HAS),
        ("numDraftTokens", drafter.num_draft_tokens is not None, "only drafts chains, not trees", _SGLANG_HAS),
        ("tokenMap", drafter.token_map is not None, "reads a pruned vocabulary from the head itself", _SGLANG_HAS),
        ("revision", text_only and drafter.revision is not None, "uses no model for this method", "remove it"),
        (
            "revision",
            in_target and drafter.revision is not None,
            "takes the heads from the target's checkpoint",
            "set spec.model.revision instead, or set model",
        ),
    )
    return [Problem(f"{path}.{name}", f"vLLM {why}", remedy) for name, is_set, why, remedy in unsupported if is_set]


def _parallel_problems(drafter: Drafter, target: int, path: str) -> list[Problem]:
    requested, where = drafter.draft_tensor_parallel_size, f"{path}.draftTensorParallelSize"
    if requested is None:
        return []
    if drafter.method in TEXT_ONLY or drafter.algorithm == CUSTOM_CLASS:
        return [Problem(where, "this method has no draft model to split", "remove it")]
    if requested in (1, target):
        return []
    message = f"vLLM splits a drafter like the target ({target}) or not at all, but not over {requested}"
    return [Problem(where, message, f"set it to 1 or {target}" if target > 1 else "set it to 1")]


def _length_problems(drafter: Drafter, path: str) -> list[Problem]:
    most = drafter.num_speculative_tokens
    return [
        Problem(
            f"{path}.draftLengths[{row}].tokens",
            f"vLLM never drafts more than numSpeculativeTokens ({most}), but tokens is {length.tokens}",
            f"set it to at most {most}, or raise numSpeculativeTokens",
        )
        for row, length in enumerate(drafter.draft_lengths)
        if length.tokens > most
    ]


def _key_problems(drafter: Drafter, target: Target, path: str) -> list[Problem]:
    ours = _config(drafter, target)
    found = []
    for key, value in drafter.speculative_config.items():
        name = key.replace("-", "_")
        where = f"{path}.speculativeConfig.{key}"
        if _owned(name, drafter, ours) and (name not in ours or ours[name] != value):
            found.append(_contradicting(where, key, value, ours, name))
        if name in _SYNTHETIC or (name == "rejection_sample_method" and value == "synthetic"):
            found.append(Problem(where, f"{key} {SYNTHETIC}", NO_SYNTHETIC))
    return found


def _owned(name: str, drafter: Drafter, ours: Mapping[str, Any]) -> bool:
    """Return whether specbench sets the key. The lookup keys are only reserved for method ngram."""
    free = name.startswith("prompt_lookup") and drafter.method is not Method.NGRAM
    return name in ours or (name in _FIELDS and not free)


def _contradicting(where: str, key: str, value: Any, ours: Mapping[str, Any], name: str) -> Problem:
    """Return a problem with both values, the managed one by the name of its field."""
    unset = "the field of this drafter, which is not set"
    other = f"{name} {json.dumps(ours[name])} of this drafter" if name in ours else unset
    remedy = _FIELDS.get(name, "remove it: it follows from method")
    return Problem(where, f"{key} {json.dumps(value)} contradicts {other}", remedy)


PORT = 8000
IMAGE = "vllm/vllm-openai"
OLDEST = "0.29.0"
"""First release that reports acceptance per request (`--per-request-spec-decode-metrics`); 0.28.0 has no such flag."""
OBJECT_STORE = "s3://"

_MANAGED = (
    "--model", "--served-model-name", "--host", "--port", "--tensor-parallel-size", "--revision", "--tokenizer",
    "--speculative-config", "--per-request-spec-decode-metrics", "--stream-interval", "--enable-prompt-tokens-details",
    "--enable-log-stats", "--config",
)  # fmt: skip
PARALLEL_SIZES = ("--pipeline-parallel-size", "--data-parallel-size", "--prefill-context-parallel-size")
"""Flags of the sizes that multiply the tensor parallel size."""
_SPREAD = ("--nnodes", "--node-rank", "--master-addr", "--headless")
_CACHE = ("--enable-prefix-caching",)
_EQUALIZED = ("--generation-config",)
_FETCHED = ("--load-format",)
_ADAPTER = ("--enable-lora", "--lora-modules", "--max-lora-rank")
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of `--max-lora-rank`."""
_ALIASES = {
    "--spec-method": "--speculative-config", "--spec-model": "--speculative-config",
    "--spec-tokens": "--speculative-config", "--device-memory-utilization": "--gpu-memory-utilization",
    "-tp": "--tensor-parallel-size", "-sc": "--speculative-config", "-q": "--quantization",
    "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-dpl": "--data-parallel-size-local",
    "-dcp": "--decode-context-parallel-size", "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel", "-cc": "--compilation-config", "-ac": "--attention-config",
    "-asc": "--api-server-count", "-O": "--optimization-level", "-n": "--nnodes", "-r": "--node-rank",
}  # fmt: skip
_REMEDIES = {
    "--model": "set spec.model",
    "--served-model-name": "it is spec.model.name",
    "--tensor-parallel-size": "set spec.engine.tensorParallelSize",
    "--revision": "set spec.model.revision",
    "--tokenizer": "set spec.model.tokenizer",
    "--speculative-config": "set drafters[].method and its fields, and further keys in drafters[].speculativeConfig",
    "--per-request-spec-decode-metrics": "remove it: specbench sets it on every arm that speculates",
    "--enable-log-stats": "remove it: acceptance is checked against these counters",
    "--enable-prefix-caching": "or set spec.promptCache: AsServed",
    "--generation-config": "or set spec.engine.equalizeArms: Disabled",
    "--nnodes": "set spec.placement.nodes",
    "--load-format": "spec.model.uri sets it",
    **dict.fromkeys(_ADAPTER, "set spec.model.adapter"),
    "--config": "put its arguments into args, so that they can be checked against those of specbench",
}
_REPEATABLE = ("--middleware", "--lora-modules")


_RESET = {"VLLM_SERVER_DEV_MODE": "1"}
"""Enables the route that empties the prefix cache."""


class VllmLauncher:
    """Starts `vllm serve`."""

    context = ContextRules(("--max-model-len",), needs_answer_space=True)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line."""
        engine, drafter, (files, hub) = order.engine, order.drafter, _models(order)
        own = tuple(drafter.args) if drafter else ()
        args = (*_alike(order), *_drafting(drafter, order.target), *engine.args, *own)
        return LaunchSpec(
            image=engine.image or f"{IMAGE}:{release_tag(engine.version or VLLM_RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            local_programs=(("vllm", "serve"),),
            args=args,
            worker_args=(*args, "--headless") if order.nodes > 1 else None,
            port=PORT,
            env={**(_RESET if order.caches else {}), **engine.environment},
            served_model=order.target.adapter.name if order.target.adapter else order.target.name,
            files=files,
            hub=hub,
            drafting=(*_speculation(drafter, order.target), *own),
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting and repeated arguments, unsupported settings, and targets that vLLM cannot load."""
        flags = EngineFlags(_managed(order), spelled, _REMEDIES, _REPEATABLE, with_key)
        found = argument_problems(order, flags, ("--model", *_alike(order)), _drafting(order.drafter, order.target))
        if order.drafter:
            found += [*_too_old(order.engine), *speculation_problems(order), *_dynamic(order)]
        return [*found, *_unreachable(order.target)]

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:  # noqa: ARG002 -- the drafter sets it
        """Return the methods that the drafter's `speculativeConfig` sets, or vLLM's defaults."""
        config = _further(drafter)
        rule, drawn = config.get("rejection_sample_method"), config.get("draft_sample_method")
        lossy = ("speculativeConfig.rejection_sample_method: fly",) if rule == "fly" else ()
        if drafter.algorithm == CUSTOM_CLASS:
            return unknown_verification("a custom class may draw its drafts in any way", lossy)
        found = default_verification(GREEDY, REJECTION, f"vllm {VLLM_RELEASE}")
        drafts, acceptance = found.drafts, found.acceptance
        if drawn is not None and _config_method(drafter) not in _DRAFTS_FROM_TEXT:
            drafts = DerivedMethod(str(drawn), "speculativeConfig.draft_sample_method")
        if rule is not None:
            acceptance = DerivedMethod(_RULES.get(rule, str(rule)), "speculativeConfig.rejection_sample_method")
        return Verification(drafts, acceptance, lossy, partial=config.get("enable_adaptive_verification") is True)


def spelled(flag: str) -> str:
    """Return the flag that vLLM understands by a spelling.

    vLLM treats `_` as `-`, accepts a key of a JSON value after a dot, `--no-x` and `--disable-x` for `--enable-x`, and
    any unambiguous prefix. For an ambiguous prefix, which vLLM rejects, one of the flags is returned.
    """
    name = flag.split(".", 1)[0]
    if not name.startswith("--"):
        return _ALIASES.get(name, name)
    name = name.replace("_", "-")
    name = f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name
    name = f"--enable-{name.removeprefix('--disable-')}" if name.startswith("--disable-") else name
    known = (*_MANAGED, *_CACHE, *_EQUALIZED, *_FETCHED, *_ADAPTER, *_SPREAD, *_ALIASES, *_ALIASES.values())
    full = name if name in known else next((each for each in known if each.startswith(name) and name != "--"), name)
    return _ALIASES.get(full, full)


def with_key(flag: str) -> str:
    """Return the flag with the key of its JSON value, if any: vLLM combines several keys in one value."""
    _, dot, key = flag.partition(".")
    return f"{spelled(flag)}{dot}{key}"


def _managed(order: LaunchRequest) -> tuple[str, ...]:
    equalized = _EQUALIZED if order.engine.equalize_arms is EqualizeArms.ENABLED else ()
    adapter = _ADAPTER if order.target.adapter else ()
    fetched = _FETCHED if order.target.uri else ()
    return (*_MANAGED, *_SPREAD, *(() if order.caches else _CACHE), *equalized, *fetched, *adapter)


def _alike(order: LaunchRequest) -> tuple[str, ...]:
    """Return the arguments of every arm. The model comes first, without a flag."""
    equalized = ("--generation-config", "vllm")
    return (
        *_target(order.target),
        *("--tensor-parallel-size", str(order.engine.tensor_parallel_size)),
        *("--stream-interval", "1"),
        "--enable-prompt-tokens-details",
        *(() if order.caches else ("--no-enable-prefix-caching",)),
        *(equalized if order.engine.equalize_arms is EqualizeArms.ENABLED else ()),
        *(_spread(order.nodes) if order.nodes > 1 else ()),
    )


def _spread(nodes: int) -> tuple[str, ...]:
    """Return the arguments for several nodes, the same on each; without Ray. Documented since vLLM 0.13."""
    return ("--nnodes", str(nodes), "--node-rank", RANK, "--master-addr", LEADER)


def _target(target: Target) -> tuple[str, ...]:
    revision = None if target.uri else pinned_revision(target)
    return (
        target_path(target) or target.uri or target.name,
        *("--served-model-name", target.name),
        *(("--load-format", "runai_streamer") if target.uri else ()),
        *(("--revision", revision) if revision else ()),
        *(("--tokenizer", target.tokenizer) if target.tokenizer else ()),
        *(_lora(target.adapter) if target.adapter else ()),
    )


def _lora(adapter: Adapter) -> tuple[str, ...]:
    rank = next(each for each in _RANKS if each >= adapter.rank) if adapter.rank else None
    modules = ("--enable-lora", "--lora-modules", f"{adapter.name}={adapter.model}")
    return (*modules, *(("--max-lora-rank", str(rank)) if rank else ()))


def _drafting(drafter: Drafter | None, target: Target) -> tuple[str, ...]:
    found = _speculation(drafter, target)
    return (*found, "--per-request-spec-decode-metrics", "detailed") if found else ()


def _speculation(drafter: Drafter | None, target: Target) -> tuple[str, ...]:
    return ("--speculative-config", rendered(drafter, target)) if drafter else ()


def _models(order: LaunchRequest) -> tuple[dict[str, str], dict[str, str]]:
    """Return the models as `model_sources` does, but without object stores and a drafter's class."""
    files, hub = model_sources(order)
    if order.target.uri:
        hub.pop("spec.model.name")
    if order.drafter and order.drafter.algorithm == CUSTOM_CLASS:
        hub.pop(f"{order.drafter_path}.model", None)
    return files, hub


def _too_old(engine: Engine) -> list[Problem]:
    if engine.version is None or is_among(engine.version, f">={OLDEST}"):
        return []
    message = f"vLLM {engine.version} does not report acceptance per request"
    return [Problem("spec.engine.version", message, f"use {OLDEST} or later")]


def _unreachable(target: Target) -> list[Problem]:
    if not target.uri or target.uri.startswith(OBJECT_STORE):
        return []
    message = f"vLLM loads models from an object store ({OBJECT_STORE}…) or the hub, not from {target.uri!r}"
    return [Problem("spec.model.uri", message, "use spec.model.path or pvc, or only the name on the hub")]


def _dynamic(order: LaunchRequest) -> list[Problem]:
    """Report draft lengths that vLLM would ignore with only a log message."""
    drafter = order.drafter
    if drafter is None or not drafter.draft_lengths:
        return []
    unsupported = drafter.method is Method.SUFFIX or drafter.algorithm == CUSTOM_CLASS
    parallel = "--data-parallel-size" in {spelled(flag_of(each)) for each in (*order.engine.args, *drafter.args)}
    where = "with data parallelism" if parallel else f"with {drafter.algorithm or drafter.method}"
    message = f"vLLM ignores draft lengths {where} and uses numSpeculativeTokens"
    return [Problem(f"{order.drafter_path}.draftLengths", message, "remove it")] if unsupported or parallel else []
