"""The context length that an arm's engine is configured with, and a warning if it is too short for the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specbench_api.launch.registry import LAUNCHERS
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, Plan

SHORT_PROMPT_TOKENS = 64
"""Tokens of a question of two or three lines with its chat template; longer prompts are not considered here."""


@dataclass(frozen=True)
class DeclaredContext:
    """A declared context of `tokens`, divided among `slots` concurrent requests."""

    tokens: int
    slots: int = 1

    @property
    def per_request(self) -> int:
        """Tokens of prompt and answer that one request may have."""
        return self.tokens // self.slots


def declared_context(plan: Plan, arm: Arm) -> DeclaredContext | None:
    """Return the context that the arm's flags declare.

    None if they declare none (the engine then takes the model's, which is not known here), or if all slots share it. Of
    several flags the last one counts.
    """
    if plan.engine.is_external:
        return None
    launcher = LAUNCHERS[plan.engine.kind]
    args, rules = launcher.launch(launch_order(plan, arm)).args, launcher.context
    values = list(_flag_values(args, rules.flags))
    if not values or not values[-1].isdecimal() or not int(values[-1]):
        return None
    if not rules.divided_among_slots:
        return DeclaredContext(int(values[-1]))
    if any(argument in rules.sharing_flags for argument in args):
        return None
    return DeclaredContext(int(values[-1]), plan.slots)


def slots_too_small(plan: Plan) -> list[str]:
    """Return a warning for each context whose slots are too small for a short prompt and `maxTokens`.

    llama-server divides its context among its slots and truncates an answer when its slot is full, so the same flag
    leaves less to a request at a higher concurrency. Without the warning, truncated answers would be found only after
    they were measured (PrematureLengthStop).
    """
    rules = LAUNCHERS[plan.engine.kind].context
    if not rules.divided_among_slots:
        return []
    flag = rules.flags[0]
    answer = max(workload.output.max_tokens for workload in plan.workloads)
    contexts = dict.fromkeys(declared_context(plan, arm) for arm in plan.arms)
    return [
        f"spec.engine.args: {flag} {context.tokens} over {plan.slots} slots leaves {context.per_request} tokens to"
        f" a request, too few for an answer of {answer} (output.maxTokens) and its prompt: answers will be truncated;"
        f" set at least {flag}={plan.slots * (answer + SHORT_PROMPT_TOKENS)}, more if prompts are long"
        for context in contexts
        if context is not None and context.per_request < answer + SHORT_PROMPT_TOKENS
    ]


def _flag_values(args: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Yield the values of these flags, written as `--flag value` or `--flag=value`."""
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name in flags and equals:
            yield value
        elif name in flags and index + 1 < len(args):
            yield args[index + 1]
