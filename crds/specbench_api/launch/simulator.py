"""The simulator: our own engine with a known truth. It runs from the same image as the client."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, given_twice, repeated
from specbench_api.launch.launch import Launch, Order
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import DialectName, Engine, EngineKind

_MANAGED = ("--dialect", "--host", "--port", "--port-file", "--drafter", "--num-speculative-tokens")
_REMEDIES = {
    "--dialect": "set spec.engine.dialect",
    "--drafter": "set drafters[].method",
    "--num-speculative-tokens": "set drafters[].numSpeculativeTokens",
}
_ALIASES = {"-k": "--num-speculative-tokens"}
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
            env={variable.name: variable.value for variable in order.engine.env},
            served_model="simulated",
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments that contradict managed flags or each other."""
        found = contradictions(
            _MANAGED, order.engine.args, "spec.engine.args", _ALIASES, _REMEDIES, _dialect(order.engine)
        )
        found += repeated(order.engine.args, "spec.engine.args", _ALIASES, _REPEATABLE)
        if order.drafter:
            path = f"{order.drafter_path}.args"
            ours = (*_dialect(order.engine), *_drafting(order.drafter))
            found += contradictions(_MANAGED, order.drafter.args, path, _ALIASES, _REMEDIES, ours)
            found += given_twice(order.engine.args, order.drafter.args, path, _ALIASES, _REPEATABLE)
        return found


def _dialect(engine: Engine) -> tuple[str, str]:
    return ("--dialect", str(engine.dialect or DialectName.VLLM))


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ("--drafter", "none")
    return ("--drafter", drafter.method, "--num-speculative-tokens", str(drafter.num_speculative_tokens))
