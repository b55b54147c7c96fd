"""A client or a network path that distorts times is found; one that is merely busy is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_api.spec.engine import DialectName
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import ClientHealth
from specbench_client.metrics.tidy_frame import tidy
from specbench_testing.corrupted_records import (
    OPEN,
    WORLD,
    check_names,
    combine,
    findings_of,
    replace_columns,
    replace_watch,
    undeclared_drafter,
)
from specbench_testing.synthetic_records import NS_PER_MS, ONE, Corruptions, SyntheticRun

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


@pytest.mark.parametrize(
    ("lag", "share", "expected"), [(400.0, 0.1, 1), (0.5, 0.95, 1), (400.0, 0.95, 2), (4.9, 0.8, 0)]
)
def test_client_that_cannot_keep_up_is_found(lag: float, share: float, expected: int) -> None:
    findings = findings_of(replace_watch(loop_lag_p99_ms=lag, cpu_share=share))
    assert check_names(findings) == [("ClientSaturated", INVALID)] * expected


@pytest.mark.parametrize(
    ("streams", "watch", "clients", "expected"),
    [
        (128, {"cpu_share": 0.95}, 1, 2),
        (128, {"cpu_share": 0.95}, 10, 19),
        (128, {"cpu_share": 0.95}, 40, 64),
        (128, {"cpu_share": 0.95}, 64, None),
        (1, {"cpu_share": 0.95}, 1, None),
        (3, {"cpu_share": 0.95}, 2, 3),
        (3, {"cpu_share": 0.95}, 3, None),
        (3, {"cpu_share": 0.6, "loop_lag_p99_ms": 400.0}, 2, 3),
        (3, {"cpu_share": 0.2, "loop_lag_p99_ms": 400.0}, 1, None),
        (3, {"cpu_share": None, "loop_lag_p99_ms": 400.0}, 1, None),
    ],
)
def test_saturated_client_is_advised_to_use_more_clients_only_if_they_help(
    streams: int, watch: dict[str, float | None], clients: int, expected: int | None
) -> None:
    edits = {"spec.load.clients": clients}
    world = SyntheticRun(prompts=24, concurrency=(streams,), repeats=1, edits=edits)
    found = findings_of(replace_watch(**watch), world=world)
    (finding,) = (each for each in found if each.check == "ClientSaturated")
    advice = f"; on a cluster, divide the load among more clients with load.clients: {expected}"
    assert finding.message.endswith(advice) == (expected is not None)
    assert ("load.clients" in finding.message) == (expected is not None)


@pytest.mark.parametrize(("error_ms", "expected"), [(None, 0), (20.0, 0), (20.1, 1), (2000.0, 1)])
def test_clients_without_one_clock_are_found(error_ms: float | None, expected: int) -> None:
    findings = findings_of(replace_watch(clients=2, clock_error_ms=error_ms))
    assert check_names(findings) == [("ClientClocksDiffer", INVALID)] * expected


def test_tolerated_lateness_depends_on_the_request_time() -> None:
    long = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, tokens=(400, 500))
    assert findings_of(replace_watch(loop_lag_p99_ms=30.0), world=long) == []
    assert check_names(findings_of(replace_watch(loop_lag_p99_ms=30.0))) == [("ClientSaturated", INVALID)]


@pytest.mark.parametrize(("late", "expected"), [(4.9, 0), (30.0, 1)])
def test_open_loop_that_sends_late_is_found(late: float, expected: int) -> None:
    assert (
        check_names(findings_of(replace_watch(send_lateness_p99_ms=late), world=OPEN))
        == [("ClientSaturated", INVALID)] * expected
    )
    assert findings_of(replace_watch(send_lateness_p99_ms=late)) == [], "a closed loop has no arrivals to keep"


def test_tolerated_send_lateness_depends_on_the_gap_between_arrivals() -> None:
    def far_apart(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        later = frame["intended_ns"] * 99
        times = ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
        chunks = pd.Series([[at + by for at in each] for each, by in zip(frame["chunk_ns"], later, strict=True)])
        return frame.assign(**{name: frame[name] + later for name in times}, chunk_ns=chunks)

    long = SyntheticRun(prompts=150, rate=(10,), repeats=1, tokens=(400, 500))
    late = replace_watch(send_lateness_p99_ms=20.0)
    assert check_names(findings_of(late, world=long)) == [("ClientSaturated", INVALID)]
    assert findings_of(Corruptions(records=far_apart, watch=late.watch), world=long) == []


CLOSED_LOOP = SyntheticRun(prompts=240, concurrency=(4,), repeats=1, categories=ONE)
OPEN_LOOP = SyntheticRun(prompts=240, rate=(10,), repeats=1, categories=ONE)
SENT_TIMES = ("connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")


def sent_late(late_ms: Callable[[int, Any], float]) -> Corruptions:
    """Send each request, by its row's number and its row, this much later; its answer keeps its pace."""

    def later(name: str) -> Callable[[int, Any], int]:
        return lambda index, row: row[name] + int(late_ms(index, row) * NS_PER_MS)

    def chunks(index: int, row: Any) -> list[int]:
        return [ns + int(late_ms(index, row) * NS_PER_MS) for ns in row["chunk_ns"]]

    return replace_columns(**{name: later(name) for name in SENT_TIMES}, chunk_ns=chunks)


def saturation(corruptions: Corruptions, world: SyntheticRun) -> list[str]:
    return [each.message for each in findings_of(corruptions, world=world) if each.check == "ClientSaturated"]


@pytest.mark.parametrize("world", [CLOSED_LOOP, OPEN_LOOP], ids=["closed", "open"])
@pytest.mark.parametrize(
    ("late_ms", "expected"),
    [
        (lambda index, _: 0, 0),
        (lambda index, _: 1000 if 100 <= index < 104 else 0, 1),
        (lambda index, _: 600 if index == 100 else 0, 0),
        (lambda index, _: 4, 0),
        (lambda index, _: 6, 1),
        (lambda index, _: 9 if index % 10 == 0 else 0, 0),
        (lambda index, _: 20, 1),
        (lambda index, row: 1000 if 100 <= index < 108 and row["stream_index"] % 2 else 0, 1),
    ],
    ids=[
        "in time",
        "one pause",
        "one request",
        "small",
        "a fifth of TTFT",
        "small now and then",
        "always",
        "one worker of two",
    ],
)
def test_late_sends_are_found_if_they_change_a_latency_figure(
    world: SyntheticRun, late_ms: Callable[[int, Any], float], expected: int
) -> None:
    messages = saturation(sent_late(late_ms), world)
    assert len(messages) == expected
    assert all(
        "the client sent requests late, which adds" in each and "ms to ttft_ms_mean" in each for each in messages
    )


@pytest.mark.parametrize(("requests", "expected"), [(24, []), (400, [("ClientSaturated", WARNING)])])
def test_late_sends_that_only_change_a_percentile_are_a_warning(
    requests: int, expected: list[tuple[str, Severity]]
) -> None:
    """One request in a hundred is late by more than half a TTFT: of 24, one request is all there is of the tail."""
    late = sent_late(lambda index, _: 25 if index % 80 == 10 else 0)
    assert check_names(findings_of(late, world=replace(CLOSED_LOOP, prompts=requests))) == expected


def test_late_sends_are_found_where_answers_are_not_streamed() -> None:
    late = sent_late(lambda index, _: 1000 if 100 <= index < 104 else 0)
    whole = replace_columns(first_token_ns=None, chunk_ns=None, chunk_tokens=None)
    both = Corruptions(records=lambda point, frame: whole.records(point, late.records(point, frame)))
    (message,) = saturation(both, CLOSED_LOOP)
    assert "ms to e2e_ms_p99" in message


def test_waits_that_belong_to_the_latency_are_not_late_sends() -> None:
    """A wait for a slot of an open loop, and the time in which the client applies the chat template to a later turn."""
    waits = sent_late(lambda index, row: 50 if row["turn"] == 0 else 0)
    renders = sent_late(lambda index, row: 50 if row["turn"] else 0)
    slots = replace(OPEN_LOOP, edits={"spec.load.arrival": {"maxInFlight": 8}})
    talks = replace(CLOSED_LOOP, prompts=60, turns=2)
    template = {"appliedBy": "Client", "tokenizer": "org/model"}
    assert len(saturation(waits, OPEN_LOOP)) == len(saturation(renders, talks)) == 1
    assert saturation(waits, slots) == []
    assert saturation(renders, replace(talks, edits={"spec.workloads[0].chatTemplate": template})) == []


def test_imported_requests_without_connect_times_are_not_judged() -> None:
    assert saturation(replace_columns(connect_ns=None), CLOSED_LOOP) == []


def coalesced(share: float, group_size: int = 2) -> Corruptions:
    """Give every group of `group_size` neighbouring chunks the last one's time, in this share of the answers."""

    def stamps(index: int, row: Any) -> list[int]:
        at = list(row["chunk_ns"])
        last = len(at) - 1
        return (
            [at[min(last, i - i % group_size + group_size - 1)] for i in range(len(at))]
            if index % 10 < 10 * share
            else at
        )

    return replace_columns(chunk_ns=stamps)


def in_one_piece(share: float, apart_ns: int = 0) -> Corruptions:
    """Make this share of the answers arrive in one piece, with segments `apart_ns` apart."""

    def stamps(index: int, row: Any) -> list[int]:
        last, count = row["chunk_ns"][-1], len(row["chunk_ns"])
        whole = [last - apart_ns * (count - 1 - number) for number in range(count)]
        return whole if 6 <= index < 6 + 24 * share else row["chunk_ns"]

    return replace_columns(chunk_ns=stamps)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize("apart_ns", [0, 20_000])
def test_answers_that_arrive_in_one_piece_are_found(arm: str, apart_ns: int) -> None:
    findings = findings_of(in_one_piece(0.15, apart_ns), arm)
    assert check_names(findings) == [("ChunksCoalesced", INVALID)]
    assert "at least half of the chunks" in findings[0].message
    assert findings_of(in_one_piece(1.0, 10_000_000), arm) == [], "chunks one step apart are not coalesced"


@pytest.mark.parametrize(
    ("lag_ms", "words"),
    [
        (
            0.4,
            "a proxy holds chunks back, or lacks CPU; the client was not late",
        ),
        (900.0, "the client itself was late (its event loop was 900.00 ms"),
        (None, "the client read late, or the engine or a proxy holds chunks back"),
    ],
)
def test_message_names_the_probable_cause_from_the_clients_lag(lag_ms: float | None, words: str) -> None:
    corruptions = replace(in_one_piece(0.3), watch=replace_watch(loop_lag_p99_ms=lag_ms).watch)
    (message,) = (each.message for each in findings_of(corruptions, "none") if each.check == "ChunksCoalesced")
    assert words in message


def endpoint_findings(frame: pd.DataFrame) -> list[tuple[str, Severity]]:
    """Return findings in the drafter's records of an endpoint whose drafter is not declared."""
    plan, point = undeclared_drafter(WORLD, DialectName.OPENAI)
    return check_names(
        summarise_point(plan, point, tidy([frame], point.hash), ClientHealth(), None, simulated=False).findings
    )


def test_chunks_of_an_endpoint_are_checked_against_its_reported_drafts() -> None:
    point = WORLD.plan.points[1]
    unmodified = WORLD.records(point)
    assert endpoint_findings(unmodified) == []
    without_drafts = unmodified.assign(drafted_tokens=None, draft_steps=None)
    assert endpoint_findings(without_drafts) == [], "a chunk of several tokens may be one step"
    late = coalesced(1.0, group_size=4).records(point, without_drafts)
    assert endpoint_findings(late) == [("ChunksCoalesced", WARNING)]
    assert endpoint_findings(coalesced(1.0, group_size=4).records(point, unmodified)) == [("ChunksCoalesced", INVALID)]


def merge_four_chunks(_: int, row: Any) -> list[int]:
    return [sum(row["chunk_tokens"][at : at + 4]) for at in range(0, len(row["chunk_tokens"]), 4)]


BY_TOKEN = replace_columns(
    chunk_ns=lambda _, row: [
        ns for ns, count in zip(row["chunk_ns"], row["chunk_tokens"], strict=True) for _ in range(count)
    ],
    chunk_tokens=lambda _, row: [1] * sum(row["chunk_tokens"]),
)


UNCOUNTED = replace_columns(chunk_tokens=None)


MERGED = replace_columns(
    chunk_tokens=merge_four_chunks, chunk_ns=lambda _, row: row["chunk_ns"][3::4] or row["chunk_ns"][-1:]
)


SHORT = SyntheticRun(prompts=24, concurrency=(1,), repeats=1, tokens=(8, 8), alpha={"ngram": 1.0}, alpha_spread=0.0)


CHUNKS: dict[str, tuple[Corruptions, str, SyntheticRun, list[tuple[str, Severity]]]] = {
    "none coalesced": (coalesced(0.0), "none", WORLD, []),
    "some coalesced": (coalesced(0.2), "none", WORLD, [("ChunksCoalesced", WARNING)]),
    "most coalesced": (coalesced(0.8), "none", WORLD, [("ChunksCoalesced", INVALID)]),
    "one pair": (
        replace_columns(chunk_ns=lambda _, row: [row["chunk_ns"][1], *row["chunk_ns"][1:]]),
        "none",
        WORLD,
        [],
    ),
    "several steps": (coalesced(1.0, group_size=4), "ngram", WORLD, [("ChunksCoalesced", INVALID)]),
    "several steps, uncounted": (
        combine(coalesced(1.0, group_size=4), UNCOUNTED),
        "ngram",
        WORLD,
        [("ChunksCoalesced", INVALID)],
    ),
    "one step": (BY_TOKEN, "ngram", WORLD, []),
    "one step, uncounted": (combine(BY_TOKEN, UNCOUNTED), "ngram", WORLD, []),
    "half of a short answer in one step": (BY_TOKEN, "ngram", SHORT, []),
    "merged": (MERGED, "ngram", WORLD, [("MultiStepChunks", WARNING)]),
    "merged, of the baseline": (MERGED, "none", WORLD, [("MultiStepChunks", WARNING)]),
    "merged, uncounted": (
        replace_columns(chunk_tokens=None, chunk_ns=lambda _, row: row["chunk_ns"][::8]),
        "ngram",
        WORLD,
        [("MultiStepChunks", WARNING)],
    ),
    "merged once": (
        replace_columns(
            chunk_tokens=lambda index, row: [2, *row["chunk_tokens"][2:]] if index == 9 else row["chunk_tokens"]
        ),
        "none",
        WORLD,
        [],
    ),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_coalesced_and_merged_chunks_are_found(case: str) -> None:
    corruptions, arm, world, expected = CHUNKS[case]
    assert check_names(findings_of(corruptions, arm, world)) == expected


"""Eight tokens in three steps, so half of an answer may be one step."""
"""llama.cpp streams one chunk per token; those of one step leave the engine together."""
"""llama.cpp streams one chunk per token; those of one step leave the engine together."""
