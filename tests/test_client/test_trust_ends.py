"""Time after the last token is in no latency: it is found where the streams lose it, and where throughput tells."""

from __future__ import annotations

import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.plan.plan import Point
from specbench_client.metrics.afterwards import afterwards_share
from specbench_client.metrics.frame import tidy
from specbench_testing.lies import names
from specbench_testing.records import NS_PER_MS, ONE, Lies, World, frame_of, record, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

INVALID, DOUBT = Severity.INVALID, Severity.DOUBT
WORLD = World(prompts=24, categories=ONE, concurrency=(2,))
TIMES = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")


def held_back(**ms: float) -> Lies:
    """By arm: how long the end of each answer is held back, so that the stream's next request is sent later."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        each = int(ms.get(point.arm, 0.0) * NS_PER_MS)
        measured = frame["phase"] != "warmup"
        order = frame["intended_ns"].where(measured).groupby(frame["stream"]).rank(method="first")
        by = ((order.fillna(1) - 1) * each).astype("int64")
        chunks = [[at + shift for at in times] for times, shift in zip(frame["chunk_ns"], by, strict=True)]
        moved = {name: frame[name].astype("int64") + by for name in TIMES}
        return frame.assign(**moved, chunk_ns=pd.Series(chunks, index=frame.index, dtype=object))

    watch = {"reached_concurrency": 2.0, "duration_s": 60.0, "steady_share": 0.9}
    return Lies(records=edit, watch=lambda _, seen: seen.model_copy(update=watch))


def test_ends_that_one_arm_holds_back_are_found_and_the_throughput_denies_the_speedup() -> None:
    summary = run_of_world(WORLD, held_back(ngram=600))
    found = [(finding.check, finding.severity, finding.arm) for finding in summary.findings]
    assert found == [("LateEnd", INVALID, "ngram"), ("ThroughputContradicts", DOUBT, "ngram")]
    assert "not comparable" in summary.verdict


def test_a_baseline_whose_ends_are_held_back_breaks_the_comparison_from_the_other_side() -> None:
    found = [
        (finding.check, finding.severity, finding.arm) for finding in run_of_world(WORLD, held_back(none=600)).findings
    ]
    assert found == [("LateEnd", INVALID, "ngram"), ("LateEnd", DOUBT, "none")]


def test_ends_that_both_hold_back_alike_are_doubted() -> None:
    found = names(run_of_world(WORLD, held_back(ngram=40, none=60)).findings)
    assert found == [("LateEnd", DOUBT)] * 2


def test_a_little_time_after_the_last_token_is_no_lie() -> None:
    assert run_of_world(WORLD, held_back(ngram=5, none=1)).findings == []


def test_throughput_is_asked_of_closed_loops_and_of_claims_alone() -> None:
    alike = World(
        prompts=24, categories=ONE, concurrency=(2,), alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": 10.0}
    )
    assert "ThroughputContradicts" not in {each.check for each in run_of_world(alike, held_back(ngram=600)).findings}


@pytest.mark.parametrize(
    ("streams", "held_ms", "found"), [(2, 75, True), (2, 30, False), (6, 100, False), (6, 200, True)]
)
def test_a_throughput_of_few_requests_a_stream_must_deny_more(streams: int, held_ms: float, found: bool) -> None:
    """1.1 times as fast, and a throughput of 0.98, 1.05, 0.95 and 0.83: from 11 requests a stream, and from 2."""
    tenth = World(
        prompts=24, categories=ONE, concurrency=(streams,), alpha={"ngram": 0.0}, alpha_spread=0.0,
        step_ms={"ngram": 9.0},
    )  # fmt: skip
    checks = {each.check for each in run_of_world(tenth, held_back(ngram=held_ms)).findings}
    assert ("ThroughputContradicts" in checks) == found


@pytest.mark.parametrize("told", [True, False])
def test_an_end_of_sequence_token_without_a_chunk_of_its_own_is_one_step(told: bool) -> None:
    one = record(stream=3)
    assert one.last_token_ns is not None
    step_ns, tokens = 10 * NS_PER_MS, one.chunk_tokens if told else None
    rows = [
        record(stream=3, chunk_tokens=tokens),
        record(stream=3, chunk_tokens=tokens, intended_ns=one.last_token_ns + step_ns),
        record(stream=4, chunk_tokens=tokens, intended_ns=10**12),
    ]
    share = afterwards_share(tidy([frame_of(rows)], "p"))
    assert share == pytest.approx(step_ns / (one.last_token_ns + step_ns) if told else 0.0)


def test_without_a_next_request_nothing_is_told() -> None:
    assert afterwards_share(tidy([frame_of([record(stream=1), record(stream=2)])], "p")) is None


def test_a_failed_request_and_turns_that_were_never_asked_tell_no_end() -> None:
    failed = record(error_class="reset", last_token_ns=None)
    skipped = record(error_class="skipped_after_error", sent_ns=None, last_token_ns=None)
    later = record(intended_ns=10**12, sent_ns=10**12)
    assert afterwards_share(tidy([frame_of([failed, skipped, later])], "p")) is None
