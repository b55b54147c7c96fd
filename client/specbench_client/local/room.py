"""Whether an engine's slots hold the answers that will be asked of it.

llama-server divides its context among its slots, and cuts an answer where its slot is full: at a higher concurrency the
same flag leaves less to each request. The cut answers would be found only after they were measured (CutAnswers).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.engine import EngineKind

PROMPT_TOKENS = 64
"""A question of two or three lines with its chat template. Prompts that need more are not looked for here."""
_CONTEXT = ("--ctx-size", "-c")
_SHARED = ("--kv-unified", "-kvu")
"""One context for all slots, of which each takes what it needs."""


def cramped(plan: Plan) -> list[str]:
    """A line where a slot of llama.cpp cannot hold a prompt and `maxTokens`. Silent where it is the model's context."""
    if plan.engine.kind is not EngineKind.LLAMA_CPP:
        return []
    wanted = max(workload.output.max_tokens for workload in plan.workloads)
    contexts = dict.fromkeys(_context(plan, arm) for arm in plan.arms)
    return [
        f"spec.engine.args: --ctx-size {context} over {plan.slots} slots leaves {context // plan.slots} tokens to a"
        f" request, too few for an answer of {wanted} (output.maxTokens) and its prompt: answers will be cut;"
        f" set at least --ctx-size={plan.slots * (wanted + PROMPT_TOKENS)}, more where prompts are long"
        for context in contexts
        if context and context // plan.slots < wanted + PROMPT_TOKENS
    ]


def _context(plan: Plan, arm: Arm) -> int | None:
    """What the arm's slots divide; None: the model's own, one for all slots together, or no number."""
    args = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)).args
    if any(argument in _SHARED for argument in args):
        return None
    return _last_number(args)


def _last_number(args: Sequence[str]) -> int | None:
    """llama-server takes the last of several."""
    given = [value for flag, value in pairwise(args) if flag in _CONTEXT]
    return int(given[-1]) if given and given[-1].isdecimal() else None
