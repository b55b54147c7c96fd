"""vLLM's `vllm serve`.

Levelled on every arm: no prefix cache (with one, a prompt that was seen before skips its prefill, and a request that
hits it whole is counted a draft step that never was) and vLLM's own sampling defaults instead of those that a model
brings. Always set, since answers are read by it: a chunk for every step, and how much of a prompt came from the cache.
Acceptance by request is asked for where an arm speculates: vLLM refuses to start with that flag elsewhere.

What stays different between arms is vLLM's own doing and part of the drafter's price: suffix decoding, custom classes
and parallel draft models run on its older model runner, and some of them without asynchronous scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, flag_of, given_twice, repeated
from specbench_api.launch.launch import LEADER, RANK, Launch, Order, release_tag
from specbench_api.launch.support.vllm import RELEASE
from specbench_api.launch.vllm_speculation import CUSTOM_CLASS, rendered, speculation_problems
from specbench_api.launch.weights import models_of, path_of, pinned
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine, EngineKind, Levelling
from specbench_api.spec.target import Target

PORT = 8000
IMAGE = "vllm/vllm-openai"
OLDEST = Version("0.29")
"""The first that tells acceptance by request (`--per-request-spec-decode-metrics`): 0.28.0 has no such flag."""
OBJECT_STORE = "s3://"

_MANAGED = (
    "--model", "--served-model-name", "--host", "--port", "--tensor-parallel-size", "--revision", "--tokenizer",
    "--speculative-config", "--per-request-spec-decode-metrics", "--stream-interval", "--enable-prompt-tokens-details",
    "--enable-log-stats", "--config",
)  # fmt: skip
_SPREAD = ("--nnodes", "--node-rank", "--master-addr", "--headless")
_LEVELLED = ("--enable-prefix-caching", "--generation-config")
_FETCHED = ("--load-format",)
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
    "--speculative-config": "set drafters[].method and its knobs, and further keys in drafters[].speculativeConfig",
    "--per-request-spec-decode-metrics": "every arm that speculates has it, and vLLM does not start with it elsewhere",
    "--enable-log-stats": "leave it out: its counters are what acceptance is checked against",
    "--enable-prefix-caching": "or set spec.engine.levelling: Off",
    "--generation-config": "or set spec.engine.levelling: Off",
    "--nnodes": "set spec.placement.nodes",
    "--load-format": "spec.model.uri sets it",
    "--config": "give its arguments in args, where they can be held against what specbench sets",
}
_REPEATABLE = ("--middleware", "--lora-modules")


class VllmLauncher:
    """Renders a command line of `vllm serve`."""

    kind = EngineKind.VLLM

    def launch(self, order: Order) -> Launch:
        """Render the command line."""
        engine, drafter, (files, hub) = order.engine, order.drafter, _models(order)
        args = (*_alike(order), *_drafting(drafter), *engine.args, *(drafter.args if drafter else ()))
        return Launch(
            image=engine.image or f"{IMAGE}:{release_tag(engine.version or RELEASE)}",
            command=tuple(engine.command) if engine.command else None,
            local_programs=(("vllm", "serve"),),
            args=args,
            worker_args=(*args, "--headless") if order.nodes > 1 else None,
            port=PORT,
            env={variable.name: variable.value for variable in engine.env},
            served_model=order.target.name,
            files=files,
            hub=hub,
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments that contradict managed flags, a target out of reach, and what vLLM has not."""
        drafter, args = order.drafter, order.engine.args
        alike = ("--model", *_alike(order))
        managed = _managed(order)
        found = contradictions(managed, args, "spec.engine.args", spelled, _REMEDIES, alike)
        found += repeated(args, "spec.engine.args", with_key, _REPEATABLE)
        if drafter:
            path = f"{order.drafter_path}.args"
            ours = (*alike, *_drafting(drafter))
            found += contradictions(managed, drafter.args, path, spelled, _REMEDIES, ours)
            found += given_twice(args, drafter.args, path, with_key, _REPEATABLE)
            found += [*_too_old(order.engine), *speculation_problems(order), *_dynamic(order)]
        return [*found, *_unreachable(order.target)]


def spelled(flag: str) -> str:
    """The flag that vLLM takes this spelling for.

    It takes `_` for `-`, a key of a JSON value after a dot, `--no-x` and `--disable-x` beside `--enable-x`, and any
    beginning that no other flag shares. One that several share goes to one of them here: vLLM takes none.
    """
    name = flag.split(".", 1)[0]
    if not name.startswith("--"):
        return _ALIASES.get(name, name)
    name = name.replace("_", "-")
    name = f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name
    name = f"--enable-{name.removeprefix('--disable-')}" if name.startswith("--disable-") else name
    known = (*_MANAGED, *_LEVELLED, *_FETCHED, *_SPREAD, *_ALIASES)
    full = name if name in known else next((each for each in known if each.startswith(name) and name != "--"), name)
    return _ALIASES.get(full, full)


def with_key(flag: str) -> str:
    """The flag with the key of its JSON value, where one is spelled: vLLM makes one value of several keys."""
    _, dot, key = flag.partition(".")
    return f"{spelled(flag)}{dot}{key}"


def _managed(order: Order) -> tuple[str, ...]:
    levelled = _LEVELLED if order.engine.levelling is Levelling.ON else ()
    return (*_MANAGED, *_SPREAD, *levelled, *(_FETCHED if order.target.uri else ()))


def _alike(order: Order) -> tuple[str, ...]:
    """What every arm gets. The model comes first: it has no flag."""
    levelled = ("--no-enable-prefix-caching", "--generation-config", "vllm")
    return (
        *_target(order.target),
        *("--tensor-parallel-size", str(order.engine.tensor_parallel_size)),
        *("--stream-interval", "1"),
        "--enable-prompt-tokens-details",
        *(levelled if order.engine.levelling is Levelling.ON else ()),
        *(_spread(order.nodes) if order.nodes > 1 else ()),
    )


def _spread(nodes: int) -> tuple[str, ...]:
    """The same on every node, by its own processes and without Ray; documented since vLLM 0.13."""
    return ("--nnodes", str(nodes), "--node-rank", RANK, "--master-addr", LEADER)


def _target(target: Target) -> tuple[str, ...]:
    revision = None if target.uri else pinned(target)
    return (
        path_of(target) or target.uri or target.name,
        *("--served-model-name", target.name),
        *(("--load-format", "runai_streamer") if target.uri else ()),
        *(("--revision", revision) if revision else ()),
        *(("--tokenizer", target.tokenizer) if target.tokenizer else ()),
    )


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ()
    return ("--speculative-config", rendered(drafter), "--per-request-spec-decode-metrics", "detailed")


def _models(order: Order) -> tuple[dict[str, str], dict[str, str]]:
    """As everywhere, but that an object store is no hub, and a drafter's class is no model."""
    files, hub = models_of(order)
    if order.target.uri:
        hub.pop("spec.model.name")
    if order.drafter and order.drafter.algorithm == CUSTOM_CLASS:
        hub.pop(f"{order.drafter_path}.model", None)
    return files, hub


def _too_old(engine: Engine) -> list[Problem]:
    try:
        old = engine.version is not None and Version(engine.version.removeprefix("v")) < OLDEST
    except InvalidVersion:
        return []
    message = f"vLLM {engine.version} cannot tell the acceptance of a request"
    return [Problem("spec.engine.version", message, f"{OLDEST}.0 or later")] if old else []


def _unreachable(target: Target) -> list[Problem]:
    if not target.uri or target.uri.startswith(OBJECT_STORE):
        return []
    message = f"vLLM fetches from an object store ({OBJECT_STORE}…) or from the hub, and not from {target.uri!r}"
    return [Problem("spec.model.uri", message, "use path or pvc, or the hub's name")]


def _dynamic(order: Order) -> list[Problem]:
    """A schedule of draft lengths is dropped where vLLM cannot follow it: its log alone says so."""
    drafter = order.drafter
    if drafter is None or not drafter.draft_lengths:
        return []
    unheard = drafter.method is Method.SUFFIX or drafter.algorithm == CUSTOM_CLASS
    parallel = "--data-parallel-size" in {spelled(flag_of(each)) for each in (*order.engine.args, *drafter.args)}
    where = "with data parallelism" if parallel else f"with {drafter.algorithm or drafter.method}"
    message = f"vLLM keeps to numSpeculativeTokens {where}, and a line of its log says so"
    return [Problem(f"{order.drafter_path}.draftLengths", message, "leave it out")] if unheard or parallel else []
