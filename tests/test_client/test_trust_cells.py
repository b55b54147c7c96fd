"""Checks that compare an arm with its paired baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.analysis.summary.headline import WORDS_MAX
from specbench_client.analysis.summary.run import evaluate_cells
from specbench_client.documents.finding import Finding, Severity
from specbench_testing.corrupted_records import close_gaps, combine, replace_watch
from specbench_testing.present import present
from specbench_testing.synthetic_records import (
    ONE,
    Corruptions,
    SyntheticRun,
    point_of,
    record_table,
    run_of_world,
    sha,
    tidy_frames,
)

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=24, categories=ONE)
INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


def found(corruptions: Corruptions, world: SyntheticRun = WORLD) -> list[Finding]:
    return run_of_world(world, corruptions).findings


def names(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.check, finding.severity) for finding in findings]


def truncate_answers(share: float, arm: str = "ngram", every: int = 1) -> Corruptions:
    """Truncate answers of an arm with finish_reason `stop`, keeping them consistent."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return close_gaps(frame.apply(shorten, axis=1)) if point.arm == arm else frame

    def shorten(row: Any) -> Any:
        if int(str(row["prompt_id"])[1:]) % every:
            return row
        steps = max(1, int(row["steps"] * share))
        accepted = row["step_accepted"][:steps] if row["step_accepted"] is not None else None
        chunks = row["chunk_tokens"][: steps + 1]
        changes = {"output_tokens": sum(chunks), "output_tokens_client": sum(chunks), "steps": steps}
        changes |= {"chunk_tokens": chunks, "chunk_ns": row["chunk_ns"][: steps + 1], "step_accepted": accepted}
        changes |= {"last_token_ns": row["chunk_ns"][steps], "finish_reason": "stop", "output_sha256": None}
        return row.copy().where(~row.index.isin(list(changes)), pd.Series(changes, dtype=object))

    return Corruptions(records=edit, counters=lambda *_: None)


def diverge(share: float, *, arms: tuple[str, ...] = ("ngram",), later_repeats_only: bool = False) -> Corruptions:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm not in arms or (later_repeats_only and point.repeat == 0):
            return frame
        chosen = [int(prompt[1:]) < share * WORLD.prompts for prompt in frame["prompt_id"]]
        repeat = point.repeat if later_repeats_only else ""
        other = [sha(f"{point.arm}{repeat}{prompt}") for prompt in frame["prompt_id"]]
        texts = [
            new if is_chosen else old for new, old, is_chosen in zip(other, frame["output_sha256"], chosen, strict=True)
        ]
        return frame.assign(output_sha256=texts)

    return Corruptions(records=edit)


def test_truncation_invalidates_every_point_of_its_cell() -> None:
    summary = run_of_world(WORLD, truncate_answers(0.5))
    assert summary.points_invalid == 3
    assert "unknown at" in summary.headline


TIMES = ["intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"]


def slowed(every_other: float = 1.0, /, **factors: Sequence[float]) -> Corruptions:
    """Multiply all times of an arm's points by a factor for each repeat; in the second also those of every other."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        uneven = every_other ** (np.arange(len(frame)) % 2 * (point.repeat == 1))
        scales = factors.get(point.arm, (1.0,) * 4)[point.repeat] * uneven
        times = {name: (frame[name].astype(float) * scales).astype(int) for name in TIMES}
        chunks = [[int(at * scale) for at in each] for each, scale in zip(frame["chunk_ns"], scales, strict=True)]
        return frame.assign(**times, chunk_ns=pd.Series(chunks, index=frame.index, dtype=object))

    return Corruptions(records=edit)


@pytest.mark.parametrize(
    ("order", "temperature", "severity"),
    [("Sequential", 0.0, WARNING), ("Sequential", 0.8, INFO), ("Interleaved", 0.0, INFO)],
    ids=["unpaired", "sampled repeats differ in their texts on both sides", "the interval includes it"],
)
def test_a_speedup_within_the_baselines_own_spread(order: str, temperature: float, severity: Severity) -> None:
    """All points of a repeat are equally slow or fast."""
    world = SyntheticRun(prompts=40, categories=ONE, alpha={"ngram": 0.25}, step_ms={"ngram": 10.5}, alpha_spread=0.02)
    world = replace(world, temperature=temperature, edits={"spec.load.order": order})
    shaky = slowed(ngram=(0.85, 1.0, 1.2), none=(0.85, 1.0, 1.2))
    of_order = [("NotInterleaved", INFO)] * (order == "Sequential")
    assert sorted(names(found(shaky, world))) == [("NoisyRepeats", severity), *of_order]
    assert names(found(Corruptions(), world)) == of_order


def shift(frame: pd.DataFrame, by_ms: int, names: list[str]) -> pd.DataFrame:
    """Add a time to some of the times, and to those of the chunks."""
    chunks = [[at + by_ms * 1_000_000 for at in each] for each in frame["chunk_ns"]]
    return frame.assign(
        **{name: frame[name] + by_ms * 1_000_000 for name in names},
        chunk_ns=pd.Series(chunks, index=frame.index, dtype=object),
    )


HALVED = (1.0, 1.0, 2.0)
LAST_OF_FOUR = (21.6 / 20, 20.3 / 20, 20.4 / 20, 42.1 / 20)
FOUR = SyntheticRun(prompts=20, categories=ONE, repeats=4, alpha={"ngram": 0.9})
"""With `LAST_OF_FOUR`: a token took 21.6, 20.3, 20.4 and 42.1 ms in a real run whose machine became slow."""
EIGHT = SyntheticRun(prompts=8, categories=ONE, alpha={"ngram": 0.0}, alpha_spread=0.0)


def noisy(corruptions: Corruptions, world: SyntheticRun) -> list[Finding]:
    return [finding for finding in found(corruptions, world) if finding.check == "NoisyRepeats"]


@pytest.mark.parametrize(
    ("factors", "world", "expected"),
    [
        ({"ngram": HALVED}, WORLD, {WARNING}),
        ({"none": HALVED}, WORLD, {WARNING}),
        ({"ngram": HALVED, "none": HALVED}, replace(WORLD, alpha={"ngram": 0.9}), {INFO}),
        ({"ngram": (1.0, 1.0, 1.6), "none": (1.3, 1.0, 1.0)}, WORLD, {WARNING}),
        ({"ngram": (1.0, 1.0, 1.45)}, WORLD, set()),
        ({"ngram": HALVED}, replace(WORLD, prompts=7), set()),
        ({"ngram": HALVED}, EIGHT, {WARNING}),
        ({"none": LAST_OF_FOUR}, FOUR, {WARNING}),
        ({"none": LAST_OF_FOUR, "ngram": LAST_OF_FOUR}, FOUR, {INFO}),
        ({"ngram": HALVED}, replace(WORLD, concurrency=(), rate=(2.0,)), {INFO}),
        ({"ngram": HALVED}, replace(WORLD, edits={"spec.baseline": "Skip"}), {WARNING}),
    ],
    ids=[
        "arm",
        "baseline",
        "both",
        "opposite",
        "less",
        "few requests",
        "enough",
        "real",
        "real, both",
        "open loop",
        "no baseline",
    ],
)
def test_repeats_at_different_speeds_are_a_doubt_unless_both_arms_share_them(
    factors: dict[str, Sequence[float]], world: SyntheticRun, expected: set[Severity]
) -> None:
    """Where both share them, there is nothing to stop."""
    findings = noisy(combine(slowed(**factors), replace_watch(load_per_core=1.5)), world)
    assert {finding.severity for finding in findings} == expected
    assert all(("machine was busy" in each.message) == (each.severity is WARNING) for each in findings)
    assert {finding.arm for finding in findings} <= {"ngram"}


@pytest.mark.parametrize(("every_other", "expected"), [(2.55, []), (2.37, [WARNING])])
def test_difference_that_the_requests_of_any_repeat_explain_is_chance(
    every_other: float, expected: list[Severity]
) -> None:
    """Those of the fastest and of the slowest repeat are alike, as tossed coins may be: 4.8 and 5.2 standard errors."""
    assert [each.severity for each in noisy(slowed(every_other, ngram=HALVED), EIGHT)] == expected


def test_slower_prefill_in_one_repeat_is_no_slower_machine() -> None:
    """With prefix caching the first repeat computes the prompts, and later ones do not."""
    cold = Corruptions(records=lambda point, frame: shift(frame, 9000 * (point.repeat == 0), TIMES[3:]))
    assert noisy(cold, WORLD) == []


def cold(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    """In the first repeat prompts take 21 times as long to compute, and nothing is decoded meanwhile."""
    if point.repeat > 0 or point.arm == "none":
        return frame
    sent, first = (frame[name].to_numpy(float)[:, None] for name in ("sent_ns", "first_token_ns"))

    def late(times: Any) -> Any:
        moments = np.asarray(times, dtype=float)
        return (moments + 20 * np.clip(moments - sent, 0, first - sent).sum(axis=0)).astype(int).tolist()

    chunks: Any = pd.Series([late(each) for each in frame["chunk_ns"]], index=frame.index, dtype=object)
    return frame.assign(**{name: late(frame[name]) for name in TIMES}, chunk_ns=chunks)


STREAMS = replace(WORLD, prompts=40, concurrency=(8,), edits={"spec.baseline": "Skip"})


def cached(*shares: float | None) -> Corruptions:
    """Let each repeat have read this share of its prompts from a cache; None: the engine does not report it."""

    def records(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        share = shares[point.repeat]
        return frame.assign(cached_tokens=None if share is None else frame["input_tokens"] * share)

    return Corruptions(records=records)


@pytest.mark.parametrize("shares", [(None, None, None), (0.0, 0.95, 0.95), (0.0, None, None), (0.4, 0.51, 0.51)])
@pytest.mark.parametrize(("last", "factors"), [(1.0, []), (1.4, []), (2.0, [2.0])])
def test_prefills_that_delay_the_answers_of_other_streams_are_no_slower_machine(
    last: float, factors: list[float], shares: tuple[float | None, ...]
) -> None:
    """With a prefix cache the first repeat computes the prompts. The last one may be on a slower machine."""
    slow = combine(slowed(ngram=(1.0, 1.0, last)), Corruptions(records=cold))
    assert [each.value for each in noisy(combine(slow, cached(*shares)), STREAMS)] == pytest.approx(factors, rel=0.05)


@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.0), (0.42, 0.51, 0.51)])
def test_repeats_that_used_the_cache_alike_are_compared_with_the_time_in_which_others_waited(
    shares: tuple[float | None, ...],
) -> None:
    """Where computed prompts delay no answers, longer waits for them hide nothing."""
    (finding,) = noisy(combine(Corruptions(records=cold), cached(*shares)), STREAMS)
    assert finding.value is not None
    assert finding.value > 2


def test_repeats_without_decode_times_are_not_compared() -> None:
    """Answers that are not streamed have a single arrival time."""
    at_once = Corruptions(records=lambda _, frame: frame.assign(first_token_ns=frame["last_token_ns"]))
    assert noisy(combine(slowed(ngram=HALVED), at_once), WORLD) == []


@pytest.mark.parametrize("measured", [1, 2])
def test_arms_are_alike_only_in_repeats_that_both_have(measured: int) -> None:
    """The run was interrupted before the baseline's last repeats: nothing states that it became slow too."""
    slow = slowed(ngram=HALVED, none=HALVED)
    lost = replace(slow, measured=lambda point: point.arm == "ngram" or point.repeat < measured)
    assert [finding.severity for finding in noisy(lost, WORLD)] == [WARNING]


@pytest.mark.parametrize("late_repeats", [(), (1,), (0, 1, 2)])
def test_first_tokens_before_the_baselines_are_found_also_if_the_client_sends_late(
    late_repeats: tuple[int, ...],
) -> None:
    """The baseline's answers begin 20 ms later; in some repeats the client sends the arm's requests 6 ms late."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm == "none":
            return shift(frame, 20, TIMES[3:])
        return shift(frame, 6, TIMES[1:]) if point.repeat in late_repeats else frame

    world = SyntheticRun(prompts=40, categories=ONE, concurrency=(1,))
    checks = [each.check for each in found(Corruptions(records=edit), world)]
    assert checks.count("ClientSaturated") == len(late_repeats)
    assert "TtftBelowBaseline" in checks


@pytest.mark.parametrize(("loads", "named"), [((0.2, 1.0, None), ""), ((0.2, 1.3, None), "1.3 per core")])
def test_busy_machine_is_named_as_the_cause_of_late_first_tokens(loads: Sequence[float | None], named: str) -> None:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return shift(frame, 20, TIMES[3:]) if point.arm == "none" else frame

    busy = Corruptions(
        records=edit, watch=lambda point, health: health.model_copy(update={"load_per_core": loads[point.repeat]})
    )
    world = SyntheticRun(prompts=40, categories=ONE, concurrency=(1,))
    (message,) = (each.message for each in found(busy, world) if each.check == "TtftBelowBaseline")
    assert ("machine was busy" in message, named in message) == (bool(named), True)


@pytest.mark.parametrize(
    ("factors", "repeats", "expected"),
    [
        ((1.0, 1.0, 2.0), 3, [WARNING]),
        ((1.0, 1.0, 1.55), 3, [WARNING]),
        ((1.0, 1.0, 1.45), 3, []),
        ((1.0, 2.0), 2, []),  # TooFewRepeats reports those
        ((0.1, 0.12, 0.2), 3, [WARNING]),  # faster, but by how much?
        ((0.2, 0.2, 0.21), 3, []),
    ],
    ids=["noise", "just too wide", "just not", "few repeats", "excludes 1", "an answer"],
)
def test_interval_without_a_figure_is_a_doubt_with_any_number_of_requests(
    factors: Sequence[float], repeats: int, expected: list[Severity]
) -> None:
    busy = combine(slowed(ngram=factors), replace_watch(load_per_core=1.5))
    summary = run_of_world(replace(WORLD, prompts=7, repeats=repeats), busy)
    wide = [each for each in summary.findings if each.check == "IntervalTooWide"]
    assert [each.severity for each in wide] == expected
    assert ["machine was busy" in each.message for each in wide] == [True] * len(expected)
    assert all(present(each.value) > present(each.threshold) for each in wide)
    assert summary.headline.startswith("Not trustworthy") or not expected
    (speedup,) = (present(cell.speedup) for cell in summary.cells if cell.arm == "ngram")
    contains_one = speedup.interval is None or speedup.interval.low <= 1
    assert ("interval too wide" in summary.headline) == (bool(expected) and contains_one)
    assert ("ngram at concurrency" in summary.headline) == (not contains_one)
    assert "Use" not in summary.headline or not expected, "what is not trustworthy is no advice"
    assert len(summary.headline.split()) <= WORDS_MAX


def test_comparison_without_any_pair_is_a_warning() -> None:
    def others(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(prompt_id="x" + frame["prompt_id"]) if point.arm == "none" else frame

    summary = run_of_world(WORLD, Corruptions(records=others))
    assert names(summary.findings) == [("UnpairedRequests", WARNING)]
    assert "unknown at" in summary.headline


def test_requests_of_repeats_that_the_baseline_lacks_are_not_unpaired() -> None:
    """After an interruption: MissingPoints names them, and fewer or more requests would not help."""
    lost = Corruptions(measured=lambda point: (point.arm, point.repeat) != ("none", 2))
    assert {each.check for each in found(lost)} == {"MissingPoints"}


@pytest.mark.parametrize(("tokens", "evaluated"), [(31, True), (30, False)])
def test_steps_are_compared_from_thirty_in_each_repeat(tokens: int, evaluated: bool) -> None:
    """The first token takes no decode step."""
    small = SyntheticRun(
        prompts=1, tokens=(tokens, tokens), step_ms={"none": 20.0, "ngram": 12.0}, alpha={"ngram": 0.0}
    )
    assert ("StepsFasterThanBaseline" in {each.check for each in found(Corruptions(), small)}) == evaluated


def test_steps_of_a_baseline_that_drafts_prove_no_slower_machine() -> None:
    """It does more work in a step than the arm: the servers were swapped, or both draft."""
    swapped = SyntheticRun(prompts=40, step_ms={"none": 20.0, "ngram": 12.0})

    def drafting(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(accepted_tokens=frame["steps"]) if point.arm == "none" else frame

    assert "StepsFasterThanBaseline" in {each.check for each in found(Corruptions(), swapped)}
    uncounted = Corruptions(records=drafting, counters=lambda *_: None)
    assert "StepsFasterThanBaseline" not in {each.check for each in found(uncounted, swapped)}


def count_extra_tokens(tokens: int) -> Corruptions:
    """Make usage and chunks of the drafter's answers count this many extra tokens for the same text."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        counts = {name: frame[name] + tokens for name in ("output_tokens", "output_tokens_client")}
        return frame.assign(**counts) if point.arm == "ngram" else frame

    return Corruptions(records=edit, counters=lambda *_: None)


def test_extra_token_for_the_same_text_is_found_if_it_changes_the_speedup() -> None:
    findings = found(count_extra_tokens(1), SyntheticRun(categories=ONE, tokens=(15, 25)))
    assert names(findings) == [("SameTextDifferentTokenCount", INVALID), ("ShortAnswers", INFO)]
    assert findings[0].value == pytest.approx(1 / 20, rel=0.5)
    assert "exactly the text" in findings[0].message


SERVED = replace(WORLD, edits={"spec.promptCache": "AsServed"})
RUNNING = {
    "spec.engine": {"kind": "external", "dialect": "vllm", "endpoints": [{"name": "none", "url": "http://a:1"}]},
    "spec.drafters": [],
}


def cache_from_repeat(first: int, share: float = 0.8) -> Corruptions:
    """The engine reads this share of each prompt from its cache, from this repeat on."""

    def edit(point: Point, rows: pd.DataFrame) -> pd.DataFrame:
        cached = (rows["input_tokens"] * share).astype(int) if point.repeat >= first else 0
        return rows.assign(cached_tokens=cached)

    return Corruptions(records=edit)


@pytest.mark.parametrize("world", [SERVED, replace(WORLD, edits=RUNNING, repeats=1)])
def test_whole_prompts_in_the_cache_were_sent_by_another_load_or_run(world: SyntheticRun) -> None:
    """A cache that was not emptied, or a server that got the same prompts from the same command before."""
    again = [each for each in found(cache_from_repeat(0, 0.99), world) if each.check == "PromptsSentAgain"]
    assert {each.severity for each in again} == {WARNING}
    assert [each.value for each in again] == pytest.approx([0.99] * len(again), abs=0.01)
    assert all("begin like an earlier prompt" in each.message for each in again if each.load)


@pytest.mark.parametrize("system", [{"tokens": 1000}, {"text": "Answer briefly."}])
def test_short_questions_after_a_cached_system_prompt_were_not_sent_again(system: dict[str, Any]) -> None:
    """llama.cpp had 1,008 of 1,020 tokens in its cache: all but the question, which is as short as a block."""

    def edit(_: Point, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(input_tokens=np.arange(len(rows)) % 5 + 1018, cached_tokens=1008)

    world = replace(WORLD, edits={"spec.promptCache": "AsServed", "spec.workloads[0].systemPrompt": system})
    assert "PromptsSentAgain" not in dict(names(found(Corruptions(records=edit), world)))


def test_prompts_that_a_running_server_gets_again_in_later_repeats_are_a_warning() -> None:
    world = replace(WORLD, edits=RUNNING)
    again = [finding for finding in found(cache_from_repeat(1), world) if finding.check == "PromptsSentAgain"]
    assert [(each.severity, each.arm) for each in again] == [(WARNING, "none")]
    assert again[0].value == pytest.approx(0.8 * 2 / 3, abs=0.02), "two of three repeats"
    assert "48 of 72 prompts are repeats" in again[0].message
    assert "begin like" not in again[0].message
    assert "PromptsSentAgain" not in dict(names(found(cache_from_repeat(3), world)))


def test_a_server_that_is_restarted_before_each_repeat_may_get_its_prompts_again() -> None:
    """Its cache is empty then. Hits on whole prompts show that it was not, or that another load sent them."""
    world = replace(WORLD, edits=RUNNING, restarts=True)
    assert "PromptsSentAgain" not in dict(names(found(cache_from_repeat(1), world)))
    assert ("PromptsSentAgain", WARNING) in names(found(cache_from_repeat(1, 0.99), world))


SAMPLED = SyntheticRun(prompts=24, categories=ONE, tokens=(100, 160), temperature=0.8)


ONCE = SyntheticRun(prompts=24, categories=ONE, repeats=1)


def truncate_both_ways() -> Corruptions:
    """Truncate every second answer of the arm, and every third one of the baseline."""
    arm, baseline = truncate_answers(0.5, arm="ngram", every=2), truncate_answers(0.5, arm="none", every=3)
    return combine(arm, baseline)


def replay(
    share: float, *, time: float = 0.1, tokens: int = 16, chunks: int = 1, first: int = 0, text: str | None = None
) -> Corruptions:
    """Later repeats of the arm have some of their answers in few chunks after a part of the time.

    `first`: the chunks of these answers in the first repeat; 0: as many as of the others.
    """

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm == "ngram" and point.repeat:
            frame = frame.apply(send, axis=1, time=time, chunks=chunks)
        elif point.arm == "ngram" and first:
            frame = frame.apply(send, axis=1, time=1.0, chunks=first)
        return close_gaps(frame)

    def send(row: Any, time: float, chunks: int) -> Any:
        if int(str(row["prompt_id"])[1:]) >= share * WORLD.prompts:
            return row
        at = row["sent_ns"] + int(time * (row["last_token_ns"] - row["sent_ns"]))
        changes = {"chunk_ns": [at] * chunks, "chunk_tokens": None, "first_token_ns": at, "last_token_ns": at}
        changes |= {"output_tokens": tokens, "output_sha256": text or row["output_sha256"], "steps": None}
        return row.copy().where(~row.index.isin(list(changes)), pd.Series(changes, dtype=object))

    return Corruptions(records=edit, counters=lambda *_: None)


@pytest.mark.parametrize(
    ("corruptions", "is_found"),
    [
        (replay(1.0), True),
        (replay(0.03), True),  # 2 of 72 answers
        (replay(1.0, time=0.4), True),
        (replay(1.0, time=0.8), False),
        (replay(1.0, tokens=15), False),
        (replay(1.0, chunks=2), False),
        (replay(1.0, first=8), True),
        (replay(1.0, first=7), False),
        (replay(1.0, text=sha("another")), False),
        (replay(0.0), False),
    ],
)
def test_answers_that_a_cache_sends_at_once_after_they_were_streamed_are_invalid(
    corruptions: Corruptions, is_found: bool
) -> None:
    findings = [each for each in found(corruptions) if each.check == "AnswersReplayed"]
    assert [(each.severity, each.arm) for each in findings] == [(INVALID, "ngram")] * is_found


def fewer_baseline_prompts(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[~frame["prompt_id"].isin([f"p{index}" for index in range(6)])] if point.arm == "none" else frame


CASES: dict[str, tuple[Corruptions, SyntheticRun, list[tuple[str, Severity]]]] = {
    "half of each answer": (truncate_answers(0.5), WORLD, [("OutputLengthsDiffer", INVALID), ("ShortAnswers", INFO)]),
    "half of every third answer": (truncate_answers(0.5, every=3), WORLD, [("OutputLengthsDiffer", INVALID)]),
    "half of the baseline's answers": (
        truncate_answers(0.5, arm="none"),
        WORLD,
        [("OutputLengthsDiffer", INVALID), ("ShortAnswers", INFO)],
    ),
    "few prompts that agree": (
        truncate_answers(0.5),
        SyntheticRun(prompts=5, categories=ONE),
        [("OutputLengthsDiffer", INVALID), ("TooFewPrompts", INFO), ("ShortAnswers", INFO)],
    ),
    "lengths that differ both ways": (truncate_both_ways(), WORLD, [("ShortAnswers", INFO)]),
    "sampled lengths": (truncate_answers(0.5), SAMPLED, []),
    "sampled texts": (diverge(1.0, later_repeats_only=True), SAMPLED, []),
    "other texts": (diverge(1.0), WORLD, [("GreedyDivergence", WARNING)]),
    "some other texts": (diverge(0.1), WORLD, [("GreedyDivergence", INFO)]),
    "the same texts": (diverge(0.0), WORLD, []),
    "the baseline's own divergence": (diverge(0.5, arms=("ngram", "none"), later_repeats_only=True), WORLD, []),
    "other texts, measured once": (diverge(1.0), ONCE, [("GreedyDivergence", WARNING), ("TooFewRepeats", WARNING)]),
    "no texts": (Corruptions(records=lambda _, frame: frame.assign(output_sha256=None)), WORLD, []),
    "unpaired requests": (
        Corruptions(records=fewer_baseline_prompts, counters=lambda *_: None),
        WORLD,
        [("TooFewPrompts", INFO), ("UnpairedRequests", INFO)],
    ),
    "an extra token of long answers": (count_extra_tokens(1), SyntheticRun(categories=ONE, tokens=(400, 500)), []),
    "a cache that is emptied before each point": (cache_from_repeat(0), SERVED, []),
}


@pytest.mark.parametrize("case", CASES)
def test_checks_of_a_cell(case: str) -> None:
    corruptions, world, expected = CASES[case]
    assert sorted(names(found(corruptions, world))) == sorted(expected)


def test_messages_contain_share_and_side() -> None:
    finding = found(truncate_answers(0.5))[0]
    assert (finding.arm, finding.load, finding.point) == ("ngram", "1", None)
    assert "24 of 24 prompts have an answer more than 10% shorter" in finding.message
    assert "the baseline's are cut" in found(truncate_answers(0.5, arm="none"))[0].message
    (finding,) = found(diverge(1.0))
    assert (finding.value, "100% of the greedy answers differ" in finding.message) == (1.0, True)


def test_fillers_of_later_repeats_are_not_sent_again() -> None:
    """They have the same identifiers in each repeat, and other texts; all begin with the system prompt."""

    def edit(point: Point, rows: pd.DataFrame) -> pd.DataFrame:
        prompts = [f"{point.repeat} {row}" if row % 3 else "filler-1" for row in range(len(rows))]
        return rows.assign(prompt_id=prompts, input_tokens=1000, cached_tokens=400)

    again = names(found(Corruptions(records=edit), replace(WORLD, edits=RUNNING)))
    assert "PromptsSentAgain" not in dict(again)


def stall(*arms: str, seconds: float = 30.0, after: int = 3, together: bool = False, repeat: int = 1) -> Corruptions:
    """Nothing of the fifth prompt's answer arrives for a time after some chunks; `together`: then all the rest does."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm not in arms or point.repeat != repeat:
            return frame
        return close_gaps(frame.apply(hold, axis=1))

    def hold(row: Any) -> Any:
        if row["prompt_id"] != "p5":
            return row
        chunks = [at + int(seconds * 1e9) * (index >= after) for index, at in enumerate(row["chunk_ns"])]
        chunks[after:] = [chunks[-1]] * len(chunks[after:]) if together else chunks[after:]
        changes = {"chunk_ns": chunks, "first_token_ns": chunks[0], "last_token_ns": chunks[-1]}
        return row.copy().where(~row.index.isin(list(changes)), pd.Series(changes, dtype=object))

    return Corruptions(records=edit)


def stalls(corruptions: Corruptions, world: SyntheticRun = WORLD) -> list[Finding]:
    return [finding for finding in found(corruptions, world) if finding.check == "RequestsStalled"]


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("arm", ["ngram", "none"])
def test_stall_is_named_with_its_request_and_the_speedup_without_it(arm: str, after: int) -> None:
    honest = next(cell for cell in run_of_world(WORLD).cells if cell.arm == "ngram").speedup
    (of_arm,) = stalls(stall(arm, after=after))
    assert (of_arm.arm, of_arm.severity) == ("ngram", WARNING)
    assert of_arm.value == pytest.approx(30, abs=0.1)
    point = next(each for each in WORLD.plan.points if each.arm == arm and each.repeat == 1)
    frame = WORLD.records(point)
    request = frame[frame["prompt_id"] == "p5"]["request_id"].iloc[0]
    assert all(part in of_arm.message for part in (f"server of {arm},", "repeat 2 at", request, "for 30."))
    without = of_arm.message.partition("without them is ")[2]
    assert honest is not None
    assert float(without.partition("x")[0]) == pytest.approx(honest.value, abs=0.02)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_silence_begins_with_the_last_chunk_before_it(after: int) -> None:
    point = next(each for each in WORLD.plan.points if each.arm == "ngram" and each.repeat == 1)
    frame = stall("ngram", after=after).records(point, WORLD.records(point))
    request = frame[frame["prompt_id"] == "p5"].iloc[0]
    rows = tidy_frames([frame], point.hash)
    held = rows.among(rows.known("request_id"))
    assert held.array("silent_from_ns").tolist() == [[request["sent_ns"], *request["chunk_ns"]][after]]


@pytest.mark.parametrize("arm", ["ngram", "none"])
def test_stall_has_the_time_on_the_clock_at_which_it_began(arm: str) -> None:
    """As in the logs of the server: the start of its point and the last chunk before it."""
    corrupted = stall(arm)
    measured = {point.hash: point_of(WORLD, point, corrupted) for point in WORLD.plan.points}
    start = datetime(2026, 1, 2, 23, 59, 0, tzinfo=UTC)
    spans = {each: (start + timedelta(hours=number),) * 2 for number, each in enumerate(measured)}
    summaries = [summary for summary, _ in measured.values()]
    records = {each: [record_table(frame)] for each, (_, frame) in measured.items()}
    judged = evaluate_cells(WORLD.plan, summaries, records, spans=spans)
    (of_arm,) = (each for cell in judged for each in cell.findings if each.check == "RequestsStalled")
    point = next(each for each in WORLD.plan.points if (each.arm, each.repeat) == (arm, 1))
    frame = WORLD.records(point)
    begun_ns = frame[frame["prompt_id"] == "p5"]["chunk_ns"].iloc[0][2]
    clock = spans[point.hash][0] + timedelta(microseconds=begun_ns / 1000)
    assert f"at {clock:%Y-%m-%d %H:%M:%S}+0000 in repeat 2" in of_arm.message


def test_time_that_both_sides_need_is_no_stall() -> None:
    assert stalls(stall("ngram", "none", after=0)) == []


def test_short_stall_is_named_and_leaves_the_speedup_standing() -> None:
    long = replace(WORLD, tokens=(3000, 4000))
    assert [each.severity for each in stalls(stall("ngram", seconds=10.5), long)] == [INFO]
    assert stalls(stall("ngram", seconds=9.5), long) == []


BUSY = replace(WORLD, concurrency=(8,), prompts=48)


def stop(*moments: float, arm: str = "ngram", repeats: Sequence[int] = (1,), seconds: float = 30.0) -> Corruptions:
    """The server stops for a time in these repeats, at moments that are shares of the point's duration."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm != arm or point.repeat not in repeats:
            return frame
        for moment in np.array(sorted(moments, reverse=True)) * frame["last_token_ns"].max():
            for name in (
                "intended_ns",
                "connect_ns",
                "sent_ns",
                "first_byte_ns",
                "first_token_ns",
                "last_token_ns",
                "ended_ns",
            ):
                frame[name] = frame[name] + int(seconds * 1e9) * (frame[name] > moment)
            late = frame["chunk_ns"].map(
                lambda at, moment=moment: [ns + int(seconds * 1e9) * (ns > moment) for ns in at]
            )
            frame = frame.assign(chunk_ns=late)
        return frame

    return Corruptions(records=edit)


@pytest.mark.parametrize("arm", ["ngram", "none"])
@pytest.mark.parametrize("seconds", [12.0, 30.0])
def test_stop_of_a_busy_server_is_one_stop_of_all_its_requests(arm: str, seconds: float) -> None:
    (of_arm,) = stalls(stop(0.5, arm=arm, seconds=seconds), BUSY)
    assert of_arm.severity is WARNING
    assert of_arm.value == pytest.approx(seconds, abs=0.1)
    assert all(part in of_arm.message for part in (f"server of {arm},", "repeat 2 at", "and 7 more requests"))


@pytest.mark.parametrize("arm", ["ngram", "none"])
@pytest.mark.parametrize(("moments", "repeats"), [((0.5,), (0, 1)), ((0.3, 0.6), (1,)), ((0.2, 0.5, 0.8), (0, 1, 2))])
@pytest.mark.parametrize("world", [WORLD, BUSY])
def test_stops_that_recur_are_how_the_server_works(
    world: SyntheticRun, moments: Sequence[float], repeats: Sequence[int], arm: str
) -> None:
    assert stalls(stop(*moments, arm=arm, repeats=repeats), world) == []
    alone = replace(world, drafters=())
    assert stalls(stop(*moments, arm="none", repeats=repeats), alone) == []


def test_stall_without_a_comparison_is_named() -> None:
    alone = replace(WORLD, drafters=())
    assert [(each.arm, each.severity) for each in stalls(stall("none"), alone)] == [("none", INFO)]


def test_chunks_that_wait_for_the_end_of_a_stall_are_the_stalls() -> None:
    held = found(stall("ngram", after=1, together=True), replace(WORLD, prompts=12))
    assert [each.severity for each in held if each.check == "RequestsStalled"] == [WARNING]
    assert "ChunksCoalesced" not in dict(names(held))
