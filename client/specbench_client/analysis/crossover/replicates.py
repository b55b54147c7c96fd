"""Joint replicates of several speed-ups: what else they might have come out as, all at once.

Each speed-up's own replicates are spread as its reported interval is: its resamples of prompts and what whole repeats
add to them, or t about the value where the repeats alone decide. What ties the speed-ups of one curve together is kept.
Prompts: resamples of the same prompts from the same seed draw the same prompts at every place. Runs: the deviations of
the repeats are carried over as they are, repeat by repeat, so that any mean of several places is spread as a t interval
over that mean would be (multivariate t): an engine that was slow in one repeat was so at every load that this launch
served.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from specbench_client.analysis.statistics.bootstrap import RESAMPLES
from specbench_client.analysis.statistics.log_ratio import LogRatio
from specbench_client.metrics.frame import Values

_PURPOSE = 20_1
"""Keeps these draws apart from the resamples that were made from the same seed."""


def replicates(ratios: Sequence[LogRatio], seed: int) -> Values:
    """Return replicates × places of log ratios. Each must have an interval that holds what runs do."""
    rng = np.random.default_rng((seed, _PURPOSE))
    known = np.unique(np.concatenate([each.repeats for each in ratios]))
    normals, uniform = rng.standard_normal((RESAMPLES, known.size)), rng.random(RESAMPLES)
    return np.stack([_of(each, normals[:, np.isin(known, each.repeats)], uniform) for each in ratios], axis=1)


def _of(ratio: LogRatio, normals: Values, uniform: Values) -> Values:
    """Value + standard error × t: one normal a repeat, one chi-square for all, and the prompts that were drawn."""
    assert ratio.chosen is not None
    deviations = ratio.runs - ratio.runs.mean()
    length = float(np.linalg.norm(deviations))
    whole = normals @ (deviations / length) if length else np.zeros(len(normals))
    if ratio.chosen.over_repeats:
        count = ratio.runs.size
        spread = whole * length / np.sqrt(count * (count - 1))
    else:
        spread = whole * ratio.chosen.runs_error + ratio.samples - ratio.value
    freedom = ratio.chosen.freedom
    shrunk = np.sqrt(special.chdtri(freedom, uniform) / freedom)
    return np.asarray(ratio.value + spread / shrunk, dtype=np.float64)
