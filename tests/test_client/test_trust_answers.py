"""Trust checks of answers and of drafting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.plan.plan import Point
from specbench_api.spec.engine import DialectName
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import Cell, ClientHealth, CounterDeltas
from specbench_client.trust.checks.acceptance import step_token_mismatch
from specbench_client.trust.evidence import PointEvidence
from specbench_testing.corrupted_records import (
    WORLD,
    check_names,
    combine,
    findings_of,
    replace_columns,
    replace_counters,
    undeclared_drafter,
    without_counters,
)
from specbench_testing.synthetic_records import (
    ONE,
    Corruptions,
    SyntheticRun,
    frame_of,
    point_of,
    record,
    run_of_world,
    sha,
    tidy_frames,
)

pytestmark = pytest.mark.runs


INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO


def end_early(share: float, tokens: int) -> Corruptions:
    """End this share of the answers with finish_reason `length` before the allowed number of tokens."""

    def finish(index: int, row: Any) -> str:
        is_cut = index % 10 < 10 * share and row["output_tokens"] <= tokens
        return "length" if is_cut or row["output_tokens"] == WORLD.tokens[1] else "stop"

    return replace_columns(finish_reason=finish)


@pytest.mark.parametrize("arm", ["none", "ngram"])
def test_answers_cut_by_the_engines_own_limit_are_found_without_a_baseline(arm: str) -> None:
    findings = findings_of(end_early(1.0, tokens=78), arm)
    assert check_names(findings) == [("PrematureLengthStop", INVALID)]
    assert "80 were allowed" in findings[0].message


def test_one_long_prompt_among_hundreds_is_info() -> None:
    many = SyntheticRun(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))

    def once(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        short = (frame["output_tokens"] == 5) & (frame["phase"] == "steady")
        return frame.assign(finish_reason=["length" if at == short.idxmax() else "stop" for at in frame.index])

    assert check_names(findings_of(Corruptions(records=once), world=many)) == [("PrematureLengthStop", INFO)]


OFF, ON = {"enable_thinking": False}, {"thinking": True}


@pytest.mark.parametrize(
    ("body", "thoughts", "found"),
    [
        ({"chat_template_kwargs": OFF}, 9, "switches reasoning off, but 100% of the answers begin with it"),
        ({"reasoning_effort": "none"}, 9, "switches reasoning off"),
        ({"chat_template_kwargs": ON}, 0, "requests reasoning, but the engine marks none"),
        ({"chat_template_kwargs": OFF}, 0, None),
        ({"chat_template_kwargs": ON}, lambda index, _: 9 * (index % 2), None),
        ({"chat_template_kwargs": OFF, "reasoning_effort": "high"}, 0, None),
        ({"chat_template_kwargs": ON}, None, None),
        ({"chat_template_kwargs": "?", "reasoning_effort": 1}, 9, None),
        ({}, 9, None),
    ],
)
def test_reasoning_that_contradicts_the_request_is_a_warning(body: Any, thoughts: Any, found: str | None) -> None:
    world = replace(WORLD, edits={"spec.workloads[0].extraBody": body})
    findings = findings_of(replace_columns(reasoning_tokens=thoughts), world=world)
    assert check_names(findings) == ([("ReasoningNotAsRequested", WARNING)] if found else [])
    assert all((found or "") in finding.message for finding in findings)


def equal_texts(share: float) -> Corruptions:
    """Give this share of the answers the same text; the prompts and their lengths differ."""
    return replace_columns(
        output_sha256=lambda index, row: sha("same") if index % 10 < 10 * share else row["output_sha256"],
        input_tokens=lambda index, _: 100 + index,
    )


def test_limits_that_are_not_the_engines_own_are_not_reported() -> None:
    requested = replace_columns(finish_reason=lambda _, row: "length" if row["output_tokens"] >= 79 else "stop")
    own = replace_columns(finish_reason="length", max_tokens=lambda _, row: row["output_tokens"])
    unknown = replace_columns(finish_reason=None)
    assert [findings_of(each) for each in (requested, own, unknown)] == [[], [], []]
    hidden = replace_columns(finish_reason="length", token_conflict="UnsentTokens")
    assert check_names(findings_of(hidden)) == [("TokenCountConflict", INFO)]
    shorter = replace_columns(finish_reason="length", max_tokens=lambda _, row: row["output_tokens"] + 2)
    assert check_names(findings_of(shorter)) == [("PrematureLengthStop", INVALID)]


@pytest.mark.parametrize(
    ("share", "world", "expected"),
    [
        (1.0, WORLD, [("IdenticalAnswers", WARNING)]),
        (0.7, WORLD, [("IdenticalAnswers", WARNING)]),
        (0.4, WORLD, []),
        (1.0, SyntheticRun(prompts=9, concurrency=(1,), repeats=1), []),
        (1.0, SyntheticRun(prompts=40, concurrency=(3,), repeats=1, tokens=(2, 4)), [("IdenticalAnswers", INFO)]),
    ],
    ids=["all", "most", "some", "few prompts", "labels"],
)
def test_one_text_for_most_prompts_is_a_warning(
    share: float, world: SyntheticRun, expected: list[tuple[str, Severity]]
) -> None:
    for arm in ("none", "ngram"):
        found = check_names(findings_of(equal_texts(share), arm, world))
        assert [each for each in found if each[0] != "TokenCountMismatch"] == expected


def with_texts(*, counted_more: float = 0.0, spread: float = 0.03) -> Corruptions:
    """Return records with texts of about four bytes per token, and usage of the drafter that counts too many tokens.

    No chunks or step lists contradict the usage, so TokenCountMismatch and StepTokenMismatch find nothing.
    """

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rng = np.random.default_rng([point.repeat, len(point.arm)])
        factor = 1 + counted_more if point.arm == "ngram" else 1.0
        tokens = frame["output_tokens"].astype(float)
        noise = np.exp(rng.normal(0, spread, len(frame)))
        texts = ["ä" * round(2 * count * by) for count, by in zip(tokens, noise, strict=True)]
        counts = (tokens * factor).round().astype(int)
        shas = [sha(f"{point.arm}{text}{index}") for index, text in enumerate(texts)]
        columns = {"output_tokens": counts, "output_tokens_client": None, "chunk_tokens": None, "step_accepted": None}
        return frame.assign(output_text=texts, output_sha256=shas, **columns)

    return Corruptions(records=edit, counters=lambda *_: None)


SAMPLED = SyntheticRun(prompts=24, categories=ONE, temperature=0.8)


def test_excess_token_count_of_one_arm_changes_bytes_per_token() -> None:
    findings = run_of_world(SAMPLED, with_texts(counted_more=0.15)).findings
    assert check_names(findings) == [("BytesPerTokenDiffer", WARNING)]
    assert "-13%" in findings[0].message


@pytest.mark.draws
@pytest.mark.parametrize(
    ("corruptions", "world"),
    [
        (with_texts(), SAMPLED),
        (with_texts(counted_more=0.05), SAMPLED),
        (with_texts(spread=1.0), SAMPLED),
        (combine(with_texts(counted_more=0.15), replace_columns(output_text=None)), SAMPLED),
        (with_texts(counted_more=0.15), SyntheticRun(prompts=24, categories=ONE)),
    ],
    ids=["honest", "a little more", "a tenth of varied texts", "no texts", "greedy"],
)
def test_bytes_per_token_that_vary_or_are_unknown_are_not_reported(
    corruptions: Corruptions, world: SyntheticRun
) -> None:
    assert "BytesPerTokenDiffer" not in dict(check_names(run_of_world(world, corruptions).findings))


GREEDY = SyntheticRun(prompts=24, categories=ONE)


def findings_of_check(name: str, world: SyntheticRun, corruptions: Corruptions) -> list[Finding]:
    return [finding for finding in run_of_world(world, corruptions).findings if finding.check == name]


def texts(make: Callable[[Point, Any], str]) -> Corruptions:
    """Set every answer's hash to the result of `make`."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(output_sha256=[sha(make(point, row)) for _, row in frame.iterrows()])

    return Corruptions(records=edit)


def own_text(point: Point, row: Any) -> str:
    return f"{point.arm}-{point.repeat}-{row['prompt_id']}"


def common_text(_: Point, row: Any) -> str:
    return str(row["prompt_id"])


@pytest.mark.parametrize(
    ("world", "make", "words"),
    [(GREEDY, own_text, "they were sampled"), (SAMPLED, common_text, "temperature 0.8 with another seed")],
    ids=["greedy", "sampled"],
)
def test_answers_of_another_temperature_are_found(
    world: SyntheticRun, make: Callable[[Point, Any], str], words: str
) -> None:
    seen = findings_of_check("TemperatureNotApplied", world, texts(make))
    assert {finding.arm for finding in seen} == {"none", "ngram"}
    assert all((finding.severity, finding.value) == (WARNING, 1.0) for finding in seen)
    assert words in seen[0].message


@pytest.mark.parametrize(
    ("world", "make"),
    [
        (GREEDY, common_text),
        (SAMPLED, own_text),
        (SyntheticRun(prompts=24, categories=ONE, tokens=(4, 20)), own_text),
        (SyntheticRun(prompts=24, categories=ONE, tokens=(200, 300)), own_text),
        (SyntheticRun(prompts=6, categories=ONE), own_text),
        (SyntheticRun(prompts=24, categories=ONE, repeats=1), own_text),
        (SyntheticRun(prompts=24, categories=ONE, temperature=0.2), common_text),
    ],
    ids=["greedy", "sampled", "short answers", "long answers", "few prompts", "one repeat", "low temperature"],
)
def test_answers_with_the_requested_temperature_are_not_reported(
    world: SyntheticRun, make: Callable[[Point, Any], str]
) -> None:
    assert findings_of_check("TemperatureNotApplied", world, texts(make)) == []


def pairwise(share: float) -> Callable[[int, Any], str]:
    """Return an edit that gives this share of the 24 prompts another prompt's answer."""
    return lambda _, row: sha(f"{max(int(str(row['prompt_id'])[1:]), int(share * 24))}")


def test_duplicate_prompts_are_a_warning() -> None:
    seen = findings_of(replace_columns(output_sha256=pairwise(0.4), output_tokens=60, output_tokens_client=60))
    assert ("DuplicatePrompts", WARNING) in check_names(seen)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_sha256": pairwise(0.1)},
        {"output_sha256": pairwise(0.4), "output_tokens": 10, "output_tokens_client": 10},
        {"output_sha256": pairwise(0.4), "input_tokens": lambda index, _: 100 + index},
        {"output_sha256": None},
    ],
    ids=["a few", "labels", "different prompt lengths", "no texts"],
)
def test_few_equal_answers_labels_and_other_lengths_are_not_duplicates(changes: dict[str, Any]) -> None:
    assert "DuplicatePrompts" not in {finding.check for finding in findings_of(replace_columns(**changes))}


def remember_answers(arm: str, share: float) -> Corruptions:
    """Make this arm need fewer steps for the same answers at concurrency 2 and above."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm != arm or point.level.concurrency == 1:
            return frame
        return frame.assign(steps=(frame["steps"] * (1 - share)).astype(int), step_accepted=None)

    return Corruptions(records=edit, counters=lambda _, __: None)


LOADS = SyntheticRun(prompts=24, categories=ONE, concurrency=(1, 2))
SOAK = SyntheticRun(
    prompts=24,
    categories=ONE,
    edits={"spec.load": {"concurrency": [1], "order": "Soak", "durationSeconds": 60, "repeats": 8}},
)


def easier_later(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    steps = frame["steps"] * (0.5 if point.repeat else 1)
    return frame.assign(steps=steps.astype(int), step_accepted=None)


def test_acceptance_length_that_rises_within_a_launch_is_reported_once() -> None:
    (seen,) = findings_of_check("DrafterCarryover", LOADS, remember_answers("ngram", 0.5))
    assert (seen.severity, seen.arm, seen.workload, seen.threshold) == (WARNING, "ngram", "chat", 0.15)
    assert seen.value is not None
    assert 0.9 < seen.value < 1.2
    assert "at 2, repeat 1" in seen.message


@pytest.mark.parametrize(
    ("world", "corruptions"),
    [
        (LOADS, remember_answers("ngram", 0.1)),
        (SyntheticRun(prompts=24, categories=ONE, concurrency=(1, 2), temperature=0.8), remember_answers("ngram", 0.5)),
        (SyntheticRun(prompts=24, categories=ONE, concurrency=(2,)), remember_answers("ngram", 0.5)),
        (SOAK, Corruptions(records=easier_later, counters=lambda _, __: None)),
    ],
    ids=["a little", "sampled", "one load a launch", "windows with other prompts"],
)
def test_no_rise_within_a_launch_gives_no_carryover(world: SyntheticRun, corruptions: Corruptions) -> None:
    assert findings_of_check("DrafterCarryover", world, corruptions) == []


EMITTED, VERIFIED = "acceptance_length_emitted_pooled", "acceptance_length_verified_pooled"
NGRAM = next(point for point in WORLD.plan.points if point.arm == "ngram")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, WORLD.drafts), min_size=WORLD.prompts, max_size=WORLD.prompts))
def test_accepted_tokens_cut_at_the_stop_explain_a_larger_counter(trims: list[int]) -> None:
    assert findings_of(scaled_counter("accepted_tokens", more=sum(trims))) == []


def scaled_counter(name: str, factor: float = 1.0, more: int = 0) -> Corruptions:
    return Corruptions(
        counters=lambda _, counted: counted.model_copy(update={name: int(getattr(counted, name) * factor) + more})
    )


@pytest.mark.parametrize("factor", [0.0, 0.8, 2.0])
@pytest.mark.parametrize("name", ["draft_steps", "drafted_tokens", "accepted_tokens"])
def test_counters_that_contradict_the_answers_are_found_and_the_answers_kept(name: str, factor: float) -> None:
    summary, _ = point_of(WORLD, NGRAM, scaled_counter(name, factor))
    (finding,) = (each for each in summary.findings if each.check == "AcceptanceCounterMismatch")
    assert finding.severity is INVALID
    assert name.replace("_", " ") in finding.message
    assert summary.figures[EMITTED].value is not None


def test_drafts_of_requests_without_counts_explain_a_larger_counter() -> None:
    drafting = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted")
    some = {name: lambda index, row, name=name: None if index % 4 == 0 else row[name] for name in drafting}
    assert findings_of(replace_columns(**some)) == []
    lost = replace_columns(**some, output_tokens=lambda index, row: None if index % 4 == 0 else row["output_tokens"])
    failed = replace_columns(error_class=lambda index, _: "reset" if index % 4 == 0 else None)
    corruptions = Corruptions(records=lambda point, frame: failed.records(point, lost.records(point, frame)))
    assert check_names(findings_of(corruptions)) == [("RequestsFailed", INVALID)]


def test_missing_or_restarted_counters_give_no_mismatch() -> None:
    assert check_names(findings_of(replace_counters(restarted=True, accepted_tokens=0))) == [
        ("EngineRestarted", INVALID)
    ]
    assert findings_of(Corruptions(counters=without_counters)) == []
    assert findings_of(Corruptions(counters=lambda *_: CounterDeltas())) == []


def streamed_every(tokens: int, accepted: int | None) -> Corruptions:
    """Simulate an engine without per-request acceptance that sends this many tokens per chunk; counters are true."""

    def sizes(row: Any) -> list[int]:
        later = row["output_tokens"] - 1
        return [1, *[tokens] * (later // tokens), *([later % tokens] if later % tokens else [])]

    unreported = dict.fromkeys(("draft_steps", "drafted_tokens", "step_accepted"))
    edited = replace_columns(
        **unreported,
        chunk_tokens=lambda _, row: sizes(row),
        chunk_ns=lambda _, row: (row["chunk_ns"][:1] + row["chunk_ns"][1 - len(sizes(row)) :])[: len(sizes(row))],
        steps=lambda _, row: len(sizes(row)) - 1,
        accepted_tokens=lambda _, row: row["output_tokens"] - len(sizes(row)),
        acceptance_source="chunks",
    )

    def records(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return edited.records(point, frame) if point.arm == "ngram" else frame

    def counted(point: Point, deltas: CounterDeltas) -> CounterDeltas | None:
        update = {"draft_steps": deltas.output_tokens, "drafted_tokens": (deltas.output_tokens or 0) * 3}
        is_reported = accepted is not None and point.arm == "ngram"
        return deltas.model_copy(update={**update, "accepted_tokens": accepted}) if is_reported else None

    return Corruptions(records=records, counters=counted)


WIDE = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, alpha={"ngram": 0.95}, alpha_spread=0.0)
"""Nearly as many tokens per step as the drafts allow, so that chunks of four look plausible."""


def test_stream_interval_is_not_mistaken_for_acceptance() -> None:
    corruptions = streamed_every(4, accepted=0)
    findings = findings_of(corruptions, world=WIDE)
    assert check_names(findings) == [("AcceptanceCounterMismatch", INVALID)]
    assert "chunks alone is dropped" in findings[0].message


def test_acceptance_length_contradicted_by_counters_is_not_reported() -> None:
    def lengths(accepted: int | None) -> list[tuple[float | None, float | None]]:
        run = run_of_world(WIDE, streamed_every(4, accepted))
        point = point_of(
            WIDE, next(each for each in WIDE.plan.points if each.arm == "ngram"), streamed_every(4, accepted)
        )
        cell: Cell = next(each for each in run.cells if each.arm == "ngram")
        return [(each.figures[EMITTED].value, each.figures[VERIFIED].value) for each in (point[0], cell)]

    assert lengths(0) == [(None, 1.0)] * 2, "that of the counters: no draft was accepted"
    assert lengths(None) == [(None, None)] * 2, "nothing confirms it without counters"


def test_acceptance_inferred_for_an_endpoint_without_drafter_is_only_info() -> None:
    """Its counters report no drafts and acceptance was only inferred from chunks, so the finding is Info."""
    plan, point = undeclared_drafter(WIDE, DialectName.VLLM)
    frame = streamed_every(4, None).records(point, WIDE.records(point))
    counted = CounterDeltas(output_tokens=int(frame["output_tokens"][WIDE.warmup :].sum()))
    summary = summarise_point(plan, point, tidy_frames([frame], point.hash), ClientHealth(), counted, simulated=False)
    assert check_names(summary.findings) == [("AcceptanceCounterMismatch", Severity.INFO)]
    assert summary.figures[EMITTED].value is None


def test_acceptance_from_chunks_is_used_if_the_counters_confirm_it() -> None:
    without_drafts = replace_columns(
        draft_steps=None, drafted_tokens=None, step_accepted=None, acceptance_source="chunks"
    )
    summary, _ = point_of(WORLD, NGRAM, without_drafts)
    assert summary.findings == []
    assert summary.figures[EMITTED].value == point_of(WORLD, NGRAM)[0].figures[EMITTED].value
    assert summary.figures[EMITTED].source == "client (chunks)"


def of_chunks(**counted: int | None) -> Corruptions:
    """Report no drafts in answers, and only these counters."""
    hidden = replace_columns(draft_steps=None, drafted_tokens=None, step_accepted=None, acceptance_source="chunks")
    known = {"output_tokens": None, "draft_steps": None, "drafted_tokens": None, "accepted_tokens": None}
    return combine(hidden, replace_counters(**{**known, **counted}))


STEPS = WORLD.records(NGRAM)["steps"][WORLD.warmup :].sum()


@pytest.mark.parametrize(
    ("counted", "confirmed"),
    [
        ({}, False),
        ({"drafted_tokens": 500}, False),
        ({"draft_steps": STEPS}, True),
        ({"draft_steps": STEPS // 2}, True),
        ({"draft_steps": 2 * STEPS}, False),
        ({"output_tokens": 1000, "draft_steps": 0}, False),
        ({"output_tokens": 1000}, False),
    ],
    ids=str,
)
def test_acceptance_from_chunks_needs_counters_that_agree(counted: dict[str, int], confirmed: bool) -> None:
    """SGLang counts draft steps but no accepted tokens; steps without drafts are not counted."""
    summary, _ = point_of(WORLD, NGRAM, of_chunks(**counted))
    assert (summary.figures[EMITTED].value is not None) is confirmed


def test_other_answers_that_report_drafts_confirm_those_of_chunks() -> None:
    chunks = of_chunks()
    records = Corruptions(
        records=lambda point, frame: pd.concat([frame[::2], chunks.records(point, frame)[1::2]]).sort_index(),
        counters=without_counters,
    )
    summary, _ = point_of(WORLD, NGRAM, records)
    assert summary.findings == []
    assert summary.figures[EMITTED].value == point_of(WORLD, NGRAM)[0].figures[EMITTED].value


def test_reason_for_unknown_acceptance_is_what_the_server_answered() -> None:
    unread = Corruptions(counters=lambda *_: CounterDeltas(unread="GET /metrics: HTTP 401: no key"))
    finding = next(each for each in findings_of(combine(of_chunks(), unread)) if each.check == "AcceptanceUnconfirmed")
    assert "HTTP 401: no key" in finding.message


def test_baseline_that_drafts_has_no_acceptance_length() -> None:
    corruptions = replace_counters(draft_steps=500, drafted_tokens=1500, accepted_tokens=900)
    baseline = next(point for point in WORLD.plan.points if point.arm == "none")
    summary, _ = point_of(WORLD, baseline, corruptions)
    assert check_names(summary.findings) == [
        ("BaselineDrafted", INVALID),
        ("AcceptanceCounterMismatch", INVALID),
    ]
    assert summary.figures[EMITTED].value is None
    assert findings_of(replace_counters(draft_steps=0, drafted_tokens=0, accepted_tokens=0), arm="none") == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"steps": 999, "draft_steps": 999, "drafted_tokens": 2997, "step_accepted": None}, "more steps than tokens"),
        ({"drafted_tokens": 1}, "more tokens accepted than drafted"),
        ({"accepted_tokens": -5}, "a count below 0"),
        ({"step_accepted": [-1, 2]}, "a count below 0"),
        ({"step_accepted": [4]}, "a step with more than 3 drafts accepted"),
        ({"steps": 1, "draft_steps": 1, "step_accepted": None}, "more than 4 tokens per step"),
    ],
)
def test_one_impossible_answer_is_found(edit: dict[str, Any], words: str) -> None:
    once = {name: lambda index, row, name=name: edit[name] if index == 10 else row[name] for name in edit}
    findings = findings_of(Corruptions(records=replace_columns(**once).records, counters=without_counters))
    (finding,) = (each for each in findings if each.check == "ImpossibleAcceptance")
    assert finding.severity is INVALID
    assert words in finding.message


def test_steps_hidden_by_a_truncated_answer_are_not_reported() -> None:
    """Every draft is accepted and the last three are cut, so an engine that reports only totals has 3 steps fewer."""
    full = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, alpha={"ngram": 1.0}, alpha_spread=0.0)
    hidden = replace_columns(steps=lambda _, row: row["steps"] - 3, step_accepted=None, acceptance_source="per_request")
    assert findings_of(hidden, world=full) == []


def drafting_always(method: str = "eagle3") -> SyntheticRun:
    drafter = {"name": "ngram", "method": method, "numSpeculativeTokens": 3}
    model = {} if method in ("ngram", "suffix") else {"model": "acme/drafter"}
    return SyntheticRun(prompts=24, concurrency=(3,), repeats=1, edits={"spec.drafters": [{**drafter, **model}]})


def undrafted(steps: int) -> Corruptions:
    """Remove the drafts from this many steps of each answer, in its own count and without counters."""
    corruptions = replace_columns(
        draft_steps=lambda _, row: row["draft_steps"] - steps,
        drafted_tokens=lambda _, row: row["drafted_tokens"] - 3 * steps,
        step_accepted=None,
    )
    return Corruptions(records=corruptions.records, counters=without_counters)


def test_steps_without_drafts_are_a_warning_if_the_method_always_drafts() -> None:
    findings = findings_of(undrafted(3), world=drafting_always())
    assert check_names(findings) == [("StepsWithoutDrafts", WARNING)]
    assert "eagle3 drafts at every step" in findings[0].message


def test_last_steps_and_lookup_methods_may_have_no_drafts() -> None:
    cases = ((1, "eagle3"), (4, "ngram"), (4, "suffix"))
    assert [findings_of(undrafted(steps), world=drafting_always(method)) for steps, method in cases] == [[], [], []]


ANSWERS = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 6)), min_size=1, max_size=8)
"""Accepted drafts of each draft step, and the number of steps without drafts."""


def check_values(answers: list[tuple[list[int], int]], extra: int = 0, **edits: Any) -> list[float | None]:
    """Return the check's values for these answers, each with `extra` tokens more than its steps emit."""
    rows = [record(**{**_answer(accepted, undrafted, extra), **edits}) for accepted, undrafted in answers]
    evidence = PointEvidence(WORLD.plan, NGRAM, tidy_frames([frame_of(rows)]), ClientHealth(), None)
    return [each.value for each in step_token_mismatch.evaluate(evidence)]


@settings(max_examples=25, deadline=None)
@given(ANSWERS)
def test_consistent_answers_have_no_finding_for_any_drafts(answers: list[tuple[list[int], int]]) -> None:
    assert check_values(answers) == []
    assert check_values(answers, extra=1) == [], "one token per answer may be counted on one side only"


def test_difference_is_reported_as_a_share_of_the_tokens() -> None:
    answers = [([3, 1, 0], 2)] * 4
    assert check_values(answers, extra=4) == [pytest.approx(3 / 13)]
    assert check_values(answers, extra=-3) == [pytest.approx(2 / 6)]


def test_missing_step_counts_leave_only_lists_that_emit_too_much() -> None:
    answers = [([3, 1, 0], 0)]
    assert check_values(answers, extra=5, steps=None) == [], "five steps may have had no drafts"
    assert check_values(answers, extra=-4, steps=None) == [pytest.approx(3 / 3)]
    assert check_values(answers, extra=-4, steps=None, step_accepted=None) == []


def test_list_of_steps_with_more_tokens_than_counted_is_a_warning() -> None:
    corruptions = replace_columns(
        step_accepted=lambda _, row: row["step_accepted"] and [*row["step_accepted"][:-3], 3, 3, 3]
    )
    assert check_names(findings_of(corruptions)) == [("StepTokenMismatch", Severity.WARNING)]


def _answer(accepted: list[int], undrafted: int, extra: int) -> dict[str, Any]:
    tokens = 1 + sum(accepted) + len(accepted) + undrafted + extra
    counts = {"output_tokens": tokens, "output_tokens_client": tokens}
    return {**counts, "steps": len(accepted) + undrafted, "step_accepted": accepted}
