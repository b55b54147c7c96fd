"""Each lie of a single point is put into honest records, and found; beside it stands the honest twin that is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import Counters, SelfWatch
from specbench_api.plan.plan import Point
from specbench_testing.lies import TALKS, WORLD, columns, counters, found, names, untold, watch
from specbench_testing.records import Lies, World

INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE


def test_a_finding_names_its_point_and_carries_its_number() -> None:
    point = WORLD.plan.points[1]
    finding = found(watch(cpu_share=0.95))[0]
    assert (finding.arm, finding.workload, finding.load, finding.point) == ("ngram", "chat", "3", point.hash)
    assert (finding.value, finding.threshold) == (0.95, 0.8)


def test_a_drafter_that_never_drafts_is_found() -> None:
    idle = {"draft_steps": 0, "drafted_tokens": 0, "accepted_tokens": 0}
    nothing = columns(**idle, step_accepted=None, steps=lambda _, row: row["output_tokens"] - 1)
    lies = Lies(records=nothing.records, counters=lambda _, told: told.model_copy(update=idle))
    assert names(found(lies)) == [("NeverDrafted", INVALID)]


def test_counters_alone_can_tell_that_it_never_drafts() -> None:
    hidden = columns(drafted_tokens=None, accepted_tokens=None, step_accepted=None)
    lies = Lies(records=hidden.records, counters=lambda _, told: told.model_copy(update={"drafted_tokens": 0}))
    assert names(found(lies)) == [("NeverDrafted", INVALID)]
    assert found(hidden) == [], "the counters know of drafts"


def test_an_engine_that_tells_nothing_leaves_a_doubt() -> None:
    hidden = columns(draft_steps=None, drafted_tokens=None, accepted_tokens=None, step_accepted=None)
    assert names(found(Lies(records=hidden.records, counters=untold))) == [("NeverDrafted", DOUBT)]


def test_steps_that_verified_drafts_prove_it_alive_and_none_of_them_dead() -> None:
    """SGLang's drafts under a varying length: verifications are told, drafted tokens are not."""
    hidden = columns(drafted_tokens=None, step_accepted=None, acceptance_source="per_request")
    assert found(Lies(records=hidden.records, counters=untold)) == []
    none = columns(drafted_tokens=None, step_accepted=None, draft_steps=0, acceptance_source="per_request")
    assert ("NeverDrafted", INVALID) in names(found(Lies(records=none.records, counters=untold)))


@pytest.mark.parametrize(("source", "doubted"), [("per_request", False), ("chunks", True)])
def test_an_accepted_draft_was_drafted_where_the_engine_says_so(source: str, doubted: bool) -> None:
    """TensorRT-LLM: tokens an iteration are told, drafts and their steps are not. Chunks alone may be an interval."""
    hidden = columns(drafted_tokens=None, draft_steps=None, step_accepted=None, acceptance_source=source)
    wanted = [("NeverDrafted", DOUBT)] if doubted else []
    assert names(found(Lies(records=hidden.records, counters=untold))) == wanted


def test_requests_that_drafted_nothing_and_leave_their_counts_out_are_no_lie() -> None:
    some = columns(drafted_tokens=lambda index, row: None if index % 2 else row["drafted_tokens"])
    assert found(Lies(records=some.records, counters=untold)) == []


def test_usage_that_counts_more_than_was_sent_is_found() -> None:
    lies = columns(output_tokens=lambda _, row: row["output_tokens"] + 3)
    assert names(found(lies)) == [("TokenCountMismatch", INVALID)] * 2, "against the chunks and against the counters"
    assert names(found(Lies(records=lies.records, counters=untold))) == [("TokenCountMismatch", INVALID)]


LONG = World(prompts=24, concurrency=(3,), repeats=1, tokens=(400, 500))
SHORT = World(prompts=24, concurrency=(3,), repeats=1, tokens=(3, 6))


def one_less(*reasons: str) -> Lies:
    """The chunks tell one token less than the usage, in the answers that ended so."""
    return columns(output_tokens_client=lambda _, row: row["output_tokens"] - (row["finish_reason"] in reasons))


@pytest.mark.parametrize(("world", "severity"), [(LONG, NOTE), (WORLD, DOUBT), (SHORT, DOUBT)])
def test_an_end_token_that_only_one_side_counts_is_seen_by_what_it_comes_to(world: World, severity: Severity) -> None:
    assert names(found(one_less("stop"), world=world)) == [("TokenCountMismatch", severity)]


def test_an_answer_that_was_cut_has_no_end_token_that_could_explain_a_difference() -> None:
    cut = columns(finish_reason="length").records
    lies = Lies(records=lambda point, frame: one_less("length").records(point, cut(point, frame)))
    assert ("TokenCountMismatch", INVALID) in names(found(lies))


@pytest.mark.parametrize(("share", "severity"), [(1.0, DOUBT), (1.4, INVALID)])
def test_a_counter_may_lack_end_tokens_and_is_doubted_where_they_are_many(share: float, severity: Severity) -> None:
    def without_ends(_: Point, told: Counters) -> Counters:
        return told.model_copy(update={"output_tokens": (told.output_tokens or 0) - int(share * 24)})

    stopped = columns(finish_reason="stop").records
    assert names(found(Lies(records=stopped, counters=without_ends), world=SHORT)) == [("TokenCountMismatch", severity)]


def test_a_counter_that_lacks_tokens_is_found() -> None:
    assert names(found(counters(output_tokens=900))) == [("TokenCountMismatch", INVALID)]


def test_a_missing_client_count_is_not_held_against_the_engine() -> None:
    assert found(columns(output_tokens_client=None, chunk_tokens=None)) == []


def test_prompts_from_a_cache_are_found_in_records_and_in_counters() -> None:
    assert names(found(columns(cached_tokens=90))) == [("PromptCacheHit", INVALID)]
    hidden = columns(cached_tokens=None)
    lies = Lies(records=hidden.records, counters=lambda _, told: told.model_copy(update={"cached_tokens": 2000}))
    assert names(found(lies)) == [("PromptCacheHit", INVALID)]


def test_a_start_token_that_is_kept_and_a_history_that_is_reused_are_no_lies() -> None:
    assert found(columns(cached_tokens=1)) == []
    reused = columns(cached_tokens=lambda _, row: 80 if row["turn"] else 0)
    assert found(reused, world=TALKS) == []
    hidden = Lies(
        records=columns(cached_tokens=None).records,
        counters=lambda _, told: told.model_copy(update={"cached_tokens": 2000}),
    )
    assert found(hidden, world=TALKS) == [], "counters cannot tell first turns from later ones"


def test_failed_requests_are_found_and_named_by_class() -> None:
    lies = columns(error_class=lambda index, _: "http_5xx" if index % 8 == 7 else None)
    assert names(found(lies)) == [("RequestsFailed", INVALID)]
    assert "3 of 24 requests failed (3 http_5xx)" in found(lies)[0].message


def test_one_failure_among_hundreds_is_a_note() -> None:
    many = World(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))
    lies = columns(error_class=lambda index, _: "reset" if index == 20 else None)
    assert names(found(lies, world=many)) == [("RequestsFailed", NOTE)]


def test_turns_skipped_after_an_error_count_once_with_it() -> None:
    lies = columns(
        error_class=lambda index, row: None if index < 40 else ("skipped_after_error" if row["turn"] else "timeout")
    )
    findings = found(lies, world=TALKS)
    assert names(findings) == [("RequestsFailed", INVALID)]
    assert findings[0].message == "5 of 43 requests failed (5 timeout), and 5 later turns were not asked"


def test_an_engine_that_restarted_is_found_and_its_counters_are_not_used() -> None:
    assert names(found(counters(restarted=True, output_tokens=5))) == [("EngineRestarted", INVALID)]


def test_foreign_traffic_is_found() -> None:
    assert names(found(counters(output_tokens=5000))) == [("ForeignTraffic", INVALID)]


def test_tokens_of_our_own_failed_requests_are_not_foreign() -> None:
    broken = columns(
        error_class=lambda index, _: "reset" if index == 10 else None,
        output_tokens=lambda index, row: None if index == 10 else row["output_tokens"],
    )
    assert names(found(broken)) == [("RequestsFailed", INVALID)]


def test_an_engine_without_counters_is_not_suspected() -> None:
    assert found(Lies(counters=untold)) == []
    assert found(Lies(counters=lambda _, told: Counters(drafted_tokens=told.drafted_tokens))) == []
    assert found(Lies(watch=lambda *_: SelfWatch())) == []


EDITS: list[Callable[[], Lies]] = [
    lambda: columns(input_tokens=None, cached_tokens=None),
    lambda: columns(steps=None, draft_steps=None, step_accepted=None),
    lambda: columns(chunk_ns=None, chunk_tokens=None),
    lambda: columns(category=None, finish_reason=None, output_sha256=None),
    lambda: columns(step_accepted=lambda _, row: np.array(row["step_accepted"]) if row["step_accepted"] else None),
    lambda: columns(error_class=float("nan"), error=float("nan")),
]


@pytest.mark.parametrize("edit", EDITS)
def test_what_an_engine_does_not_tell_raises_no_finding(edit: Callable[[], Lies]) -> None:
    assert found(edit()) == []
