"""SGLang's `sglang.launch_server`.

Levelled on every arm: as many requests at once as the load has (any speculation resets that to 48 where it is not
given, and the baseline to nothing), no prefix cache, a chunk for every step, and SGLang's own sampling defaults instead
of those that a model brings. Metrics are always on: they are what is measured. So is the report of cached tokens in
each answer's usage: without it SGLang tells no hit of a prompt cache that should be off, whatever the levelling.
SGLang counts the root of a draft among its tokens: a chain of k drafts is verified as k + 1 tokens. What it cannot do
it mostly corrects, and says so in its log alone; here that is refused.
Its health route generates a token when nobody else does, which is foreign traffic: it is told not to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, given_twice, repeated
from specbench_api.launch.launch import CONFIG_FOLDER, LEADER, RANK, Launch, Order, release_tag
from specbench_api.launch.support.sglang import RELEASE
from specbench_api.launch.weights import models_of, path_of, pinned
from specbench_api.spec.drafter import Drafter, DraftLength, Method
from specbench_api.spec.engine import Engine, EngineKind, Levelling
from specbench_api.spec.target import Target

PORT = 30000
IMAGE = "lmsysorg/sglang"
ADAPTIVE = "adaptive.json"
QUIET_HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
INVENTED = "SGLANG_SIMULATE_ACC_"
"""Variables that have SGLang make acceptance up."""
ALGORITHMS = {
    Method.NGRAM: "NGRAM",
    Method.DRAFT_MODEL: "STANDALONE",
    Method.EAGLE: "EAGLE",
    Method.EAGLE3: "EAGLE3",
    Method.MTP: "NEXTN",
    Method.DFLASH: "DFLASH",
    Method.DSPARK: "DSPARK",
}
ADAPTIVE_METHODS = (Method.EAGLE, Method.EAGLE3)

_MANAGED = (
    "--model-path", "--revision", "--served-model-name", "--tokenizer-path", "--tp-size", "--host", "--port",
    "--config", "--enable-metrics", "--enable-cache-report", "--speculative-algorithm",
    "--speculative-draft-model-path", "--speculative-draft-model-revision", "--speculative-num-steps",
    "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--speculative-dspark-block-size",
    "--speculative-token-map", "--speculative-adaptive", "--speculative-adaptive-config",
)  # fmt: skip
_SPREAD = ("--nnodes", "--node-rank", "--dist-init-addr")
RENDEZVOUS_PORT = 20000
_LEVELLED = ("--max-running-requests", "--disable-radix-cache", "--sampling-defaults", "--stream-interval")
_ALIASES = {
    "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--tp": "--tp-size",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--speculative-dflash-block-size": "--speculative-num-draft-tokens",
    "--pipeline-parallel-size": "--pp-size", "--data-parallel-size": "--dp-size", "--ep": "--ep-size",
    "--expert-parallel-size": "--ep-size", "--attention-data-parallel-size": "--attn-dp-size",
    "--attention-context-parallel-size": "--attn-cp-size", "--moe-data-parallel-size": "--moe-dp-size",
    "--enable-hicache": "--enable-hierarchical-cache", "--nccl-init-addr": "--dist-init-addr",
}  # fmt: skip
_REMEDIES = {
    "--model-path": "set spec.model",
    "--revision": "set spec.model.revision",
    "--served-model-name": "it is spec.model.name",
    "--tokenizer-path": "set spec.model.tokenizer",
    "--tp-size": "set spec.engine.tensorParallelSize",
    "--nnodes": "set spec.placement.nodes",
    "--config": "give its arguments in args, where they can be held against what specbench sets",
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
    **dict.fromkeys(_LEVELLED[1:], "or set spec.engine.levelling: Off"),
}


class SglangLauncher:
    """Renders a command line of `sglang.launch_server`."""

    kind = EngineKind.SGLANG

    def launch(self, order: Order) -> Launch:
        """Render the command line, and the schedule of draft lengths where there is one."""
        engine, drafter, (files, hub) = order.engine, order.drafter, models_of(order)
        args = (*_alike(order), *_drafting(drafter), *engine.args, *(drafter.args if drafter else ()))
        return Launch(
            image=engine.image or f"{IMAGE}:{release_tag(engine.version or RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            image_program=("python3", "-m", "sglang.launch_server"),
            local_programs=(("python", "-m", "sglang.launch_server"),),
            args=args,
            worker_args=args if order.nodes > 1 else None,
            port=PORT,
            env=QUIET_HEALTH | {variable.name: variable.value for variable in engine.env},
            served_model=order.target.name,
            configs={ADAPTIVE: _schedule(drafter.draft_lengths)} if drafter and drafter.draft_lengths else {},
            files=files,
            hub=hub,
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments that contradict managed flags, and what SGLang has not or would silently correct."""
        engine, drafter, path, alike = order.engine, order.drafter, f"{order.drafter_path}.args", _alike(order)
        managed = (*_MANAGED, *_SPREAD, *(_LEVELLED if engine.levelling is Levelling.ON else ()))
        found = contradictions(managed, engine.args, "spec.engine.args", spelled, _REMEDIES, alike)
        found += repeated(engine.args, "spec.engine.args", spelled)
        if drafter:
            ours = (*alike, *_drafting(drafter))
            found += contradictions(managed, drafter.args, path, spelled, _REMEDIES, ours)
            found += given_twice(engine.args, drafter.args, path, spelled)
        found += [*_invented(engine), *_unreachable(order.target)]
        return [*found, *(_drafter_problems(drafter, order.drafter_path) if drafter else ())]


def spelled(flag: str) -> str:
    """The flag that SGLang takes this spelling for: its parser takes any beginning that no other flag shares.

    One that several share goes to one of them here: SGLang takes none.
    """
    known = (*_MANAGED, *_LEVELLED, *_SPREAD, *_ALIASES)
    full = flag if flag in known else next((each for each in known if flag[2:] and each.startswith(flag)), flag)
    return _ALIASES.get(full, full)


def _alike(order: Order) -> tuple[str, ...]:
    """What every arm gets."""
    levelled = (
        *("--max-running-requests", str(order.slots)),
        "--disable-radix-cache",
        *("--sampling-defaults", "openai"),
        *("--stream-interval", "1"),
    )
    return (
        *_target(order.target),
        *("--tp-size", str(order.engine.tensor_parallel_size)),
        *("--enable-metrics", "--enable-cache-report"),
        *(levelled if order.engine.levelling is Levelling.ON else ()),
        *(_spread(order.nodes) if order.nodes > 1 else ()),
    )


def _spread(nodes: int) -> tuple[str, ...]:
    """The same on every node; the first serves."""
    return ("--nnodes", str(nodes), "--node-rank", RANK, "--dist-init-addr", f"{LEADER}:{RENDEZVOUS_PORT}")


def _target(target: Target) -> tuple[str, ...]:
    revision = pinned(target)
    return (
        *("--model-path", path_of(target) or target.name),
        *(("--revision", revision) if revision else ()),
        *("--served-model-name", target.name),
        *(("--tokenizer-path", target.tokenizer) if target.tokenizer else ()),
    )


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
    """How much is drafted. n-grams and DFLASH know the verified tokens alone, DSPARK the drafted ones."""
    steps, verified = str(drafter.num_speculative_tokens), str(drafter.num_speculative_tokens + 1)
    if drafter.method is Method.DSPARK:
        return ("--speculative-dspark-block-size", steps)
    if drafter.method in (Method.NGRAM, Method.DFLASH):
        return ("--speculative-num-draft-tokens", verified)
    return (
        *("--speculative-num-steps", steps),
        *("--speculative-eagle-topk", str(drafter.eagle_topk or 1)),
        *("--speculative-num-draft-tokens", str(drafter.num_draft_tokens or verified)),
    )


def _schedule(lengths: Sequence[DraftLength]) -> str:
    """The steps by the batch from which on they hold. With one candidate each, acceptance moves nothing.

    SGLang looks a batch up after it was rounded up to the next size for which it has a CUDA graph.
    """
    rows = sorted(lengths, key=lambda row: row.batch_size)
    begins = [1, *(before.batch_size + 1 for before, _ in pairwise(rows))]
    slots = {str(begin): {"candidate_steps": [row.tokens]} for begin, row in zip(begins, rows, strict=True)}
    return json.dumps(slots) + "\n"


def _invented(engine: Engine) -> list[Problem]:
    message = "has SGLang make acceptance up, and what it writes then is no model's text"
    return [
        Problem(f"spec.engine.env[{row}].name", f"{variable.name} {message}", "remove it; kind simulator is for that")
        for row, variable in enumerate(engine.env)
        if variable.name.startswith(INVENTED)
    ]


def _unreachable(target: Target) -> list[Problem]:
    if not target.uri:
        return []
    return [Problem("spec.model.uri", "SGLang is not launched from a URI", "use path or pvc, or the hub's name")]


def _drafter_problems(drafter: Drafter, path: str) -> list[Problem]:
    has_not = (
        ("revision", drafter.revision is not None and drafter.model is None,
         "has no drafter's model to take at a revision", "leave it out, or set model"),
        ("speculativeConfig", bool(drafter.speculative_config), "has no speculative configuration but its flags",
         "give them in this arm's args"),
        ("draftTensorParallelSize", drafter.draft_tensor_parallel_size is not None,
         "splits the drafter as it splits the target", "leave it out"),
        ("promptLookupMin", drafter.prompt_lookup_min is not None, "looks up suffixes of every length",
         "leave it out"),
        ("promptLookupMax", drafter.prompt_lookup_max is not None, "bounds suffix and draft together",
         "give --speculative-ngram-max-trie-depth in this arm's args"),
    )  # fmt: skip
    found = [Problem(f"{path}.{name}", f"SGLang {what}", remedy) for name, given, what, remedy in has_not if given]
    return [*found, *_name_problems(drafter, path), *_tree_problems(drafter, path), *_length_problems(drafter, path)]


def _name_problems(drafter: Drafter, path: str) -> list[Problem]:
    """What has a method here is checked as that method."""
    asked = (drafter.algorithm or "").upper()
    return [
        Problem(f"{path}.algorithm", f"{drafter.algorithm} is method {method}", f"set method: {method}")
        for method, name in ALGORITHMS.items()
        if name == asked
    ]


def _tree_problems(drafter: Drafter, path: str) -> list[Problem]:
    steps, topk, nodes = drafter.num_speculative_tokens, drafter.eagle_topk or 1, drafter.num_draft_tokens
    if drafter.method is Method.CUSTOM:
        return []
    if topk == 1:
        message = f"of a chain of {steps} drafts SGLang verifies {steps + 1} tokens, whatever is asked"
        remedy = "leave it out, or set eagleTopk for a tree"
        return [Problem(f"{path}.numDraftTokens", message, remedy)] if nodes not in (None, steps + 1) else []
    most = topk + (steps - 1) * topk * topk + 1
    if nodes is not None and nodes <= most:
        return []
    message = f"a tree of depth {steps} and eagleTopk {topk} has {most} nodes at most, the root among them"
    return [Problem(f"{path}.numDraftTokens", message, f"say how many are verified: 2 to {most}")]


def _length_problems(drafter: Drafter, path: str) -> list[Problem]:
    if not drafter.draft_lengths:
        return []
    where = f"{path}.draftLengths"
    if drafter.method not in ADAPTIVE_METHODS or (drafter.eagle_topk or 1) > 1:
        message = (
            "SGLang changes the length of EAGLE and EAGLE-3 chains alone: others keep theirs, and a log line says so"
        )
        return [Problem(where, message, "leave it out, or use eagle or eagle3 without eagleTopk")]
    longest, most = max(row.tokens for row in drafter.draft_lengths), drafter.num_speculative_tokens
    if longest != most:
        return [Problem(where, f"the longest is {longest}, and numSpeculativeTokens {most}", "make them the same")]
    return []
