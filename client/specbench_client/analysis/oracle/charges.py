"""What drafting costs a drafter, found in a cost model by its name or by its method's."""

from __future__ import annotations

from specbench_api.outcome.cost_model import CostModel, DraftCost
from specbench_client.errors import BadInput


def draft_cost(cost: CostModel | None, *names: str) -> DraftCost | None:
    """Of the first name that the model knows; None without a model. Raises BadInput where it knows none of them."""
    if cost is None:
        return None
    found = next((cost.drafters[name] for name in names if name in cost.drafters), None)
    if found is None:
        there = ", ".join(cost.drafters) or "no drafter"
        raise BadInput(
            f"the step cost {cost.name} knows {there}, and not {' or '.join(names)}: add it to drafters"
            " ({} for one that costs nothing)"
        )
    return found
