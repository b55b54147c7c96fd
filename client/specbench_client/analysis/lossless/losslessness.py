"""Whether the answers of one cell are equal to the baseline's, and at temperature 0, how often they differ."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from specbench_api.spec.workload import Sampling
from specbench_client.analysis.lossless.answer_texts import (
    AnswerKey,
    TextUnits,
    answer_keys,
    read_answer_texts,
    shared_prefix,
    stored_form,
)
from specbench_client.analysis.lossless.sampled import judge_sampled
from specbench_client.analysis.statistics.bootstrap import (
    PROMPTS_MIN,
    IntervalBounds,
    expanded_percentiles,
    t_bounds,
    two_level_sums,
    wider_interval,
)
from specbench_client.analysis.statistics.level import LEVEL, TAIL, Z
from specbench_client.analysis.statistics.row_layout import layout_of
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.lossless import (
    ComparedBy,
    FirstDifference,
    JudgedAnswers,
    Losslessness,
    LosslessVerdict,
)
from specbench_client.documents.record import AnswerFlaw
from specbench_client.metrics.divergence import QUESTION_KEY, Divergence, comparable_answers
from specbench_client.metrics.pairing import HISTORY, ROW, Pairs, iter_by_prompt, keyed_requests
from specbench_client.metrics.rows import (
    Table,
    distinct_texts,
    group_numbers,
    has_text,
    join_rows,
    text_counts,
)
from specbench_client.metrics.tidy_frame import PointRecords, any_known, numbers, sums_by_text
from specbench_client.numpy_columns import TextCodes, Values
from specbench_client.trust.checks.answer_lengths import sign_test


def losslessness(
    found: Divergence,
    arm: Table,
    baseline: Table,
    records: PointRecords,
    sampling: Sampling,
) -> Losslessness | None:
    """Return the conclusion, given the tidy rows of one workload × load over all repeats and their divergence.

    `records`, by point, are read again if texts were stored. None if no answers can be compared: nothing was
    answered, or no digest was stored.
    """
    if found.rate is None:
        return None
    if sampling.temperature > 0:
        return judge_sampled(arm, baseline, records, sampling)
    greedy = judge_greedy(found, sampling.seed)
    by, difference = first_differences(arm, baseline, records)
    return greedy and greedy.model_copy(update={"compared_by": by, "first_difference": difference})


# At temperature 0: how often answers differ from the baseline's, compared with the baseline's own repeats.

POWER = 0.8
_SOURCE = "client"
RATE = (
    "Share of comparisons of the arm's answers with the baseline's to the same input that differ; mean over repeats and"
    " prompts"
)
CONTROL = "The same share for the baseline's answers compared with its own from other repeats"
EXCESS = "Divergence above the control: how much more the arm differs from the baseline than the baseline from itself"
_ONE_REPEAT = "no request of the baseline was answered in two repeats, so how often it differs from itself is not known"
DETECTABLE = "The smallest excess whose interval would have been above 0 in four runs of five"


def judge_greedy(found: Divergence, seed: int) -> Losslessness | None:
    """Return the conclusion from digests, or None if no answer could be compared; `seed` is that of the bootstrap."""
    value = found.rate
    if value is None:
        return None
    result = Losslessness(
        verdict=LosslessVerdict.NO_CONTROL,
        message=f"{value:.1%} of the answers differ from the baseline's; {_ONE_REPEAT}",
        temperature=0.0,
        compared_by=ComparedBy.DIGEST,
        divergence=_figure(value, RATE, len(distinct_texts(found.table, "prompt_id"))),
    )
    control, table = found.control, found.controlled
    if control is None or not len(table):
        return result
    excess = _excess(found, seed)
    summary = f"{value:.1%} of the answers differ from the baseline's, {control:.1%} of the baseline's from each other"
    figures = {"control": _figure(control, CONTROL, len(distinct_texts(table, "prompt_id"))), "excess": excess}
    bounds = excess.interval
    if bounds is None:
        message = f"{summary}; {excess.n} prompts are too few for an interval"
        return result.model_copy(update={**figures, "verdict": LosslessVerdict.TOO_FEW, "message": message})
    figures["detectable"] = smallest = _detectable(bounds, excess.n)
    message = f"{summary}; excess {excess.value:+.1%} [{bounds.low:+.1%}, {bounds.high:+.1%}]"
    if bounds.low > 0:
        return result.model_copy(update={**figures, "verdict": LosslessVerdict.DIVERGES, "message": message})
    message += f"; an excess of {smallest.value:.1%} would have been detected in four runs of five"
    return result.model_copy(update={**figures, "verdict": LosslessVerdict.LOSSLESS, "message": message})


def _excess(found: Divergence, seed: int) -> Figure:
    table = found.controlled
    layout = layout_of(table)
    differs, control = numbers(table, "differs"), numbers(table, "control")
    apart = differs - control
    value, n = float(apart.mean()), layout.prompts
    if not differs.any() and not control.any():
        return _figure(value, EXCESS, n, _interval_without_differences(n))
    matrices = [layout.matrix(apart), layout.matrix(np.ones_like(apart))]
    sums = two_level_sums(matrices, layout, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = sums[:, 0] / sums[:, 1]
        repeats = matrices[0].sum(axis=1) / matrices[1].sum(axis=1)
    chosen = wider_interval(expanded_percentiles(value, samples, layout), t_bounds(value, repeats), layout)
    return _figure(value, EXCESS, n, _interval(chosen.bounds, chosen.method) if chosen else None)


def _interval_without_differences(prompts: int) -> FigureInterval | None:
    """Return the exact bound for 0 of n prompts: if nothing differs anywhere, resampling shows no uncertainty."""
    if prompts < PROMPTS_MIN:
        return None
    most = 1 - TAIL ** (1 / prompts)
    method = f"no answer differed: Clopper-Pearson's bound for 0 of {prompts} prompts, on either side"
    return _interval(IntervalBounds(-most, most), method)


def _detectable(bounds: FigureInterval, prompts: int) -> Figure:
    """(z(1 − α/2) + z(power)) × standard error, which is the interval's half-width / z(1 − α/2)."""
    value = (bounds.high - bounds.low) / 2 * (Z + NormalDist().inv_cdf(POWER)) / Z
    return _figure(min(value, 1.0), DETECTABLE, prompts)


def _figure(value: float, definition: str, n: int, interval: FigureInterval | None = None) -> Figure:
    return Figure(value=value, unit="ratio", definition=definition, n=n, interval=interval, source=_SOURCE)


def _interval(bounds: IntervalBounds, method: str) -> FigureInterval:
    return FigureInterval(low=max(-1.0, bounds.low), high=min(1.0, bounds.high), level=LEVEL, method=method)


PAIRS_MOST = 500
"""Maximum number of pairs compared, evenly spaced among all that differ: enough for a median, and little memory."""
_UNITS = {ComparedBy.TOKEN_IDS: "tokens", ComparedBy.TEXT: "characters"}
_FIRST_DIFFERENCE = "Median over differing pairs of answers of the number of leading {unit} that they share: {who}"

AnswerPair = tuple[AnswerKey, AnswerKey, str]
"""Two answers, and their prompt."""


def first_differences(arm: Table, baseline: Table, records: PointRecords) -> tuple[ComparedBy, FirstDifference | None]:
    """Compare the texts of answers whose digests differ, given the tidy rows of one cell and its records by point."""
    if not _has_texts(arm, baseline):
        return ComparedBy.DIGEST, None
    mine, base = comparable_answers(arm), comparable_answers(baseline)
    if not _has_texts(mine, base):
        return ComparedBy.DIGEST, None
    repeats = numbers(base, "repeat")
    first = base.among(repeats == repeats.min(initial=np.inf))
    pairs = (_pairs(mine, base, ["repeat"]), _pairs(base, first, []))
    chosen = [_spread(each) for each in pairs]
    if not any(chosen):
        return ComparedBy.TEXT, None
    texts = read_answer_texts(records, (key for each in chosen for one, other, _ in each for key in (one, other)))
    by = stored_form(texts.values())
    if by is ComparedBy.DIGEST:
        return by, None
    units = {key: text.units(by) for key, text in texts.items()}
    figures = [_first_difference_figure(each, units, who, _UNITS[by]) for each, who in zip(chosen, _WHO, strict=True)]
    return by, FirstDifference(unit=_UNITS[by], arm=figures[0], control=figures[1])


_WHO = (
    "the arm's answers and the baseline's in the same repeat",
    "the baseline's answers in later repeats and in its first",
)


def _pairs(mine: Table, base: Table, also: list[str]) -> list[AnswerPair]:
    """Differing answers of both sides to one question in one pass; `also` are further columns that must be equal."""
    left, right = join_rows(mine, base, [*QUESTION_KEY, "pass", *also])
    one, other = mine.at(left), base.at(right)
    apart = numbers(one, "output_sha256") != numbers(other, "output_sha256")
    one, other = one.among(apart), other.among(apart)
    return list(zip(answer_keys(one), answer_keys(other), one.codes("prompt_id").by_row, strict=True))


def _spread(pairs: list[AnswerPair]) -> list[AnswerPair]:
    return pairs[:: -(-len(pairs) // PAIRS_MOST) or 1]


def _has_texts(*sides: Table) -> bool:
    """Whether any texts were stored; if not, the records need not be read again."""
    return any(any_known(rows, "text_bytes") for rows in sides)


def _first_difference_figure(
    pairs: list[AnswerPair], units: Mapping[AnswerKey, TextUnits | None], who: str, unit: str
) -> Figure | None:
    both = [(units.get(one), units.get(other), prompt) for one, other, prompt in pairs]
    lengths = [
        (shared_prefix(one, other), prompt) for one, other, prompt in both if one is not None and other is not None
    ]
    if not lengths:
        return None
    return Figure(
        value=float(np.median([length for length, _ in lengths])),
        unit=unit,
        definition=_FIRST_DIFFERENCE.format(unit=unit, who=who),
        n=len({prompt for _, prompt in lengths}),
        source="client",
    )


# Whether an arm's answers are flawed more often than the paired baseline's to the same requests.


_REQUEST = ["prompt_id", "pass", "turn", HISTORY]
_FLAWED = "flawed"


def judged_answers(pairs: Pairs, baseline: Table) -> JudgedAnswers | None:
    """Compare the flaws of paired answers, given the baseline's rows as the control.

    Returns None if there was no attempt to judge them, as in imported results.
    """
    sums, not_judged = sums_by_text(map(_counted, pairs.pieces())), _not_judged(pairs)
    if not sums and not not_judged:
        return None
    by_prompt = np.array([*sums.values()]).reshape(-1, 5)
    total, flawed, theirs, only_arm, only_baseline = (int(count) for count in by_prompt.sum(axis=0))
    more = by_prompt[:, 1] - by_prompt[:, 2]
    worse, better = int((more > 0).sum()), int((more < 0).sum())
    judged = pairs.among(~np.isnan(numbers(pairs.arm, _FLAWED)) & ~np.isnan(numbers(pairs.baseline, _FLAWED)))
    return JudgedAnswers(
        pairs=total,
        flawed=flawed,
        baseline_flawed=theirs,
        only_arm=only_arm,
        only_baseline=only_baseline,
        flaws=_kinds(judged.arm),
        baseline_flaws=_kinds(judged.baseline),
        prompts=len(by_prompt),
        worse_prompts=worse,
        better_prompts=better,
        p_value=sign_test(worse, better),
        control=_control(baseline),
        not_judged=not_judged,
    )


def _counted(pairs: Pairs) -> tuple[TextCodes, list[Values]]:
    """Return the prompts of the pairs, and whether each side is flawed: numbers of shape (pairs,).

    The numbers are 1, the arm's flaw, the baseline's, and whether only the arm's answer or only the baseline's has one.
    """
    mine, theirs = numbers(pairs.arm, _FLAWED), numbers(pairs.baseline, _FLAWED)
    only = (mine > theirs).astype(float), (theirs > mine).astype(float)
    return pairs.arm.codes("prompt_id"), [np.ones_like(mine), mine, theirs, *only]


def _not_judged(pairs: Pairs) -> int:
    """Return the number of pairs with an answer that took too long to judge."""
    found = 0
    for piece in pairs.pieces():
        mine, theirs = (has_text(rows, "flaw", AnswerFlaw.NOT_JUDGED) for rows in (piece.arm, piece.baseline))
        found += int((mine | theirs).sum())
    return found


def _kinds(rows: Table) -> dict[str, int]:
    return dict(sorted(text_counts(rows, "flaw").items()))


def _control(baseline: Table) -> float | None:
    """Return the share of pairs of answers to one request in two repeats of which exactly one is flawed."""
    differing = compared = 0.0
    flawed = numbers(baseline, _FLAWED)
    if not np.nansum(flawed):  # nothing differs, and a million rows need not be matched
        judged = baseline.among(~np.isnan(flawed))
        prompts, repeats = (judged.column(name) for name in ("prompt_id", "repeat"))
        in_two = np.unique(group_numbers(prompts, repeats)).size > np.unique(group_numbers(prompts)).size
        return 0.0 if in_two else None
    for (row_indices,) in iter_by_prompt((baseline,)):
        requests = keyed_requests(baseline, row_indices)
        judged = requests.among(requests.known(HISTORY) & ~np.isnan(flawed[requests.array(ROW)]))
        request = group_numbers(*(judged.column(name) for name in _REQUEST))
        answers, worse = np.bincount(request), np.bincount(request, flawed[judged.array(ROW)])
        compared += float((answers * (answers - 1) / 2).sum())
        differing += float((worse * (answers - worse)).sum())
    return differing / compared if compared else None
