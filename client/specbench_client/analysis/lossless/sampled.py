"""At temperatures above 0 answers differ by design, so the distributions of their openings and lengths are compared.

Only first turns are compared, because later prompts contain the model's own replies. As a control, two halves of the
baseline's repeats are compared in the same way. If answers repeat word for word because the seed is the same, a test
would be certain of a meaningless result: such runs are reported as not independent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist

import numpy as np

from specbench_api.spec.workload import Sampling
from specbench_client.analysis.lossless.answer_texts import answer_keys, read_answer_texts, stored_form
from specbench_client.analysis.statistics.significance import holm_rejections
from specbench_client.documents.figure import Figure
from specbench_client.documents.lossless import ComparedBy, DistributionTest, Losslessness, LosslessVerdict
from specbench_client.metrics.divergence import comparable_answers, divergence
from specbench_client.metrics.rows import Table, distinct_texts, group_numbers, join_tables
from specbench_client.metrics.tidy_frame import PointRecords, any_known, numbers
from specbench_client.numpy_columns import TextCodes, Values

# The permutation test within prompts of how answers begin. The statistic for openings (first tokens, or first words) is
# the mean over prompts of an unbiased estimate of Σ (p − q)², the squared distance of two frequency vectors: 2 P(a ≠ b)
# − P(a ≠ a′) − P(b ≠ b′), each estimated without bias from counts. If labels are exchangeable within a prompt, its
# permutations are the exact null distribution, however few answers a prompt has.
#
# It is reported as the share δ of answers that would have to begin with something that the baseline never begins with,
# to be equally distant: then Σ (p − q)² = δ² (1 + Σ p²). The smallest detectable difference is the δ for which the
# statistic's expectation is (z(0.95) + z(0.8)) permutation standard deviations above 0.

OPENING_PERMUTATIONS = 1999
LEVEL, POWER = 0.05, 0.8
ANSWERS_MIN = 2
"""Minimum per side and prompt: one answer contains no information on its own variation."""


@dataclass(frozen=True)
class PermutationTest:
    """A difference, its p-value, the smallest detectable difference, and the number of prompts."""

    difference: float
    p_value: float
    detectable: float
    prompts: int


def opening_test(mine: Table, base: Table, seed: int) -> PermutationTest | None:
    """Compare openings, given the columns prompt_id and opening; None if no prompt has two answers on each side."""
    rng = np.random.default_rng(seed)
    observed, permuted, alike = list[float](), list[Values](), list[float]()
    for ours, theirs in _counts(mine, base):
        observed.append(float(_distance(ours[np.newaxis], theirs[np.newaxis])[0]))
        both = ours + theirs
        drawn = rng.multivariate_hypergeometric(both, int(ours.sum()), size=OPENING_PERMUTATIONS, method="marginals")
        permuted.append(_distance(drawn, both - drawn))
        alike.append(float((both * (both - 1)).sum() / (both.sum() * (both.sum() - 1))))
    if not observed:
        return None
    value, null = float(np.mean(observed)), np.mean(permuted, axis=0)
    scale = 1 + float(np.mean(alike))
    far = (NormalDist().inv_cdf(1 - LEVEL) + NormalDist().inv_cdf(POWER)) * float(null.std())
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + OPENING_PERMUTATIONS)
    return PermutationTest(_share(value, scale), p_value, _share(far, scale), len(observed))


def _share(distance: float, scale: float) -> float:
    return float(min(1.0, np.sqrt(max(0.0, distance) / scale)))


def _counts(mine: Table, base: Table) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each prompt with enough answers, how often each opening occurs on either side, shape (openings,)."""
    sides = [_openings_by_prompt(rows) for rows in (mine, base)]
    for prompt in sorted(sides[0].keys() & sides[1].keys()):
        first, second = (side[prompt] for side in sides)
        openings = [*sorted(first), *sorted(second.keys() - first.keys())]
        ours, theirs = (np.array([counts[opening] for opening in openings]) for counts in (first, second))
        if min(ours.sum(), theirs.sum()) >= ANSWERS_MIN:
            yield ours, theirs


def _openings_by_prompt(rows: Table) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for prompt, opening in zip(rows.codes("prompt_id").by_row, rows.codes("opening").by_row, strict=True):
        if opening is not None:
            found[prompt][opening] += 1
    return found


def _distance(ours: np.ndarray, theirs: np.ndarray) -> Values:
    """Unbiased Σ (p − q)² of each row of counts, shape (rows,)."""
    many, others = ours.sum(axis=1), theirs.sum(axis=1)
    within = (ours * (ours - 1)).sum(axis=1) / (many * (many - 1))
    within_base = (theirs * (theirs - 1)).sum(axis=1) / (others * (others - 1))
    return np.asarray(within + within_base - 2 * (ours * theirs).sum(axis=1) / (many * others), dtype=np.float64)


# The test for lengths uses the Kolmogorov-Smirnov statistic, the largest difference of two distributions. All prompts
# have equal weight: each distribution is the mean over prompts of the distribution of their answers. Labels are
# permuted within prompts, so that differences between prompts do not affect the p-value.

LENGTH_PERMUTATIONS = 999
ANSWERS_MOST = 20_000
"""Maximum number of answers permuted; of more, an equal number of each prompt's first ones is used."""


def length_test(mine: Table, base: Table, seed: int) -> PermutationTest | None:
    """Compare lengths, given the columns prompt_id and tokens; None if no prompt has answers on both sides."""
    sides = [(side.table(["prompt_id", "tokens"]), is_mine) for side, is_mine in ((mine, True), (base, False))]
    both = join_tables([side.assign(mine=np.full(len(side), is_mine)) for side, is_mine in sides])
    rows = _thinned(both.among(both.known("tokens")))
    _, prompts = np.unique(rows.codes("prompt_id").by_row, return_inverse=True)
    group = 2 * prompts + rows.array("mine")
    sizes = np.bincount(group, minlength=2 * len(rows)).reshape(-1, 2)
    shared = np.flatnonzero(sizes.min(axis=1)[prompts])
    if not shared.size:
        return None
    by_group = shared[np.argsort(group[shared], kind="stable")]
    _, prompts = np.unique(prompts[by_group], return_inverse=True)
    count = int(prompts.max()) + 1
    weights = np.where(rows.array("mine")[by_group], 1.0, -1.0) / sizes.ravel()[group[by_group]] / count
    lengths = numbers(rows, "tokens")[by_group]
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(lengths[order]) > 0, True))
    value = float(np.abs(_differences(weights[np.newaxis], order, ends)).max())
    null, spread = _permuted(weights, prompts, (order, ends), seed)
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + LENGTH_PERMUTATIONS)
    detectable = float(np.quantile(null, 1 - LEVEL)) + NormalDist().inv_cdf(POWER) * spread
    return PermutationTest(value, p_value, min(1.0, detectable), count)


def _permuted(
    weights: Values, prompts: np.ndarray, order_and_ends: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[Values, float]:
    """The statistic of each permutation, shape (permutations,), and the difference's largest standard deviation."""
    rng = np.random.default_rng(seed)
    found, moments = np.empty(LENGTH_PERMUTATIONS), np.zeros(order_and_ends[1].size)
    for index in range(LENGTH_PERMUTATIONS):
        shuffled = np.empty_like(weights)
        shuffled[np.argsort(prompts + rng.random(prompts.size))] = weights  # sorted by prompt
        differences = _differences(shuffled[np.newaxis], *order_and_ends)[0]
        found[index] = np.abs(differences).max()
        moments += differences**2
    return found, float(np.sqrt((moments / LENGTH_PERMUTATIONS).max()))


def _differences(weights: Values, order: np.ndarray, ends: np.ndarray) -> Values:
    """Difference of the two distributions at the end of each run of equal lengths, shape (..., runs)."""
    return np.asarray(np.cumsum(weights[:, order], axis=1)[:, ends], dtype=np.float64)


def _thinned(rows: Table) -> Table:
    if len(rows) <= ANSWERS_MOST:
        return rows
    each = max(2, ANSWERS_MOST // max(1, len(distinct_texts(rows, "prompt_id")) * 2))
    group = group_numbers(rows.column("prompt_id"), rows.column("mine"))
    order = np.argsort(group, kind="stable")
    sizes, earlier = np.bincount(group), np.empty(len(rows), dtype=np.intp)
    earlier[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows.among(earlier < each)


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

DistributionTester = Callable[[Table, Table, int], PermutationTest | None]
_TESTS: Mapping[str, DistributionTester] = {"opening": opening_test, "length": length_test}


def judge_sampled(
    arm: Table,
    baseline: Table,
    records: PointRecords,
    sampling: Sampling,
) -> Losslessness:
    """Return the conclusion from the tidy rows of one cell, its records by point, and its sampling parameters."""
    mine, base = (_first_turns(rows) for rows in (arm, baseline))
    by, (mine, base) = _with_openings(mine, base, records)
    if _copies(baseline):
        why = (
            "the baseline's repeats give the same long answers word for word: use another sampling seed for each repeat"
        )
        return _result(LosslessVerdict.NOT_INDEPENDENT, why, sampling, by)
    names = [name for name in _TESTS if name != "opening" or by is not ComparedBy.DIGEST]
    tested = {name: result for name in names if (result := _TESTS[name](mine, base, sampling.seed))}
    if not tested:
        why = "no prompt has enough answers on both sides for a test"
        return _result(LosslessVerdict.TOO_FEW, why, sampling, by)
    halves = _halves(base)
    controls = {name: _TESTS[name](*halves, sampling.seed) if halves else None for name in tested}
    tests = [_test(name, result, controls[name], by) for name, result in tested.items()]
    return _result(*_conclusion(tests), sampling, by, tests)


def _result(
    verdict: LosslessVerdict, message: str, sampling: Sampling, by: ComparedBy, tests: Sequence[DistributionTest] = ()
) -> Losslessness:
    return Losslessness(
        verdict=verdict, message=message, temperature=sampling.temperature, compared_by=by, tests=list(tests)
    )


def _conclusion(tests: Sequence[DistributionTest]) -> tuple[LosslessVerdict, str]:
    """Return the verdict of the tests, and the sentence that explains it."""
    results = "; ".join(f"{each.name}: {each.difference.value:.3f}, p = {each.p_value:.3f}" for each in tests)
    controls = [each.control_p_value for each in tests]
    if all(each is None for each in controls):
        why = (
            "no request of the baseline was answered in two repeats, so there are no two halves to compare as a control"
        )
        return LosslessVerdict.NO_CONTROL, f"{results}; {why}"
    if any(each is not None and each < CONTROL_LEVEL for each in controls):
        why = "the baseline's own repeats differ in distribution too, so the drafter is not shown to be the cause"
        return LosslessVerdict.NO_CONTROL, f"{results}; {why}"
    if any(holm_rejections([each.p_value for each in tests], LEVEL)):
        return LosslessVerdict.DIVERGES, f"answers have a different distribution: {results}"
    found = ", ".join(f"{each.name} {each.detectable.value:.3f}" for each in tests)
    tail = f"would have been detected in four runs of five: {found}"
    return LosslessVerdict.LOSSLESS, f"no difference of distributions was found: {results}; {tail}"


def _first_turns(rows: Table) -> Table:
    known = comparable_answers(rows)
    return known.among(numbers(known, "turn") == 0)


def _with_openings(mine: Table, base: Table, records: PointRecords) -> tuple[ComparedBy, tuple[Table, Table]]:
    """Add the opening of each answer to both sides, if texts were stored."""
    if not any(any_known(side, "text_bytes") for side in (mine, base)):
        return ComparedBy.DIGEST, (mine, base)
    keys = [answer_keys(side) for side in (mine, base)]
    texts = read_answer_texts(records, chain(*keys))
    by = stored_form(texts.values())
    openings = {key: text.opening(by) for key, text in texts.items()}
    mine, base = (
        side.assign(opening=TextCodes.of([openings.get(key) for key in each]))
        for side, each in zip((mine, base), keys, strict=True)
    )
    return by, (mine, base)


def _halves(base: Table) -> tuple[Table, Table] | None:
    """Split the baseline into even and odd repeats; None if there is only one."""
    repeats, number = np.unique(numbers(base, "repeat"), return_inverse=True)
    return (base.among(number % 2 == 0), base.among(number % 2 == 1)) if repeats.size >= 2 else None


def _copies(baseline: Table) -> bool:
    """Whether most long answers of the baseline are repeated in another repeat."""
    long = baseline.among((numbers(baseline, "tokens") >= LONG_TOKENS) & (numbers(baseline, "turn") == 0))
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
