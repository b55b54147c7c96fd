"""All checks, by what they look at."""

from __future__ import annotations

from specbench_client.trust.check import Check
from specbench_client.trust.checks import (
    chunks_merged,
    client_saturated,
    concurrency_not_reached,
    engine_restarted,
    few_prompts,
    foreign_traffic,
    greedy_divergence,
    hidden_difference,
    ignore_eos,
    missing_points,
    never_drafted,
    no_steady_state,
    noisy_baseline,
    not_interleaved,
    prompt_cache_hit,
    requests_failed,
    same_text_other_count,
    simulated,
    token_count_mismatch,
    too_few_repeats,
    truncated_output,
    unpaired_requests,
)
from specbench_client.trust.evidence import CellEvidence, PointEvidence, RunEvidence

POINT_CHECKS: tuple[Check[PointEvidence], ...] = (
    never_drafted.CHECK,
    token_count_mismatch.CHECK,
    prompt_cache_hit.CHECK,
    concurrency_not_reached.CHECK,
    requests_failed.CHECK,
    client_saturated.CHECK,
    chunks_merged.CHECK,
    engine_restarted.CHECK,
    no_steady_state.CHECK,
    foreign_traffic.CHECK,
)

CELL_CHECKS: tuple[Check[CellEvidence], ...] = (
    truncated_output.CHECK,
    same_text_other_count.CHECK,
    greedy_divergence.CHECK,
    noisy_baseline.CHECK,
    unpaired_requests.CHECK,
)

RUN_CHECKS: tuple[Check[RunEvidence], ...] = (
    missing_points.CHECK,
    few_prompts.CHECK,
    too_few_repeats.CHECK,
    not_interleaved.CHECK,
    ignore_eos.CHECK,
    hidden_difference.CHECK,
    simulated.CHECK,
)

BASELINE_INVALID = "BaselineInvalid"
"""Said by the analysis of every arm whose baseline is invalid: the arm's own points stand, the comparison does not."""

REMEDIES: dict[str, str] = {
    **{check.name: check.remedy for check in POINT_CHECKS},
    **{check.name: check.remedy for check in CELL_CHECKS},
    **{check.name: check.remedy for check in RUN_CHECKS},
    BASELINE_INVALID: "Mend what the baseline's own findings say; the arm's points need not be measured again.",
}
