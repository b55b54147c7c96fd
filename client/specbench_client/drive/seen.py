"""What is seen of a launch before its first point: the engine is asked once; who started it has seen its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact, Launched, Whereabouts, all_facts
from specbench_api.plan.plan import EngineGroup
from specbench_client.dialects.facts.reading import document_of, is_metrics, pages_of, read_facts
from specbench_client.drive.launch import Launch
from specbench_client.transport.control import Control, Unanswered


async def launched(launch: Launch, group: EngineGroup, name: str, place: Whereabouts, asked: str) -> Launched:
    """Ask the engine for everything that it tells. A page that is not answered leaves its facts out, and ends nothing.

    `name`: of the launch, as the manifests of its points have it. `asked`: now, RFC 3339.
    """
    dialect, control = launch.dialect, launch.control
    told = read_facts(dialect.readings, {page: await _page(control, page) for page in pages_of(dialect.readings)})
    told |= await _drafter_at_work(launch)
    silent = f"{launch.plan.engine.kind} does not tell it over HTTP"
    return Launched(
        launch=name,
        group=group.index,
        arm=group.arm,
        simulated=launch.simulated,
        asked=asked,
        facts=all_facts(told, place, silent),
    )


async def _page(control: Control, page: str) -> Any:
    """Its JSON, or what a Prometheus page says in labels; None where it was not answered."""
    if not is_metrics(page):
        return (await control.documents([page]))[page]
    return None if (text := await _text(control, page)) is None else document_of(text)


async def _text(control: Control, page: str) -> str | None:
    try:
        return await control.text(page)
    except Unanswered:
        return None


async def _drafter_at_work(launch: Launch) -> Mapping[FactName, Fact]:
    """Whether it really drafts, by its own word; engines start happily without the drafter that was asked for."""
    dialect, control = launch.dialect, launch.control
    page = dialect.state_path or dialect.metrics_path
    state = await _page(control, dialect.state_path) if dialect.state_path else None
    at_work = dialect.speculating(state, await _text(control, dialect.metrics_path) or "")
    return {} if at_work is None else {FactName.DRAFTER_AT_WORK: Fact.seen(at_work, f"GET {page}")}
