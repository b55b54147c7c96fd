"""A published step-cost model as data. It holds for one model on one machine only."""

from __future__ import annotations

from specbench_client.documents.what_if import CostModel, DraftCost, TargetCost
from specbench_client.errors import BadInput

_TARGET = TargetCost(fixed_s=5.88590713e-03, per_token_s=2.10103129e-05, per_cached_token_s=3.92645679e-08)
_OVERHEAD_S = 1.20683946e-03
_SOURCE = (
    "Llama-3.1-8B on one H100-80G, vLLM, fitted on InstructCoder at batch sizes 1 to 64 by the authors of"
    " 'Speculative Decoding: Performance or Illusion?' (github.com/SpecDecode-Bench/simulator, predictor.py)"
)
_NGRAM = DraftCost(share_of_target=0.005875)
_PER_TOKEN_S, _FIXED_S, _PER_CACHED_S = 8.41429603e-07, 2.13526175e-03, 2.37768493e-09
_EAGLE = DraftCost(
    fixed_s=_FIXED_S + _PER_TOKEN_S,  # the published cost is per draft token and for the token before them
    per_draft_s=_PER_TOKEN_S,
    per_cached_token_s=_PER_CACHED_S,
)
PUBLISHED_H100 = CostModel(
    name="published-h100",
    source=f"{_SOURCE}; the cost of EAGLE's drafting hardly grows with the draft length",
    target=_TARGET,
    overhead_s=_OVERHEAD_S,
    drafters={"ngram": _NGRAM, "eagle": _EAGLE, "eagle3": _EAGLE},
)


def draft_cost(cost: CostModel | None, *names: str) -> DraftCost | None:
    """Return the drafting cost of the first of these names (arm, method) in the model; None without a model.

    Raises BadInput if the model has none of them.
    """
    if cost is None:
        return None
    found = next((cost.drafters[name] for name in names if name in cost.drafters), None)
    if found is None:
        known = ", ".join(cost.drafters) or "no drafter"
        raise BadInput(
            f"the step cost {cost.name} has {known} but not {' or '.join(names)}: add it to drafters"
            " ({} for a drafter that costs nothing)"
        )
    return found
