"""At temperatures above 0 answers differ by design, so the distributions of their openings and lengths are compared.

Only first turns are compared, because later prompts contain the model's own replies. As a control, two halves of the
baseline's repeats are compared in the same way. If answers repeat word for word because the seed is the same, a test
would be certain of a meaningless result: such runs are reported as not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.lossless import ComparedBy, DistributionTest, LosslessVerdict
from specbench_client.analysis.lossless.answer_texts import AnswerKey, read_answer_texts, stored_form, with_answer_key
from specbench_client.analysis.lossless.permutation_tests import LEVEL, PermutationTest, length_test, opening_test
from specbench_client.analysis.statistics.holm import holm_rejections
from specbench_client.metrics.divergence import comparable_answers, divergence
from specbench_client.metrics.rows import Columns, Rows, select_rows

CONTROL_LEVEL = 0.01
LONG_TOKENS = 16
"""Minimum length at which answers do not repeat word for word by chance."""
COPIES_MOST = 0.5

_WHAT = {
    "opening": (
        "Share of the arm's answers that would have to begin with a {unit} that the baseline never begins with, to"
        " explain the distance between first {unit}s: sqrt(Σ(p − q)² / (1 + Σp²)), mean over prompts"
    ),
    "length": "Largest difference of the distributions of output tokens (Kolmogorov-Smirnov), prompts weighted equally",
}
_SMALLEST = "The smallest such difference that would have been detected in four runs of five, at 5 %"
_UNITS = {ComparedBy.TOKEN_IDS: "token", ComparedBy.TEXT: "word", ComparedBy.DIGEST: "token"}

DistributionTester = Callable[[pd.DataFrame, pd.DataFrame, int], PermutationTest | None]
_TESTS: Mapping[str, DistributionTester] = {"opening": opening_test, "length": length_test}


@dataclass(frozen=True)
class SampledResult:
    """The tests and the conclusion from them."""

    verdict: LosslessVerdict
    message: str
    by: ComparedBy
    tests: tuple[DistributionTest, ...] = ()


def judge_sampled(
    arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, records: Mapping[str, Iterable[pd.DataFrame]], seed: int
) -> SampledResult:
    """Return the conclusion from the tidy rows of one cell, its records by point, and the permutations' seed."""
    mine, base = (_first_turns(rows) for rows in (arm, baseline))
    by, (mine, base) = _with_openings(mine, base, records)
    names = [name for name in _TESTS if name != "opening" or by is not ComparedBy.DIGEST]
    if _copies(baseline):
        why = (
            "the baseline's repeats give the same long answers word for word: use another sampling seed for each repeat"
        )
        return SampledResult(LosslessVerdict.NOT_INDEPENDENT, why, by)
    tested = {name: result for name in names if (result := _TESTS[name](mine, base, seed))}
    if not tested:
        return SampledResult(LosslessVerdict.TOO_FEW, "no prompt has enough answers on both sides for a test", by)
    halves = _halves(base)
    controls = {name: _TESTS[name](*halves, seed) if halves else None for name in tested}
    tests = tuple(_test(name, result, controls[name], by) for name, result in tested.items())
    return _verdict(tests, by)


def _verdict(tests: tuple[DistributionTest, ...], by: ComparedBy) -> SampledResult:
    results = "; ".join(f"{each.name}: {each.difference.value:.3f}, p = {each.p_value:.3f}" for each in tests)
    controls = [each.control_p_value for each in tests]
    if all(each is None for each in controls):
        why = "the baseline was measured only once, so there are no two halves to compare as a control"
        return SampledResult(LosslessVerdict.NO_CONTROL, f"{results}; {why}", by, tests)
    if any(each is not None and each < CONTROL_LEVEL for each in controls):
        why = "the baseline's own repeats differ in distribution too, so the drafter is not shown to be the cause"
        return SampledResult(LosslessVerdict.NO_CONTROL, f"{results}; {why}", by, tests)
    if any(holm_rejections([each.p_value for each in tests], LEVEL)):
        return SampledResult(LosslessVerdict.DIVERGES, f"answers have a different distribution: {results}", by, tests)
    found = ", ".join(f"{each.name} {each.detectable.value:.3f}" for each in tests)
    tail = f"would have been detected in four runs of five: {found}"
    return SampledResult(
        LosslessVerdict.LOSSLESS, f"no difference of distributions was found: {results}; {tail}", by, tests
    )


def _first_turns(rows: Columns) -> pd.DataFrame:
    known = comparable_answers(rows)
    return known[(known["turn"] == 0).to_numpy(bool)].reset_index(drop=True)


def _with_openings(
    mine: pd.DataFrame, base: pd.DataFrame, records: Mapping[str, Iterable[pd.DataFrame]]
) -> tuple[ComparedBy, tuple[pd.DataFrame, pd.DataFrame]]:
    """Add the opening of each answer to both sides, if texts were stored."""
    if not any(bool(side["text_bytes"].notna().any()) for side in (mine, base)):
        return ComparedBy.DIGEST, (mine, base)
    sides = (with_answer_key(mine), with_answer_key(base))
    texts = read_answer_texts(records, (key for side in sides for key in side["key"]))
    by = stored_form(texts.values())
    openings: dict[AnswerKey, str | None] = {key: text.opening(by) for key, text in texts.items()}
    return by, (_with_opening(sides[0], openings), _with_opening(sides[1], openings))


def _with_opening(side: pd.DataFrame, openings: Mapping[AnswerKey, str | None]) -> pd.DataFrame:
    return side.assign(opening=side["key"].map(openings))


def _halves(base: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Split the baseline into even and odd repeats; None if there is only one."""
    repeats = sorted(base["repeat"].unique())
    if len(repeats) < 2:
        return None
    odd = base["repeat"].isin(repeats[1::2]).to_numpy(bool)
    return base[~odd].reset_index(drop=True), base[odd].reset_index(drop=True)


def _copies(baseline: pd.DataFrame | Rows) -> bool:
    """Whether most long answers of the baseline are repeated in another repeat."""
    long = select_rows(
        baseline, (baseline["tokens"] >= LONG_TOKENS).to_numpy(bool) & (baseline["turn"] == 0).to_numpy(bool)
    )
    control = divergence(long, long).control if len(long) else None
    return control is not None and 1 - control > COPIES_MOST


def _test(name: str, result: PermutationTest, control: PermutationTest | None, by: ComparedBy) -> DistributionTest:
    unit = _UNITS[by]

    def figure(value: float, definition: str) -> Figure:
        return Figure(value=value, unit="ratio", definition=definition, n=result.prompts, source="client")

    return DistributionTest(
        name=name,
        difference=figure(result.difference, _WHAT[name].format(unit=unit)),
        p_value=result.p_value,
        control_p_value=control.p_value if control else None,
        detectable=figure(result.detectable, _SMALLEST),
    )
