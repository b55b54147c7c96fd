"""Compares the formula that assumes one acceptance rate for all positions with the measured acceptance.

With the same rate alpha at every position, a draft of k tokens gives (1 − alpha^(k+1)) / (1 − alpha) tokens per step
(Leviathan et al. 2023). alpha is estimated as accepted ÷ (accepted + rejected); drafts after the first rejection are
never verified and do not count, and drafts that were cut off at the end of an answer had been accepted. A test checks
whether the conditional rates are equal over positions. Its unit is the prompt, because steps of one answer are alike
and a test over steps would always find differences. The covariance of the rates is linearised over prompts, and Wald's
statistic of their differences is compared with F in Hotelling's form,

    F = W · (C − q) / (q · (C − 1)),   q = positions − 1 and C − q degrees of freedom, C prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import ConstantAcceptance, IndependenceTest
from specbench_client.metrics.rows import Columns, TidyRows, distinct_texts
from specbench_client.metrics.tidy_frame import Values, numbers, tally

PROMPTS_PER_POSITION = 5
"""Prompts that must have reached a position for it to be compared."""
ALPHA = 0.05
SAME_DRAFTS = 0.02
"""Largest relative difference of drafted tokens per step from k; beyond it k varied, and draft ends are unknown."""
CLOSE = 0.02
"""Largest relative error of the formula for which it is reported as meeting the measurement."""


def constant_acceptance(rows: TidyRows, drafts: int) -> ConstantAcceptance | None:
    """Return the formula and the measurement for steady rows; None if steps or drafts are not reported, or k varied."""
    known = rows.among(np.concatenate([each.known("decided_of_steps") for each in rows.pieces()]))
    if drafts < 1 or not len(known) or _varied(known, drafts):
        return None
    reached = reached_by_prompt(known, drafts)
    totals = reached.sum(axis=0)
    looked_at = totals[:-1].sum()
    if not looked_at:
        return None
    alpha, measured = float(totals[1:].sum() / looked_at), float(totals.sum() / totals[0])
    predicted, test = tokens_per_step(alpha, drafts), equal_rates(reached)
    n, source = len(reached), "engine"
    return ConstantAcceptance(
        alpha=Figure(
            value=alpha, unit="ratio", definition="Σ accepted ÷ Σ draft tokens that were verified", n=n, source=source
        ),
        predicted=Figure(
            value=predicted,
            unit="tokens/step",
            definition="(1 − alpha^(k+1)) ÷ (1 − alpha): tokens per step at one acceptance rate for all positions",
            n=n,
            source=source,
        ),
        measured=Figure(
            value=measured,
            unit="tokens/step",
            definition="1 + Σ accepted ÷ Σ draft steps, with drafts that were cut off at the end of an answer",
            n=n,
            source=source,
        ),
        test=test,
        conclusion=_conclusion(test, predicted / measured - 1, drafts),
    )


def tokens_per_step(alpha: float, drafts: float) -> float:
    """Return (1 − alpha^(drafts+1)) / (1 − alpha), its limit at 1."""
    return drafts + 1.0 if alpha == 1 else float((1 - alpha ** (drafts + 1)) / (1 - alpha))


def reached_by_prompt(rows: Columns, drafts: int) -> Values:
    """Return the draft steps that accepted at least 0, 1, …, `drafts` drafts, shape (prompts, drafts + 1)."""
    names = distinct_texts(rows, "prompt_id")
    number_of, found = {name: number for number, name in enumerate(names)}, np.zeros((len(names), drafts + 1))
    for piece in rows.pieces():
        counts, prompts = tally(piece, "verified_of_steps"), piece.codes("prompt_id")
        numbered = np.array([number_of.get(str(text), -1) for text in prompts.texts], dtype=np.int32)
        accepted, steps = counts.fields
        owners = numbered[prompts.codes[counts.owner]]
        np.add.at(found, (owners, np.minimum(accepted, drafts).astype(int)), steps)
    return np.asarray(found[:, ::-1].cumsum(axis=1)[:, ::-1], dtype=np.float64)


def equal_rates(reached: Values) -> IndependenceTest | None:
    """Test whether conditional rates are equal; None with fewer than two positions or too few prompts.

    `reached`: see `reached_by_prompt`.
    """
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
        p_value=float(scipy.special.fdtrc(differences, prompts - differences, statistic)),
        prompts=prompts,
    )


def _comparable(reached: Values) -> int:
    """Return the number of positions, from the first on, that enough prompts reached."""
    enough: Sequence[bool] = ((reached[:, :-1] > 0).sum(axis=0) >= PROMPTS_PER_POSITION).tolist()
    return enough.index(False) if False in enough else len(enough)


def _varied(rows: Columns, drafts: int) -> bool:
    """Return whether the mean draft length differs from `drafts`. Rows without counts are left out."""
    sums = np.zeros(2)
    for piece in rows.pieces():
        counts = np.stack([numbers(piece, "drafted_tokens"), numbers(piece, "draft_steps")])
        sums += counts[:, ~np.isnan(counts).any(axis=0)].sum(axis=1)
    expected = float(sums[1]) * drafts
    return expected > 0 and abs(float(sums[0]) / expected - 1) > SAME_DRAFTS


def _conclusion(test: IndependenceTest | None, error: float, drafts: int) -> str:
    """Return one sentence: whether rates differ by position, and how far off the formula is."""
    near = "meets" if abs(error) <= CLOSE else "overstates" if error > 0 else "understates"
    formula = f"the formula {near} the measured acceptance length" + (
        "" if near == "meets" else f" by {abs(error):.1%}"
    )
    if test is None:
        why = "one position alone" if drafts == 1 else "too few prompts reach the further positions, or all are alike"
        return f"acceptance by position was not tested ({why}); {formula}"
    evidence = f"p = {test.p_value:.2g}, {test.prompts} prompts"
    if test.p_value >= ALPHA:
        return f"no difference of acceptance by position was found ({evidence}); {formula}"
    trend = "falls" if test.rates[-1] < test.rates[0] else "rises"
    rates = f"it {trend} from {test.rates[0]:.0%} to {test.rates[-1]:.0%}"
    return f"acceptance differs by position ({evidence}): {rates}; {formula}"
