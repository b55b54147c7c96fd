"""The simulator: our own engine with a known truth. It runs from the same image as the client."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, flag_of, given_twice, repeated
from specbench_api.launch.launch import LEADER, Launch, Order
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import DialectName, Engine, EngineKind

_MANAGED = ("--follow", "--dialect", "--host", "--port", "--port-file", "--drafter", "--num-speculative-tokens")
OPTIONS = (
    *_MANAGED, "--match-probability", "--acceptance", "--prompts", "--truth", "--fault", "--seed", "--output-mean",
    "--max-num-seqs", "--max-model-len", "--base-ms", "--per-token-ms", "--per-kv-ms", "--per-draft-ms",
    "--per-prefill-ms", "--time-scale", "--served-model-name", "--per-request-spec-decode-metrics",
)  # fmt: skip
"""All of `specbench simulate`. It is ours, so what it does not know is told before every arm crashes on it."""
_REMEDIES = {
    "--dialect": "set spec.engine.dialect",
    "--drafter": "set drafters[].method",
    "--num-speculative-tokens": "set drafters[].numSpeculativeTokens",
}
ALIASES = {"-k": "--num-speculative-tokens"}
_REPEATABLE = ("--fault", "--served-model-name")
PORT = 8000


class SimulatorLauncher:
    """`specbench simulate` with the drafter's method and length, in an engine's dialect; acceptance comes by args."""

    kind = EngineKind.SIMULATOR

    def launch(self, order: Order) -> Launch:
        """Render the command line of `specbench simulate`."""
        drafter = order.drafter
        drafting = (*_drafting(drafter), *(drafter.args if drafter else ()))
        return Launch(
            image=order.engine.image or "",  # empty: the installation's own image
            command=tuple(order.engine.command) if order.engine.command else ("specbench",),
            local_programs=(("specbench",),),
            args=("simulate", *_dialect(order.engine), *drafting, *order.engine.args),
            port=PORT,
            worker_args=("simulate", "--follow", f"http://{LEADER}:{PORT}") if order.nodes > 1 else None,
            env={variable.name: variable.value for variable in order.engine.env},
            served_model="simulated",
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments that contradict managed flags or each other, and those that the simulator does not know."""
        found = contradictions(
            _MANAGED, order.engine.args, "spec.engine.args", ALIASES, _REMEDIES, _dialect(order.engine)
        )
        found += repeated(order.engine.args, "spec.engine.args", ALIASES, _REPEATABLE)
        found += _unknown(order.engine, order.engine.args, "spec.engine.args")
        if order.drafter:
            path = f"{order.drafter_path}.args"
            ours = (*_dialect(order.engine), *_drafting(order.drafter))
            found += contradictions(_MANAGED, order.drafter.args, path, ALIASES, _REMEDIES, ours)
            found += given_twice(order.engine.args, order.drafter.args, path, ALIASES, _REPEATABLE)
            found += _unknown(order.engine, order.drafter.args, path)
        return found


def _unknown(engine: Engine, args: Sequence[str], path: str) -> list[Problem]:
    """Flags that `specbench simulate` does not have, each with the nearest; silent where it is of another build."""
    if engine.command or engine.image or engine.version:
        return []
    flags = [(row, flag) for row, argument in enumerate(args) if (flag := flag_of(argument))]
    return [
        Problem(f"{path}[{row}]", f"the simulator has no {flag}", _nearest(flag))
        for row, flag in flags
        if flag not in OPTIONS and flag not in ALIASES
    ]


def _nearest(flag: str) -> str:
    near = get_close_matches(flag, OPTIONS, n=1)
    return f"{near[0]} is the nearest that it has" if near else "specbench simulate --help has them all"


def _dialect(engine: Engine) -> tuple[str, str]:
    return ("--dialect", str(engine.dialect or DialectName.VLLM))


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ("--drafter", "none")
    return ("--drafter", drafter.method, "--num-speculative-tokens", str(drafter.num_speculative_tokens))
