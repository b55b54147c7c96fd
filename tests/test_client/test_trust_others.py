"""What comes back though it should not: other temperatures, prompts that repeat others, drafters that remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.plan.plan import Point
from specbench_testing.lies import columns, found, names
from specbench_testing.records import ONE, Lies, World, run_of_world, sha

pytestmark = pytest.mark.usefixtures("few_resamples")

DOUBT = Severity.DOUBT
GREEDY = World(prompts=24, categories=ONE)
SAMPLED = World(prompts=24, categories=ONE, temperature=0.8)


def of_check(name: str, world: World, lies: Lies) -> list[Finding]:
    return [finding for finding in run_of_world(world, lies).findings if finding.check == name]


def texts(make: Callable[[Point, Any], str]) -> Lies:
    """Every answer's hash is what `make` says."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(output_sha256=[sha(make(point, row)) for _, row in frame.iterrows()])

    return Lies(records=edit)


def own(point: Point, row: Any) -> str:
    return f"{point.arm}-{point.repeat}-{row['prompt_id']}"


def common(_: Point, row: Any) -> str:
    return str(row["prompt_id"])


def test_answers_that_do_not_come_back_at_temperature_0_were_sampled() -> None:
    seen = of_check("OtherTemperature", GREEDY, texts(own))
    assert {finding.arm for finding in seen} == {"none", "ngram"}
    assert all((finding.severity, finding.value) == (DOUBT, 1.0) for finding in seen)
    assert "they were sampled" in seen[0].message


def test_answers_that_come_back_although_they_were_to_be_sampled_were_greedy() -> None:
    seen = of_check("OtherTemperature", SAMPLED, texts(common))
    assert [finding.value for finding in seen] == [1.0, 1.0]
    assert "temperature 0.8 with another seed" in seen[0].message


@pytest.mark.parametrize(("world", "make"), [(GREEDY, common), (SAMPLED, own)], ids=["greedy", "sampled"])
def test_answers_that_are_as_was_asked_for_are_not_spoken_of(world: World, make: Callable[[Point, Any], str]) -> None:
    assert of_check("OtherTemperature", world, texts(make)) == []


@pytest.mark.parametrize(
    "world",
    [
        World(prompts=24, categories=ONE, tokens=(4, 20)),
        World(prompts=24, categories=ONE, tokens=(200, 300)),
        World(prompts=6, categories=ONE),
        World(prompts=24, categories=ONE, repeats=1),
    ],
    ids=["short answers", "long answers", "few prompts", "one repeat"],
)
def test_what_cannot_tell_is_not_judged(world: World) -> None:
    assert of_check("OtherTemperature", world, texts(own)) == []


def test_a_low_temperature_may_give_the_same_answer_again() -> None:
    assert of_check("OtherTemperature", World(prompts=24, categories=ONE, temperature=0.2), texts(common)) == []


def pairwise(share: float) -> Callable[[int, Any], str]:
    """So large a share of the 24 prompts has another one's answer."""
    return lambda _, row: sha(f"{max(int(str(row['prompt_id'])[1:]), int(share * 24))}")


def test_prompts_that_repeat_others_are_doubted() -> None:
    seen = found(columns(output_sha256=pairwise(0.4), output_tokens=60, output_tokens_client=60))
    assert ("AlikePrompts", DOUBT) in names(seen)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_sha256": pairwise(0.1)},
        {"output_sha256": pairwise(0.4), "output_tokens": 10, "output_tokens_client": 10},
        {"output_sha256": pairwise(0.4), "input_tokens": lambda index, _: 100 + index},
        {"output_sha256": None},
    ],
    ids=["a few", "labels", "other lengths of prompts", "texts untold"],
)
def test_a_few_alike_answers_labels_and_other_prompts_are_no_doubles(changes: dict[str, Any]) -> None:
    assert "AlikePrompts" not in {finding.check for finding in found(columns(**changes))}


def remembered(arm: str, share: float) -> Lies:
    """At concurrency 2 and more, this arm needs fewer steps for the same answers."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm != arm or point.level.concurrency == 1:
            return frame
        return frame.assign(steps=(frame["steps"] * (1 - share)).astype(int), step_accepted=None)

    return Lies(records=edit, counters=lambda _, __: None)


LOADS = World(prompts=24, categories=ONE, concurrency=(1, 2))


def test_an_acceptance_length_that_rises_within_a_launch_is_doubted_once() -> None:
    (seen,) = of_check("WarmedDrafter", LOADS, remembered("ngram", 0.5))
    assert (seen.severity, seen.arm, seen.workload, seen.threshold) == (DOUBT, "ngram", "chat", 0.15)
    assert seen.value is not None
    assert 0.9 < seen.value < 1.2
    assert "at 2, repeat 0" in seen.message


@pytest.mark.parametrize(
    ("world", "lies"),
    [
        (LOADS, remembered("ngram", 0.1)),
        (World(prompts=24, categories=ONE, concurrency=(1, 2), temperature=0.8), remembered("ngram", 0.5)),
        (World(prompts=24, categories=ONE, concurrency=(2,)), remembered("ngram", 0.5)),
    ],
    ids=["a little", "sampled", "one load a launch"],
)
def test_without_a_rise_from_point_to_point_nothing_is_remembered(world: World, lies: Lies) -> None:
    assert of_check("WarmedDrafter", world, lies) == []
