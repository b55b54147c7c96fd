"""Builders of turns and conversations for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import run_to_completion
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.load.conversations import Conversation
from specbench_client.load.turns import RequestConfig, Turn, TurnClient, TurnResult
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpExchange, HttpRequest, Transport
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import external_engine

NOT_RECORDED = HttpExchange(None, (), None, {}, 0)


def row(name: str, *texts: str, category: str | None = None) -> Prompt:
    """Return a prompt with one user turn per text."""
    return Prompt(name, category, tuple((ChatMessage("user", text),) for text in texts or ("hi",)))


class CannedTransport:
    """A transport that always returns the same exchange and records the requests."""

    def __init__(self, exchange: HttpExchange = NOT_RECORDED) -> None:
        self.given = exchange
        self.requests: list[HttpRequest] = []

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        self.requests.append(request)
        return self.given


def context(
    transport: Transport,
    endpoint: str = "http://127.0.0.1:9",
    kind: EngineKind = EngineKind.SIMULATOR,
    **changed: Any,
) -> TurnClient:
    """A client whose clock starts at 0; `changed` are fields of its request_config."""
    defaults = RequestConfig(
        endpoint=endpoint,
        engine=external_engine(url=endpoint) if kind is EngineKind.EXTERNAL else Engine(kind=kind),
        model="simulated",
        sampling=Sampling(),
        output=Output(max_tokens=16),
        repeat=1,
        started_ns=0,
        drafting=True,
        request_prefix="p",
    )
    request_config = replace(defaults, **changed)
    return TurnClient(transport, dialect_of(request_config.engine), request_config)


def turn(*messages: ChatMessage, number: int = 0) -> Turn:
    """One turn of conversation `a#0`."""
    conversation = Conversation(3, "a#0", row("a", category="cat"))
    return Turn(conversation, number, messages or (ChatMessage("user", "hi"),), 2, 5, RecordPhase.STEADY)


async def taken(endpoint: str, kind: EngineKind = EngineKind.SIMULATOR, idle_timeout_s: float = 20.0) -> Record:
    """The record of one turn over the real transport."""
    async with KernelTransport(idle_timeout_s=idle_timeout_s) as transport:
        return (await context(transport, endpoint, kind).take_turn(turn())).record


def blank_record() -> Record:
    """A record of a request without any known values."""
    record = run_to_completion(context(CannedTransport()).read_result(turn(), NOT_RECORDED)).record
    return replace(record, error_class=None, error=None, ended_ns=None)


def failure(ended_ns: int, error_class: ErrorClass | None = None) -> HttpExchange:
    """An exchange that ended at this time, with this error or none."""
    return HttpExchange(None, (), None, {}, ended_ns, error_class=error_class, error=error_class and "words")


def result_of(
    request_turn: Turn, ended_ns: int, reply: str | None = "ok", error_class: str | None = None
) -> TurnResult:
    """The result of this turn."""
    record = replace(
        blank_record(),
        request_id=f"p-{request_turn.conversation.index:06d}-{request_turn.number}",
        prompt_id=request_turn.conversation.prompt.id,
        conversation_id=request_turn.conversation.id,
        turn=request_turn.number,
        stream_index=request_turn.stream_index,
        phase=request_turn.phase,
        intended_ns=request_turn.intended_ns,
        error_class=error_class,
        error=error_class and "words",
    )
    return TurnResult(record, reply, ended_ns)
