"""Step costs that were published, as data. They are one machine's and one model's, and no others'."""

from __future__ import annotations

from types import MappingProxyType

from specbench_api.outcome.cost_model import CostModel, DraftCost, TargetCost

_TARGET = TargetCost(fixed_s=5.88590713e-03, per_token_s=2.10103129e-05, per_cached_token_s=3.92645679e-08)
_OVERHEAD_S = 1.20683946e-03
_SOURCE = (
    "Llama-3.1-8B on one H100-80G, vLLM, fitted on InstructCoder at batch sizes 1 to 64 by the authors of"
    " 'Speculative Decoding: Performance or Illusion?' (github.com/SpecDecode-Bench/simulator, predictor.py)"
)
_NGRAM = DraftCost(share_of_target=0.005875)
_PER_TOKEN_S, _FIXED_S, _PER_CACHED_S = 8.41429603e-07, 2.13526175e-03, 2.37768493e-09
_CALIBRATED_AT = 3
"""Draft tokens at which the corrected model takes as long as the published one."""

_EAGLE = DraftCost(
    fixed_s=_FIXED_S + _PER_TOKEN_S,  # published for the drafts and the token before them
    per_draft_s=_PER_TOKEN_S,
    per_cached_token_s=_PER_CACHED_S,
)
_EAGLE_BY_DRAFT = DraftCost(
    per_draft_s=(_FIXED_S + (_CALIBRATED_AT + 1) * _PER_TOKEN_S) / _CALIBRATED_AT, per_cached_token_s=_PER_CACHED_S
)

PUBLISHED_H100 = CostModel(
    name="published-h100",
    source=f"{_SOURCE}; EAGLE's drafting hardly grows with the draft length",
    target=_TARGET,
    overhead_s=_OVERHEAD_S,
    drafters={"ngram": _NGRAM, "eagle": _EAGLE, "eagle3": _EAGLE},
)
PUBLISHED_H100_BY_DRAFT = CostModel(
    name="published-h100-by-draft",
    source=f"{_SOURCE}; ours: EAGLE's drafting is proportional to the draft length, as much at {_CALIBRATED_AT} drafts",
    target=_TARGET,
    overhead_s=_OVERHEAD_S,
    drafters={"ngram": _NGRAM, "eagle": _EAGLE_BY_DRAFT, "eagle3": _EAGLE_BY_DRAFT},
)
BY_NAME = MappingProxyType({cost.name: cost for cost in (PUBLISHED_H100, PUBLISHED_H100_BY_DRAFT)})
