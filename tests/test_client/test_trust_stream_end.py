"""Time after the last token is in no latency figure; the streams' next requests and the throughput reveal it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.documents.finding import Severity
from specbench_client.metrics.latency import stream_end_delay_share
from specbench_client.metrics.tidy_frame import tidy
from specbench_testing.present import present
from specbench_testing.synthetic_records import (
    NS_PER_MS,
    ONE,
    Corruptions,
    SyntheticRun,
    frame_of,
    record,
    run_of_world,
)

pytestmark = pytest.mark.runs

INVALID, WARNING = Severity.INVALID, Severity.WARNING
WORLD = SyntheticRun(prompts=24, categories=ONE, concurrency=(2,))
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
        return frame.assign(**moved, chunk_ns=pd.Series(chunks, index=frame.index, dtype=object))

    watch = {"reached_concurrency": 2.0, "duration_s": 60.0, "steady_share": 0.9}
    return Corruptions(records=edit, watch=lambda _, seen: seen.model_copy(update=watch))


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
    summary = run_of_world(WORLD, delay_stream_ends(**delays_ms))
    assert sorted((each.check, each.severity, each.arm or "") for each in summary.findings) == sorted(expected)
    assert ("not comparable" in summary.headline) == any(severity is INVALID for _, severity, _ in expected)


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
    tenth = replace(WORLD, concurrency=(streams,), alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": step_ms})
    checks = {each.check for each in run_of_world(tenth, delay_stream_ends(ngram=held_ms)).findings}
    assert ("ThroughputContradictsSpeedup" in checks) == found


@pytest.mark.parametrize("counted", [True, False])
def test_end_of_sequence_token_without_its_own_chunk_is_one_step(counted: bool) -> None:
    one = record(stream_index=3)
    step_ns, tokens = 10 * NS_PER_MS, one.chunk_tokens if counted else None
    rows = [
        record(stream_index=3, chunk_tokens=tokens),
        record(stream_index=3, chunk_tokens=tokens, intended_ns=present(one.last_token_ns) + 2 * step_ns),
        record(stream_index=4, chunk_tokens=tokens, intended_ns=10**12),
    ]
    delay_ns = 2 * step_ns if counted else step_ns
    share = stream_end_delay_share(tidy([frame_of(rows)], "p"))
    assert share == pytest.approx(delay_ns / (present(one.last_token_ns) + 2 * step_ns))


def test_no_next_request_gives_no_stream_end_delay() -> None:
    alone = [record(stream_index=1), record(stream_index=2)]
    failed = record(error_class="reset", last_token_ns=None)
    skipped = record(error_class="skipped_after_error", sent_ns=None, last_token_ns=None)
    later = record(intended_ns=10**12, sent_ns=10**12)
    assert [stream_end_delay_share(tidy([frame_of(rows)], "p")) for rows in (alone, [failed, skipped, later])] == [
        None
    ] * 2


def test_users_who_think_do_not_delay_the_stream_end() -> None:
    """A stream waits with its user after a filler and before a later turn, but not before another conversation."""
    one = record(stream_index=3)
    took, thought = present(one.last_token_ns), 50 * present(one.last_token_ns)
    begins = [0, took + thought, 2 * (took + thought), 3 * took + 2 * thought + took // 10]
    names = ["filler-3-0", "p1", "p1", "p2"]
    rows = [
        record(
            stream_index=3,
            prompt_id=name,
            turn=turn,
            intended_ns=begin,
            first_token_ns=begin + took // 2,
            last_token_ns=begin + took,
        )
        for name, turn, begin in zip(names, (0, 0, 1, 0), begins, strict=True)
    ]
    frame = tidy([frame_of(rows)], "p")
    assert stream_end_delay_share(frame) == pytest.approx((2 * thought + took // 10) / begins[-1])
    assert stream_end_delay_share(frame, thinks=True) == pytest.approx(0.1 / 1.1, rel=0.01)


@pytest.mark.parametrize("held_s", [0, 1])
@pytest.mark.parametrize("failed", [False, True])
def test_a_conversation_of_overlapping_requests_ends_with_the_one_that_ends_last(held_s: int, failed: bool) -> None:
    """Turns 0 to 2 take the seconds 0-1, 1-11 and 1-2; the next conversation begins `held_s` after the last end."""
    second, took = 1000 * NS_PER_MS, 11 + held_s
    rows = [
        record(
            stream_index=3,
            prompt_id=f"p{number}",
            turn=turn,
            intended_ns=(number * took + begin) * second,
            first_token_ns=(number * took + begin) * second,
            last_token_ns=(number * took + end) * second,
            error_class="reset" if failed and turn == 1 else None,
        )
        for number in range(4)
        for turn, begin, end in ((0, 0, 1), (1, 1, 11), (2, 1, 2))
    ]
    share = stream_end_delay_share(tidy([frame_of(rows)], "p"), thinks=True)
    assert share == (None if failed else pytest.approx(held_s / (10 + held_s)))
