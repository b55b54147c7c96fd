"""The client's first act: one real completion through the very path that is measured.

A health route says that a server listens; only a completion says that the engine serves this model, and only one that
is read to its end says that what the records rest on (usage, the stream's end) will be there.

A failure that may pass is not the engine's last word: a server that has just begun to listen may still fail once, and
giving up costs the arm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from specbench_api.outcome.record import RecordPhase
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.workload import Output
from specbench_client.chat import Message
from specbench_client.errors import EngineFailed
from specbench_client.load.turns import Turn, TurnContext, TurnResult, take_turn
from specbench_client.transport.exchange import ErrorClass

FIRST_TOKENS = 8
NAME = "first-completion"
TRIES = 3
PAUSE_S = 2.0
MAY_PASS = (ErrorClass.HTTP_5XX, ErrorClass.RESET, ErrorClass.REFUSED)
"""Failures after which it is asked again. What it refuses as such (4xx), or answers wrongly, it would do again; and
a timeout has waited long enough."""


async def first_completion(
    context: TurnContext,
    messages: Sequence[Message],
    clock: Callable[[], int] = time.monotonic_ns,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> TurnResult:
    """Take one short turn, again where its failure may pass. Raises EngineFailed (REFUSED) with the engine's words."""
    tries = 1
    result = await _asked(context, messages, clock, tries)
    while result.record.error_class in MAY_PASS and tries < TRIES:
        await pause(PAUSE_S)
        tries += 1
        result = await _asked(context, messages, clock, tries)
    record = result.record
    if record.error_class is not None:
        times = f", {tries} times" if tries > 1 else ""
        message = f"the engine refused a first completion ({record.error_class}{times}): {record.error}"
        raise EngineFailed(message, EngineReason.REFUSED)
    if not record.output_tokens:
        raise EngineFailed("the engine answered a first completion without a single token", EngineReason.REFUSED)
    return result


async def _asked(
    context: TurnContext, messages: Sequence[Message], clock: Callable[[], int], number: int
) -> TurnResult:
    """One try, with a request id of its own."""
    asked = context.manner
    tokens, prefix = min(FIRST_TOKENS, asked.output.max_tokens), f"{asked.request_prefix}-first-{number}"
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
    return await take_turn(replace(context, manner=short), turn)
