"""Answers that are not the answers to the questions: cut by the engine, all alike, or counted with tokens they lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.plan.plan import Point
from specbench_testing.lies import WORLD, columns, found, names
from specbench_testing.records import ONE, Lies, World, run_of_world, sha

pytestmark = pytest.mark.usefixtures("few_resamples")

INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE


def ended(share: float, tokens: int) -> Lies:
    """So many of the answers say `length` after fewer tokens than were allowed."""

    def finish(index: int, row: Any) -> str:
        is_cut = index % 10 < 10 * share and row["output_tokens"] <= tokens
        return "length" if is_cut or row["output_tokens"] == WORLD.tokens[1] else "stop"

    return columns(finish_reason=finish)


@pytest.mark.parametrize("arm", ["none", "ngram"])
def test_answers_that_the_engines_own_limit_cut_are_found_without_any_comparison(arm: str) -> None:
    findings = found(ended(1.0, tokens=78), arm)
    assert names(findings) == [("CutAnswers", INVALID)]
    assert "80 were allowed" in findings[0].message


def test_answers_as_long_as_was_asked_for_are_not_cut() -> None:
    assert found(columns(finish_reason=lambda _, row: "length" if row["output_tokens"] >= 79 else "stop")) == []
    assert found(columns(finish_reason=None)) == []


def test_one_long_prompt_among_hundreds_is_a_note() -> None:
    many = World(prompts=150, concurrency=(1,), repeats=1, tokens=(5, 9))

    def once(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        short = (frame["output_tokens"] == 5) & (frame["phase"] == "steady")
        return frame.assign(finish_reason=["length" if at == short.idxmax() else "stop" for at in frame.index])

    assert names(found(Lies(records=once), world=many)) == [("CutAnswers", NOTE)]


def alike(share: float) -> Lies:
    """One text for so many; the prompts differ, also in their length."""
    return columns(
        output_sha256=lambda index, row: sha("same") if index % 10 < 10 * share else row["output_sha256"],
        input_tokens=lambda index, _: 100 + index,
    )


@pytest.mark.parametrize(("share", "expected"), [(1.0, [("SameText", DOUBT)]), (0.7, [("SameText", DOUBT)]), (0.4, [])])
def test_one_text_for_most_prompts_is_doubted(share: float, expected: list[tuple[str, Severity]]) -> None:
    for arm in ("none", "ngram"):
        assert names(found(alike(share), arm)) == expected


def test_a_label_may_be_the_answer_to_most_prompts() -> None:
    labels = World(prompts=40, concurrency=(3,), repeats=1, tokens=(2, 4))
    assert [each for each in names(found(alike(1.0), world=labels)) if each[0] == "SameText"] == [("SameText", NOTE)]


def test_a_handful_of_prompts_may_have_one_answer() -> None:
    few = World(prompts=9, concurrency=(1,), repeats=1)
    assert found(alike(1.0), world=few) == []


def kept(*, counted_more: float = 0.0, spread: float = 0.03) -> Lies:
    """Texts were kept, of about four bytes a token; the drafter's usage counts more tokens than there are.

    Neither chunks nor a list of steps deny it: else TokenCountMismatch and AcceptanceIdentity would speak first.
    """

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        rng = np.random.default_rng([point.repeat, len(point.arm)])
        factor = 1 + counted_more if point.arm == "ngram" else 1.0
        tokens = frame["output_tokens"].astype(float)
        noise = np.exp(rng.normal(0, spread, len(frame)))
        texts = ["ä" * round(2 * count * by) for count, by in zip(tokens, noise, strict=True)]
        counts = (tokens * factor).round().astype(int)
        shas = [sha(f"{point.arm}{text}{index}") for index, text in enumerate(texts)]
        told = {"output_tokens": counts, "output_tokens_client": None, "chunk_tokens": None, "step_accepted": None}
        return frame.assign(output_text=texts, output_sha256=shas, **told)

    return Lies(records=edit, counters=lambda *_: None)


SAMPLED = World(prompts=24, categories=ONE, temperature=0.8)


def doubted(lies: Lies, world: World = SAMPLED) -> list[str]:
    return [finding.check for finding in run_of_world(world, lies).findings]


def test_a_count_that_is_too_high_on_one_arm_shows_in_its_texts() -> None:
    findings = run_of_world(SAMPLED, kept(counted_more=0.15)).findings
    assert names(findings) == [("TextPerToken", DOUBT)]
    assert "-13%" in findings[0].message


@pytest.mark.draws
def test_texts_that_differ_by_chance_are_no_lie() -> None:
    assert doubted(kept()) == []
    assert doubted(kept(counted_more=0.05)) == []
    assert doubted(kept(spread=1.0)) == [], "where texts vary so much, a tenth is chance"


def test_without_texts_or_at_temperature_0_bytes_are_not_compared() -> None:
    untold = kept(counted_more=0.15).records
    assert doubted(Lies(records=lambda *given: untold(*given).assign(output_text=None), counters=lambda *_: None)) == []
    assert "TextPerToken" not in doubted(kept(counted_more=0.15), World(prompts=24, categories=ONE))
