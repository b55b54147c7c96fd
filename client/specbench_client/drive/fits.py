"""Whether every prompt fits what the engine was told to hold, before anything is measured.

An engine refuses or cuts what is too long, and not all arms hold alike: a drafter takes memory, and a flag may stand in
one arm alone. So the smallest length that any arm declares counts, for all of them. Where the client applies the chat
template, a request's tokens are known, but for earlier answers. Else they are counted in o200k_base, which is not the
model's own: most tokenizers need more, and the chat template and earlier answers come on top, so what is too long here
is too long there. What an engine takes by default is the model's, and is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.workload import Workload
from specbench_client.drive.prompted import Prompted
from specbench_client.errors import BadInput
from specbench_client.workload.lengths import Ruler, cached_encoding, measure_lengths
from specbench_client.workload.reading import Prompt

_FLAGS: Mapping[EngineKind, tuple[str, ...]] = {
    EngineKind.VLLM: ("--max-model-len",),
    EngineKind.SGLANG: ("--context-length",),
    EngineKind.TENSORRT_LLM: ("--max_seq_len",),
    EngineKind.TRANSFORMERS: ("--max-model-len",),
    EngineKind.SIMULATOR: ("--max-model-len",),
    EngineKind.LLAMA_CPP: ("--ctx-size", "-c"),
}
_SHARED = ("--kv-unified", "-kvu")
"""llama.cpp: one context for all slots, of which each takes what it needs; else they divide it."""
_WITH_ANSWER = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.SIMULATOR)
"""They refuse a prompt that leaves no room for maxTokens; the others begin, and cut an answer that goes on too long."""
_SHOWN = 5
_TEMPLATE_TOKENS = 64
"""Room for a chat template in what is proposed."""


def refuse_over_long(plan: Plan, prompts: Mapping[str, Prompted], ruler: Ruler = cached_encoding) -> None:
    """Raise BadInput where an engine would refuse prompts of a workload, by the length that an arm declares for it.

    `prompts`: by workload. Silent where no arm declares a length, or where tokens cannot be counted.
    """
    declared = {arm.name: length for arm in plan.arms if (length := _declared(plan, arm)) is not None}
    if not declared:
        return
    narrowest = min(declared, key=lambda arm: declared[arm])
    told = [
        line
        for name, one in prompts.items()
        for line in _too_long(_Room(plan, plan.workload(name), narrowest, declared[narrowest]), one, ruler)
    ]
    if told:
        raise BadInput("\n".join(told), "OverLongPrompts")


@dataclass(frozen=True)
class _Room:
    """What the narrowest arm holds of a workload's requests, in tokens."""

    plan: Plan
    workload: Workload
    arm: str
    length: int

    @property
    def answer(self) -> int:
        """Of the length, what a prompt must leave free."""
        return self.workload.output.max_tokens if self.plan.engine.kind in _WITH_ANSWER else 1


def _too_long(room: _Room, prompted: Prompted, ruler: Ruler) -> list[str]:
    rows, most = prompted.prompts.rows, room.length - room.answer
    exact = prompted.tokens is not None
    tokens = prompted.tokens if prompted.tokens is not None else _counted(rows, most, ruler)
    long = [name for name, count in tokens.items() if count > most]
    if not long:
        return []
    shown = ", ".join(long[:_SHOWN]) + (f" and {len(long) - _SHOWN} more" if len(long) > _SHOWN else "")
    whole = f"the {room.length} tokens that the engine of the arm {room.arm!r} holds"
    answer = f" with output.maxTokens {room.answer}" if room.answer > 1 else ""
    fitting = most - _TEMPLATE_TOKENS
    unit = "the model's own tokens" if exact else "o200k_base"
    drop = f"set dataset.inputTokens: {{max: {fitting}}} to drop them on every arm alike, or " if fitting > 0 else ""
    message = f"{len(long)} of {len(rows)} prompts are too long for {whole}{answer}: {shown}"
    longest = f"the longest has {max(tokens[key] for key in long)} ({unit})"
    remedy = "raise its length" + (", or lower output.maxTokens" if answer else "")
    return [f"workload {room.workload.name!r}: {message}; {longest}: {drop}{remedy}"]


def _counted(rows: Sequence[Prompt], most: int, ruler: Ruler) -> Mapping[str, int]:
    """Tokens of the prompts that may have more than `most`; of none where they cannot be counted."""
    suspects = [prompt for prompt in rows if _bytes(prompt) > most]  # no token has less than a byte
    return (measure_lengths(suspects, ruler).tokens or {}) if suspects else {}


def _declared(plan: Plan, arm: Arm) -> int | None:
    """Tokens of prompt and answer that the arm's engine was told to hold for one request; None where it was not."""
    if plan.engine.endpoint is not None:
        return None
    args = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)).args
    flags = _FLAGS.get(plan.engine.kind, ())
    given = [*(value for flag, value in pairwise(args) if flag in flags), *_with_equals(args, flags)]
    numbers = [int(value) for value in given if value.isdecimal() and int(value) > 0]
    if not numbers:
        return None
    if plan.engine.kind is not EngineKind.LLAMA_CPP:
        return numbers[-1]
    return None if any(argument in _SHARED for argument in args) else numbers[-1] // plan.slots


def _with_equals(args: Sequence[str], flags: Sequence[str]) -> list[str]:
    halves = [argument.partition("=") for argument in args]
    return [value for flag, equals, value in halves if equals and flag in flags]


def _bytes(prompt: Prompt) -> int:
    return sum(len(message.token_ids or message.content.encode()) for turn in prompt.turns for message in turn)
