"""The client's view of a running engine: a first completion, its identity, and the facts of its launch.

These checks run before anything is measured, so that a failure is reported as the engine's, with its own message, and
not as a series of failed requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import yaml

from specbench_api.errors import did_you_mean
from specbench_api.launch.launcher import DerivedMethod
from specbench_api.launch.registry import LAUNCHERS, NOT_STARTED, cache_reset_route
from specbench_api.outcome.provenance import Fact, FactName, HostFacts, LaunchRecord, merge_facts
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, EngineGroup, Plan, Point
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.engine import CHAT_ROUTE, Engine, EngineKind, route_url
from specbench_api.spec.workload import (
    HARMLESS_FIELDS,
    NEVER_REMOVED,
    NEW_TOKEN_LIMIT,
    RESERVED_BODY_FIELDS,
    TOKEN_LIMIT,
    Output,
    Sampling,
    Workload,
)
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import Dialect, EngineCounters, EngineIdentity
from specbench_client.dialects.engine_facts import info_labels, is_metrics_page, pages_of, read_facts
from specbench_client.dialects.openai_stream import all_models
from specbench_client.dialects.recognition import MODELS_PAGE
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.record import RecordPhase
from specbench_client.errors import EngineFailed
from specbench_client.known_secrets import fact_without_secrets, without_known_secrets
from specbench_client.load.conversations import Conversation
from specbench_client.load.turns import RequestConfig, Turn, TurnClient, TurnResult
from specbench_client.transport.control_client import ControlClient, ControlError
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import truncate
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.retry_after import pause_before_retry_s
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt

# A health route shows only that a server listens. A completion over the measured path shows that the engine serves this
# model and that its answers contain what the records need (usage, the end of the stream). Failures that may be
# temporary are retried: a server that has just started may fail once, and giving up would cost the arm.

FIRST_COMPLETION_TOKENS = 8
FIRST_COMPLETION_IDS = 64
FIRST_COMPLETION_ID = "first-completion"
FIRST_COMPLETION_TRIES = 3
FIRST_COMPLETION_PAUSE_S = 2.0
RETRYABLE_ERRORS = (ErrorClass.HTTP_5XX, ErrorClass.RATE_LIMITED, ErrorClass.RESET, ErrorClass.REFUSED)
"""Failures that are retried. A rejected request (4xx) or an invalid answer would be the same again, and a timeout has
waited long enough."""

CACHE_RESET_TRIES = 10
CACHE_RESET_PAUSE_S = 0.2
CACHE_NOT_RESET = re.compile(r'"success"\s*:\s*false')
"""vLLM's answer, with status 200, while its cache still holds blocks of a request that has ended."""


@asynccontextmanager
async def one_off_client(
    engine: Engine,
    url: str,
    model: str,
    request_prefix: str,
    headers: Mapping[str, str],
    *,
    drafting: bool = True,
    workload: Workload | None = None,
    template: AppliedTemplate | None = None,
) -> AsyncIterator[TurnClient]:
    """Connect to a server for requests outside of any point. `workload`: whose settings they have; None: defaults."""
    config = RequestConfig(
        endpoint=url,
        engine=engine,
        model=model,
        sampling=workload.sampling if workload else Sampling(),
        output=workload.output if workload else Output(),
        repeat=0,
        started_ns=time.monotonic_ns(),
        drafting=drafting,
        request_prefix=request_prefix,
        headers=headers,
        extra_body=workload.extra_body if workload else {},
        answers=workload.answers if workload else None,
        template=template,
    )
    async with KernelTransport() as transport:
        yield TurnClient(transport, dialect_of(engine), config)


async def take_first_turn(turn_client: TurnClient, conversation: Conversation) -> TurnResult:
    """Take a conversation's first turn now, as warm-up. Never raises for a failure of the engine or the network."""
    messages, now_ns = conversation.prompt.turns[0], time.monotonic_ns()
    return await turn_client.take_turn(Turn(conversation, 0, messages, intended_ns=now_ns, phase=RecordPhase.WARMUP))


async def first_completion(
    turn_client: TurnClient,
    messages: Sequence[ChatMessage],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> TurnResult:
    """Take one short turn; retry temporary failures. Raises EngineFailed with its message.

    A server that asks to wait is waited for longer, see `pause_before_retry_s`.
    """
    waited_s = 0.0
    for tries in count(1):
        result = await _try_completion(turn_client, messages, tries)
        record, asked_s = result.record, result.retry_after_s
        most_s = math.inf if asked_s is None and tries < FIRST_COMPLETION_TRIES else 0.0
        pause_s = pause_before_retry_s(asked_s, FIRST_COMPLETION_PAUSE_S, waited_s, most_s)
        if record.error_class not in RETRYABLE_ERRORS or pause_s is None:
            break
        if asked_s is not None:
            _log.warning("%s: waiting %.0f s, as the server asks", record.error, pause_s)
        await pause(pause_s)
        waited_s += pause_s
    if record.error_class is not None:
        times = f", {tries} times" if tries > 1 else ""
        message = f"the engine failed a first completion ({record.error_class}{times}): {record.error}"
        if record.error_class == ErrorClass.RATE_LIMITED:
            raise RateLimited(f"{message}: lower the load on it, or wait", EngineReason.FIRST_REQUEST_FAILED)
        field = rejected_field(record.error or "") if record.error_class == ErrorClass.HTTP_4XX else None
        if field is not None and field not in turn_client.request_config.extra_body:
            raise FieldRejected(message, record.error or "", field, turn_client.request_config)
        raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)
    if not (record.output_tokens or record.output_text or record.token_conflict):
        raise EngineFailed("the engine returned no tokens for a first completion", EngineReason.FIRST_REQUEST_FAILED)
    return result


_REJECTS = re.compile(
    r"unsupported|(?:not|n't) (?:support|permitted|allowed|accept|both|exist)|extra|unknown|unrecogni[sz]ed|unexpected"
    r"|additional|top_p\W+must be",
    re.IGNORECASE,
)
_REMOVABLE = re.compile(rf"\b(?:{'|'.join(RESERVED_BODY_FIELDS.keys() - {*NEVER_REMOVED, NEW_TOKEN_LIMIT})})\b")


def rejected_field(error: str) -> str | None:
    """Return the first field of the body that a server's message rejects by its name; None if it rejects none.

    Of temperature and top_p, which some models accept only one at a time, it is top_p.
    """
    named = _REMOVABLE.findall(error) if _REJECTS.search(error) else []
    is_one_of_two = {"temperature", "top_p"} <= set(named) and re.search(r"\bboth\b", error)
    return "top_p" if is_one_of_two else next(iter(named), None)


class RateLimited(EngineFailed):
    """The server limits its rate for longer than is waited."""


class ModelNotServed(EngineFailed):
    """The first completion failed, and the server lists other models than the requested one."""


class FieldRejected(EngineFailed):
    """The server rejects a field of the body, in its own `words`. `changes`: what leaves it out, as in `extraBody`.

    `harmless`: whether what is measured stays the same without the field. Another temperature would be another
    measurement; a token limit is harmless only under its new name.
    """

    def __init__(self, message: str, words: str, field: str, config: RequestConfig) -> None:
        self.words, self.field = words, field
        renamed = field == TOKEN_LIMIT and re.search(rf"\b{NEW_TOKEN_LIMIT}\b", message) is not None
        self.changes = {field: None, **({NEW_TOKEN_LIMIT: config.output.max_tokens} if renamed else {})}
        self.harmless = renamed or field in HARMLESS_FIELDS
        body = {**config.extra_body, **self.changes}
        line = yaml.safe_dump(body, default_flow_style=True, width=math.inf, sort_keys=False).strip()
        remedy = f"to leave it out, give --extra-body '{json.dumps(body)}'"
        remedy += f", or write `extraBody: {line}` in each workload of the spec"
        super().__init__(f"{message}: {remedy}", EngineReason.FIRST_REQUEST_FAILED)


async def _try_completion(turn_client: TurnClient, messages: Sequence[ChatMessage], number: int) -> TurnResult:
    """Take the turn once, with its own request id."""
    config = turn_client.request_config
    tokens, prefix = min(FIRST_COMPLETION_TOKENS, config.output.max_tokens), f"{config.request_prefix}-first-{number}"
    output = config.output.model_copy(update={"max_tokens": tokens})
    short = replace(config, output=output, request_prefix=prefix, keep_text=True)
    prompt = Prompt(FIRST_COMPLETION_ID, None, (tuple(messages),))
    conversation = Conversation(0, FIRST_COMPLETION_ID, prompt)
    return await take_first_turn(replace(turn_client, request_config=short), conversation)


COUNTER_READINGS = 16
"""Most readings until the process of earlier counters answers: one of two at random misses them once in 65,536."""
MODELS_SHOWN = 5
FIRST_MESSAGE = ChatMessage("user", "Say one word.")
_SIMULATED = "simulated"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineConnection:
    """A running engine with everything that is needed to send requests to it."""

    plan: Plan
    arm: Arm
    endpoint: str
    model: str
    dialect: Dialect
    control: ControlClient
    identity: EngineIdentity
    headers: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, AppliedTemplate | None] = field(default_factory=dict)
    """Chat templates that the client applies, by workload; None or missing: messages are sent."""

    @property
    def simulated(self) -> bool:
        """Whether the engine is simulated, by the plan or by the model or version that it reports."""
        names = (self.identity.model or "", self.identity.version or "")
        return self.plan.engine.kind is EngineKind.SIMULATOR or any(name.startswith(_SIMULATED) for name in names)

    def request_config(
        self, point: Point, started_ns: int, request_prefix: str, *, keep_text: bool = False
    ) -> RequestConfig:
        """Return the settings of the requests of a point."""
        workload = self.plan.workload(point.workload)
        return RequestConfig(
            endpoint=self.endpoint,
            engine=self.plan.engine_of(self.arm),
            model=self.model,
            sampling=workload.sampling,
            output=workload.output,
            repeat=point.repeat,
            started_ns=started_ns,
            drafting=self.drafting,
            request_prefix=request_prefix,
            headers=self.headers,
            extra_body=workload.extra_body,
            counts_drafts=self.identity.counts_drafts and not self._verifies_some,
            keep_text=keep_text,
            prompt_cache=self.plan.prompt_cache,
            think_time=workload.think_time,
            answers=workload.answers,
            template=self.templates.get(point.workload),
        )

    async def empty_cache(self) -> None:
        """Empty the prompt cache, where the plan demands it and the engine has a route. Raises EngineFailed."""
        route = cache_reset_route(self.plan.engine)
        if route is None or not self.plan.empties_cache:
            return
        failure = "the prompt cache cannot be emptied before a point (promptCache is AsServed)"
        for _ in range(CACHE_RESET_TRIES):
            try:
                answer = await self.control.command(route)
            except ControlError as error:
                raise EngineFailed(f"{failure}: {error}", EngineReason.FIRST_REQUEST_FAILED) from error
            if not CACHE_NOT_RESET.search(answer):
                return
            await asyncio.sleep(CACHE_RESET_PAUSE_S)
        message = f"{failure}: POST {route} answered {answer}, so requests of other clients run on it: stop them"
        raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)

    @property
    def _verifies_some(self) -> bool:
        """Whether the target verifies only some of the drafts that the engine counts."""
        drafter = self.arm.drafter
        return drafter is not None and LAUNCHERS[self.plan.engine.kind].verification(self.plan.engine, drafter).partial

    async def alive(self) -> bool:
        """Return whether the engine answers on its health route."""
        return await self.control.answers(self.dialect.health_path)

    @property
    def drafting(self) -> bool:
        """Whether the arm has a drafter. An external endpoint may have one, so it counts as drafting."""
        return self.arm.drafter is not None or self.plan.engine.is_external

    async def counters(self, started_s: float | None = None) -> EngineCounters | None:
        """Return the engine's current counters; None if its API has none. Unread ones only leave figures out.

        `started_s`: of the process whose earlier counters they are compared with. Several processes behind one address
        may answer in turn, so they are read again while another one answers; one that has restarted does not come back.
        """
        if not self.dialect.counter_series:
            return None
        for _ in range(COUNTER_READINGS):
            try:
                found = self.dialect.counters(await self.control.text(self.dialect.metrics_path), self.model)
            except ControlError as error:
                found = EngineCounters(unread=str(error))
            if None in (started_s, found.started_s) or started_s == found.started_s:
                break
        return found


def served_model(plan: Plan, arm: Arm) -> str:
    """Return the name under which the arm's engine serves the model."""
    if arm.endpoint is not None:
        return arm.endpoint.model or plan.target.name
    return LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)).served_model or plan.target.name


async def identify_engine(control: ControlClient, dialect: Dialect) -> EngineIdentity:
    """Return the model and version that the engine reports."""
    found = dialect.identity(await control.documents(dialect.identity_paths))
    return replace(found, model=without_known_secrets(found.model), version=without_known_secrets(found.version))


def first_messages(prompts: Prompts) -> list[ChatMessage]:
    """Return a short prompt of the workload's kind: an engine that gets token ids may have no chat route.

    Where the client applies a chat template, it does so to this prompt too.
    """
    message = prompts.rows[0].turns[0][-1]
    if message.token_ids is None or message.content:
        return [FIRST_MESSAGE]
    return [replace(message, token_ids=tuple(message.reversed().token_ids or ())[:FIRST_COMPLETION_IDS])]


async def check_first_completion(
    engine: EngineConnection, workload: str, messages: Sequence[ChatMessage], request_prefix: str
) -> TurnResult:
    """Take one real completion over the measured path, with a workload's settings.

    Raises EngineFailed (FirstRequestFailed).
    """
    async with one_off_client(
        engine.plan.engine_of(engine.arm),
        engine.endpoint,
        engine.model,
        request_prefix,
        engine.headers,
        drafting=engine.drafting,
        workload=engine.plan.workload(workload),
        template=engine.templates.get(workload),
    ) as turn_client:
        try:
            return await first_completion(turn_client, messages)
        except (FieldRejected, RateLimited):
            raise
        except EngineFailed as error:
            served = all_models((await engine.control.documents([MODELS_PAGE]))[MODELS_PAGE])
            kind = ModelNotServed if served and engine.model not in served else EngineFailed
            raise kind(f"{error}{address_hint(engine, served)}", error.reason) from error


def address_hint(engine: EngineConnection, served: Sequence[str]) -> str:
    """Return the remedy for an address with a slash, or a server that does not list the model; empty if none is due."""
    if engine.endpoint.endswith(f"{CHAT_ROUTE}/"):
        return (
            ": the slash at the end of the address belongs to the route: leave it out if the server has no such route"
        )
    if not engine.plan.engine.is_external or engine.model in served:
        return ""
    if served:
        return (
            f": {engine.endpoint} serves {shown_models(served)}, but not {engine.model}: correct --model:"
            f" {did_you_mean(engine.model, served)}".rstrip(": ")
        )
    routes = f"{route_url(engine.endpoint, engine.dialect.path)} is requested"
    return f": {routes}: if the server has another path, give --endpoint up to its {CHAT_ROUTE}"


def shown_models(models: Sequence[str]) -> str:
    """Return the names of served models for a message: the first few, and the number of the others."""
    more = f" and {len(models) - MODELS_SHOWN} more" if len(models) > MODELS_SHOWN else ""
    return truncate(", ".join(models[:MODELS_SHOWN])) + more


async def observe_launch(
    engine: EngineConnection,
    group: EngineGroup,
    name: str,
    place: HostFacts,
    queried_at: str,
    *,
    served_by: str | None = None,
) -> LaunchRecord:
    """Query all facts that the engine reports. A page that is not answered only leaves its facts out.

    `name`: of the launch, as in the manifests of its points. `place`: the facts of the machine, from whoever started
    the engine. `queried_at`: now, RFC 3339. `served_by`: of the first completion, see `EngineAnswer`.
    """
    dialect = engine.dialect
    paths = (*pages_of(dialect.readings), dialect.metrics_path, dialect.state_path)
    pages = dict.fromkeys(page for page in paths if page)
    texts = {page: await engine.control.text_or_none(page) for page in pages if is_metrics_page(page)}
    answers = texts | await engine.control.documents([page for page in pages if page not in texts])
    documents = answers | {page: info_labels(text) for page, text in texts.items() if text is not None}
    facts = read_facts(dialect.readings, documents) | _drafter_fact(dialect, answers)
    facts |= _verification_facts(engine.plan.engine, engine.arm)
    if served_by is not None:
        facts[FactName.SERVED_BY] = Fact.observed(served_by, "the first answer")
    unreported = f"{engine.plan.engine.kind} does not report it over HTTP"
    return LaunchRecord(
        launch=name,
        group=group.index,
        arm=group.arm,
        simulated=engine.simulated,
        queried_at=queried_at,
        facts={name: fact_without_secrets(fact) for name, fact in merge_facts(facts, place, unreported).items()},
    )


def _verification_facts(engine: Engine, arm: Arm) -> dict[FactName, Fact]:
    """Return how this arm's drafts are chosen and accepted, as far as it follows from the command."""
    if arm.drafter is None:
        why = NOT_STARTED if engine.is_external else "the baseline has no drafter"
        return dict.fromkeys((FactName.DRAFT_SAMPLING, FactName.DRAFT_VERIFICATION), Fact.unknown(why))
    found = LAUNCHERS[engine.kind].verification(engine, arm.drafter)
    return {
        FactName.DRAFT_SAMPLING: _derived_fact(found.drafts),
        FactName.DRAFT_VERIFICATION: _derived_fact(found.acceptance),
    }


def _derived_fact(method: DerivedMethod) -> Fact:
    return Fact.unknown(method.source) if method.name is None else Fact.observed(method.name, method.source)


def _drafter_fact(dialect: Dialect, answers: Mapping[str, Any]) -> dict[FactName, Fact]:
    """Return whether the engine reports that it drafts: some engines start without the requested drafter."""
    state = answers[dialect.state_path] if dialect.state_path else None
    is_speculating = dialect.speculating(state, answers[dialect.metrics_path] or "")
    page = dialect.state_path or dialect.metrics_path
    return {} if is_speculating is None else {FactName.DRAFTER_AT_WORK: Fact.observed(is_speculating, f"GET {page}")}
