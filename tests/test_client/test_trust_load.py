"""Trust checks of the load: its schedule, single points, and the ends of streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_api.spec.engine import Engine
from specbench_client.documents.finding import Severity
from specbench_client.documents.record import RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas, TokenCounters
from specbench_client.metrics.latency import stream_end_share
from specbench_testing.corrupted_records import (
    OPEN,
    TALKS,
    WITHOUT_COUNTERS,
    WORLD,
    check_names,
    close_gaps,
    combine,
    findings_of,
    replace_columns,
    replace_counters,
    replace_watch,
    without_counters,
)
from specbench_testing.present import present
from specbench_testing.synthetic_records import (
    NS_PER_MS,
    ONE,
    Corruptions,
    SyntheticRun,
    frame_of,
    record,
    run_of_world,
    tidy_frames,
)

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


def test_valid_open_loop_has_no_findings() -> None:
    for world in (OPEN, SyntheticRun(prompts=60, rate=(10,), repeats=1, turns=2)):
        for arm in ("none", "ngram"):
            assert findings_of(Corruptions(), arm, world) == []


def test_load_that_was_not_reached_is_found_from_records_alone() -> None:
    def slow_client(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(last_token_ns=frame["sent_ns"] + (frame["last_token_ns"] - frame["sent_ns"]) // 2)

    assert ("ConcurrencyNotReached", INVALID) in check_names(findings_of(Corruptions(records=slow_client)))


def open_loop_with(arrival: dict[str, Any], rate: float | None = 10) -> SyntheticRun:
    load = {"slots": 64, "repeats": 1, "arrival": arrival} | ({"rate": [rate]} if rate else {})
    return SyntheticRun(prompts=60, rate=(rate or 1,), repeats=1, edits={"spec.load": load})


TRACE = {"process": "Trace", "uri": "trace.csv"}


@pytest.mark.parametrize(
    ("arrival", "reached", "steady_s", "expected"),
    [
        ({"process": "Constant"}, 9.4, 1000, 1),
        ({"process": "Constant"}, 9.6, 1000, 0),
        ({"process": "Poisson"}, 9.4, 1000, 1),
        ({"process": "Poisson"}, 8.0, 10, 0),
        ({"process": "Poisson"}, 6.5, 10, 1),
        ({"process": "Gamma", "burstiness": 0.04}, 9.4, 100, 0),
        ({"process": "Gamma", "burstiness": 0.04}, 5.0, 100, 1),
        (TRACE, 5.0, 1000, 0),
    ],
)
def test_rate_that_was_not_reached_is_found_beyond_chance(
    arrival: dict[str, Any], reached: float, steady_s: float, expected: int
) -> None:
    corruptions = replace_watch(reached_rate=reached, duration_s=steady_s, steady_share=1.0)
    assert (
        check_names(findings_of(corruptions, world=open_loop_with(arrival))) == [("RateNotReached", INVALID)] * expected
    )


def test_point_without_a_steady_state_is_found() -> None:
    few = SyntheticRun(prompts=6, concurrency=(3,), repeats=1)
    assert check_names(findings_of(Corruptions(), world=few)) == [("NoSteadyState", INVALID)]
    corruptions = replace_columns(phase=lambda index, _: "ramp" if index < 20 else "drain")
    assert ("NoSteadyState", INVALID) in check_names(findings_of(corruptions))


def test_open_loop_needs_as_many_steady_requests_as_were_in_flight() -> None:
    assert check_names(findings_of(replace_watch(reached_concurrency=500.0), world=OPEN)) == [
        ("NoSteadyState", INVALID)
    ]
    none = replace_columns(phase=lambda _, row: "ramp" if row["phase"] == "steady" else row["phase"])
    assert "more requests arrived than the engine can serve" in findings_of(none, world=OPEN)[0].message


def slow_down(factor: float) -> Corruptions:
    """Slow the engine down by `factor` once half of the requests were sent: all that follows takes so much longer."""
    return _at_other_times(0.5, lambda since: since * factor, reached=3.0)


def pause(ms: float, reached: float) -> Corruptions:
    """Let the engine pause once, when four fifths of the requests were sent."""
    return _at_other_times(0.8, lambda since: since + ms * 1e6, reached=reached)


def _at_other_times(share: float, later: Callable[[Any], Any], reached: float) -> Corruptions:
    """Once this share of the requests was sent, change each time, given as the ns since then."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        begin = int(frame["sent_ns"].quantile(share))

        def moved(times: Any) -> Any:
            since = np.asarray(times, dtype=np.int64) - begin
            return begin + np.where(since > 0, later(since), since).astype(np.int64)

        names = ["intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"]
        chunks = [moved(times).tolist() for times in frame["chunk_ns"]]
        return frame.assign(**{name: moved(frame[name]) for name in names}, chunk_ns=chunks)

    return Corruptions(records=edit, watch=lambda _, seen: seen.model_copy(update={"reached_concurrency": reached}))


LONGER = SyntheticRun(prompts=60, concurrency=(3,), repeats=1)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize(("factor", "found"), [(1.2, True), (0.8, True), (1.05, False), (0.95, False)])
def test_engine_that_changes_speed_within_a_point_is_a_warning(factor: float, found: bool, arm: str) -> None:
    findings = findings_of(slow_down(factor), arm, LONGER)
    assert check_names(findings) == [("StepTimeDrift", WARNING)] * found
    assert all("time per decode step" in each.message for each in findings)
    assert all((each.value or 0) / (each.threshold or 1) > 1 for each in findings), (
        "the limit has the sign of the change"
    )


def test_drift_is_measured_by_tokens_if_steps_are_not_reported() -> None:
    def slowed_without_steps(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return slow_down(1.3).records(point, frame).assign(steps=None, draft_steps=None, step_accepted=None)

    findings = findings_of(Corruptions(records=slowed_without_steps, watch=slow_down(1.3).watch), "none", LONGER)
    assert check_names(findings) == [("StepTimeDrift", WARNING)]
    assert "time per output token" in findings[0].message


ALONE = SyntheticRun(prompts=6, tokens=(50, 50), drafters=(), repeats=1)
# Time per token of six requests at one stream, from a server on a busy machine.
NOISY_MS = (9.8, 11.3, 9.6, 11.4, 75.5, 142.6)


def paced_at(*per_token_ms: float, warmup_ms: tuple[float, float] = (10, 10), stall_s: float = 0.0) -> Corruptions:
    """Gives each request its time per token; the last one also stops for a time after three chunks."""

    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        chunks = [
            (at[0] + np.arange(len(at)) * ms * NS_PER_MS).astype(int)
            for at, ms in zip(frame["chunk_ns"], [*warmup_ms, *per_token_ms], strict=True)
        ]
        chunks[-1][3:] += int(stall_s * 1e9)
        return close_gaps(
            frame.assign(chunk_ns=[at.tolist() for at in chunks], last_token_ns=[at[-1] for at in chunks])
        )

    return Corruptions(records=edit)


@pytest.mark.parametrize("missing", [{}, {"steps": None, "draft_steps": None, "step_accepted": None}])
def test_mean_of_a_few_slow_requests_is_a_warning_with_their_prompts(missing: dict[str, Any]) -> None:
    corruptions = paced_at(*NOISY_MS), replace_columns(**missing), replace_watch(load_per_core=1.5)
    world = replace(ALONE, tokens=(40, 80))
    (finding,) = findings_of(combine(*corruptions), "none", world)
    mean = np.average(NOISY_MS, weights=[world.length(prompt, 0) - 1 for prompt in range(6)])
    assert (finding.check, finding.severity, finding.threshold) == ("NoisyRequests", WARNING, 2.0)
    assert finding.value == pytest.approx(mean / np.median(NOISY_MS), rel=1e-4)
    assert re.search(r"p5 \(142\.6 ms\), p4 \(75\.5 ms\);.* machine was busy", finding.message)


@pytest.mark.parametrize(
    ("world", "arm", "corruptions", "found"),
    [
        (ALONE, "none", paced_at(10, 10, 10, 10, 10, 71), True),
        (ALONE, "none", paced_at(10, 10, 10, 10, 10, 69), False),
        (ALONE, "none", paced_at(100, 100, 100, 100, 1, 1), False),
        (replace(ALONE, prompts=3), "none", paced_at(10, 10, 45), True),
        (replace(ALONE, drafters=("a", "b"), edits={"spec.baseline": "Skip"}), "a", paced_at(*NOISY_MS), True),
        (replace(ALONE, drafters=("ngram",)), "none", paced_at(*NOISY_MS), False),
        (ALONE, "none", combine(paced_at(*NOISY_MS), replace_watch(warmup_steady=False)), False),
        (ALONE, "none", paced_at(*[10] * 6, stall_s=30), True),
        (replace(ALONE, tokens=(10, 400)), "none", paced_at(11, 60, 60, 11, 60, 60), True),
        (replace(ALONE, tokens=(10, 400)), "none", paced_at(14, 60, 60, 14, 60, 60), False),
        (ALONE, "none", paced_at(*[0.01] * 4, 1, 1), False),
        (replace(ALONE, concurrency=(2,)), "none", paced_at(*NOISY_MS), False),
        (replace(ALONE, prompts=60), "none", paced_at(*[10] * 40, *[100] * 20), False),
    ],
    ids=[
        "above the bound",
        "below the bound",
        "a few fast ones",
        "three requests",
        "arms without a baseline",
        "compared",
        "cold",
        "one stall",
        "fast where answers are long",
        "less fast",
        "at once",
        "two streams",
        "drift",
    ],
)
def test_mean_and_median_differ_by_noise_at_one_stream_without_another_explanation(
    world: SyntheticRun, arm: str, corruptions: Corruptions, found: bool
) -> None:
    assert ("NoisyRequests" in dict(check_names(findings_of(corruptions, arm, world)))) == found


def test_file_sorted_by_category_is_not_drift() -> None:
    """The categories differ in acceptance and thus in time per token, but the machine does not change speed."""

    def sorted_file(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        early = frame["sent_ns"].rank(pct=True) < 0.5
        flow = (frame["last_token_ns"] - frame["first_token_ns"]).where(~early, lambda span: span // 2)
        missing = {"steps": None, "draft_steps": None, "step_accepted": None}
        category = np.where(early, "code", "chat")
        return frame.assign(category=category, last_token_ns=frame["first_token_ns"] + flow, **missing)

    corruptions = Corruptions(records=sorted_file, watch=slow_down(1).watch)
    assert findings_of(corruptions, world=LONGER) == []


@pytest.mark.parametrize("missing", [{"steps": 0}, {"input_tokens": None}, {"turn": None}])
def test_records_that_lack_what_drift_needs_have_none(missing: dict[str, Any]) -> None:
    def edit(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**missing)

    assert "StepTimeDrift" not in dict(check_names(findings_of(Corruptions(records=edit), world=LONGER)))


def edited(corruptions: Corruptions, **columns: Callable[[pd.DataFrame], Any]) -> Corruptions:
    """Set columns of the corrupted records."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rows = corruptions.records(point, frame)
        return rows.assign(**{name: value(rows) for name, value in columns.items()})

    return replace(corruptions, records=edit)


LONGER_LATER = np.random.default_rng(1).integers(0, 600, 60) + 10 * np.arange(60)
"""Prompts roughly sorted by length, as files often are."""


def growing(factor: float) -> Corruptions:
    """Slow down while prompts grow: a slower engine is not taken for the cost of longer contexts."""
    return edited(
        slow_down(factor),
        input_tokens=lambda rows: 100 + LONGER_LATER[rows["sent_ns"].rank().to_numpy(int) % 60],
    )


def watched(corruptions: Corruptions, **health: Any) -> Corruptions:
    return replace(corruptions, watch=replace_watch(**health).watch)


MANY = SyntheticRun(prompts=120, rate=(10,), repeats=1)


ON_16 = SyntheticRun(prompts=60, concurrency=(16,), repeats=1)


BY_NAME = edited(slow_down(1.3), category=lambda rows: rows["prompt_id"])


DRIFTS: dict[str, tuple[Corruptions, str, SyntheticRun, bool]] = {
    "growing prompts and a slower engine": (growing(1.3), "none", LONGER, True),
    "growing prompts": (growing(1.0), "none", LONGER, False),
    "no category twice": (BY_NAME, "none", LONGER, True),
    "no category twice, where drafts depend on it": (BY_NAME, "ngram", LONGER, False),
    "open loop": (slow_down(1.3), "ngram", MANY, True),
    "more in flight": (watched(slow_down(1.3), in_flight_growth=1.3), "ngram", MANY, False),
    "fewer in flight": (watched(slow_down(1.3), in_flight_growth=0.8), "ngram", MANY, False),
    "unknown in flight": (watched(slow_down(1.3), in_flight_growth=None), "ngram", MANY, False),
    # Of 60 prompts about thirty are steady on 16 streams: one pause of the engine delays half of them.
    "requests in flight together are not independent": (pause(150, reached=16.0), "none", ON_16, False),
    "many requests": (
        watched(slow_down(1.4), reached_concurrency=16.0),
        "none",
        replace(ON_16, prompts=160),
        True,
    ),
    "few requests": (
        watched(slow_down(1.5), reached_concurrency=1.0),
        "ngram",
        SyntheticRun(prompts=18, concurrency=(1,), repeats=1),
        False,
    ),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_drift_is_found_only_where_it_is_the_engines(case: str) -> None:
    corruptions, arm, world, found = DRIFTS[case]
    assert check_names(findings_of(corruptions, arm, world)) == [("StepTimeDrift", WARNING)] * found


LONG = replace(WORLD, tokens=(400, 500))
SHORT = replace(WORLD, tokens=(3, 6))
POINTS_MANY = SyntheticRun(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))
IDLE = {"draft_steps": 0, "drafted_tokens": 0, "accepted_tokens": 0}
HIDDEN = replace_columns(drafted_tokens=None, accepted_tokens=None, step_accepted=None)
NO_DRAFTS = replace_columns(draft_steps=None, drafted_tokens=None, accepted_tokens=None, step_accepted=None)
BY_REQUEST = replace_columns(drafted_tokens=None, step_accepted=None, acceptance_source="per_request")
NO_STEPS = replace_columns(drafted_tokens=None, draft_steps=None, step_accepted=None)
MORE_USAGE = replace_columns(output_tokens=lambda _, row: row["output_tokens"] + 3)
CACHED_BY_COUNTERS = combine(replace_columns(cached_tokens=None), replace_counters(cached_tokens=2000))


def drop_one_token(*reasons: str) -> Corruptions:
    """Make the chunks contain one token less than the usage in answers with these finish reasons."""
    return replace_columns(output_tokens_client=lambda _, row: row["output_tokens"] - (row["finish_reason"] in reasons))


def fail(**reasons: str) -> Corruptions:
    """Fail the requests of these numbers, which begin with an underscore, for these reasons."""
    return replace_columns(error_class=lambda index, _: reasons.get(f"_{index}"))


def without_ends(share: float) -> Corruptions:
    """Make the counter lack this many tokens of each of the 24 answers, which stopped by themselves."""
    lost = int(share * 24)
    fewer = Corruptions(
        counters=lambda _, counted: counted.model_copy(update={"output_tokens": (counted.output_tokens or 0) - lost})
    )
    return combine(replace_columns(finish_reason="stop"), fewer)


def growing_queue(growth: float, reached: float, seconds: float = 1000, **values: Any) -> Corruptions:
    watch = {"reached_concurrency": reached, "reached_rate": 10, "duration_s": seconds, "steady_share": 1.0}
    return replace_watch(in_flight_growth=growth, **watch | values)


def conflicts(kind: str, every: int, *, known: bool = False) -> Corruptions:
    """Let the streams of some answers contradict their token counts."""
    uncounted = dict.fromkeys(("output_tokens", "output_tokens_client", "chunk_tokens", "steps", "step_accepted"))

    def edit(name: str, value: Any) -> Callable[[int, Any], Any]:
        return lambda index, row: row.get(name) if index % every else value

    lost = {} if known else {name: edit(name, value) for name, value in uncounted.items()}
    return replace_columns(token_conflict=edit("token_conflict", kind), **lost)


THINKING = SyntheticRun(edits={"spec.workloads[0].thinkTime": {"seconds": 2}})
FOUND: dict[str, tuple[Corruptions, SyntheticRun, list[tuple[str, Severity]]]] = {
    "a load that was not reached": (
        replace_watch(reached_concurrency=2.69),
        WORLD,
        [("ConcurrencyNotReached", INVALID)],
    ),
    "an engine that cannot keep up": (growing_queue(1.6, 20.0), OPEN, [("Overloaded", INVALID)]),
    "much growth in a short point": (growing_queue(3.0, 20.0, 10), OPEN, [("Overloaded", INVALID)]),
    "a growing trace": (growing_queue(2.0, 20.0), open_loop_with(TRACE), [("Overloaded", WARNING)]),
    "a warm-up that did not become steady": (
        replace_watch(warmup_steady=False, warmup_requests=32),
        WORLD,
        [("WarmupNotSteady", WARNING)],
    ),
    "never drafts": (
        combine(
            replace_columns(**IDLE, step_accepted=None, steps=lambda _, row: row["output_tokens"] - 1),
            replace_counters(**IDLE),
        ),
        WORLD,
        [("NeverDrafted", INVALID)],
    ),
    "never drafts, by counters alone": (
        combine(HIDDEN, replace_counters(drafted_tokens=0)),
        WORLD,
        [("NeverDrafted", INVALID)],
    ),
    "the engine reports no drafting": (combine(NO_DRAFTS, WITHOUT_COUNTERS), WORLD, [("NeverDrafted", WARNING)]),
    "acceptance from chunks, which may be a stream interval": (
        combine(NO_STEPS, replace_columns(acceptance_source="chunks"), WITHOUT_COUNTERS),
        WORLD,
        [("NeverDrafted", WARNING), ("AcceptanceUnconfirmed", INFO)],
    ),
    "acceptance from chunks, and a page without counters": (
        combine(
            NO_STEPS,
            replace_columns(acceptance_source="chunks"),
            Corruptions(counters=lambda *_: CounterDeltas(unread="401")),
        ),
        WORLD,
        [("NeverDrafted", WARNING), ("AcceptanceUnconfirmed", INFO)],
    ),
    "token counts that streams contradict": (
        conflicts("AboveMaxTokens", 2, known=True),
        WORLD,
        [("TokenCountConflict", WARNING)],
    ),
    "no token counts": (conflicts("UnsentTokens", 2), WORLD, [("TokenCountConflict", WARNING)]),
    "one such count of hundreds": (conflicts("UnequalUsages", 120), POINTS_MANY, [("TokenCountConflict", INFO)]),
    "start that is not counted": (conflicts("UncountedStart", 1, known=True), WORLD, []),
    "reasoning that is not counted": (conflicts("UnsentTokens", 1, known=True), WORLD, [("TokenCountConflict", INFO)]),
    "another model of the server": (
        Corruptions(
            counters=lambda _, counted: counted.model_copy(
                update={"other_models": ["b"], "all_models": TokenCounters(output_tokens=90_000)}
            )
        ),
        WORLD,
        [("ForeignTraffic", INFO)],
    ),
    "more usage than chunks and counters": (MORE_USAGE, WORLD, [("TokenCountMismatch", INVALID)] * 2),
    "more usage than chunks": (combine(MORE_USAGE, WITHOUT_COUNTERS), WORLD, [("TokenCountMismatch", INVALID)]),
    "an uncounted end of long answers": (drop_one_token("stop"), LONG, [("TokenCountMismatch", INFO)]),
    "an uncounted end": (drop_one_token("stop"), WORLD, [("TokenCountMismatch", WARNING)]),
    "an uncounted end of short answers": (drop_one_token("stop"), SHORT, [("TokenCountMismatch", WARNING)]),
    "a counter without the ends": (without_ends(1.0), SHORT, [("TokenCountMismatch", WARNING)]),
    "a counter without more than the ends": (without_ends(1.4), SHORT, [("TokenCountMismatch", INVALID)]),
    "a counter that lacks tokens": (replace_counters(output_tokens=900), WORLD, [("TokenCountMismatch", INVALID)]),
    "cached prompts": (replace_columns(cached_tokens=90), WORLD, [("PromptCacheHit", INVALID)]),
    "cached prompts, by counters alone": (CACHED_BY_COUNTERS, WORLD, [("PromptCacheHit", INVALID)]),
    "one failure of hundreds": (fail(_20="reset"), POINTS_MANY, [("RequestsFailed", INFO)]),
    "a restart, whose counters are not used": (
        replace_counters(restarted=True, output_tokens=5),
        WORLD,
        [("EngineRestarted", INVALID)],
    ),
    "foreign traffic": (replace_counters(output_tokens=5000), WORLD, [("ForeignTraffic", INVALID)]),
    "tokens of failed requests are not foreign": (
        combine(
            fail(_10="reset"),
            replace_columns(output_tokens=lambda index, row: None if index == 10 else row["output_tokens"]),
        ),
        WORLD,
        [("RequestsFailed", INVALID)],
    ),
}


AS_SERVED = replace(WORLD, edits={"spec.promptCache": "AsServed"})
VALID: dict[str, tuple[Corruptions, SyntheticRun]] = {
    "a load within 10 %": (replace_watch(reached_concurrency=2.8), WORLD),
    "an open loop has no concurrency to reach": (replace_watch(reached_concurrency=0.5), OPEN),
    "nor have users who think": (replace_watch(reached_concurrency=0.5), THINKING),
    "a closed loop has no rate to reach": (replace_watch(reached_rate=0.1), WORLD),
    "little growth": (growing_queue(1.4, 20.0), OPEN),
    "growth from one to two requests": (growing_queue(3.0, 7.0), OPEN),
    "a closed loop has no queue": (growing_queue(3.0, 3.0), WORLD),
    "random growth in a short point": (growing_queue(2.0, 20.0, 10), OPEN),
    "a steady warm-up": (replace_watch(warmup_steady=True, warmup_requests=32), WORLD),
    "an unknown warm-up": (replace_watch(warmup_steady=None, warmup_requests=32), WORLD),
    "the counters alone report drafts": (HIDDEN, WORLD),
    # SGLang with variable draft lengths reports draft steps but no draft tokens.
    "draft steps prove drafting": (combine(BY_REQUEST, WITHOUT_COUNTERS), WORLD),
    # TensorRT-LLM reports tokens per iteration, but no drafts.
    "accepted tokens that the engine reports prove drafting": (
        combine(NO_STEPS, replace_columns(acceptance_source="per_request"), WITHOUT_COUNTERS),
        WORLD,
    ),
    "some requests without draft counts": (
        combine(
            replace_columns(drafted_tokens=lambda index, row: None if index % 2 else row["drafted_tokens"]),
            WITHOUT_COUNTERS,
        ),
        WORLD,
    ),
    "no count by the client": (replace_columns(output_tokens_client=None, chunk_tokens=None), WORLD),
    "requests that the page counts under two names": (
        Corruptions(
            counters=lambda _, counted: CounterDeltas(
                output_tokens=(counted.output_tokens or 0) // 2, other_models=["adapter"], all_models=counted
            )
        ),
        WORLD,
    ),
    "a cache as served": (replace_columns(cached_tokens=90), AS_SERVED),
    "a cached start token": (replace_columns(cached_tokens=1), WORLD),
    "a cached history": (replace_columns(cached_tokens=lambda _, row: 80 if row["turn"] else 0), TALKS),
    "counters do not distinguish first turns from later ones": (CACHED_BY_COUNTERS, TALKS),
    "no counters": (WITHOUT_COUNTERS, WORLD),
    "few counters": (
        Corruptions(counters=lambda _, counted: CounterDeltas(drafted_tokens=counted.drafted_tokens)),
        WORLD,
    ),
    "no client health": (Corruptions(watch=lambda *_: ClientHealth()), WORLD),
    "no prompt tokens": (replace_columns(input_tokens=None, cached_tokens=None), WORLD),
    "no steps": (replace_columns(steps=None, draft_steps=None, step_accepted=None), WORLD),
    "no chunks": (replace_columns(chunk_ns=None, chunk_tokens=None), WORLD),
    "no category": (replace_columns(category=None, finish_reason=None, output_sha256=None), WORLD),
    "arrays of steps": (
        replace_columns(step_accepted=lambda _, row: np.array(row["step_accepted"]) if row["step_accepted"] else None),
        WORLD,
    ),
    "missing errors": (replace_columns(error_class=float("nan"), error=float("nan")), WORLD),
}


@pytest.mark.parametrize("case", [*FOUND, *VALID])
def test_problems_are_found_and_valid_or_missing_data_is_not_reported(case: str) -> None:
    corruptions, world, expected = FOUND[case] if case in FOUND else (*VALID[case], [])
    assert check_names(findings_of(corruptions, world=world)) == expected


@pytest.mark.parametrize(
    ("check", "corruptions"),
    [
        ("NeverDrafted", combine(BY_REQUEST, replace_columns(draft_steps=0), WITHOUT_COUNTERS)),
        ("TokenCountMismatch", combine(replace_columns(finish_reason="length"), drop_one_token("length"))),
    ],
    ids=["no draft steps", "a missing token in an answer cut at its length"],
)
def test_problem_is_found_beside_others(check: str, corruptions: Corruptions) -> None:
    assert (check, INVALID) in check_names(findings_of(corruptions))


@pytest.mark.parametrize("counted", ["drafted_tokens", "draft_steps"])
def test_baseline_that_drafts_is_found(counted: str) -> None:
    """For example a target in speculators format, with which vLLM starts the drafter that it names."""
    found = findings_of(replace_counters(**{counted: 7}), arm="none")
    (finding,) = [each for each in found if each.check == "BaselineDrafted"]
    assert (finding.severity, finding.arm, finding.value, finding.threshold) == (INVALID, "none", 7, 0)


def test_finding_names_its_point_and_contains_its_value() -> None:
    finding = findings_of(replace_watch(cpu_share=0.95))[0]
    assert (finding.arm, finding.workload, finding.load) == ("ngram", "chat", "3")
    assert (finding.point, finding.value, finding.threshold) == (WORLD.plan.points[1].hash, 0.95, 0.8)


def test_failed_requests_are_counted_by_error_class() -> None:
    (finding,) = findings_of(fail(_7="http_5xx", _15="http_5xx", _23="http_5xx"))
    assert (finding.check, finding.severity) == ("RequestsFailed", INVALID)
    assert "3 of 24 requests failed (3 http_5xx)" in finding.message


def test_the_most_frequent_error_of_the_server_is_quoted_shortened_and_without_secrets() -> None:
    errors = {7: "HTTP 500: rare", 15: f"HTTP 429: slow\n  down, hf_{'a' * 20}"}
    errors[23] = errors[15]
    failed = replace_columns(
        error_class=lambda index, _: "http_5xx" if index in errors else None, error=lambda index, _: errors.get(index)
    )
    (finding,) = findings_of(failed)
    assert "3 of 24 requests failed (3 http_5xx, most often with: HTTP 429: slow down, [redacted])" in finding.message
    (finding,) = findings_of(
        replace_columns(
            error_class=lambda index, _: "http_5xx" if index == 7 else None,
            error=lambda index, _: "x" * 500 if index == 7 else None,
        )
    )
    assert "x" * 100 in finding.message
    assert "x" * 201 not in finding.message


def test_rejected_prompts_are_named_and_a_rate_limit_is_said() -> None:
    (finding,) = findings_of(fail(_7="http_4xx", _15="rate_limited", _23="http_5xx"))
    assert re.search(r"; the server rejected prompts \S+; the server limits the rate", finding.message)
    (finding,) = findings_of(fail(**{f"_{number}": "http_4xx" for number in range(7, 15)}))
    assert re.search(r"; the server rejected prompts (\S+, ){4}\S+ and 3 more$", finding.message)
    (finding,) = findings_of(fail(_7="http_5xx"))
    assert "rejected" not in finding.message
    assert "rate" not in finding.message


def test_turns_skipped_after_an_error_count_once_with_it() -> None:
    corruptions = replace_columns(
        error_class=lambda index, row: None if index < 40 else ("skipped_after_error" if row["turn"] else "timeout")
    )
    (finding,) = findings_of(corruptions, world=TALKS)
    assert (finding.check, finding.severity) == ("RequestsFailed", INVALID)
    assert finding.message == "5 of 43 requests failed (5 timeout), and 5 later turns were not sent"


Edit = Callable[[pd.DataFrame], pd.DataFrame]
MS = 1_000_000


def duplicate_one(frame: pd.DataFrame) -> pd.DataFrame:
    steady = frame[frame["phase"] == RecordPhase.STEADY.value]
    return pd.concat([frame, steady.iloc[[5]]], ignore_index=True)


def impossible_record_messages(edit: Edit) -> list[str]:
    def records(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return edit(frame)

    findings = findings_of(Corruptions(records=records, counters=without_counters))
    assert all(each.severity is Severity.INVALID for each in findings if each.check == "ImpossibleRecords")
    return [each.message for each in findings if each.check == "ImpossibleRecords"]


def test_one_duplicate_record_is_found() -> None:
    (message,) = impossible_record_messages(duplicate_one)
    assert "1 of 25 records are duplicates" in message


def without_one_send_time(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(sent_ns=rows["sent_ns"].where(rows.index != rows.index[5]))


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: rows.assign(first_token_ns=rows["sent_ns"] - 20 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(last_token_ns=rows["first_token_ns"] - 5 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(sent_ns=rows["intended_ns"] - 5 * MS), "times in the wrong order"),
        (lambda rows: rows.assign(last_token_ns=rows["intended_ns"]), "have no duration"),
        (lambda rows: rows.assign(output_tokens=-rows["output_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(input_tokens=-rows["input_tokens"]), "a count below 0"),
        (lambda rows: rows.assign(cached_tokens=rows["input_tokens"] + 1), "more cached than prompt tokens"),
        (lambda rows: rows.assign(intended_ns=-(2**63) + 1), "begin before their point"),
        (lambda rows: rows.assign(last_token_ns=2**63 - 1), "have a time later than 104 days"),
        (lambda rows: rows.assign(output_tokens=2**63 - 1), "a count above 16 million"),
        (without_one_send_time, "1 of 24 records were answered but never sent"),
        (lambda rows: rows.assign(repeat=3), "a repeat other than 0"),
    ],
)
def test_impossible_times_and_counts_are_named(
    edit: Edit, words: str, imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "is_imported", property(lambda _: imported))
    (message,) = impossible_record_messages(edit)
    assert words in message


@pytest.mark.parametrize("imported", [False, True])
def test_only_an_imported_run_may_have_no_send_times(imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's benchmark stores none at all; our client stores one for each request."""
    monkeypatch.setattr(Engine, "is_imported", property(lambda _: imported))
    messages = impossible_record_messages(lambda rows: rows.assign(sent_ns=None))
    assert bool(messages) is not imported
    assert all("were answered but never sent" in message for message in messages)


def test_small_difference_between_two_clocks_is_not_reported() -> None:
    assert impossible_record_messages(lambda rows: rows.assign(sent_ns=rows["first_byte_ns"] + MS // 2)) == []


END_WORLD = SyntheticRun(prompts=24, categories=ONE, concurrency=(2,))
TIMES = ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")


def delay_stream_ends(**ms: float) -> Corruptions:
    """Delay each answer's end by the arm's ms, so that the stream's next request is sent later."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        each = int(ms.get(point.arm, 0.0) * NS_PER_MS)
        measured = frame["phase"] != "warmup"
        order = frame["intended_ns"].where(measured).groupby(frame["stream_index"]).rank(method="first")
        by = ((order.fillna(1) - 1) * each).astype("int64")
        chunks = [[at + shift for at in times] for times, shift in zip(frame["chunk_ns"], by, strict=True)]
        moved = {name: frame[name].astype("int64") + by for name in TIMES}
        return frame.assign(
            **moved, ended_ns=moved["last_token_ns"] + each, chunk_ns=pd.Series(chunks, index=frame.index, dtype=object)
        )

    watch = {"reached_concurrency": 2.0, "duration_s": 60.0, "steady_share": 0.9}
    return Corruptions(records=edit, watch=lambda _, seen: seen.model_copy(update=watch))


@pytest.mark.runs
@pytest.mark.parametrize(
    ("delays_ms", "expected"),
    [
        (
            {"ngram": 600},
            [("LateStreamEnd", INVALID, "ngram"), ("ThroughputContradictsSpeedup", WARNING, "ngram")],
        ),
        ({"none": 600}, [("LateStreamEnd", INVALID, "ngram"), ("LateStreamEnd", WARNING, "none")]),
        ({"ngram": 40, "none": 60}, [("LateStreamEnd", WARNING, "none"), ("LateStreamEnd", WARNING, "ngram")]),
        ({"ngram": 5, "none": 1}, []),
    ],
    ids=["of the arm", "of the baseline", "of both", "short"],
)
def test_delayed_stream_ends_are_found(delays_ms: dict[str, float], expected: list[tuple[str, Severity, str]]) -> None:
    summary = run_of_world(END_WORLD, delay_stream_ends(**delays_ms))
    assert sorted((each.check, each.severity, each.arm or "") for each in summary.findings) == sorted(expected)
    assert ("unknown at" in summary.headline) == any(severity is INVALID for _, severity, _ in expected)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("streams", "step_ms", "held_ms", "found"),
    [(2, 9.0, 75, True), (2, 9.0, 30, False), (6, 9.0, 100, False), (6, 9.0, 200, True), (2, 10.0, 600, False)],
)
def test_few_requests_per_stream_require_a_larger_contradiction(
    streams: int, step_ms: float, held_ms: float, found: bool
) -> None:
    """A speed-up of 1.1 with throughput ratios of 0.98, 1.05, 0.95 and 0.83; streams have 11 requests, or 2.

    The last one has no speed-up that could be contradicted.
    """
    tenth = replace(
        END_WORLD, concurrency=(streams,), alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": step_ms}
    )
    checks = {each.check for each in run_of_world(tenth, delay_stream_ends(ngram=held_ms)).findings}
    assert ("ThroughputContradictsSpeedup" in checks) == found


@pytest.mark.parametrize("counted", [True, False])
def test_stream_end_delay_leaves_out_one_step(counted: bool) -> None:
    one = record()
    times, end_ns = present(one.chunk_ns), present(one.last_token_ns)
    gap_ns = (times[-1] - times[0]) / (len(times) - 1)
    tokens = one.chunk_tokens if counted else None
    rows = [
        record(turn=turn, chunk_tokens=tokens, ended_ns=end_ns + int(delay * gap_ns))
        for turn, delay in enumerate((0.5, 1.0, 3.0))
    ]
    rows += [record(turn=3), record(turn=4, error_class="reset", ended_ns=10**12)]
    whole_ns = 3 * (end_ns - one.intended_ns) + 4.5 * gap_ns
    assert stream_end_share(tidy_frames([frame_of(rows)], "p")) == pytest.approx(2 * gap_ns / whole_ns)
    assert stream_end_share(tidy_frames([frame_of(rows[3:])], "p")) is None


def test_missing_values_are_not_impossible() -> None:
    findings = replace_columns(first_byte_ns=None, cached_tokens=None, input_tokens=None, output_tokens_client=None)
    assert "ImpossibleRecords" not in [name for name, _ in check_names(findings_of(findings))]
