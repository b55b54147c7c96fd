"""All checks, by what they look at."""

from __future__ import annotations

from specbench_client.trust.check import Check
from specbench_client.trust.checks import (
    acceptance_identity,
    acceptance_mismatch,
    alike_prompts,
    arms_differ,
    chunks_gathered,
    chunks_merged,
    client_saturated,
    concurrency_not_reached,
    cut_answers,
    drift,
    engine_restarted,
    few_prompts,
    foreign_traffic,
    greedy_divergence,
    hidden_difference,
    ignore_eos,
    impossible_acceptance,
    late_end,
    lower_grade_clock,
    missing_points,
    never_drafted,
    no_steady_state,
    noisy_baseline,
    not_interleaved,
    other_temperature,
    overloaded,
    partial_coverage,
    prompt_cache_hit,
    random_prompts,
    rate_not_reached,
    requests_failed,
    research_runtime,
    same_text,
    same_text_other_count,
    simulated,
    text_per_token,
    throughput_contradicts,
    token_count_mismatch,
    too_few_repeats,
    truncated_output,
    undrafted_steps,
    unexpected_lengths,
    unlike_log,
    unpaired_requests,
    warmed_drafter,
    warmup_not_steady,
)
from specbench_client.trust.evidence import CellEvidence, PointEvidence, RunEvidence

POINT_CHECKS: tuple[Check[PointEvidence], ...] = (
    never_drafted.CHECK,
    undrafted_steps.CHECK,
    impossible_acceptance.CHECK,
    acceptance_mismatch.CHECK,
    acceptance_identity.CHECK,
    token_count_mismatch.CHECK,
    cut_answers.CHECK,
    same_text.CHECK,
    alike_prompts.CHECK,
    prompt_cache_hit.CHECK,
    concurrency_not_reached.CHECK,
    rate_not_reached.CHECK,
    overloaded.CHECK,
    requests_failed.CHECK,
    client_saturated.CHECK,
    chunks_gathered.CHECK,
    chunks_merged.CHECK,
    engine_restarted.CHECK,
    no_steady_state.CHECK,
    warmup_not_steady.CHECK,
    drift.CHECK,
    foreign_traffic.CHECK,
)

CELL_CHECKS: tuple[Check[CellEvidence], ...] = (
    truncated_output.CHECK,
    same_text_other_count.CHECK,
    text_per_token.CHECK,
    greedy_divergence.CHECK,
    other_temperature.CHECK,
    noisy_baseline.CHECK,
    unpaired_requests.CHECK,
    late_end.CHECK,
    throughput_contradicts.CHECK,
    unexpected_lengths.CHECK,
)

RUN_CHECKS: tuple[Check[RunEvidence], ...] = (
    missing_points.CHECK,
    few_prompts.CHECK,
    random_prompts.CHECK,
    partial_coverage.CHECK,
    unlike_log.CHECK,
    too_few_repeats.CHECK,
    warmed_drafter.CHECK,
    not_interleaved.CHECK,
    ignore_eos.CHECK,
    hidden_difference.CHECK,
    arms_differ.CHECK,
    lower_grade_clock.CHECK,
    simulated.CHECK,
    research_runtime.CHECK,
)

BASELINE_INVALID = "BaselineInvalid"
"""Said by the analysis of every arm whose baseline is invalid: the arm's own points stand, the comparison does not."""

REMEDIES: dict[str, str] = {
    **{check.name: check.remedy for check in POINT_CHECKS},
    **{check.name: check.remedy for check in CELL_CHECKS},
    **{check.name: check.remedy for check in RUN_CHECKS},
    BASELINE_INVALID: "Mend what the baseline's own findings say; the arm's points need not be measured again.",
}
