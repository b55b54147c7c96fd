"""Lies that only the comparison with the paired baseline gives away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.plan.plan import Point
from specbench_testing.lies import closed_up
from specbench_testing.records import ONE, Lies, World, run_of_world, sha

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = World(prompts=24, categories=ONE)
INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE


def found(lies: Lies, world: World = WORLD) -> list[Finding]:
    return run_of_world(world, lies).findings


def names(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.check, finding.severity) for finding in findings]


def cut(share: float, arm: str = "ngram", every: int = 1) -> Lies:
    """Answers of an arm end early, say `stop`, and are consistent in themselves."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return closed_up(frame.apply(shorten, axis=1)) if point.arm == arm else frame

    def shorten(row: Any) -> Any:
        if int(str(row["prompt_id"])[1:]) % every:
            return row
        steps = max(1, int(row["steps"] * share))
        accepted = row["step_accepted"][:steps] if row["step_accepted"] is not None else None
        chunks = row["chunk_tokens"][: steps + 1]
        told = {"output_tokens": sum(chunks), "output_tokens_client": sum(chunks), "steps": steps}
        told |= {"chunk_tokens": chunks, "chunk_ns": row["chunk_ns"][: steps + 1], "step_accepted": accepted}
        told |= {"last_token_ns": row["chunk_ns"][steps], "finish_reason": "stop", "output_sha256": None}
        return row.copy().where(~row.index.isin(list(told)), pd.Series(told, dtype=object))

    return Lies(records=edit, counters=lambda *_: None)


def diverging(share: float, *, arms: tuple[str, ...] = ("ngram",), later_repeats_only: bool = False) -> Lies:
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

    return Lies(records=edit)


def test_truncated_answers_are_found() -> None:
    findings = found(cut(0.5))
    assert names(findings) == [("TruncatedOutput", INVALID), ("ShortAnswers", NOTE)]
    assert (findings[0].arm, findings[0].load, findings[0].point) == ("ngram", "1", None)
    assert "24 have an answer more than 10% shorter" in findings[0].message


def test_a_truncation_invalidates_every_point_of_its_cell() -> None:
    summary = run_of_world(WORLD, cut(0.5))
    assert summary.points_invalid == 3
    assert "not comparable" in summary.verdict


def test_a_truncation_of_every_third_answer_is_found() -> None:
    assert names(found(cut(0.5, every=3))) == [("TruncatedOutput", INVALID)]


def test_a_handful_of_prompts_is_enough_where_all_agree() -> None:
    assert ("TruncatedOutput", INVALID) in names(found(cut(0.5), World(prompts=5, categories=ONE)))


def test_a_truncated_baseline_is_found_from_the_other_side() -> None:
    findings = found(cut(0.5, arm="none"))
    assert names(findings) == [("TruncatedOutput", INVALID), ("ShortAnswers", NOTE)]
    assert "the baseline's are cut" in findings[0].message


def test_lengths_that_differ_both_ways_are_rounding_not_truncation() -> None:
    arm, baseline = cut(0.5, arm="ngram", every=2), cut(0.5, arm="none", every=3)

    def both(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        odd = [int(str(prompt)[1:]) % 2 for prompt in frame["prompt_id"]]
        lie = arm if point.arm == "ngram" else baseline
        return lie.records(point, frame) if any(odd) else frame

    lies = Lies(records=both, counters=lambda *_: None)
    assert "TruncatedOutput" not in {finding.check for finding in found(lies)}


@pytest.mark.parametrize("lies", [cut(0.5), diverging(1.0, later_repeats_only=True)])
def test_sampled_answers_differ_by_design_and_are_not_judged(lies: Lies) -> None:
    assert found(lies, World(prompts=24, categories=ONE, tokens=(100, 160), temperature=0.8)) == []


def test_diverging_greedy_answers_are_found() -> None:
    findings = found(diverging(1.0))
    assert names(findings) == [("GreedyDivergence", DOUBT)]
    assert "100% of the greedy answers differ" in findings[0].message
    assert findings[0].value == 1.0


def test_a_little_divergence_is_noted_and_none_is_not() -> None:
    assert names(found(diverging(0.1))) == [("GreedyDivergence", NOTE)]
    assert found(diverging(0.0)) == []


def test_a_baseline_that_differs_from_itself_as_often_is_the_control() -> None:
    everybody = diverging(0.5, arms=("ngram", "none"), later_repeats_only=True)
    assert names(found(everybody)) == []


def test_without_repeats_there_is_no_control_and_the_message_says_so() -> None:
    findings = [each for each in found(diverging(1.0), World(prompts=24, categories=ONE, repeats=1)) if each.arm]
    assert names(findings) == [("GreedyDivergence", DOUBT)]
    assert "none, it was measured once" in findings[0].message


def test_texts_that_were_not_kept_are_not_judged() -> None:
    assert found(Lies(records=lambda _, frame: frame.assign(output_sha256=None))) == []


def test_a_claim_inside_the_baselines_own_spread_is_doubted() -> None:
    """Every run of a repeat is slow or fast alike: pairing removes it from the ratio, not from the machine."""

    def shaky(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        factor = (0.8, 1.0, 1.25)[point.repeat]
        names = ["intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns"]
        times = {name: (frame[name].astype(float) * factor).astype(int) for name in names}
        chunks = [[int(at * factor) for at in each] for each in frame["chunk_ns"]]
        return frame.assign(**times, chunk_ns=pd.Series(chunks, index=frame.index, dtype=object))

    world = World(prompts=40, categories=ONE, alpha={"ngram": 0.25}, step_ms={"ngram": 10.5}, alpha_spread=0.02)
    findings = found(Lies(records=shaky), world)
    assert names(findings) == [("NoisyBaseline", DOUBT)]
    assert found(Lies(), world) == []
    sampled = found(Lies(records=shaky), replace(world, temperature=0.8))
    assert names(sampled) == [("NoisyBaseline", NOTE)], "other texts in each repeat, the same on both sides"


def test_unpaired_requests_are_noted() -> None:
    def fewer(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[~frame["prompt_id"].isin([f"p{index}" for index in range(6)])] if point.arm == "none" else frame

    assert names(found(Lies(records=fewer, counters=lambda *_: None), WORLD)) == [
        ("FewPrompts", NOTE),
        ("UnpairedRequests", NOTE),
    ]


def test_a_comparison_without_any_pair_is_doubted() -> None:
    def others(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(prompt_id="x" + frame["prompt_id"]) if point.arm == "none" else frame

    summary = run_of_world(WORLD, Lies(records=others))
    assert names(summary.findings) == [("UnpairedRequests", DOUBT)]
    assert "not comparable" in summary.verdict


def counting_more(tokens: int) -> Lies:
    """Usage and chunks of the drafter's answers count so many tokens more than the baseline's of the same text."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        counts = {name: frame[name] + tokens for name in ("output_tokens", "output_tokens_client")}
        return frame.assign(**counts) if point.arm == "ngram" else frame

    return Lies(records=edit, counters=lambda *_: None)


def test_one_token_more_for_the_same_text_is_found_where_it_moves_the_speedup() -> None:
    findings = found(counting_more(1), World(categories=ONE, tokens=(15, 25)))
    assert names(findings) == [("SameTextOtherCount", INVALID), ("ShortAnswers", NOTE)]
    assert findings[0].value == pytest.approx(1 / 20, rel=0.5)
    assert "the very text" in findings[0].message


def test_one_token_more_is_convention_where_it_moves_nothing() -> None:
    assert found(counting_more(1), World(categories=ONE, tokens=(400, 500))) == []
