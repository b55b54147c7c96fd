"""Turns and conversations as tests need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import Message
from specbench_client.dialects.table import dialect_of
from specbench_client.load.turns import Manner, Turn, TurnContext, TurnResult, reading, take_turn
from specbench_client.slices import finish
from specbench_client.transport.aiohttp_transport import AiohttpTransport
from specbench_client.transport.exchange import ErrorClass, Exchange, HttpRequest, Transport

NOT_RECORDED = Exchange(None, (), None, {}, 0)


@dataclass(frozen=True)
class Row:
    """A row of a workload."""

    id: str
    category: str | None = None
    turns: tuple[tuple[Message, ...], ...] = ((Message("user", "hi"),),)


def row(name: str, *texts: str, category: str | None = None) -> Row:
    """A prompt of one user turn a text."""
    return Row(name, category, tuple((Message("user", text),) for text in texts or ("hi",)))


class Canned:
    """A transport that always gives the same exchange, and keeps what was asked."""

    def __init__(self, exchange: Exchange = NOT_RECORDED) -> None:
        self.given = exchange
        self.requests: list[HttpRequest] = []

    async def exchange(self, request: HttpRequest) -> Exchange:
        self.requests.append(request)
        return self.given


def context(
    transport: Transport,
    endpoint: str = "http://127.0.0.1:9",
    kind: EngineKind = EngineKind.SIMULATOR,
    **changed: Any,
) -> TurnContext:
    """A point that starts at 0 on the clock; `changed` are fields of its manner."""
    manner = Manner(
        endpoint=endpoint,
        engine=Engine(kind=kind, endpoint=endpoint if kind is EngineKind.EXTERNAL else None),
        model="simulated",
        sampling=Sampling(),
        output=Output(max_tokens=16),
        repeat=1,
        started_ns=0,
        drafting=True,
        request_prefix="p",
    )
    return TurnContext(transport, dialect_of(manner.engine), replace(manner, **changed))


def turn(*messages: Message, number: int = 0) -> Turn:
    """One turn of conversation `a#0`."""
    return Turn(3, "a#0", "a", "cat", number, messages or (Message("user", "hi"),), 2, 5, RecordPhase.STEADY)


async def taken(endpoint: str, kind: EngineKind = EngineKind.SIMULATOR, idle_timeout_s: float = 20.0) -> Record:
    """The record of one turn over the real transport."""
    async with AiohttpTransport(idle_timeout_s=idle_timeout_s) as transport:
        return (await take_turn(context(transport, endpoint, kind), turn())).record


def blank() -> Record:
    """A record of a request of which nothing is known."""
    record = finish(reading(context(Canned()), turn(), NOT_RECORDED)).record
    return replace(record, error_class=None, error=None)


def failure(ended_ns: int, error_class: ErrorClass | None = None) -> Exchange:
    """An exchange that ended then, and how it failed; None: it did not."""
    return Exchange(None, (), None, {}, ended_ns, error_class=error_class, error=error_class and "words")


def result_of(asked: Turn, ended_ns: int, reply: str | None = "ok", error_class: str | None = None) -> TurnResult:
    """What taking this turn gave."""
    record = replace(
        blank(),
        request_id=f"p-{asked.conversation_index:06d}-{asked.turn}",
        prompt_id=asked.prompt_id,
        conversation_id=asked.conversation_id,
        turn=asked.turn,
        stream=asked.stream,
        phase=asked.phase,
        intended_ns=asked.intended_ns,
        error_class=error_class,
        error=error_class and "words",
    )
    return TurnResult(record, reply, ended_ns)
