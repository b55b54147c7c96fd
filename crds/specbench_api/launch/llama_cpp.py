"""llama.cpp: `llama-server`, from the user's own binary or image, or from the prebuilt wheel.

Every arm has metrics and slots enabled (for counters, and to verify that speculation is active) and one slot per
request. The prompt cache is disabled per request (`cache_prompt: false`) by the client's dialect.

llama-server accepts four configurations of a drafter that never draft: a draft model without a type, a type without a
draft model, n-grams that propose fewer tokens than they look up, and an option of a type that is not active. The first
two cannot occur, since their flags are managed; the others are rejected.

Its further n-gram types are available as method custom under llama.cpp's own names: they remember text across requests
(ngram-mod also across slots) and look up by other rules, so none of them is equivalent to `ngram` on other engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.arguments import (
    NO_SYNTHETIC,
    EngineFlags,
    argument_problems,
    flag_of,
    unsupported_fields,
    value_of,
)
from specbench_api.launch.launcher import (
    GREEDY,
    PROBABILISTIC,
    REJECTION,
    TOKEN_MATCH,
    ContextRules,
    DerivedMethod,
    LaunchRequest,
    LaunchSpec,
    Verification,
    default_verification,
    is_path,
    model_sources,
    pinned_revision,
    target_path,
    uri_problems,
)
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine
from specbench_api.spec.model import Target

PORT = 8080
DEFAULT_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
GPU_IMAGES = {"nvidia.com/": "cuda", "amd.com/": "rocm"}
"""Part of the image's tag, by the beginning of the GPUs' name in Kubernetes. Other images only use the CPU there."""
DEFAULT_LOOKUP = 4
"""Suffix length. llama.cpp's default (12) only suits long repetitions; other engines look up shorter n-grams."""

TYPES = {
    Method.DRAFT_MODEL: "draft-simple",
    Method.EAGLE3: "draft-eagle3",
    Method.MTP: "draft-mtp",
    Method.DFLASH: "draft-dflash",
    Method.DSPARK: "draft-dspark",
    Method.NGRAM: "ngram-simple",
}
"""llama.cpp's name of each method."""
ALGORITHMS = {
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
    "ngram-cache": None,
}
"""Types that only llama.cpp has (method custom), with the flag of their draft length."""
CACHE_LENGTH = 8
"""ngram-cache drafts up to 8 tokens, which no flag changes (observed in its counters by position)."""
_NGRAM_OPTIONS = "--spec-ngram-"
_MOD_LEAST = "--spec-ngram-mod-n-min"
DEFAULT_MOD_LEAST = 48
"""llama.cpp's default for the shortest draft of ngram-mod: with fewer draft tokens per step, it drafts nothing."""
_SAMPLING_FLAG = "--spec-draft-sampling"
_SAMPLED_METHODS = (Method.DRAFT_MODEL, Method.MTP)
"""Methods whose drafts llama.cpp can draw; with others it ignores the flag."""
_RELEASE_READ = "llama.cpp b11368 and later"
"""The builds that have the flag; earlier ones always draft greedily."""

_MANAGED = (
    "--model", "--hf-repo", "--alias", "--host", "--port", "--parallel", "--metrics", "--slots", "--spec-type",
    "--model-draft", "--hf-repo-draft", "--spec-draft-n-max",
    "--spec-default", "--spec-synth-len", "--spec-synth-rates",
    "--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m",
    "--spec-ngram-map-k-size-m", "--spec-ngram-map-k4v-size-m", "--spec-ngram-mod-n-max",
)  # fmt: skip
_UNSUPPORTED_FIELDS = (
    "draft_lengths", "speculative_config", "draft_tensor_parallel_size", "revision", "eagle_topk", "num_draft_tokens",
    "token_map",
)  # fmt: skip
_ALIASES = {
    "-m": "--model", "-hf": "--hf-repo", "-a": "--alias", "-np": "--parallel", "-md": "--model-draft",
    "--spec-draft-model": "--model-draft", "-hfd": "--hf-repo-draft", "--spec-draft-hf": "--hf-repo-draft",
    "-hfrd": "--hf-repo-draft",
    "--draft": "--spec-draft-n-max", "--draft-n": "--spec-draft-n-max", "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min", "--draft-n-min": "--spec-draft-n-min", "--draft-p-min": "--spec-draft-p-min",
    "--no-slots": "--slots", "-c": "--ctx-size", "-t": "--threads", "-tb": "--threads-batch", "-b": "--batch-size",
    "-ub": "--ubatch-size", "-fa": "--flash-attn", "-s": "--seed", "-ngl": "--gpu-layers", "-ctk": "--cache-type-k",
    "--n-gpu-layers": "--gpu-layers", "-ctv": "--cache-type-v", "--no-cache-prompt": "--cache-prompt",
    "-ot": "--override-tensor", "-l": "--logit-bias",
    "-hfr": "--hf-repo", "-otd": "--spec-draft-override-tensor",
    "--override-tensor-draft": "--spec-draft-override-tensor",
}  # fmt: skip
_REPEATABLE = (
    "--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--override-kv", "--override-tensor",
    "--spec-draft-override-tensor", "--logit-bias", "--dry-sequence-breaker",
)  # fmt: skip
_REMEDIES = {
    "--model": "set spec.model.path",
    "--hf-repo": "set spec.model.name",
    "--parallel": "it is spec.load.slots, or else the highest of spec.load.concurrency",
    "--spec-type": "set drafters[].method, or algorithm with method custom",
    "--model-draft": "set drafters[].model",
    "--spec-default": "set drafters[].method: every arm would draft, also the baseline",
    **dict.fromkeys(("--spec-synth-len", "--spec-synth-rates"), NO_SYNTHETIC),
    "--spec-draft-n-max": "set drafters[].numSpeculativeTokens",
    "--spec-ngram-simple-size-n": "set drafters[].promptLookupMax",
    "--spec-ngram-simple-size-m": "set drafters[].numSpeculativeTokens",
    **dict.fromkeys(filter(None, ALGORITHMS.values()), "set drafters[].numSpeculativeTokens"),
}


class LlamaCppLauncher:
    """Starts `llama-server`."""

    context = ContextRules(
        ("--ctx-size", "-c"),
        needs_answer_space=False,
        divided_among_slots=True,
        sharing_flags=("--kv-unified", "-kvu"),
    )

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line."""
        engine, (files, hub) = order.engine, model_sources(order, _is_file)
        own = _split(order.drafter.args if order.drafter else ())
        return LaunchSpec(
            image=engine.image or "-".join(filter(None, (DEFAULT_IMAGE, _gpu_image(order), engine.version))),
            command=tuple(engine.command) if engine.command else None,
            local_programs=(("llama-server",), ("python", "-m", "specbench_client.local.llama_server")),
            args=(
                *_alike(order),
                *_drafting(order.drafter),
                *_split(engine.args),
                *own,
            ),
            port=PORT,
            env=engine.environment,
            served_model=order.target.name,
            files=files,
            hub=hub,
            drafting=(*_drafting(order.drafter), *own),
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting and repeated arguments, unsupported settings, and a target that cannot be loaded."""
        drafter, flags = order.drafter, EngineFlags(_MANAGED, spelled, _REMEDIES, _REPEATABLE)
        found = argument_problems(order, flags, _alike(order), _drafting(drafter))
        found += uri_problems(order.target, "llama-server")
        adapter = order.target.adapter
        if adapter and not _is_file(adapter.model):
            message = "llama-server reads adapters only from files"
            found.append(
                Problem("spec.model.adapter.model", message, "download it, and give the path of its GGUF file")
            )
        if order.gpus and not order.engine.image and _gpu_image(order) is None:
            message = f"no image of llama.cpp is known for {order.gpu_resource}, and the default one only uses the CPU"
            found.append(Problem("spec.engine.image", message, "set it to an image for these GPUs"))
        if pinned_revision(order.target):
            message = "llama-server downloads models only at their default revision"
            remedy = "remove it, or download that revision and set spec.model.path"
            found.append(Problem("spec.model.revision", message, remedy))
        return found + (_drafter_problems(drafter, order.drafter_path) if drafter else [])

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:
        """Return the methods that `--spec-draft-sampling` sets, or llama.cpp's defaults."""
        drawn = value_of((*engine.args, *drafter.args), _SAMPLING_FLAG, spelled)
        if drawn is None or drafter.method not in _SAMPLED_METHODS:
            return default_verification(GREEDY, TOKEN_MATCH, _RELEASE_READ)
        drafts, rule = (PROBABILISTIC, REJECTION) if drawn == PROBABILISTIC else (GREEDY, TOKEN_MATCH)
        return Verification(DerivedMethod(drafts, _SAMPLING_FLAG), DerivedMethod(rule, _SAMPLING_FLAG))


def spelled(flag: str) -> str:
    """Return the flag that llama-server understands: it treats `_` as `-`, and has short and old names."""
    name = flag.replace("_", "-") if flag.startswith("--") else flag
    return _ALIASES.get(name, name)


def _drafter_problems(drafter: Drafter, path: str) -> list[Problem]:
    remedy = "remove it; put llama-server's own flags into args"
    found = unsupported_fields(drafter, path, _UNSUPPORTED_FIELDS, "llama.cpp", remedy)
    if drafter.prompt_lookup_min is not None:
        remedy = "set only promptLookupMax"
        found.append(Problem(f"{path}.promptLookupMin", "llama.cpp looks up n-grams of a single length", remedy))
    if drafter.method is Method.NGRAM and drafter.num_speculative_tokens < _lookup(drafter):
        message = (
            f"llama.cpp drafts nothing with fewer tokens than the n-gram that it looks up has ({_lookup(drafter)})"
        )
        remedy = f"set it to at least {_lookup(drafter)}, or lower promptLookupMax"
        found.append(Problem(f"{path}.numSpeculativeTokens", message, remedy))
    if drafter.method is Method.DSPARK and drafter.model is None:
        found.append(Problem(f"{path}.model", "llama.cpp drafts nothing without the drafter's checkpoint", "set it"))
    if drafter.method is Method.CUSTOM:
        found += _algorithm_problems(drafter, path)
    return found + _unused_options(drafter, path)


def _algorithm_problems(drafter: Drafter, path: str) -> list[Problem]:
    if drafter.algorithm not in ALGORITHMS:
        known = {name: f"set method: {method}" for method, name in TYPES.items()}
        remedy = known.get(drafter.algorithm or "", f"use one of {', '.join(ALGORITHMS)}")
        return [Problem(f"{path}.algorithm", f"{drafter.algorithm!r} is not a custom method of llama.cpp", remedy)]
    if drafter.model is not None:
        return [Problem(f"{path}.model", f"{drafter.algorithm} drafts from the text and uses no model", "remove model")]
    if drafter.algorithm == "ngram-cache" and drafter.num_speculative_tokens != CACHE_LENGTH:
        message = f"ngram-cache drafts up to {CACHE_LENGTH} tokens, which llama-server cannot change"
        return [Problem(f"{path}.numSpeculativeTokens", message, f"set it to {CACHE_LENGTH}")]
    return []


def _unused_options(drafter: Drafter, path: str) -> list[Problem]:
    """Report n-gram options of other types than this drafter's: llama-server accepts and ignores them."""
    mine = f"--spec-{_type(drafter)}-"
    flags = [spelled(flag_of(argument)) for argument in drafter.args]
    idle = [index for index, flag in enumerate(flags) if flag.startswith(_NGRAM_OPTIONS) and not flag.startswith(mine)]
    return [
        Problem(f"{path}.args[{index}]", f"{flags[index]} has no effect with --spec-type {_type(drafter)}", "remove it")
        for index in idle
        if flags[index] not in _MANAGED
    ]


def _type(drafter: Drafter) -> str:
    return TYPES.get(drafter.method) or drafter.algorithm or ""


def _lookup(drafter: Drafter) -> int:
    return drafter.prompt_lookup_max or min(DEFAULT_LOOKUP, drafter.num_speculative_tokens)


def _split(args: Sequence[str]) -> list[str]:
    """Split `--flag=value`, which users write, into `--flag value`, which is all that llama-server accepts."""
    joined = [argument.partition("=") if flag_of(argument) else (argument, "", "") for argument in args]
    return [part for flag, equals, value in joined for part in ((flag, value) if equals else (flag,))]


def _gpu_image(order: LaunchRequest) -> str | None:
    """Return the part of the image's tag for these GPUs; None without GPUs, or if no such image is known."""
    known = (name for vendor, name in GPU_IMAGES.items() if order.gpu_resource.startswith(vendor))
    return next(known, None) if order.gpus else None


def _alike(order: LaunchRequest) -> tuple[str, ...]:
    """Return the arguments of every arm."""
    return (
        *_target(order.target),
        *("--alias", order.target.name),
        *("--parallel", str(order.slots)),
        "--metrics",
        "--slots",
    )


def _target(target: Target) -> tuple[str, ...]:
    path = target_path(target)
    adapter = ("--lora", target.adapter.model) if target.adapter else ()
    return (*(("--model", path) if path else ("--hf-repo", target.name)), *adapter)


def _is_file(model: str) -> bool:
    return is_path(model) or model.endswith(".gguf")


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ()
    k = str(drafter.num_speculative_tokens)
    chosen = ("--spec-type", _type(drafter))
    if drafter.method is Method.NGRAM:
        lookup = str(_lookup(drafter))
        return (*chosen, "--spec-ngram-simple-size-n", lookup, "--spec-ngram-simple-size-m", k)
    if drafter.method is Method.CUSTOM:
        length = ALGORITHMS.get(drafter.algorithm or "")
        return (*chosen, *((length, k) if length else ()), *_least(drafter))
    return (*chosen, *_draft_model(drafter), "--spec-draft-n-max", k)


def _least(drafter: Drafter) -> tuple[str, ...]:
    """Return the flag of ngram-mod's shortest draft, so that it is not longer than the longest one."""
    given = any(spelled(flag_of(argument)) == _MOD_LEAST for argument in drafter.args)
    needed = drafter.algorithm == "ngram-mod" and not given
    return (_MOD_LEAST, str(min(DEFAULT_MOD_LEAST, drafter.num_speculative_tokens))) if needed else ()


def _draft_model(drafter: Drafter) -> tuple[str, ...]:
    """Return the flag of the draft model. MTP layers are usually in the target's own file."""
    if drafter.model is None:
        return ()
    return ("--model-draft" if _is_file(drafter.model) else "--hf-repo-draft", drafter.model)
