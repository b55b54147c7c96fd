"""A client, or a path, that falsifies times is found; one that is merely busy is not."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import SelfWatch
from specbench_api.plan.plan import Point
from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.analysis.summary.point import summarise_point
from specbench_testing.lies import OPEN, WORLD, columns, found, names, watch
from specbench_testing.records import Lies, World

INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE


@pytest.mark.parametrize(
    ("lag", "share", "expected"), [(400.0, 0.1, 1), (0.5, 0.95, 1), (400.0, 0.95, 2), (4.9, 0.8, 0)]
)
def test_a_client_that_cannot_keep_up_is_found(lag: float, share: float, expected: int) -> None:
    findings = found(watch(loop_lag_p99_ms=lag, cpu_share=share))
    assert names(findings) == [("ClientSaturated", INVALID)] * expected


def test_lateness_is_judged_by_the_length_of_requests() -> None:
    long = World(prompts=24, concurrency=(3,), repeats=1, tokens=(400, 500))
    assert found(watch(loop_lag_p99_ms=30.0), world=long) == []
    assert names(found(watch(loop_lag_p99_ms=30.0))) == [("ClientSaturated", INVALID)]


@pytest.mark.parametrize(("late", "expected"), [(4.9, 0), (30.0, 1)])
def test_an_open_loop_that_sends_late_is_found(late: float, expected: int) -> None:
    assert names(found(watch(send_lateness_p99_ms=late), world=OPEN)) == [("ClientSaturated", INVALID)] * expected
    assert found(watch(send_lateness_p99_ms=late)) == [], "a closed loop's shows as concurrency that is not reached"


def test_sends_are_judged_by_the_time_between_arrivals_where_requests_are_long() -> None:
    def far_apart(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        later = frame["intended_ns"] * 99
        times = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
        chunks = pd.Series([[at + by for at in each] for each, by in zip(frame["chunk_ns"], later, strict=True)])
        return frame.assign(**{name: frame[name] + later for name in times}, chunk_ns=chunks)

    long = World(prompts=150, rate=(10,), repeats=1, tokens=(400, 500))
    late = watch(send_lateness_p99_ms=20.0)
    assert names(found(late, world=long)) == [("ClientSaturated", INVALID)]
    assert found(Lies(records=far_apart, watch=late.watch), world=long) == []


def gathered(share: float, together: int = 2) -> Lies:
    """In so many of the answers, every so many neighbouring chunks share the last one's time."""

    def stamps(index: int, row: Any) -> list[int]:
        at = list(row["chunk_ns"])
        last = len(at) - 1
        return (
            [at[min(last, i - i % together + together - 1)] for i in range(len(at))] if index % 10 < 10 * share else at
        )

    return columns(chunk_ns=stamps)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, []), (0.2, [("ChunksGathered", DOUBT)]), (0.8, [("ChunksGathered", INVALID)])]
)
def test_chunks_that_one_read_gathered_are_found(share: float, expected: list[tuple[str, Severity]]) -> None:
    assert names(found(gathered(share), arm="none")) == expected


def test_a_few_gathered_chunks_are_no_lie() -> None:
    once = columns(chunk_ns=lambda _, row: [row["chunk_ns"][1], *row["chunk_ns"][1:]])
    assert found(once, arm="none") == []


def test_what_one_step_emits_may_come_as_several_chunks() -> None:
    """llama.cpp streams one chunk a token: those of one step leave the engine together."""

    def by_token(_: int, row: Any) -> list[int]:
        return [ns for ns, count in zip(row["chunk_ns"], row["chunk_tokens"], strict=True) for _ in range(count)]

    split = columns(chunk_ns=by_token, chunk_tokens=lambda _, row: [1] * sum(row["chunk_tokens"]))
    untold = columns(chunk_ns=by_token, chunk_tokens=None)
    assert found(split) == []
    assert found(untold) == []


def test_steps_that_were_gathered_are_found_whatever_a_step_may_emit() -> None:
    assert names(found(gathered(1.0, together=4))) == [("ChunksGathered", INVALID)]
    untold = gathered(1.0, together=4).records
    lies = Lies(records=lambda point, frame: untold(point, frame).assign(chunk_tokens=None))
    assert names(found(lies)) == [("ChunksGathered", INVALID)]


def at_once(share: float, apart_ns: int = 0) -> Lies:
    """So many of the answers come in one piece when they are complete, its segments so far apart."""

    def stamps(index: int, row: Any) -> list[int]:
        last, count = row["chunk_ns"][-1], len(row["chunk_ns"])
        whole = [last - apart_ns * (count - 1 - number) for number in range(count)]
        return whole if 6 <= index < 6 + 24 * share else row["chunk_ns"]

    return columns(chunk_ns=stamps)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize("apart_ns", [0, 20_000])
def test_answers_that_come_in_one_piece_are_found(arm: str, apart_ns: int) -> None:
    findings = found(at_once(0.15, apart_ns), arm)
    assert names(findings) == [("ChunksGathered", INVALID)]
    assert "half the chunks and more" in findings[0].message
    assert found(at_once(1.0, 10_000_000), arm) == [], "a step apart"


def test_who_gathered_is_told_by_the_clients_own_watch() -> None:
    def told(lag_ms: float | None) -> str:
        seen = watch(loop_lag_p99_ms=lag_ms).watch
        lies = Lies(records=at_once(0.3).records, watch=seen)
        return next(each.message for each in found(lies, "none") if each.check == "ChunksGathered")

    assert "somebody between, holds chunks back: the client was in time for that (its loop was 0.4 ms late" in told(0.4)
    assert "and half an answer takes " in told(0.4), "late by less than that is in time only for that"
    assert "the client was late itself (900.0 ms" in told(900.0)
    assert told(None).endswith("the client read late, or the engine, or somebody between, holds chunks back")


def test_half_of_a_short_answer_may_be_one_step() -> None:
    """Eight chunks, one a token, of which one step emitted four."""
    short = World(prompts=24, concurrency=(1,), repeats=1, tokens=(8, 8), alpha={"ngram": 1.0}, alpha_spread=0.0)

    def by_token(_: int, row: Any) -> list[int]:
        return [ns for ns, count in zip(row["chunk_ns"], row["chunk_tokens"], strict=True) for _ in range(count)]

    split = columns(chunk_ns=by_token, chunk_tokens=lambda _, row: [1] * sum(row["chunk_tokens"]))
    assert found(split, world=short) == []


def of_an_endpoint(frame: pd.DataFrame) -> list[tuple[str, Severity]]:
    """What is found in the drafter's records where nobody but the engine knows that there is one."""
    engine = Engine(kind=EngineKind.EXTERNAL, endpoint="http://127.0.0.1:1", dialect=DialectName.OPENAI)
    arm = WORLD.plan.arm("ngram").model_copy(update={"drafter": None})
    plan = WORLD.plan.model_copy(update={"engine": engine, "arms": [WORLD.plan.arm("none"), arm]})
    point = next(each for each in plan.points if each.arm == "ngram")
    return names(summarise_point(plan, point, [frame], SelfWatch(), None, simulated=False).findings)


def test_chunks_of_an_endpoint_are_judged_by_the_drafts_that_it_tells() -> None:
    point = WORLD.plan.points[1]
    honest = WORLD.records(point)
    assert of_an_endpoint(honest) == []
    silent = honest.assign(drafted_tokens=None, draft_steps=None)
    assert of_an_endpoint(silent) == [], "a chunk of several tokens may be a step's"
    late = gathered(1.0, together=4).records(point, silent)
    assert of_an_endpoint(late) == [("ChunksGathered", DOUBT)]
    assert of_an_endpoint(gathered(1.0, together=4).records(point, honest)) == [("ChunksGathered", INVALID)]


def merged(_: int, row: Any) -> list[int]:
    return [sum(row["chunk_tokens"][at : at + 4]) for at in range(0, len(row["chunk_tokens"]), 4)]


@pytest.mark.parametrize("arm", ["none", "ngram"])
def test_merged_chunks_are_found(arm: str) -> None:
    lies = columns(chunk_tokens=merged, chunk_ns=lambda _, row: row["chunk_ns"][3::4] or row["chunk_ns"][-1:])
    assert names(found(lies, arm=arm)) == [("ChunksMerged", DOUBT)]


def test_merged_chunks_are_found_where_chunks_do_not_tell_their_tokens() -> None:
    lies = columns(chunk_tokens=None, chunk_ns=lambda _, row: row["chunk_ns"][::8])
    assert names(found(lies)) == [("ChunksMerged", DOUBT)]


def test_a_character_of_several_tokens_now_and_then_is_no_lie() -> None:
    rare = columns(chunk_tokens=lambda index, row: [2, *row["chunk_tokens"][2:]] if index == 9 else row["chunk_tokens"])
    assert found(rare, arm="none") == []
