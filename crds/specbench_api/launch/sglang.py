"""SGLang: `sglang.launch_server`.

With equalizeArms, every arm serves as many requests at once as the load has (any speculation otherwise resets the limit
to 48, but the baseline has none), with one chunk per step, and with SGLang's own sampling defaults instead of the
model's. Unless promptCache is AsServed, every arm runs without prefix cache. Metrics are always enabled because the
client needs them. So is the report of cached tokens in each answer's usage, without which hits of a prompt cache that
should be off would go unnoticed.

SGLang counts the root of a draft as a token: a chain of k drafts is verified as k + 1 tokens. Unsupported settings that
SGLang would correct with only a log message are rejected here. Its health route, which generates a token when the
engine is idle, is configured not to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.arguments import EngineFlags, argument_problems, value_of
from specbench_api.launch.launcher import (
    BLOCK,
    CONFIG_FOLDER,
    GREEDY,
    LEADER,
    LOSSY,
    PROBABILISTIC,
    RANK,
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
    release_tag,
    target_path,
    unknown_verification,
    uri_problems,
)
from specbench_api.launch.supported_methods import SGLANG_RELEASE
from specbench_api.spec.drafter import Drafter, DraftLength, Method
from specbench_api.spec.engine import Engine, EqualizeArms
from specbench_api.spec.model import Adapter, Target

PORT = 30000
IMAGE = "lmsysorg/sglang"
ADAPTIVE = "adaptive.json"
QUIET_HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
ALGORITHMS = {
    Method.NGRAM: "NGRAM",
    Method.DRAFT_MODEL: "STANDALONE",
    Method.EAGLE: "EAGLE",
    Method.EAGLE3: "EAGLE3",
    Method.MTP: "NEXTN",
    Method.DFLASH: "DFLASH",
    Method.DSPARK: "DSPARK",
}
"""SGLang's name of each method."""
_SAMPLED_ON_ROCM = (Method.EAGLE, Method.MTP)
"""Methods whose chains SGLang draws by default on ROCm, which the command line does not show."""
ADAPTIVE_METHODS = (Method.EAGLE, Method.EAGLE3, Method.MTP)
"""Methods whose draft length SGLang can change at run time."""

_MANAGED = (
    "--model-path", "--revision", "--served-model-name", "--tokenizer-path", "--tp-size", "--host", "--port",
    "--config", "--enable-metrics", "--enable-cache-report", "--speculative-algorithm",
    "--speculative-draft-model-path", "--speculative-draft-model-revision", "--speculative-num-steps",
    "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--speculative-dspark-block-size",
    "--speculative-token-map", "--speculative-adaptive", "--speculative-adaptive-config",
)  # fmt: skip
_SPREAD = ("--nnodes", "--node-rank", "--dist-init-addr")
RENDEZVOUS_PORT = 20000
_CACHE = ("--disable-radix-cache",)
_ADAPTER = ("--enable-lora", "--lora-paths", "--max-lora-rank")
_EQUALIZED = ("--max-running-requests", "--sampling-defaults", "--stream-interval")
_ALIASES = {
    "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--tp": "--tp-size",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--speculative-dflash-block-size": "--speculative-num-draft-tokens",
    "--pipeline-parallel-size": "--pp-size", "--data-parallel-size": "--dp-size", "--dp": "--dp-size",
    "--ep": "--ep-size",
    "--expert-parallel-size": "--ep-size", "--attention-data-parallel-size": "--attn-dp-size",
    "--attention-context-parallel-size": "--attn-cp-size", "--moe-data-parallel-size": "--moe-dp-size",
    "--enable-hicache": "--enable-hierarchical-cache", "--nccl-init-addr": "--dist-init-addr",
}  # fmt: skip
_REJECTION_FLAG, _BLOCK_FLAG = "--speculative-use-rejection-sampling", "--speculative-use-block-verification"
_THRESHOLDS = ("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc")
"""Below 1, draft tokens are accepted more often than the target would draw them."""
_GREEDY_DSPARK = "SGLANG_DSPARK_USE_GREEDY_DRAFT"
_REMEDIES = {
    "--model-path": "set spec.model",
    "--revision": "set spec.model.revision",
    "--served-model-name": "it is spec.model.name",
    "--tokenizer-path": "set spec.model.tokenizer",
    "--tp-size": "set spec.engine.tensorParallelSize",
    "--nnodes": "set spec.placement.nodes",
    "--config": "put its arguments into args, so that they can be checked against those of specbench",
    "--speculative-algorithm": "set drafters[].method",
    "--speculative-draft-model-path": "set drafters[].model",
    "--speculative-draft-model-revision": "set drafters[].revision",
    "--speculative-num-steps": "set drafters[].numSpeculativeTokens",
    "--speculative-eagle-topk": "set drafters[].eagleTopk",
    "--speculative-num-draft-tokens": "set drafters[].numSpeculativeTokens, and numDraftTokens for a tree",
    "--speculative-dspark-block-size": "set drafters[].numSpeculativeTokens",
    "--speculative-token-map": "set drafters[].tokenMap",
    "--speculative-adaptive": "set drafters[].draftLengths",
    "--speculative-adaptive-config": "set drafters[].draftLengths",
    "--max-running-requests": "it is spec.load.slots, or else the highest of spec.load.concurrency",
    **dict.fromkeys(_EQUALIZED[1:], "or set spec.engine.equalizeArms: Disabled"),
    **dict.fromkeys(_ADAPTER, "set spec.model.adapter"),
    "--disable-radix-cache": "it follows from spec.promptCache",
}


class SglangLauncher:
    """Starts `sglang.launch_server`."""

    context = ContextRules(("--context-length",), needs_answer_space=True)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line, and the schedule of draft lengths if there is one."""
        engine, drafter, (files, hub) = order.engine, order.drafter, model_sources(order)
        own, adapter = tuple(drafter.args) if drafter else (), order.target.adapter
        args = (*_alike(order), *_drafting(drafter), *engine.args, *own)
        return LaunchSpec(
            image=engine.image or f"{IMAGE}:{release_tag(engine.version or SGLANG_RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            image_program=("python3", "-m", "sglang.launch_server"),
            local_programs=(("python", "-m", "sglang.launch_server"),),
            args=args,
            worker_args=args if order.nodes > 1 else None,
            port=PORT,
            env=QUIET_HEALTH | engine.environment,
            served_model=f"{order.target.name}:{adapter.name}" if adapter else order.target.name,
            configs={ADAPTIVE: _schedule(drafter.draft_lengths)} if drafter and drafter.draft_lengths else {},
            files=files,
            hub=hub,
            drafting=(*_drafting(drafter), *own),
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting and repeated arguments, and settings that SGLang rejects or corrects."""
        engine, drafter = order.engine, order.drafter
        managed = (*_MANAGED, *_SPREAD, *_CACHE, *(_EQUALIZED if engine.equalize_arms is EqualizeArms.ENABLED else ()))
        managed += _ADAPTER if order.target.adapter else ()
        flags = EngineFlags(managed, spelled, _REMEDIES)
        found = argument_problems(order, flags, _alike(order), _drafting(drafter))
        found += uri_problems(order.target, "SGLang")
        found += _adapter_problems(drafter, order.drafter_path) if drafter and order.target.adapter else []
        return [*found, *(_drafter_problems(drafter, order.drafter_path) if drafter else ())]

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:
        """Return the methods that the arguments set, or SGLang's defaults for the drafter's method."""
        args = (*engine.args, *drafter.args)
        if drafter.method is Method.DSPARK:
            return _dspark_verification(engine, args)
        lossy = _lossy_thresholds(args)
        if drafter.method is Method.DFLASH:
            why = "SGLang draws DFlash drafts only if the checkpoint has a candidate selector or LiLiCorr"
            return unknown_verification(why, lossy)
        if drafter.method is Method.CUSTOM:
            return unknown_verification(f"algorithm {drafter.algorithm} may draw its drafts in any way", lossy)
        for flag, rule in ((_BLOCK_FLAG, BLOCK), (_REJECTION_FLAG, REJECTION)):
            if value_of(args, flag, spelled) is not None:
                return Verification(DerivedMethod(PROBABILISTIC, flag), DerivedMethod(rule, flag))
        except_for = ", except on ROCm, where it draws chains" if drafter.method in _SAMPLED_ON_ROCM else ""
        found = default_verification(GREEDY, TOKEN_MATCH, f"sglang {SGLANG_RELEASE}{except_for}")
        relaxed = DerivedMethod(f"acceptance thresholds{LOSSY}", "; ".join(lossy))
        return Verification(found.drafts, relaxed, lossy) if lossy else found


def parallel_sizes(args: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of the sizes that multiply the tensor parallel size; data-parallel attention divides it."""
    divided = value_of(args, "--enable-dp-attention", spelled) is not None
    return ("--pp-size",) if divided else ("--pp-size", "--dp-size")


def spelled(flag: str) -> str:
    """Return the flag that SGLang understands by a spelling: its parser accepts any unambiguous prefix.

    For an ambiguous prefix, which SGLang rejects, one of the flags is returned.
    """
    known = (
        *_MANAGED,
        *_CACHE,
        *_EQUALIZED,
        *_SPREAD,
        *_ADAPTER,
        *_ALIASES,
        *_ALIASES.values(),
        *_THRESHOLDS,
        _REJECTION_FLAG,
        _BLOCK_FLAG,
    )
    full = flag if flag in known else next((each for each in known if flag[2:] and each.startswith(flag)), flag)
    return _ALIASES.get(full, full)


def _dspark_verification(engine: Engine, args: Sequence[str]) -> Verification:
    """Return how DSpark's drafts are drawn and accepted; it has no acceptance thresholds."""
    found = default_verification(PROBABILISTIC, REJECTION, f"sglang {SGLANG_RELEASE}")
    drafts, acceptance = found.drafts, found.acceptance
    if engine.environment.get(_GREEDY_DSPARK, "").lower() in ("true", "1", "yes", "y"):
        drafts = DerivedMethod(GREEDY, _GREEDY_DSPARK)
    if value_of(args, _BLOCK_FLAG, spelled) is not None:
        acceptance = DerivedMethod(BLOCK, _BLOCK_FLAG)
    return Verification(drafts, acceptance)


def _lossy_thresholds(args: Sequence[str]) -> tuple[str, ...]:
    """Return the acceptance thresholds other than 1, with their values."""
    given = {flag: value for flag in _THRESHOLDS if (value := value_of(args, flag, spelled)) is not None}
    return tuple(f"{flag} {value}" for flag, value in given.items() if not _is_one(value))


def _is_one(value: str) -> bool:
    try:
        return float(value) == 1
    except ValueError:
        return False


def _alike(order: LaunchRequest) -> tuple[str, ...]:
    """Return the arguments of every arm."""
    equalized = (
        *("--max-running-requests", str(order.slots)),
        *("--sampling-defaults", "openai"),
        *("--stream-interval", "1"),
    )
    return (
        *_target(order.target),
        *("--tp-size", str(order.engine.tensor_parallel_size)),
        *("--enable-metrics", "--enable-cache-report"),
        *(() if order.caches else _CACHE),
        *(equalized if order.engine.equalize_arms is EqualizeArms.ENABLED else ()),
        *(_spread(order.nodes) if order.nodes > 1 else ()),
    )


def _spread(nodes: int) -> tuple[str, ...]:
    """Return the arguments for several nodes, the same on each; the first node serves."""
    return ("--nnodes", str(nodes), "--node-rank", RANK, "--dist-init-addr", f"{LEADER}:{RENDEZVOUS_PORT}")


def _target(target: Target) -> tuple[str, ...]:
    revision = pinned_revision(target)
    return (
        *("--model-path", target_path(target) or target.name),
        *(("--revision", revision) if revision else ()),
        *("--served-model-name", target.name),
        *(("--tokenizer-path", target.tokenizer) if target.tokenizer else ()),
        *(_lora(target.adapter) if target.adapter else ()),
    )


def _lora(adapter: Adapter) -> tuple[str, ...]:
    paths = ("--enable-lora", "--lora-paths", f"{adapter.name}={adapter.model}")
    return (*paths, *(("--max-lora-rank", str(adapter.rank)) if adapter.rank else ()))


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ()
    adaptive = ("--speculative-adaptive", "--speculative-adaptive-config", f"{CONFIG_FOLDER}/{ADAPTIVE}")
    return (
        *("--speculative-algorithm", drafter.algorithm or ALGORITHMS[drafter.method]),
        *(("--speculative-draft-model-path", drafter.model) if drafter.model else ()),
        *(("--speculative-draft-model-revision", drafter.revision) if drafter.revision else ()),
        *_lengths(drafter),
        *(("--speculative-token-map", drafter.token_map) if drafter.token_map else ()),
        *(adaptive if drafter.draft_lengths else ()),
    )


def _lengths(drafter: Drafter) -> tuple[str, ...]:
    """Return the draft length. NGRAM and DFLASH take the number of verified tokens, DSPARK that of draft tokens."""
    steps, verified = str(drafter.num_speculative_tokens), str(drafter.num_speculative_tokens + 1)
    if drafter.method is Method.DSPARK:
        return ("--speculative-dspark-block-size", steps)
    if drafter.method in (Method.NGRAM, Method.DFLASH):
        return ("--speculative-num-draft-tokens", verified)
    return (
        *("--speculative-num-steps", steps),
        *("--speculative-eagle-topk", str(drafter.branches)),
        *("--speculative-num-draft-tokens", str(drafter.num_draft_tokens or verified)),
    )


def _schedule(lengths: Sequence[DraftLength]) -> str:
    """Return the number of steps by the batch size from which it applies, each with a single candidate.

    With a single candidate, acceptance does not change the length. SGLang rounds a batch up to the next size for which
    it has a CUDA graph before the lookup.
    """
    steps = {str(first): {"candidate_steps": [row.tokens]} for first, row in from_batch_size(lengths)}
    return json.dumps(steps) + "\n"


def _drafter_problems(drafter: Drafter, path: str) -> list[Problem]:
    unsupported = (
        ("revision", drafter.revision is not None and drafter.model is None,
         "uses no draft model, so it has no revision", "remove it, or set model"),
        ("speculativeConfig", bool(drafter.speculative_config), "configures speculation by flags only",
         "put them into this drafter's args"),
        ("draftTensorParallelSize", drafter.draft_tensor_parallel_size is not None,
         "splits the drafter like the target", "remove it"),
        ("promptLookupMin", drafter.prompt_lookup_min is not None, "looks up suffixes of every length",
         "remove it"),
        ("promptLookupMax", drafter.prompt_lookup_max is not None, "limits the suffix together with the draft",
         "put --speculative-ngram-max-trie-depth into this drafter's args"),
    )  # fmt: skip
    found = [Problem(f"{path}.{name}", f"SGLang {why}", remedy) for name, is_set, why, remedy in unsupported if is_set]
    return [*found, *_name_problems(drafter, path), *_tree_problems(drafter, path), *_length_problems(drafter, path)]


def _adapter_problems(drafter: Drafter, path: str) -> list[Problem]:
    """Return drafting with which SGLang rejects adapters: they need the same number of draft tokens per request."""
    refused = (
        ("method", drafter.method is Method.DRAFT_MODEL, f"method {drafter.method}", "use another method"),
        ("draftLengths", bool(drafter.draft_lengths), "draft lengths by batch size", "remove it"),
    )
    return [
        Problem(f"{path}.{name}", f"SGLang does not start with an adapter and {what}", remedy)
        for name, is_set, what, remedy in refused
        if is_set
    ]


def _name_problems(drafter: Drafter, path: str) -> list[Problem]:
    """Reject algorithms that are also a method, so that the method's checks apply."""
    algorithm = (drafter.algorithm or "").upper()
    return [
        Problem(f"{path}.algorithm", f"{drafter.algorithm} is method {method}", f"set method: {method}")
        for method, name in ALGORITHMS.items()
        if name == algorithm
    ]


def _tree_problems(drafter: Drafter, path: str) -> list[Problem]:
    steps, topk, nodes = drafter.num_speculative_tokens, drafter.branches, drafter.num_draft_tokens
    if drafter.method is Method.CUSTOM:
        return []
    if topk == 1:
        message = f"for a chain of {steps} drafts SGLang always verifies {steps + 1} tokens"
        remedy = "remove it, or set eagleTopk for a tree"
        return [Problem(f"{path}.numDraftTokens", message, remedy)] if nodes not in (None, steps + 1) else []
    most = topk + (steps - 1) * topk * topk + 1
    if nodes is not None and nodes <= most:
        return []
    message = f"a tree of depth {steps} and eagleTopk {topk} has at most {most} nodes, including the root"
    return [Problem(f"{path}.numDraftTokens", message, f"set it to the number to verify: 2 to {most}")]


def _length_problems(drafter: Drafter, path: str) -> list[Problem]:
    if not drafter.draft_lengths:
        return []
    where = f"{path}.draftLengths"
    if drafter.method not in ADAPTIVE_METHODS or drafter.branches > 1:
        message = (
            "SGLang supports draft lengths by batch size only for chains of eagle, eagle3 and mtp, and ignores them"
            " otherwise"
        )
        return [Problem(where, message, "remove it, or use one of these methods without eagleTopk")]
    longest, most = max(row.tokens for row in drafter.draft_lengths), drafter.num_speculative_tokens
    if longest != most:
        return [Problem(where, f"the longest is {longest}, but numSpeculativeTokens is {most}", "make them equal")]
    return []
