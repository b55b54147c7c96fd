"""All checks, grouped by the data they are evaluated on."""

from __future__ import annotations

from typing import Any

from specbench_client.documents.finding import Finding, Severity
from specbench_client.trust.check_type import Check
from specbench_client.trust.checks import (
    acceptance,
    answer_lengths,
    answers,
    client,
    comparison,
    engine,
    launches,
    load,
    prompts,
    tokens,
    trends,
)
from specbench_client.trust.evidence import AnswersEvidence, CellEvidence, PointEvidence, RunEvidence

POINT_CHECKS: tuple[Check[PointEvidence], ...] = (
    acceptance.never_drafted,
    acceptance.baseline_drafted,
    acceptance.steps_without_drafts,
    acceptance.impossible_acceptance,
    tokens.impossible_records,
    acceptance.acceptance_counter_mismatch,
    acceptance.acceptance_unconfirmed,
    acceptance.step_token_mismatch,
    tokens.token_count_mismatch,
    tokens.token_count_conflict,
    tokens.premature_length_stop,
    answers.identical_answers,
    answers.reasoning_not_as_requested,
    prompts.duplicate_prompts,
    prompts.prompt_cache_hit,
    prompts.prompts_sent_again,
    load.concurrency_not_reached,
    load.rate_not_reached,
    load.overloaded,
    load.requests_failed,
    client.client_saturated,
    client.chunks_coalesced,
    tokens.multi_step_chunks,
    engine.engine_restarted,
    load.no_steady_state,
    load.noisy_requests,
    load.warmup_not_steady,
    trends.step_time_drift,
    load.foreign_traffic,
)

CELL_CHECKS: tuple[Check[CellEvidence], ...] = (
    tokens.prompt_tokens_differ,
    answer_lengths.output_lengths_differ,
    tokens.same_text_different_token_count,
    tokens.bytes_per_token_differ,
    answers.greedy_divergence,
    answers.answers_replayed,
    answers.temperature_not_applied,
    comparison.noisy_repeats,
    comparison.interval_too_wide,
    load.requests_stalled,
    comparison.unpaired_requests,
    tokens.late_stream_end,
    comparison.steps_faster_than_baseline,
    comparison.ttft_below_baseline,
    comparison.throughput_contradicts_speedup,
    answer_lengths.unexpected_output_lengths,
    prompts.prompts_sent_again,
    trends.acceptance_decays,
    prompts.reuse_lost,
    answers.answers_flawed,
    answers.answers_not_judged,
)

ANSWER_CHECKS: tuple[Check[AnswersEvidence], ...] = (answers.answers_worse,)
"""Checks of a cell's judged answers; significance depends on all cells of the run."""

RUN_CHECKS: tuple[Check[RunEvidence], ...] = (
    comparison.missing_points,
    prompts.too_few_prompts,
    prompts.random_prompts,
    prompts.dataset_rows_missing,
    answer_lengths.short_answers,
    load.single_stream_only,
    load.requests_queued,
    acceptance.acceptance_without_baseline,
    acceptance.lossy_verification,
    engine.kv_cache_reduced,
    prompts.sampling_differs_from_log,
    comparison.too_few_repeats,
    acceptance.drafter_carryover,
    comparison.not_interleaved,
    launches.launches_differ,
    answer_lengths.ignore_eos,
    engine.arm_specific_arguments,
    engine.arm_environments_differ,
    client.user_space_timestamps,
    engine.simulated,
    engine.runs_on_research_runtime,
    engine.endpoints_share_a_host,
)

_ALL: tuple[Check[Any], ...] = (
    *POINT_CHECKS,
    *CELL_CHECKS,
    *ANSWER_CHECKS,
    *RUN_CHECKS,
    comparison.baseline_invalid,
    comparison.repeats_apart,
)
CHECK_BY_NAME: dict[str, Check[Any]] = {check.name: check for check in _ALL}

CAUSES = tuple(
    check.name
    for check in (
        load.requests_queued,
        load.requests_failed,
        client.client_saturated,
        load.foreign_traffic,
        prompts.prompts_sent_again,
        load.requests_stalled,
        comparison.unpaired_requests,
        load.warmup_not_steady,
        trends.step_time_drift,
        comparison.noisy_repeats,
        comparison.missing_points,
        comparison.interval_too_wide,
    )
)
"""Checks that explain others of the same severity, and those after them. A figure that is missing because its interval
is too wide decides the answer, so only what makes intervals wide comes before that."""
FOLLOWS = (comparison.baseline_invalid.name,)
"""Checks that only pass on what others found: fixing those fixes these."""


def rank(finding: Finding) -> tuple[int, bool, int, str]:
    """Return the sort key of findings: the worst first, of the same severity the one to correct first."""
    severity, name = list(Severity).index(finding.severity), finding.check
    return severity, name in FOLLOWS, CAUSES.index(name) if name in CAUSES else len(CAUSES), name
