"""Checks of a single point: each problem added to valid records is found, and a valid variant is not reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import ClientHealth, CounterDeltas
from specbench_api.plan.plan import Point
from specbench_testing.corrupted_records import (
    TALKS,
    WORLD,
    check_names,
    findings_of,
    replace_columns,
    replace_counters,
    replace_watch,
    without_counters,
)
from specbench_testing.synthetic_records import Corruptions, SyntheticRun

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


def test_finding_names_its_point_and_contains_its_value() -> None:
    point = WORLD.plan.points[1]
    finding = findings_of(replace_watch(cpu_share=0.95))[0]
    assert (finding.arm, finding.workload, finding.load, finding.point) == ("ngram", "chat", "3", point.hash)
    assert (finding.value, finding.threshold) == (0.95, 0.8)


def test_drafter_that_never_drafts_is_found() -> None:
    idle = {"draft_steps": 0, "drafted_tokens": 0, "accepted_tokens": 0}
    nothing = replace_columns(**idle, step_accepted=None, steps=lambda _, row: row["output_tokens"] - 1)
    corruptions = Corruptions(records=nothing.records, counters=lambda _, counted: counted.model_copy(update=idle))
    assert check_names(findings_of(corruptions)) == [("NeverDrafted", INVALID)]


@pytest.mark.parametrize("counted", ["drafted_tokens", "draft_steps"])
def test_baseline_that_drafts_is_found(counted: str) -> None:
    """For example a target in speculators format, with which vLLM starts the drafter that it names."""
    corruptions = Corruptions(counters=lambda _, counters: counters.model_copy(update={counted: 7}))
    found = findings_of(corruptions, arm="none")
    assert ("BaselineDrafted", INVALID) in check_names(found)
    (finding,) = [each for each in found if each.check == "BaselineDrafted"]
    assert (finding.arm, finding.value, finding.threshold) == ("none", 7, 0)


def test_drafter_that_never_drafts_is_found_from_counters_alone() -> None:
    hidden = replace_columns(drafted_tokens=None, accepted_tokens=None, step_accepted=None)
    corruptions = Corruptions(
        records=hidden.records, counters=lambda _, counted: counted.model_copy(update={"drafted_tokens": 0})
    )
    assert check_names(findings_of(corruptions)) == [("NeverDrafted", INVALID)]
    assert findings_of(hidden) == [], "the counters report drafts"


def test_engine_that_reports_no_drafting_is_a_warning() -> None:
    hidden = replace_columns(draft_steps=None, drafted_tokens=None, accepted_tokens=None, step_accepted=None)
    assert check_names(findings_of(Corruptions(records=hidden.records, counters=without_counters))) == [
        ("NeverDrafted", WARNING)
    ]


def test_draft_steps_prove_drafting_and_zero_draft_steps_its_absence() -> None:
    """SGLang with variable draft lengths reports draft steps but no draft tokens."""
    hidden = replace_columns(drafted_tokens=None, step_accepted=None, acceptance_source="per_request")
    assert findings_of(Corruptions(records=hidden.records, counters=without_counters)) == []
    none = replace_columns(drafted_tokens=None, step_accepted=None, draft_steps=0, acceptance_source="per_request")
    assert ("NeverDrafted", INVALID) in check_names(
        findings_of(Corruptions(records=none.records, counters=without_counters))
    )


@pytest.mark.parametrize(("source", "reported"), [("per_request", False), ("chunks", True)])
def test_accepted_tokens_prove_drafting_only_if_the_engine_reports_them(source: str, reported: bool) -> None:
    """TensorRT-LLM reports tokens per iteration, but no drafts; acceptance from chunks may be a stream interval."""
    hidden = replace_columns(drafted_tokens=None, draft_steps=None, step_accepted=None, acceptance_source=source)
    expected = [("NeverDrafted", WARNING)] if reported else []
    assert check_names(findings_of(Corruptions(records=hidden.records, counters=without_counters))) == expected


def test_some_requests_without_draft_counts_are_not_reported() -> None:
    some = replace_columns(drafted_tokens=lambda index, row: None if index % 2 else row["drafted_tokens"])
    assert findings_of(Corruptions(records=some.records, counters=without_counters)) == []


def test_usage_with_more_tokens_than_were_sent_is_found() -> None:
    corruptions = replace_columns(output_tokens=lambda _, row: row["output_tokens"] + 3)
    assert check_names(findings_of(corruptions)) == [("TokenCountMismatch", INVALID)] * 2, (
        "one finding for the chunks and one for the counters"
    )
    assert check_names(findings_of(Corruptions(records=corruptions.records, counters=without_counters))) == [
        ("TokenCountMismatch", INVALID)
    ]


LONG = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, tokens=(400, 500))
SHORT = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, tokens=(3, 6))


def drop_one_token(*reasons: str) -> Corruptions:
    """Make the chunks contain one token less than the usage in answers with these finish reasons."""
    return replace_columns(output_tokens_client=lambda _, row: row["output_tokens"] - (row["finish_reason"] in reasons))


@pytest.mark.parametrize(("world", "severity"), [(LONG, INFO), (WORLD, WARNING), (SHORT, WARNING)])
def test_severity_of_uncounted_end_tokens_depends_on_their_share(world: SyntheticRun, severity: Severity) -> None:
    assert check_names(findings_of(drop_one_token("stop"), world=world)) == [("TokenCountMismatch", severity)]


def test_missing_token_in_an_answer_cut_at_its_length_is_invalid() -> None:
    cut = replace_columns(finish_reason="length").records
    corruptions = Corruptions(records=lambda point, frame: drop_one_token("length").records(point, cut(point, frame)))
    assert ("TokenCountMismatch", INVALID) in check_names(findings_of(corruptions))


@pytest.mark.parametrize(("share", "severity"), [(1.0, WARNING), (1.4, INVALID)])
def test_severity_of_end_tokens_missing_in_a_counter_depends_on_their_share(share: float, severity: Severity) -> None:
    def without_ends(_: Point, counted: CounterDeltas) -> CounterDeltas:
        return counted.model_copy(update={"output_tokens": (counted.output_tokens or 0) - int(share * 24)})

    stopped = replace_columns(finish_reason="stop").records
    assert check_names(findings_of(Corruptions(records=stopped, counters=without_ends), world=SHORT)) == [
        ("TokenCountMismatch", severity)
    ]


def test_counter_that_lacks_tokens_is_found() -> None:
    assert check_names(findings_of(replace_counters(output_tokens=900))) == [("TokenCountMismatch", INVALID)]


def test_missing_client_count_is_not_reported() -> None:
    assert findings_of(replace_columns(output_tokens_client=None, chunk_tokens=None)) == []


CACHED_BY_COUNTERS = replace(
    replace_columns(cached_tokens=None), counters=replace_counters(cached_tokens=2000).counters
)


def test_prompt_cache_hits_are_found_in_records_and_in_counters() -> None:
    assert check_names(findings_of(replace_columns(cached_tokens=90))) == [("PromptCacheHit", INVALID)]
    assert check_names(findings_of(CACHED_BY_COUNTERS)) == [("PromptCacheHit", INVALID)]


def test_prompt_cache_hits_that_are_as_served_or_of_a_history_are_not_reported() -> None:
    served = replace(WORLD, edits={"spec.promptCache": "AsServed"})
    assert findings_of(replace_columns(cached_tokens=90), world=served) == []
    assert findings_of(replace_columns(cached_tokens=1)) == []
    assert findings_of(replace_columns(cached_tokens=lambda _, row: 80 if row["turn"] else 0), world=TALKS) == []
    assert findings_of(CACHED_BY_COUNTERS, world=TALKS) == [], "counters do not distinguish first turns from later ones"


def test_failed_requests_are_counted_by_error_class() -> None:
    corruptions = replace_columns(error_class=lambda index, _: "http_5xx" if index % 8 == 7 else None)
    assert check_names(findings_of(corruptions)) == [("RequestsFailed", INVALID)]
    assert "3 of 24 requests failed (3 http_5xx)" in findings_of(corruptions)[0].message


def test_one_failure_among_hundreds_is_info() -> None:
    many = SyntheticRun(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))
    corruptions = replace_columns(error_class=lambda index, _: "reset" if index == 20 else None)
    assert check_names(findings_of(corruptions, world=many)) == [("RequestsFailed", INFO)]


def test_turns_skipped_after_an_error_count_once_with_it() -> None:
    corruptions = replace_columns(
        error_class=lambda index, row: None if index < 40 else ("skipped_after_error" if row["turn"] else "timeout")
    )
    findings = findings_of(corruptions, world=TALKS)
    assert check_names(findings) == [("RequestsFailed", INVALID)]
    assert findings[0].message == "5 of 43 requests failed (5 timeout), and 5 later turns were not sent"


def test_engine_restart_is_found_and_its_counters_are_not_used() -> None:
    assert check_names(findings_of(replace_counters(restarted=True, output_tokens=5))) == [("EngineRestarted", INVALID)]


def test_foreign_traffic_is_found() -> None:
    assert check_names(findings_of(replace_counters(output_tokens=5000))) == [("ForeignTraffic", INVALID)]


def test_tokens_of_failed_requests_are_not_foreign_traffic() -> None:
    broken = replace_columns(
        error_class=lambda index, _: "reset" if index == 10 else None,
        output_tokens=lambda index, row: None if index == 10 else row["output_tokens"],
    )
    assert check_names(findings_of(broken)) == [("RequestsFailed", INVALID)]


def test_engine_without_counters_is_not_reported() -> None:
    assert findings_of(Corruptions(counters=without_counters)) == []
    assert (
        findings_of(Corruptions(counters=lambda _, counted: CounterDeltas(drafted_tokens=counted.drafted_tokens))) == []
    )
    assert findings_of(Corruptions(watch=lambda *_: ClientHealth())) == []


EDITS: list[Callable[[], Corruptions]] = [
    lambda: replace_columns(input_tokens=None, cached_tokens=None),
    lambda: replace_columns(steps=None, draft_steps=None, step_accepted=None),
    lambda: replace_columns(chunk_ns=None, chunk_tokens=None),
    lambda: replace_columns(category=None, finish_reason=None, output_sha256=None),
    lambda: replace_columns(
        step_accepted=lambda _, row: np.array(row["step_accepted"]) if row["step_accepted"] else None
    ),
    lambda: replace_columns(error_class=float("nan"), error=float("nan")),
]


@pytest.mark.parametrize("edit", EDITS)
def test_missing_data_gives_no_finding(edit: Callable[[], Corruptions]) -> None:
    assert findings_of(edit()) == []
