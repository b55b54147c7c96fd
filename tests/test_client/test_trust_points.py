"""Checks of a single point: problems and impossible records are found, and valid variants are not reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_api.spec.engine import Engine
from specbench_client.documents.finding import Severity
from specbench_client.documents.record import RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas
from specbench_testing.corrupted_records import (
    TALKS,
    WITHOUT_COUNTERS,
    WORLD,
    check_names,
    combine,
    findings_of,
    replace_columns,
    replace_counters,
    replace_watch,
    without_counters,
)
from specbench_testing.synthetic_records import Corruptions, SyntheticRun

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO
LONG = replace(WORLD, tokens=(400, 500))
SHORT = replace(WORLD, tokens=(3, 6))
MANY = SyntheticRun(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))
AS_SERVED = replace(WORLD, edits={"spec.promptCache": "AsServed"})
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


FOUND: dict[str, tuple[Corruptions, SyntheticRun, list[tuple[str, Severity]]]] = {
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
        [("NeverDrafted", WARNING)],
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
    "one failure of hundreds": (fail(_20="reset"), MANY, [("RequestsFailed", INFO)]),
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
VALID: dict[str, tuple[Corruptions, SyntheticRun]] = {
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


@pytest.mark.parametrize("case", FOUND)
def test_problem_is_found(case: str) -> None:
    corruptions, world, expected = FOUND[case]
    assert check_names(findings_of(corruptions, world=world)) == expected


@pytest.mark.parametrize("case", VALID)
def test_valid_or_missing_data_is_not_reported(case: str) -> None:
    corruptions, world = VALID[case]
    assert findings_of(corruptions, world=world) == []


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
