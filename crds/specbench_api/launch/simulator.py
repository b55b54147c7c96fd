"""The simulator: our own engine with known true values, in the same image as the client."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem, did_you_mean
from specbench_api.launch.arguments import EngineFlags, argument_problems, flag_of
from specbench_api.launch.launcher import (
    LEADER,
    ContextRules,
    LaunchRequest,
    LaunchSpec,
    Verification,
    unknown_verification,
)
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import DialectName, Engine

HELP = "see specbench simulate --help"
_MANAGED = (
    "--follow", "--dialect", "--host", "--port", "--port-file", "--drafter", "--num-speculative-tokens",
    "--enable-prefix-caching",
)  # fmt: skip
OPTIONS = (
    *_MANAGED, "--match-probability", "--acceptance", "--prompts", "--truth", "--fault", "--seed", "--output-mean",
    "--max-num-seqs", "--max-model-len", "--prefix-cache-tokens", "--base-ms", "--per-token-ms", "--per-kv-ms",
    "--per-draft-ms", "--per-prefill-ms", "--time-scale", "--served-model-name", "--per-request-spec-decode-metrics",
)  # fmt: skip
"""All options of `specbench simulate`, so that an unknown one is reported before every arm crashes on it."""
FAULTS = (
    "merge-chunks", "truncate", "miscount", "diverge", "never-draft", "prompt-cache", "slow-start", "never-ready",
    "crash-after", "reset-after", "stall", "http-500", "malformed-sse", "restart-counters", "throttle", "cold",
    "own-limit", "temperature", "drafter-memory", "oom", "reuse-last-block", "reuse-lost", "acceptance-decay",
    "acceptance-decay-cached", "corrupt-json", "broken-tool-calls", "loops", "empty", "finish-reason",
    "wrong-deep", "restored-damage",
)  # fmt: skip
"""The faults of `--fault`, so that an unknown one is reported before an engine is launched."""
_FAULT = "--fault"
_REMEDIES = {
    "--dialect": "set spec.engine.dialect",
    "--drafter": "set drafters[].method",
    "--num-speculative-tokens": "set drafters[].numSpeculativeTokens",
    "--enable-prefix-caching": "set spec.promptCache",
}
ALIASES = {"-k": "--num-speculative-tokens"}
_FLAGS = EngineFlags(_MANAGED, ALIASES, _REMEDIES, repeatable=(_FAULT, "--served-model-name"))
PORT = 8000


class SimulatorLauncher:
    """Runs `specbench simulate` with the drafter's method and length; other options come from args."""

    context = ContextRules(("--max-model-len",), needs_answer_space=True)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line of `specbench simulate`."""
        drafter = order.drafter
        drafting = (*_drafting(drafter), *(drafter.args if drafter else ()))
        return LaunchSpec(
            image=order.engine.image or "",  # empty: the installation's own image
            command=tuple(order.engine.command) if order.engine.command else ("specbench",),
            local_programs=(("specbench",),),
            args=("simulate", *_alike(order), *drafting, *order.engine.args),
            port=PORT,
            worker_args=("simulate", "--follow", f"http://{LEADER}:{PORT}") if order.nodes > 1 else None,
            env=order.engine.environment,
            served_model=order.target.adapter.name if order.target.adapter else "simulated",
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting, repeated and unknown arguments."""
        engine, drafter = order.engine, order.drafter
        found = argument_problems(order, _FLAGS, _alike(order), _drafting(drafter))
        if not (engine.command or engine.image or engine.version):  # else another build of it may be running
            found += _unknown(engine.args, "spec.engine.args")
            found += _unknown(drafter.args, f"{order.drafter_path}.args") if drafter else []
        return found

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:  # noqa: ARG002 -- the same for all
        """Return unknown methods: the simulator has no distributions."""
        return unknown_verification("the simulator accepts drafts at random, with configured probabilities")


def _unknown(args: Sequence[str], path: str) -> list[Problem]:
    """Return the flags and faults that `specbench simulate` does not have."""
    found = []
    for row, argument in enumerate(args):
        flag, fault = flag_of(argument), _fault_at(args, row)
        if flag and flag not in OPTIONS and flag not in ALIASES:
            found.append(
                Problem(f"{path}[{row}]", f"the simulator has no option {flag}", did_you_mean(flag, OPTIONS, HELP))
            )
        if fault is not None and fault not in FAULTS:
            found.append(
                Problem(f"{path}[{row}]", f"the simulator has no fault {fault!r}", did_you_mean(fault, FAULTS, HELP))
            )
    return found


def _fault_at(args: Sequence[str], row: int) -> str | None:
    """Return the fault that an argument names, as `--fault=NAME` or after `--fault`; None if it names none."""
    flag, _, value = args[row].partition("=")
    if flag == _FAULT and value:
        return value.partition("=")[0]
    return flag if row and args[row - 1] == _FAULT else None


def _alike(order: LaunchRequest) -> tuple[str, ...]:
    """Return the arguments of every arm."""
    cache = ("--enable-prefix-caching",) if order.caches else ()
    adapter = order.target.adapter
    served = ("--served-model-name", adapter.name) if adapter else ()
    return ("--dialect", str(order.engine.dialect or DialectName.VLLM), *cache, *served)


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ("--drafter", "none")
    return ("--drafter", drafter.method, "--num-speculative-tokens", str(drafter.num_speculative_tokens))
