"""Finds stored runs, and reads one document of a run; an error reports which one cannot be read."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import PLAN, SUMMARY
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.errors import NotDurable
from specbench_client.store.store import Store, StoreErrorReason

Document = TypeVar("Document", bound=ApiModel)


def read_stored_document(store: Store, key: str, kind: type[Document], remedy: str) -> Document:
    """Read the document at a key. Raises NotDurable(Damaged), with this remedy, where it is missing or not readable."""
    try:
        return kind.from_json(store.get(key) or b"")
    except ValidationError as error:
        what = "cannot be read: it was written by another version of specbench, or damaged"
        raise NotDurable(f"{store.uri(key)}: {what}: {remedy}", StoreErrorReason.DAMAGED) from error


def read_plan(store: Store) -> Plan:
    """Read the plan of the run whose root the store is. Raises NotDurable(Damaged)."""
    return read_stored_document(store, PLAN, Plan, "read it with that version, or measure again")


def read_summary(store: Store, plan: Plan, remedy: str) -> RunSummary:
    """Read the summary of a run with this plan. Raises NotDurable(Damaged), also for a summary of another plan."""
    summary = read_stored_document(store, SUMMARY, RunSummary, remedy)
    problem = _contradiction(plan, summary)
    if problem:
        raise NotDurable(
            f"{store.uri(SUMMARY)}: {problem}: it belongs to another run, or was edited: {remedy}",
            StoreErrorReason.DAMAGED,
        )
    return summary


def _contradiction(plan: Plan, summary: RunSummary) -> str | None:
    """Return what in the summary contradicts the plan; None if nothing does."""
    points = {point.hash: point for point in plan.points}
    seen = set()
    for cell in summary.cells:
        place = (cell.arm, cell.workload, cell.level)
        if place in seen:
            return f"the cell of {cell.arm} is listed twice"
        seen.add(place)
        if not cell.points:
            return f"a cell of {cell.arm} has no points"
        for name in cell.points:
            point = points.get(name)
            if point is None or place != (point.arm, point.workload, point.level):
                return f"a cell of {cell.arm} lists the point {name}, which the plan does not have there"
    return None


def run_roots(store: Store) -> list[str]:
    """Return the roots of the runs below a results root, relative to it and sorted."""
    return sorted({key.removesuffix(f"/{PLAN}") for key in store.keys("runs/") if key.endswith(f"/{PLAN}")})
