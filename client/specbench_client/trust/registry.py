"""All checks, grouped by the data they are evaluated on."""

from __future__ import annotations

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

BASELINE_INVALID = "BaselineInvalid"
"""Reported for every arm whose baseline is invalid: the arm's own points are valid, but the comparison is not."""

REMEDIES: dict[str, str] = {
    **{check.name: check.remedy for check in POINT_CHECKS},
    **{check.name: check.remedy for check in CELL_CHECKS},
    **{check.name: check.remedy for check in ANSWER_CHECKS},
    **{check.name: check.remedy for check in RUN_CHECKS},
    BASELINE_INVALID: "Fix what the baseline's own findings report, then measure the arm and the baseline together.",
}

_IMPORTED_REMEDIES: dict[str, str] = {
    comparison.TOO_FEW_REPEATS.name: "Run the benchmark three times or more for each arm, five times for a claim.",
    comparison.NOT_INTERLEAVED.name: "Alternate the benchmark's runs: the baseline, the arm, the arm, the baseline.",
    comparison.UNPAIRED_REQUESTS.name: "Give the benchmark the same prompts and the same seed for both arms.",
    answer_lengths.SHORT_ANSWERS.name: "If your service's answers are longer, let the benchmark request longer ones or"
    " give it your users' prompts; also read tpot_speedup.",
    answers.IDENTICAL_ANSWERS.name: "Read an answer in the benchmark's file, and look for a wrong endpoint, a broken"
    " chat template or an empty prompt.",
    acceptance.ACCEPTANCE_WITHOUT_BASELINE.name: "Run the same benchmark with drafting off, and import its file with"
    " --baseline.",
    client.CHUNKS_COALESCED.name: "If the benchmark was late, give it more CPU, or lower the load. If it was not, let"
    " no proxy buffer between it and the engine (proxy_buffering off), and check that the engine flushes each chunk.",
    load.RATE_NOT_REACHED.name: "Give the benchmark more CPU and more requests, or lower the rate.",
    load.NO_STEADY_STATE.name: "Give the benchmark more requests (at least three times the highest concurrency), or"
    " lower a rate that the engine cannot serve.",
    load.WARMUP_NOT_STEADY.name: "Let the benchmark warm the engine up before it measures; on a noisy machine, find"
    " out what else runs on it.",
    trends.STEP_TIME_DRIFT.name: "Fix the clocks, cool the machine, look for other processes on it, let the benchmark"
    " warm the engine up, and run it again.",
    tokens.IMPOSSIBLE_RECORDS.name: "The file contradicts itself: run the benchmark again, and report its bug if its"
    " next file does too.",
    tokens.PROMPT_TOKENS_DIFFER.name: "Compare the arms' chat templates, start tokens and context lengths, and give the"
    " benchmark the same prompts and the same seed for both.",
    comparison.STEPS_FASTER_THAN_BASELINE.name: "Compare the nodes, clocks, power limits, graphs and kernels of both"
    " servers, and alternate the benchmark's runs.",
    load.SINGLE_STREAM_ONLY.name: "Run the benchmark with your service's concurrency or rate too, and import all"
    " files; `specbench analyze curve` shows the load at which the gain ends.",
    BASELINE_INVALID: "Fix what the baseline's own findings report, then run the benchmark of both arms again.",
}
"""Check → what to do if another benchmark measured the run: there is no spec to change, and no command to repeat."""

_SOAK_REMEDIES: dict[str, str] = {
    comparison.NOT_INTERLEAVED.name: "Read each arm's change over time from this run, and the speed-up from a second"
    " run with load.order: Interleaved: a soak test launches each engine once.",
    comparison.UNPAIRED_REQUESTS.name: "Read each arm's change over time from this run, and the speed-up from a second"
    " run with load.order: Interleaved and load.requests: in a window, a faster arm answers more and other prompts.",
}
"""Check → what to do in a soak test, whose windows follow each other and have a fixed length."""


def check_remedy(check: str, *, imported: bool, soak: bool = False) -> str:
    """Return what to do about a finding; empty for a check that no longer exists. `imported`: see `Engine`."""
    special = _IMPORTED_REMEDIES if imported else _SOAK_REMEDIES if soak else {}
    return special.get(check) or REMEDIES.get(check, "")
