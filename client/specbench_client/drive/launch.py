"""One launch of an engine as the client meets it: healthy, known by name, and serving a real completion.

The engine has this part's whole attention before anything is measured, so that its failure is told as the engine's,
with the engine's own words, and never as a row of failed requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import Message
from specbench_client.dialects.dialect import Dialect, EngineCounters, Identity
from specbench_client.load.first_act import first_completion
from specbench_client.load.turns import Manner, TurnContext
from specbench_client.transport.choose import transport_to
from specbench_client.transport.control import Control, Unanswered
from specbench_client.workload.chat_template.applied import AppliedTemplate

FIRST_MESSAGE = Message("user", "Say one word.")
_SIMULATED = "simulated"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """An engine that runs, and the ways to it."""

    plan: Plan
    arm: Arm
    endpoint: str
    model: str
    dialect: Dialect
    control: Control
    identity: Identity
    headers: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, AppliedTemplate | None] = field(default_factory=dict)
    """By workload, what the client makes token ids with; None, or no word of it: messages are sent."""

    @property
    def simulated(self) -> bool:
        """Whether its numbers can never be a measurement, by the plan or by what the engine says of itself."""
        said = (self.identity.model or "", self.identity.version or "")
        return self.plan.engine.kind is EngineKind.SIMULATOR or any(word.startswith(_SIMULATED) for word in said)

    def manner(self, point: Point, started_ns: int, request_prefix: str, *, keep_text: bool = False) -> Manner:
        """How the requests of a point are asked."""
        workload = self.plan.workload(point.workload)
        return Manner(
            endpoint=self.endpoint,
            engine=self.plan.engine,
            model=self.model,
            sampling=workload.sampling,
            output=workload.output,
            repeat=point.repeat,
            started_ns=started_ns,
            drafting=self.drafting,
            request_prefix=request_prefix,
            headers=self.headers,
            extra_body=workload.extra_body,
            keep_text=keep_text,
            template=self.templates.get(point.workload),
        )

    async def alive(self) -> bool:
        """Whether its health route answers."""
        return await self.control.healthy(self.dialect.health_path)

    @property
    def drafting(self) -> bool:
        """Whether the arm has a drafter; of an endpoint that ran before we came nobody knows, and it may have."""
        return self.arm.drafter is not None or self.plan.engine.kind is EngineKind.EXTERNAL

    async def counters(self) -> EngineCounters | None:
        """Its own counters now; None where they cannot be had, which leaves figures out and ends nothing."""
        try:
            return self.dialect.counters(await self.control.text(self.dialect.metrics_path))
        except Unanswered as unanswered:
            _log.warning("the engine's counters cannot be read: %s", unanswered)
            return None


def served_model(plan: Plan, arm: Arm) -> str:
    """The name under which the arm's engine serves the model."""
    return LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)).served_model or plan.target.name


def if_absent(engine: Engine) -> str:
    """What to do where an endpoint has no health route of its dialect; empty for an engine that we started."""
    if engine.kind is not EngineKind.EXTERNAL:
        return ""
    named = engine.dialect or DialectName.OPENAI
    others = ", ".join(name for name in DialectName if name is not named)
    return f"does it really speak {named}, and is the address its base? Else try another dialect ({others})"


async def identify(control: Control, dialect: Dialect) -> Identity:
    """What the engine says of itself."""
    return dialect.identity(await control.documents(dialect.identity_paths))


def common_template(templates: Mapping[str, AppliedTemplate | None]) -> AppliedTemplate | None:
    """The first of them, where every workload has one."""
    found = list(templates.values())
    return found[0] if found and None not in found else None


async def first_act(launch: Launch, clock: Callable[[], int], request_prefix: str) -> None:
    """One real completion through the very path that is measured. Raises EngineFailed(REFUSED).

    An endpoint whose workloads are all token ids may have no chat route, and is asked by token ids.
    """
    async with transport_to(launch.endpoint) as transport:
        manner = Manner(
            endpoint=launch.endpoint,
            engine=launch.plan.engine,
            model=launch.model,
            sampling=Sampling(),
            output=Output(),
            repeat=0,
            started_ns=clock(),
            drafting=launch.drafting,
            request_prefix=request_prefix,
            headers=launch.headers,
            template=common_template(launch.templates),
        )
        context = TurnContext(transport, launch.dialect, manner)
        await first_completion(context, [FIRST_MESSAGE], clock)
