"""Above temperature 0 answers differ by design: their distributions are compared, first tokens and lengths.

First turns alone: what is asked later holds the model's own words. Two halves of the baseline's repeats, compared
alike, are the control. A test of answers that one seed repeats word for word would be sure of nothing and say a lot:
such a run is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.lossless import ComparedBy, DistributionTest, LosslessVerdict
from specbench_client.analysis.lossless.lengths import length_test
from specbench_client.analysis.lossless.openings import LEVEL, Tested, opening_test
from specbench_client.analysis.lossless.words import Key, kept_as, keyed, read_words
from specbench_client.analysis.statistics.holm import rejected
from specbench_client.metrics.divergence import answers, divergence
from specbench_client.metrics.rows import Columns, Rows, among

CONTROL_LEVEL = 0.01
LONG_TOKENS = 16
"""Answers as long as this do not come back word for word by chance."""
COPIES_MOST = 0.5

_WHAT = {
    "opening": (
        "Share of the arm's answers that would have to begin with a {unit} the baseline never begins with, for first"
        " {unit}s to be as far apart as they are: sqrt(Σ(p − q)² / (1 + Σp²)), mean over prompts"
    ),
    "length": "Largest difference of the two distributions of output tokens (Kolmogorov-Smirnov); prompts weigh alike",
}
_SMALLEST = "The smallest such difference that would have been found in four runs of five, at 5 %"
_UNITS = {ComparedBy.TOKEN_IDS: "token", ComparedBy.TEXT: "word", ComparedBy.DIGEST: "token"}

Test = Callable[[pd.DataFrame, pd.DataFrame, int], Tested | None]
_TESTS: Mapping[str, Test] = {"opening": opening_test, "length": length_test}


@dataclass(frozen=True)
class Sampled:
    """What was tested, and what can be said of it."""

    verdict: LosslessVerdict
    message: str
    by: ComparedBy
    tests: tuple[DistributionTest, ...] = ()


def judge_sampled(
    arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, records: Mapping[str, Iterable[pd.DataFrame]], seed: int
) -> Sampled:
    """Both: tidy rows of one cell, all repeats. `records`: by point. `seed`: of the permutations."""
    mine, base = (_first_turns(rows) for rows in (arm, baseline))
    by, (mine, base) = _opened(mine, base, records)
    names = [name for name in _TESTS if name != "opening" or by is not ComparedBy.DIGEST]
    if _copies(baseline):
        why = "the baseline's repeats give the same long answers word for word: sample with another seed each time"
        return Sampled(LosslessVerdict.NOT_INDEPENDENT, why, by)
    tested = {name: told for name in names if (told := _TESTS[name](mine, base, seed))}
    if not tested:
        return Sampled(LosslessVerdict.TOO_FEW, "no prompt has enough answers of both sides for a test", by)
    halves = _halves(base)
    controls = {name: _TESTS[name](*halves, seed) if halves else None for name in tested}
    tests = tuple(_test(name, told, controls[name], by) for name, told in tested.items())
    return _verdict(tests, by)


def _verdict(tests: tuple[DistributionTest, ...], by: ComparedBy) -> Sampled:
    told = "; ".join(f"{each.name}: {each.difference.value:.3f}, p = {each.p_value:.3f}" for each in tests)
    controls = [each.control_p_value for each in tests]
    if all(each is None for each in controls):
        why = "the baseline was measured once, and has no halves to be compared"
        return Sampled(LosslessVerdict.NO_CONTROL, f"{told}; {why}", by, tests)
    if any(each is not None and each < CONTROL_LEVEL for each in controls):
        why = "the baseline's own repeats differ in distribution too, so this says nothing of the drafter"
        return Sampled(LosslessVerdict.NO_CONTROL, f"{told}; {why}", by, tests)
    if any(rejected([each.p_value for each in tests], LEVEL)):
        return Sampled(LosslessVerdict.DIVERGES, f"answers are of another distribution: {told}", by, tests)
    found = ", ".join(f"{each.name} {each.detectable.value:.3f}" for each in tests)
    tail = f"would have been found in four runs of five: {found}"
    return Sampled(LosslessVerdict.LOSSLESS, f"no difference of distributions was found: {told}; {tail}", by, tests)


def _first_turns(rows: Columns) -> pd.DataFrame:
    known = answers(rows)
    return known[(known["turn"] == 0).to_numpy(bool)].reset_index(drop=True)


def _opened(
    mine: pd.DataFrame, base: pd.DataFrame, records: Mapping[str, Iterable[pd.DataFrame]]
) -> tuple[ComparedBy, tuple[pd.DataFrame, pd.DataFrame]]:
    """Both sides with the opening of each answer, where words were kept."""
    if not any(bool(side["text_bytes"].notna().any()) for side in (mine, base)):
        return ComparedBy.DIGEST, (mine, base)
    sides = (keyed(mine), keyed(base))
    words = read_words(records, (key for side in sides for key in side["key"]))
    by = kept_as(words.values())
    openings: dict[Key, str | None] = {key: told.opening(by) for key, told in words.items()}
    return by, (_with_opening(sides[0], openings), _with_opening(sides[1], openings))


def _with_opening(side: pd.DataFrame, openings: Mapping[Key, str | None]) -> pd.DataFrame:
    return side.assign(opening=side["key"].map(openings))


def _halves(base: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Every other repeat; None where there is but one."""
    repeats = sorted(base["repeat"].unique())
    if len(repeats) < 2:
        return None
    odd = base["repeat"].isin(repeats[1::2]).to_numpy(bool)
    return base[~odd].reset_index(drop=True), base[odd].reset_index(drop=True)


def _copies(baseline: pd.DataFrame | Rows) -> bool:
    """Whether most long answers of the baseline come back in another repeat."""
    long = among(baseline, (baseline["tokens"] >= LONG_TOKENS).to_numpy(bool) & (baseline["turn"] == 0).to_numpy(bool))
    control = divergence(long, long).control if len(long) else None
    return control is not None and 1 - control > COPIES_MOST


def _test(name: str, told: Tested, control: Tested | None, by: ComparedBy) -> DistributionTest:
    unit = _UNITS[by]

    def figure(value: float, definition: str) -> Figure:
        return Figure(value=value, unit="ratio", definition=definition, n=told.prompts, source="client")

    return DistributionTest(
        name=name,
        difference=figure(told.difference, _WHAT[name].format(unit=unit)),
        p_value=told.p_value,
        control_p_value=control.p_value if control else None,
        detectable=figure(told.detectable, _SMALLEST),
    )
