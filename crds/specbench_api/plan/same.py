"""Whether two plans measure the same, so that what lies in results of the one may be carried on by the other.

Queue, priority, tolerations, pinning: none of it changes what is measured, so none of it stands in a point's hash, and
a run in another queue finds what was measured in the first.
"""

from __future__ import annotations

from typing import Any

from specbench_api.plan.canonical import hardware_of
from specbench_api.plan.plan import Plan


def differing(one: Plan, other: Plan) -> list[str]:
    """Names of the fields in which they measure something else, as plan.json has them; none: they measure the same."""
    mine, theirs = _measured(one), _measured(other)
    return [name for name in mine if mine[name] != theirs[name]]


def same_points(one: Plan, other: Plan) -> bool:
    """Whether they measure the very same points, under whatever names and with levels and arms in whatever order.

    How repeats are laid out is no part of a point, and no label: interleaved arms and arms one by one differ.
    """
    mine, theirs = ({point.hash for point in plan.points} for plan in (one, other))
    return mine == theirs and one.load.order is other.load.order


def _measured(plan: Plan) -> dict[str, Any]:
    told = {field.alias or name: getattr(plan, name) for name, field in Plan.model_fields.items()}
    return {**told, "placement": hardware_of(plan.placement)}
