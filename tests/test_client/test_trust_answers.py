"""Checks on answers: cut, identical or repeated ones, token counts, temperature, and drafters that remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.documents.finding import Finding, Severity
from specbench_testing.corrupted_records import WORLD, check_names, combine, findings_of, replace_columns
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world, sha

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
