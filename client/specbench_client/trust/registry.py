"""All checks, grouped by the data they are evaluated on."""

from __future__ import annotations

from typing import Any

from specbench_client.trust.check import Check
from specbench_client.trust.checks import (
    acceptance,
    answer_lengths,
    answers,
    client,
    comparison,
    engine,
    load,
    prompts,
    tokens,
    trends,
)
from specbench_client.trust.evidence import AnswersEvidence, CellEvidence, PointEvidence, RunEvidence

POINT_CHECKS: tuple[Check[PointEvidence], ...] = (
    acceptance.NEVER_DRAFTED,
    acceptance.BASELINE_DRAFTED,
    acceptance.STEPS_WITHOUT_DRAFTS,
    acceptance.IMPOSSIBLE_ACCEPTANCE,
    tokens.IMPOSSIBLE_RECORDS,
    acceptance.ACCEPTANCE_COUNTER_MISMATCH,
    acceptance.STEP_TOKEN_MISMATCH,
    tokens.TOKEN_COUNT_MISMATCH,
    tokens.PREMATURE_LENGTH_STOP,
    answers.IDENTICAL_ANSWERS,
    answers.REASONING_NOT_AS_REQUESTED,
    prompts.DUPLICATE_PROMPTS,
    prompts.PROMPT_CACHE_HIT,
    load.CONCURRENCY_NOT_REACHED,
    load.RATE_NOT_REACHED,
    load.OVERLOADED,
    load.REQUESTS_FAILED,
    client.CLIENT_SATURATED,
    client.CLIENT_CLOCKS_DIFFER,
    client.CHUNKS_COALESCED,
    tokens.MULTI_STEP_CHUNKS,
    engine.ENGINE_RESTARTED,
    load.NO_STEADY_STATE,
    load.WARMUP_NOT_STEADY,
    trends.STEP_TIME_DRIFT,
    load.FOREIGN_TRAFFIC,
)

CELL_CHECKS: tuple[Check[CellEvidence], ...] = (
    tokens.PROMPT_TOKENS_DIFFER,
    answers.OUTPUT_LENGTHS_DIFFER,
    tokens.SAME_TEXT_DIFFERENT_TOKEN_COUNT,
    tokens.BYTES_PER_TOKEN_DIFFER,
    answers.GREEDY_DIVERGENCE,
    answers.TEMPERATURE_NOT_APPLIED,
    comparison.NOISY_BASELINE,
    comparison.UNPAIRED_REQUESTS,
    tokens.LATE_STREAM_END,
    comparison.STEPS_FASTER_THAN_BASELINE,
    comparison.TTFT_BELOW_BASELINE,
    comparison.THROUGHPUT_CONTRADICTS_SPEEDUP,
    answer_lengths.UNEXPECTED_OUTPUT_LENGTHS,
    prompts.PROMPTS_SENT_AGAIN,
    trends.ACCEPTANCE_DECAYS,
    prompts.REUSE_LOST,
    answers.BASELINE_ANSWERS_FLAWED,
    answers.ANSWERS_NOT_JUDGED,
)

ANSWER_CHECKS: tuple[Check[AnswersEvidence], ...] = (answers.ANSWERS_WORSE,)
"""Checks of a cell's judged answers; significance depends on all cells of the run."""

RUN_CHECKS: tuple[Check[RunEvidence], ...] = (
    comparison.MISSING_POINTS,
    prompts.TOO_FEW_PROMPTS,
    prompts.RANDOM_PROMPTS,
    prompts.DATASET_ROWS_MISSING,
    answer_lengths.SHORT_ANSWERS,
    load.SINGLE_STREAM_ONLY,
    acceptance.ACCEPTANCE_WITHOUT_BASELINE,
    acceptance.LOSSY_VERIFICATION,
    engine.KV_CACHE_REDUCED,
    prompts.SAMPLING_DIFFERS_FROM_LOG,
    comparison.TOO_FEW_REPEATS,
    acceptance.DRAFTER_CARRYOVER,
    comparison.NOT_INTERLEAVED,
    answer_lengths.IGNORE_EOS,
    engine.ARM_SPECIFIC_ARGUMENTS,
    engine.ARM_ENVIRONMENTS_DIFFER,
    client.USER_SPACE_TIMESTAMPS,
    engine.SIMULATED,
    engine.RUNS_ON_RESEARCH_RUNTIME,
    engine.ENDPOINTS_SHARE_A_HOST,
)

_ALL: tuple[Check[Any], ...] = (
    *POINT_CHECKS,
    *CELL_CHECKS,
    *ANSWER_CHECKS,
    *RUN_CHECKS,
    comparison.BASELINE_INVALID,
)
CHECK_BY_NAME: dict[str, Check[Any]] = {check.name: check for check in _ALL}
