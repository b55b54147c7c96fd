"""Whether an arm's answers are flawed more often than the paired baseline's to the same requests."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.lossless import JudgedAnswers
from specbench_api.outcome.record import AnswerFlaw
from specbench_client.columns import Values
from specbench_client.metrics.pairing import ARM, BASELINE, HISTORY, ROW, Pairs, iter_by_prompt, keyed_requests
from specbench_client.metrics.rows import Columns, TidyRows, group_numbers, has_text, text_counts
from specbench_client.metrics.tidy_frame import numbers, sums_by_text
from specbench_client.trust.checks.answers import sign_test

_REQUEST = ["prompt_id", "pass", "turn", HISTORY]
_FLAWED = "flawed"


def judged_answers(pairs: Pairs, baseline: TidyRows) -> JudgedAnswers | None:
    """Compare the flaws of paired answers, given the baseline's rows as the control.

    Returns None if there was no attempt to judge them, as in imported results.
    """
    sums, not_judged = sums_by_text(pairs.rows, "prompt_id", _counted), _not_judged(pairs)
    if not sums and not not_judged:
        return None
    by_prompt = np.array([*sums.values()]).reshape(-1, 5)
    total, flawed, theirs, only_arm, only_baseline = (int(count) for count in by_prompt.sum(axis=0))
    more = by_prompt[:, 1] - by_prompt[:, 2]
    worse, better = int((more > 0).sum()), int((more < 0).sum())
    return JudgedAnswers(
        pairs=total,
        flawed=flawed,
        baseline_flawed=theirs,
        only_arm=only_arm,
        only_baseline=only_baseline,
        flaws=_kinds(pairs, ARM, BASELINE),
        baseline_flaws=_kinds(pairs, BASELINE, ARM),
        prompts=len(by_prompt),
        worse_prompts=worse,
        better_prompts=better,
        p_value=sign_test(worse, better),
        control=_control(baseline),
        not_judged=not_judged,
    )


def _counted(pairs: Columns) -> list[Values]:
    """Of each pair, as numbers of shape (pairs,): 1, whether each side is flawed, and whether only one side is."""
    mine, theirs = (numbers(pairs, _FLAWED + side) for side in (ARM, BASELINE))
    return [np.ones_like(mine), mine, theirs, (mine > theirs).astype(float), (theirs > mine).astype(float)]


def _not_judged(pairs: Pairs) -> int:
    """Return the number of pairs with an answer that took too long to judge."""
    found = 0
    for piece in pairs.rows.pieces():
        mine, theirs = (has_text(piece, "flaw" + side, AnswerFlaw.NOT_JUDGED) for side in (ARM, BASELINE))
        found += int((mine | theirs).sum())
    return found


def _kinds(pairs: Pairs, side: str, other: str) -> dict[str, int]:
    judged = ~np.isnan(numbers(pairs.rows, _FLAWED + side)) & ~np.isnan(numbers(pairs.rows, _FLAWED + other))
    return dict(sorted(text_counts(pairs.among(judged).rows, "flaw" + side).items()))


def _control(baseline: TidyRows) -> float | None:
    """Return the share of pairs of answers to one request in two repeats of which exactly one is flawed."""
    differing = compared = 0.0
    flawed = numbers(baseline, _FLAWED)
    if not np.nansum(flawed):  # nothing differs, and a million rows need not be matched
        return 0.0 if np.unique(numbers(baseline, "repeat")[~np.isnan(flawed)]).size > 1 else None
    for (row_indices,) in iter_by_prompt((baseline,)):
        requests = keyed_requests(baseline, row_indices)
        judged = requests.among(requests.known(HISTORY) & ~np.isnan(flawed[requests.array(ROW)]))
        request = group_numbers(*(judged.column(name) for name in _REQUEST))
        answers, worse = np.bincount(request), np.bincount(request, flawed[judged.array(ROW)])
        compared += float((answers * (answers - 1) / 2).sum())
        differing += float((worse * (answers - worse)).sum())
    return differing / compared if compared else None
