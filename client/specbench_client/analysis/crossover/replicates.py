"""Joint replicates of several speed-ups: what else they might have come out as, all at once.

Each speed-up's own replicates are spread as its reported interval is: the expanded resamples where prompts decide, and
t about the value where runs do. What ties the speed-ups of one curve together is kept. Prompts: resamples of the same
prompts from the same seed draw the same prompts at every place. Runs: the deviations of the repeats are carried over as
they are, repeat by repeat, so that any mean of several places is spread as a t interval over that mean would be
(multivariate t): an engine that was slow in one repeat was so at every load that this launch served.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from specbench_client.analysis.bootstrap import RESAMPLES
from specbench_client.analysis.log_ratio import LogRatio
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
    assert ratio.chosen is not None
    return _over_repeats(ratio, normals, uniform) if ratio.chosen.over_repeats else ratio.samples


def _over_repeats(ratio: LogRatio, normals: Values, uniform: Values) -> Values:
    """Value + standard error × t, where the t is made of one normal a repeat and one chi-square for all."""
    count = ratio.runs.size
    deviations = ratio.runs - ratio.runs.mean()
    spread = normals @ deviations / np.sqrt(count * (count - 1))
    shrunk = np.sqrt(special.chdtri(count - 1, uniform) / (count - 1))
    return np.asarray(ratio.value + spread / shrunk, dtype=np.float64)
