"""Arms that answer worse than the baseline: found where they do, not reported otherwise, and never recommended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.analysis.lossless.losslessness import judged_answers
from specbench_client.analysis.statistics.significance import holm_rejections
from specbench_client.documents.finding import Severity
from specbench_client.documents.lossless import JudgedAnswers
from specbench_client.documents.summary import RunSummary
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.numpy_columns import TextCodes, Values
from specbench_client.report.html import render_html
from specbench_client.report.text.answers import answers_lines, answers_table
from specbench_client.report.text.run_report import markdown
from specbench_client.trust.checks.answers import SIGNIFICANCE, answers_not_judged, answers_worse
from specbench_client.trust.evidence import AnswersEvidence, CellEvidence
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world, tidy_frames
from specbench_testing.tables import pairs_with

pytestmark = pytest.mark.runs

JUDGED = SyntheticRun(prompts=24, categories=ONE, concurrency=(1, 2), drafters=("ngram", "other"))
REPEATS, PROMPTS, CELLS = 5, 40, 2


def damaged(prompts: Mapping[tuple[str, str], int], flaw: str = "Loop") -> Corruptions:
    """The first prompts have a flawed answer in every repeat: (arm, load) → their number."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        most = prompts.get((point.arm, point.level.label), 0)
        flaws = [flaw if int(prompt[1:]) < most else None for prompt in frame["prompt_id"]]
        return frame.assign(judged=True, flaw=pd.Series(flaws, index=frame.index, dtype=object))

    return Corruptions(records=edit)


def judged(summary: RunSummary, arm: str, load: str) -> JudgedAnswers | None:
    return next(cell.judged for cell in summary.cells if (cell.arm, cell.level.label) == (arm, load))


def test_worse_answers_at_one_load_refuse_it_and_rule_the_arm_out_at_all() -> None:
    summary = run_of_world(JUDGED, damaged({("ngram", "2"): 12}))
    (finding,) = [each for each in summary.findings if each.check == "AnswersWorse"]
    assert (finding.severity, finding.arm, finding.load) == (Severity.FAULT, "ngram", "2")
    found = judged(summary, "ngram", "2")
    assert found is not None
    assert (found.flawed, found.baseline_flawed, found.flaws) == (found.only_arm, 0, {"Loop": found.flawed})
    assert (found.worse_prompts, found.better_prompts, found.control) == (11, 0, 0.0), "the first prompt is in the ramp"
    assert f"{found.flawed} of {found.pairs} answers are flawed ({found.flawed} Loop)" in finding.message
    assert {cell.arm for cell in summary.cells if not cell.valid} == {"ngram"}
    assert [cell.valid for cell in summary.cells if cell.arm == "ngram"] == [True, False]
    assert summary.trustworthy
    assert summary.recommendation is not None
    assert summary.recommendation.ruled_out == {
        "ngram": "its answers are worse than the baseline's at concurrency 2",
    }
    choices = summary.recommendation.choices
    assert {each.arm for choice in choices for each in choice.at_each_load} == {"other"}
    assert "without ngram (worse answers)" in summary.recommendation.sentence
    assert "Use ngram" not in summary.headline
    assert summary.headline.endswith("ngram (worse answers) is ruled out.")
    assert "ngram is at fault: AnswersWorse." in summary.recommendation.limits


@pytest.mark.parametrize(
    "prompts",
    [
        {},
        {("ngram", "1"): 5},
        {("none", "1"): 20},
        {("none", "1"): 20, ("ngram", "1"): 20},
        {("none", "1"): 15, ("ngram", "1"): 20},
    ],
)
def test_flaws_that_chance_explains_or_that_the_baseline_has_are_not_reported(
    prompts: Mapping[tuple[str, str], int],
) -> None:
    summary = run_of_world(JUDGED, damaged(prompts))
    assert "AnswersWorse" not in {each.check for each in summary.findings}


@pytest.mark.parametrize("drafters", [("ngram", "other"), ()], ids=["paired", "alone"])
def test_a_baseline_with_many_flawed_answers_is_named_except_wrong_ones(drafters: tuple[str, ...]) -> None:
    world = replace(JUDGED, drafters=drafters)
    damage = {(arm, load): count for arm in ("none", *drafters) for load, count in (("1", 6), ("2", 18))}
    summary = run_of_world(world, damaged(damage, "InvalidJson"))
    found = [each for each in summary.findings if each.check == "AnswersFlawed"]
    assert [(each.severity, each.arm, each.load) for each in sorted(found, key=lambda each: str(each.load))] == [
        (Severity.INFO, "none", "1"),
        (Severity.WARNING, "none", "2"),
    ]
    assert all(cell.valid for cell in summary.cells)
    wrong = run_of_world(world, damaged(damage, "WrongAnswer"))
    assert "AnswersFlawed" not in {each.check for each in wrong.findings}


@pytest.mark.parametrize(
    ("flaw", "empty", "severity"),
    [("Empty", 3, Severity.WARNING), ("Empty", 1, None), ("Loop", 3, Severity.INFO), ("Loop", 13, Severity.WARNING)],
)
def test_flawed_answers_of_an_arm_without_a_baseline_are_named(
    flaw: str, empty: int, severity: Severity | None
) -> None:
    """Of 23 prompts: the first one is in the ramp."""
    world = replace(JUDGED, concurrency=(1,), drafters=("ngram",), edits={"spec.baseline": "Skip"})
    summary = run_of_world(world, damaged({("ngram", "1"): 1 + empty}, flaw))
    found = [(each.severity, each.arm) for each in summary.findings if each.check == "AnswersFlawed"]
    assert found == ([] if severity is None else [(severity, "ngram")])


def test_damage_is_found_where_sampled_answers_vary_more_between_repeats_than_between_arms() -> None:
    """Half of the answers are flawed, by seed: other ones in each repeat, the same ones on both arms."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        numbers = frame["prompt_id"].str[1:].astype(int)
        by_seed = (numbers + point.repeat) % 2 == 0
        damaged = (point.arm == "ngram") & (numbers < 30) & (point.repeat == 0)
        flaws = [("WrongAnswer" if each else None) for each in by_seed | damaged]
        return frame.assign(judged=True, flaw=pd.Series(flaws, index=frame.index, dtype=object))

    summary = run_of_world(replace(JUDGED, prompts=60, concurrency=(1,)), Corruptions(records=edit))
    found = judged(summary, "ngram", "1")
    assert found is not None
    assert found.control is not None
    assert found.only_arm / found.pairs < found.control / 2
    assert [each.arm for each in summary.findings if each.check == "AnswersWorse"] == ["ngram"]


def test_pairs_with_an_answer_that_took_too_long_are_counted_and_shown_and_not_compared() -> None:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        slow = (frame["prompt_id"].str[1:].astype(int) < 5) & (point.arm == "ngram")
        flaws = pd.Series(["NotJudged" if each else None for each in slow], index=frame.index, dtype=object)
        if point.level.label == "2":
            return frame.assign(judged=False, flaw="NotJudged")
        return frame.assign(judged=~slow, flaw=flaws)

    summary = run_of_world(JUDGED, Corruptions(records=edit))
    some, every = judged(summary, "ngram", "1"), judged(summary, "ngram", "2")
    assert some is not None
    assert every is not None
    assert some.not_judged
    assert (some.flawed, some.flaws, some.prompts) == (0, {}, JUDGED.prompts - 5)
    assert (every.pairs, every.flaws, every.baseline_flaws, every.not_judged > 0) == (0, {}, {}, True)
    assert not {"AnswersWorse", "AnswersFlawed"} & {each.check for each in summary.findings}
    assert {each.arm for each in summary.findings if each.check == "AnswersNotJudged"} == {"none", *JUDGED.drafters}
    assert not summary.trustworthy
    total = sum(cell.judged.not_judged for cell in summary.cells if cell.judged)
    assert f"{total:,} pairs not judged" in " ".join(answers_lines(summary))


@pytest.mark.parametrize(
    ("not_judged", "judged", "severity", "share"),
    [
        (0, 100, None, "0.0%"),
        (1, 99, Severity.INFO, "1.0%"),
        (5, 95, Severity.INFO, "5.0%"),
        (6, 94, Severity.WARNING, "6.0%"),
        (100, 0, Severity.WARNING, "100.0%"),
        (6, 24, Severity.WARNING, "20.0%"),
        (0, 0, None, "0.0%"),
    ],
)
def test_answers_that_were_not_judged_are_a_warning_above_a_share(
    not_judged: int, judged: int, severity: Severity | None, share: str
) -> None:
    """Answers outside the steady state do not count."""
    rows = _rows("ngram")
    steady = np.flatnonzero(rows.array("steady"))[: not_judged + judged]
    flaws = np.full(len(rows), None)
    flaws[steady[:not_judged]] = "NotJudged"
    flaws[~rows.array("steady")] = "NotJudged"
    flawed = np.full(len(rows), np.nan, np.float32)
    flawed[steady[not_judged:]] = 0.0
    assert len(steady) == not_judged + judged
    evidence = cast("CellEvidence", SimpleNamespace(rows=rows.assign(flaw=TextCodes.of(flaws.tolist()), flawed=flawed)))
    found = answers_not_judged.evaluate(evidence)
    assert [each.severity for each in found] == ([severity] if severity else [])
    for each in found:
        assert f"{not_judged} of {not_judged + judged} answers ({share}) were not judged" in each.message


@cache
def _rows(arm: str) -> Table:
    world = SyntheticRun(prompts=PROMPTS, categories=ONE, tokens=(4, 6), repeats=REPEATS)
    points = [point for point in world.plan.points if point.arm == arm]
    return join_tables([tidy_frames([world.records(point)], point.hash) for point in points])


def _flawed(arm: str, chances: Values, sticky: float, rng: np.random.Generator, damage: float = 0.0) -> Table:
    """The arm's rows with flaws: by prompt, and `damage` of all answers.

    `sticky`: share of prompts whose answer is the same in every repeat, as greedy answers are.
    """
    same, kept = rng.random(PROMPTS) < chances, rng.random(PROMPTS) < sticky
    drawn = np.where(kept, same, rng.random((REPEATS, PROMPTS)) < chances)
    rows = _rows(arm)
    at = [int(prompt[1:]) for prompt in rows.codes("prompt_id").by_row]
    flawed = drawn[rows.array("repeat").astype(int), at] | (rng.random(len(rows)) < damage)
    flaws = TextCodes.of(["Loop" if each else None for each in flawed])
    return rows.assign(flawed=flawed.astype(np.float32), flaw=flaws)


@pytest.mark.parametrize(("repeats_of_prompt", "control"), [(REPEATS, 0.0), (1, None)])
def test_control_needs_a_request_that_was_answered_in_two_repeats(
    repeats_of_prompt: int, control: float | None
) -> None:
    rows = _rows("none")
    rows = rows.assign(flawed=np.zeros(len(rows), np.float32))
    prompts = np.array([int(prompt[1:]) for prompt in rows.codes("prompt_id").by_row])
    own = (rows.array("repeat") - prompts) % REPEATS < repeats_of_prompt
    found = judged_answers(
        pairs_with(_pairs(), _rows("ngram").assign(flawed=np.zeros(len(_rows("ngram")))), rows), rows.among(own)
    )
    assert found is not None
    assert found.control == control


@cache
def _pairs() -> Pairs:
    return pair_requests(_rows("ngram"), _rows("none"), None)


def _alarms(seed: int, mean: float, sticky: float, damage: float = 0.0) -> list[bool]:
    """Whether each cell of a run is found. `mean`: flawed answers on both sides; the first cell has damage too."""
    rng, found = np.random.default_rng(seed), list[JudgedAnswers]()
    for cell in range(CELLS):
        chances = rng.beta(mean, 1 - mean, PROMPTS)
        baseline = _flawed("none", chances, sticky, rng)
        arm = _flawed("ngram", chances, sticky, rng, 0.0 if cell else damage)
        one = judged_answers(pairs_with(_pairs(), arm, baseline), baseline)
        assert one is not None
        found.append(one)
    clear = holm_rejections([each.p_value for each in found], SIGNIFICANCE)
    evidence = [AnswersEvidence(*each) for each in zip(found, clear, strict=True)]
    return [bool(answers_worse.evaluate(each)) for each in evidence]


@pytest.mark.draws
def test_honest_runs_raise_no_alarm() -> None:
    """At 2 %, 20 % and 50 % of flawed answers on both sides, half of the runs with answers that repeat."""
    alarms = [_alarms(seed, (0.02, 0.2, 0.5)[seed % 3], (0.0, 0.8)[seed % 2]) for seed in range(200)]
    assert sum(any(each) for each in alarms) == 0


@pytest.mark.draws
@pytest.mark.parametrize(("mean", "damage"), [(0.02, 0.15), (0.2, 0.5)])
def test_damage_is_found_within_200_requests_and_in_the_damaged_cell_only(mean: float, damage: float) -> None:
    found = np.array([_alarms(seed, mean, 0.8, damage) for seed in range(40)])
    assert found[:, 0].mean() >= 0.95
    assert not found[:, 1:].any()


def test_reports_have_a_table_of_flawed_answers_with_kinds_control_and_p_value() -> None:
    summary = run_of_world(JUDGED, damaged({("ngram", "2"): 12}))
    found = judged(summary, "ngram", "2")
    assert found is not None
    table = answers_table(summary)
    assert len(table.rows) == 4
    (row,) = [each for each in table.rows if each[0] == "ngram" and each[2] == "2 invalid"]
    assert row[3:] == [f"{found.flawed} loop", f"{found.pairs}", f"{found.flawed}", "0", "11 / 0", "0.0%", "0.00098"]
    assert f"**{table.title}**" in markdown(JUDGED.plan, summary)
    page = render_html(JUDGED.plan, summary)
    assert "Flawed answers, paired with the baseline&#39;s" in page
    assert f"{found.flawed} loop" in page
