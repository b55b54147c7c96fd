"""Temperatures that were not applied, duplicate prompts, and drafters that remember answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.plan.plan import Point
from specbench_testing.corrupted_records import check_names, findings_of, replace_columns
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world, sha

pytestmark = pytest.mark.runs

WARNING = Severity.WARNING
GREEDY = SyntheticRun(prompts=24, categories=ONE)
SAMPLED = SyntheticRun(prompts=24, categories=ONE, temperature=0.8)


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
    assert "at 2, repeat 0" in seen.message


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
