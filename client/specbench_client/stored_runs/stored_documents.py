"""Finds stored runs, and reads one document of a run; an error reports which one cannot be read."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import PLAN
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


def run_roots(store: Store) -> list[str]:
    """Return the roots of the runs below a results root, relative to it and sorted."""
    return sorted({key.removesuffix(f"/{PLAN}") for key in store.keys("runs/") if key.endswith(f"/{PLAN}")})
