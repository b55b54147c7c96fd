"""One acceptance rate for all positions: the formula that presumes it, and a test of whether the data agree.

With the same chance alpha at every position, a draft of k tokens gives (1 − alpha^(k+1)) / (1 − alpha) tokens a step
(Leviathan et al. 2023). alpha is estimated as such: accepted over accepted and rejected, the drafts behind the first
rejection being never looked at. The test asks whether the conditional rates are equal over positions. Its unit is the
prompt: steps of one answer are alike, and a test over steps would find differences in everything. The covariance of the
rates is linearised over prompts, and Wald's statistic of their differences is referred to F in Hotelling's form,

    F = W · (C − q) / (q · (C − 1)),   q = positions − 1 and C − q degrees of freedom, C prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import ConstantAcceptance, IndependenceTest
from specbench_client.metrics.frame import Values, numbers, tally
from specbench_client.metrics.rows import Columns, Rows, among, pieces

PROMPTS_PER_POSITION = 5
"""Prompts that must have reached a position for it to be compared."""
ALPHA = 0.05
SAME_DRAFTS = 0.02
"""Drafted tokens may differ from k a step by so much; beyond, k varied, and where a draft ended is not recorded."""
CLOSE = 0.02
"""A formula this near to the measurement is near, whatever the test says."""


def constant_acceptance(rows: pd.DataFrame | Rows, drafts: int) -> ConstantAcceptance | None:
    """Return the formula beside the measurement for steady rows; None where steps are not told, or k varied."""
    known = among(rows, np.concatenate([each["accepted_of_steps"].notna().to_numpy(np.bool_) for each in pieces(rows)]))
    if drafts < 1 or not len(known) or _varied(known, drafts):
        return None
    reached = reached_by_prompt(known, drafts)
    totals = reached.sum(axis=0)
    looked_at = totals[:-1].sum()
    if not looked_at:
        return None
    alpha, measured = float(totals[1:].sum() / looked_at), float(totals.sum() / totals[0])
    predicted, test = tokens_a_step(alpha, drafts), equal_rates(reached)
    n, source = len(reached), "engine"
    return ConstantAcceptance(
        alpha=Figure(
            value=alpha, unit="ratio", definition="Σ accepted ÷ Σ draft tokens that were looked at", n=n, source=source
        ),
        predicted=Figure(
            value=predicted,
            unit="tokens/step",
            definition="(1 − alpha^(k+1)) ÷ (1 − alpha): tokens a step at one acceptance rate for all positions",
            n=n,
            source=source,
        ),
        measured=Figure(
            value=measured, unit="tokens/step", definition="1 + Σ accepted ÷ Σ draft steps", n=n, source=source
        ),
        test=test,
        says=_says(test, predicted / measured - 1, drafts),
    )


def tokens_a_step(alpha: float, drafts: int) -> float:
    """Return (1 − alpha^(drafts+1)) / (1 − alpha), its limit at 1."""
    return drafts + 1.0 if alpha == 1 else (1 - alpha ** (drafts + 1)) / (1 - alpha)


def reached_by_prompt(rows: Columns, drafts: int) -> Values:
    """Prompts × (drafts + 1): draft steps that accepted at least 0, 1, …, `drafts`."""
    codes, prompts = pd.factorize(rows["prompt_id"], sort=True)
    found, begun = np.zeros((len(prompts), drafts + 1)), 0
    for piece in pieces(rows):
        told = tally(piece, "accepted_of_steps")
        accepted, steps = told.fields
        np.add.at(found, (codes[begun + told.owner], np.minimum(accepted, drafts).astype(int)), steps)
        begun += len(piece)
    return np.asarray(found[:, ::-1].cumsum(axis=1)[:, ::-1], dtype=np.float64)


def equal_rates(reached: Values) -> IndependenceTest | None:
    """Test whether conditional rates are equal; None where fewer than two positions, or too few prompts, tell them."""
    positions = _comparable(reached)
    prompts, differences = len(reached), positions - 1
    if differences < 1 or prompts - differences < 1:
        return None
    over, under = reached[:, 1 : positions + 1], reached[:, :positions]
    rates = over.sum(axis=0) / under.sum(axis=0)
    influence = (over - rates * under) / under.sum(axis=0)
    covariance = prompts / (prompts - 1) * influence.T @ influence
    contrast = np.eye(differences, positions) - np.eye(differences, positions, k=1)
    spread = contrast @ covariance @ contrast.T
    if np.linalg.matrix_rank(spread) < differences:
        return None
    gaps = contrast @ rates
    wald = float(gaps @ np.linalg.solve(spread, gaps))
    statistic = wald * (prompts - differences) / (differences * (prompts - 1))
    return IndependenceTest(
        rates=[float(rate) for rate in rates],
        statistic=statistic,
        freedom=(differences, prompts - differences),
        p_value=float(special.fdtrc(differences, prompts - differences, statistic)),
        prompts=prompts,
    )


def _comparable(reached: Values) -> int:
    """Positions from the first on that enough prompts reached."""
    enough: Sequence[bool] = ((reached[:, :-1] > 0).sum(axis=0) >= PROMPTS_PER_POSITION).tolist()
    return enough.index(False) if False in enough else len(enough)


def _varied(rows: Columns, drafts: int) -> bool:
    """Whether draft steps drafted other than `drafts` tokens on the mean. Untold counts are taken for `drafts`."""
    drafted, steps = numbers(rows, "drafted_tokens"), numbers(rows, "draft_steps")
    known = ~(np.isnan(drafted) | np.isnan(steps))
    expected = float(steps[known].sum()) * drafts
    return expected > 0 and abs(float(drafted[known].sum()) / expected - 1) > SAME_DRAFTS


def _says(test: IndependenceTest | None, error: float, drafts: int) -> str:
    """The answer: whether rates differ, and what the formula makes of it."""
    near = "meets" if abs(error) <= CLOSE else "overstates" if error > 0 else "understates"
    formula = f"the formula {near} the measured acceptance length" + (
        "" if near == "meets" else f" by {abs(error):.1%}"
    )
    if test is None:
        why = "one position alone" if drafts == 1 else "too few prompts reach the further positions, or all are alike"
        return f"whether acceptance differs by position is not told ({why}); {formula}"
    told = f"p = {test.p_value:.2g}, {test.prompts} prompts"
    if test.p_value >= ALPHA:
        return f"no difference of acceptance by position is found ({told}); {formula}"
    trend = "falls" if test.rates[-1] < test.rates[0] else "rises"
    rates = f"it {trend} from {test.rates[0]:.0%} to {test.rates[-1]:.0%}"
    return f"acceptance differs by position ({told}): {rates}; {formula}"
