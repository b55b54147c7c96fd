"""Whether an arm's answers are flawed more often than the paired baseline's to the same requests."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from specbench_api.outcome.lossless import JudgedAnswers
from specbench_api.outcome.record import AnswerFlaw
from specbench_client.metrics.pairing import ARM, BASELINE, HISTORY, Pairs, iter_by_prompt, keyed_requests
from specbench_client.metrics.rows import Columns, Rows, has_text, iter_pieces, text_codes
from specbench_client.metrics.tidy_frame import Values, numbers, sums_by_text
from specbench_client.trust.checks.answers import sign_test

_REQUEST = ["prompt_id", "pass", "turn", HISTORY]
_FLAWED = "flawed"


def judged_answers(pairs: Pairs, baseline: pd.DataFrame | Rows) -> JudgedAnswers | None:
    """Compare the flaws of paired answers, given the baseline's rows as the control.

    Returns None if there was no attempt to judge them, as in imported results.
    """
    sums, not_judged = sums_by_text(pairs.rows, "prompt_id", _counted), _not_judged(pairs)
    if sums.empty and not not_judged:
        return None
    by_prompt = sums.to_numpy(np.float64).reshape(-1, 5)
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
    for piece in iter_pieces(pairs.rows):
        mine, theirs = (has_text(piece, "flaw" + side, AnswerFlaw.NOT_JUDGED) for side in (ARM, BASELINE))
        found += int((mine | theirs).sum())
    return found


def _kinds(pairs: Pairs, side: str, other: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for piece in iter_pieces(pairs.rows):
        column = text_codes(piece, "flaw" + side)
        judged = ~np.isnan(numbers(piece, _FLAWED + side)) & ~np.isnan(numbers(piece, _FLAWED + other))
        codes = column.codes[judged & (column.codes >= 0)]
        found.update(str(column.texts[code]) for code in codes)
    return dict(sorted(found.items()))


def _control(baseline: pd.DataFrame | Rows) -> float | None:
    """Return the share of pairs of answers to one request in two repeats of which exactly one is flawed."""
    differing = compared = 0.0
    flawed = numbers(baseline, _FLAWED)
    if not np.nansum(flawed):  # nothing differs, and a million rows need not be matched
        return 0.0 if np.unique(numbers(baseline, "repeat")[~np.isnan(flawed)]).size > 1 else None
    for (row_indices,) in iter_by_prompt((baseline,)):
        requests = keyed_requests(baseline, row_indices)
        requests[_FLAWED] = flawed[requests["row"].to_numpy()]
        found = requests.dropna(subset=[_FLAWED]).groupby(_REQUEST)[_FLAWED].agg(["size", "sum"]).to_numpy(np.float64)
        compared += float((found[:, 0] * (found[:, 0] - 1) / 2).sum())
        differing += float((found[:, 1] * (found[:, 0] - found[:, 1])).sum())
    return differing / compared if compared else None
