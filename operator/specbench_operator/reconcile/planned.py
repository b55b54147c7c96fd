"""By which plan a run goes on: the one that it began with, wherever that lies."""

from __future__ import annotations

from pydantic import ValidationError

from specbench_api.plan.expand import expand
from specbench_api.plan.plan import Plan
from specbench_api.plan.same import same_points
from specbench_api.spec.run import SpecBenchRun


def plan_of(run: SpecBenchRun, kept: str | None, there: str | None) -> Plan:
    """The plan that the run began with; an operator that was upgraded meanwhile might draw another.

    `kept`: plan.json of its ConfigMap. `there`: plan.json among the results that it carries on, where it does. What
    lies under one address is one comparison, told by that one file; so where it has the very same points under other
    names or in another order, the run goes on by it, with its names and its order. Raises InvalidSpec for a run that
    has no plan.
    """
    own = _read(kept)
    if own is None or own.uid != run.results_uid:
        own = expand(run)
    stored = None if run.spec.results.adopt is None else _read(there)
    if stored is None or not same_points(stored, own):
        return own
    return stored.model_copy(update={"uid": own.uid, "placement": own.placement})


def _read(text: str | None) -> Plan | None:
    """None where there is none, or where it was written by another version."""
    try:
        return None if text is None else Plan.from_json(text)
    except ValidationError:
        return None
