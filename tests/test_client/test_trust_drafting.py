"""Acceptance that nobody can have had is found; what an engine counts and never delivers is not held against it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import Cell, Counters, SelfWatch
from specbench_api.plan.plan import Point
from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.analysis.summary.point import summarise_point
from specbench_testing.lies import WORLD, columns, counters, found, names, untold
from specbench_testing.records import Lies, World, point_of, run_of_world

INVALID, DOUBT = Severity.INVALID, Severity.DOUBT
EMITTED, VERIFIED = "acceptance_length_emitted_pooled", "acceptance_length_verified_pooled"
NGRAM = next(point for point in WORLD.plan.points if point.arm == "ngram")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, WORLD.drafts), min_size=WORLD.prompts, max_size=WORLD.prompts))
def test_accepted_tokens_that_were_cut_at_the_stop_explain_a_larger_counter(trims: list[int]) -> None:
    cut = sum(trims)
    lies = Lies(counters=lambda _, told: told.model_copy(update={"accepted_tokens": (told.accepted_tokens or 0) + cut}))
    assert found(lies) == []


@pytest.mark.parametrize("factor", [0.8, 2.0])
@pytest.mark.parametrize("name", ["draft_steps", "drafted_tokens", "accepted_tokens"])
def test_counters_that_deny_what_the_answers_tell_are_found(name: str, factor: float) -> None:
    lies = Lies(counters=lambda _, told: told.model_copy(update={name: int(getattr(told, name) * factor)}))
    findings = found(lies)
    assert names(findings) == [("AcceptanceMismatch", INVALID)]
    assert name.replace("_", " ") in findings[0].message


def test_drafts_of_failed_and_of_silent_requests_stand_in_the_counters_alone() -> None:
    drafting = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted")
    some = {name: lambda index, row, name=name: None if index % 4 == 0 else row[name] for name in drafting}
    assert found(columns(**some)) == []
    lost = columns(**some, output_tokens=lambda index, row: None if index % 4 == 0 else row["output_tokens"])
    failed = columns(error_class=lambda index, _: "reset" if index % 4 == 0 else None)
    lies = Lies(records=lambda point, frame: failed.records(point, lost.records(point, frame)))
    assert names(found(lies)) == [("RequestsFailed", INVALID)]


def test_counters_of_an_engine_that_restarted_or_tells_nothing_deny_nothing() -> None:
    assert names(found(counters(restarted=True, accepted_tokens=0))) == [("EngineRestarted", INVALID)]
    assert found(Lies(counters=untold)) == []
    assert found(Lies(counters=lambda *_: Counters())) == []


def streamed_every(tokens: int, accepted: int | None) -> Lies:
    """An engine that tells no acceptance a request and sends so many tokens a chunk; its counters know better."""

    def sizes(row: Any) -> list[int]:
        later = row["output_tokens"] - 1
        return [1, *[tokens] * (later // tokens), *([later % tokens] if later % tokens else [])]

    silent = dict.fromkeys(("draft_steps", "drafted_tokens", "step_accepted"))
    edited = columns(
        **silent,
        chunk_tokens=lambda _, row: sizes(row),
        chunk_ns=lambda _, row: (row["chunk_ns"][:1] + row["chunk_ns"][1 - len(sizes(row)) :])[: len(sizes(row))],
        steps=lambda _, row: len(sizes(row)) - 1,
        accepted_tokens=lambda _, row: row["output_tokens"] - len(sizes(row)),
        acceptance_source="chunks",
    )

    def records(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return edited.records(point, frame) if point.arm == "ngram" else frame

    def counted(point: Point, told: Counters) -> Counters | None:
        update = {"draft_steps": told.output_tokens, "drafted_tokens": (told.output_tokens or 0) * 3}
        is_told = accepted is not None and point.arm == "ngram"
        return told.model_copy(update={**update, "accepted_tokens": accepted}) if is_told else None

    return Lies(records=records, counters=counted)


WIDE = World(prompts=24, concurrency=(3,), repeats=1, alpha={"ngram": 0.95}, alpha_spread=0.0)
"""As many tokens a step as the drafts allow, nearly: chunks of four look right."""


def test_a_stream_interval_is_not_taken_for_acceptance() -> None:
    lies = streamed_every(4, accepted=0)
    findings = found(lies, world=WIDE)
    assert names(findings) == [("AcceptanceMismatch", INVALID)]
    assert "chunks alone is not believed" in findings[0].message


def test_an_acceptance_length_that_the_counters_deny_is_printed_nowhere() -> None:
    def lengths(accepted: int | None) -> list[tuple[float | None, float | None]]:
        run = run_of_world(WIDE, streamed_every(4, accepted))
        point = point_of(
            WIDE, next(each for each in WIDE.plan.points if each.arm == "ngram"), streamed_every(4, accepted)
        )
        cell: Cell = next(each for each in run.cells if each.arm == "ngram")
        return [(told.figures[EMITTED].value, told.figures[VERIFIED].value) for told in (point[0], cell)]

    assert lengths(0) == [(None, None)] * 2
    alone = lengths(None)
    assert all(value is not None and value > 3.5 for pair in alone for value in pair), "nobody denies it"


def test_an_endpoint_without_a_drafter_that_streams_at_an_interval_has_no_acceptance_and_no_lie() -> None:
    """Its counters know no drafts at all; what we read from its chunks is ours to drop, and none of its faults."""
    engine = Engine(kind=EngineKind.EXTERNAL, endpoint="http://127.0.0.1:1", dialect=DialectName.VLLM)
    arm = WIDE.plan.arm("ngram").model_copy(update={"drafter": None})
    plan = WIDE.plan.model_copy(update={"engine": engine, "arms": [WIDE.plan.arm("none"), arm]})
    point = next(each for each in plan.points if each.arm == "ngram")
    frame = streamed_every(4, None).records(point, WIDE.records(point))
    counted = Counters(output_tokens=int(frame["output_tokens"][WIDE.warmup :].sum()))
    summary = summarise_point(plan, point, [frame], SelfWatch(), counted, simulated=False)
    assert names(summary.findings) == [("AcceptanceMismatch", Severity.NOTE)]
    assert summary.figures[EMITTED].value is None


def test_chunks_that_the_counters_confirm_are_believed_and_named() -> None:
    silent = columns(draft_steps=None, drafted_tokens=None, step_accepted=None, acceptance_source="chunks")
    summary, _ = point_of(WORLD, NGRAM, silent)
    assert summary.findings == []
    assert summary.figures[EMITTED].value == point_of(WORLD, NGRAM)[0].figures[EMITTED].value
    assert summary.figures[EMITTED].source == "client (chunks)"


def test_what_the_engine_itself_told_of_a_request_stays_printed_beside_the_finding() -> None:
    summary, _ = point_of(WORLD, NGRAM, counters(accepted_tokens=0))
    assert names(summary.findings) == [("AcceptanceMismatch", INVALID)]
    assert summary.figures[EMITTED].value is not None


def test_a_baseline_that_drafts_behind_our_back_has_no_acceptance_length_of_1() -> None:
    lies = counters(draft_steps=500, drafted_tokens=1500, accepted_tokens=900)
    baseline = next(point for point in WORLD.plan.points if point.arm == "none")
    summary, _ = point_of(WORLD, baseline, lies)
    assert names(summary.findings) == [("AcceptanceMismatch", INVALID)]
    assert summary.figures[EMITTED].value is None
    assert found(counters(draft_steps=0, drafted_tokens=0, accepted_tokens=0), arm="none") == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"steps": 999, "draft_steps": 999, "drafted_tokens": 2997, "step_accepted": None}, "more steps than tokens"),
        ({"drafted_tokens": 1}, "more tokens accepted than drafted"),
        ({"accepted_tokens": -5}, "a count below 0"),
        ({"step_accepted": [4]}, "a step with more than 3 drafts accepted"),
        ({"steps": 1, "draft_steps": 1, "step_accepted": None}, "more than 4 tokens a step"),
    ],
)
def test_one_answer_that_no_drafter_can_give_is_enough(edit: dict[str, Any], words: str) -> None:
    once = {name: lambda index, row, name=name: edit[name] if index == 10 else row[name] for name in edit}
    findings = found(Lies(records=columns(**once).records, counters=untold))
    assert names(findings) == [("ImpossibleAcceptance", INVALID)]
    assert words in findings[0].message


def test_a_step_with_fewer_than_no_drafts_accepted_is_a_count_below_0() -> None:
    below = columns(step_accepted=lambda index, row: [-1, 2] if index == 10 else row["step_accepted"])
    findings = {each.check: each for each in found(Lies(records=below.records, counters=untold))}
    assert "a count below 0" in findings["ImpossibleAcceptance"].message


def test_steps_that_a_cut_answer_hides_are_no_lie() -> None:
    """Every draft accepted, and the last three of them cut: an engine that tells sums alone shows three steps fewer."""
    full = World(prompts=24, concurrency=(3,), repeats=1, alpha={"ngram": 1.0}, alpha_spread=0.0)
    hidden = columns(steps=lambda _, row: row["steps"] - 3, step_accepted=None, acceptance_source="per_request")
    assert found(hidden, world=full) == []


def drafting_always(method: str = "eagle3") -> World:
    drafter = {"name": "ngram", "method": method, "numSpeculativeTokens": 3}
    model = {} if method in ("ngram", "suffix") else {"model": "acme/drafter"}
    return World(prompts=24, concurrency=(3,), repeats=1, edits={"spec.drafters": [{**drafter, **model}]})


def undrafted(steps: int) -> Lies:
    """So many steps of each answer had no drafts, by its own count and by the counters."""
    lies = columns(
        draft_steps=lambda _, row: row["draft_steps"] - steps,
        drafted_tokens=lambda _, row: row["drafted_tokens"] - 3 * steps,
        step_accepted=None,
    )
    return Lies(records=lies.records, counters=untold)


def test_steps_without_drafts_are_doubted_where_the_method_drafts_at_every_step() -> None:
    findings = found(undrafted(3), world=drafting_always())
    assert names(findings) == [("UndraftedSteps", DOUBT)]
    assert "eagle3 drafts at every step" in findings[0].message


def test_a_last_step_without_room_for_drafts_is_no_lie_and_a_lookup_may_find_nothing() -> None:
    assert found(undrafted(1), world=drafting_always()) == []
    assert found(undrafted(4), world=drafting_always("ngram")) == []
    assert found(undrafted(4), world=drafting_always("suffix")) == []
