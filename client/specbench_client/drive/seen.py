"""What is seen of a launch before its first point: the engine is asked once; who started it has seen its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact, Launched, Whereabouts, all_facts
from specbench_api.plan.plan import EngineGroup
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.facts.reading import document_of, is_metrics, pages_of, read_facts
from specbench_client.drive.launch import Launch
from specbench_client.transport.control import Control, Unanswered


async def launched(launch: Launch, group: EngineGroup, name: str, place: Whereabouts, asked: str) -> Launched:
    """Ask the engine for everything that it tells. A page that is not answered leaves its facts out, and ends nothing.

    `name`: of the launch, as the manifests of its points have it. `asked`: now, RFC 3339.
    """
    dialect = launch.dialect
    wanted = (*pages_of(dialect.readings), dialect.metrics_path, dialect.state_path)
    answers = {page: await _answer(launch.control, page) for page in dict.fromkeys(page for page in wanted if page)}
    documents = {page: _document(page, answer) for page, answer in answers.items()}
    told = read_facts(dialect.readings, documents) | _drafter_at_work(dialect, answers)
    silent = f"{launch.plan.engine.kind} does not tell it over HTTP"
    return Launched(
        launch=name,
        group=group.index,
        arm=group.arm,
        simulated=launch.simulated,
        asked=asked,
        facts=all_facts(told, place, silent),
    )


async def _answer(control: Control, page: str) -> Any:
    """Its JSON, or the text of a Prometheus page; None where it was not answered."""
    if not is_metrics(page):
        return (await control.documents([page]))[page]
    try:
        return await control.text(page)
    except Unanswered:
        return None


def _document(page: str, answer: Any) -> Any:
    """What the facts are read from: of a Prometheus page, what it says in labels."""
    return document_of(answer) if is_metrics(page) and answer is not None else answer


def _drafter_at_work(dialect: Dialect, answers: Mapping[str, Any]) -> dict[FactName, Fact]:
    """Whether it really drafts, by its own word; engines start happily without the drafter that was asked for."""
    state = answers[dialect.state_path] if dialect.state_path else None
    at_work = dialect.speculating(state, answers[dialect.metrics_path] or "")
    page = dialect.state_path or dialect.metrics_path
    return {} if at_work is None else {FactName.DRAFTER_AT_WORK: Fact.seen(at_work, f"GET {page}")}
