"""The client's first act: one real completion through the very path that is measured.

A health route says that a server listens; only a completion says that the engine serves this model, and only one that
is read to its end says that what the records rest on (usage, the stream's end) will be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from specbench_api.outcome.record import RecordPhase
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.workload import Output
from specbench_client.chat import Message
from specbench_client.errors import EngineFailed
from specbench_client.load.turns import Turn, TurnContext, TurnResult, take_turn

FIRST_TOKENS = 8
NAME = "first-completion"


async def first_completion(
    context: TurnContext, messages: Sequence[Message], clock: Callable[[], int] = time.monotonic_ns
) -> TurnResult:
    """Take one short turn. Raises EngineFailed (REFUSED) with what the engine said."""
    asked = context.manner
    tokens, prefix = min(FIRST_TOKENS, asked.output.max_tokens), f"{asked.request_prefix}-first"
    short = replace(asked, output=Output(max_tokens=tokens), request_prefix=prefix, keep_text=True)
    turn = Turn(
        conversation_index=0,
        conversation_id=NAME,
        prompt_id=NAME,
        category=None,
        turn=0,
        messages=tuple(messages),
        stream=0,
        intended_ns=clock(),
        phase=RecordPhase.WARMUP,
    )
    result = await take_turn(replace(context, manner=short), turn)
    record = result.record
    if record.error_class is not None:
        message = f"the engine refused a first completion ({record.error_class}): {record.error}"
        raise EngineFailed(message, EngineReason.REFUSED)
    if not record.output_tokens:
        raise EngineFailed("the engine answered a first completion without a single token", EngineReason.REFUSED)
    return result
