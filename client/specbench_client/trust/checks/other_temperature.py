"""Answers that were sampled where greedy ones were asked for, or the other way round.

Nothing on the wire tells with which temperature an answer was made. Its repeats do: a greedy answer comes back, a
sampled one does not, since each repeat has a seed of its own. Compared are answers of one arm to the same prompt, each
repeat with the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Mask, numbers, steady
from specbench_client.metrics.pairing import with_pass
from specbench_client.metrics.prompts import by_prompt
from specbench_client.metrics.rows import Columns, Rows, read
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHORTEST = 32
LONGEST = 128
PROMPTS_MIN = 8
GREEDY_OTHERS = 0.5
SAMPLED_SAME = 0.8
CLEARLY_SAMPLED = 0.5
_READ = ["repeat", "prompt_id", "turn", "point", "conversation_id", "intended_ns", "tokens", "output_sha256", "steady"]


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    asked = evidence.workload.sampling.temperature
    if 0 < asked < CLEARLY_SAMPLED:
        return []
    told = _compared(evidence.rows, longest=LONGEST if evidence.greedy else np.inf)
    if len(told) < PROMPTS_MIN:
        return []
    same = float(told.mean())
    wrong, least = (1 - same, GREEDY_OTHERS) if evidence.greedy else (same, SAMPLED_SAME)
    if wrong <= least:
        return []
    message = (
        f"{wrong:.0%} of the answers are others in another repeat, though temperature 0 was asked for: they were"
        " sampled"
        if evidence.greedy
        else f"{wrong:.0%} of the answers are the very same in another repeat, though they were to be sampled at"
        f" temperature {asked:g} with another seed: temperature or seed did not take"
    )
    return [Seen(Severity.DOUBT, message, value=wrong, threshold=least)]


def _compared(rows: Rows, longest: float) -> pd.Series:
    """Of each prompt the share of its first turns that are the same as in the first repeat, of a length that tells."""
    inside = steady(rows)
    repeats = numbers(inside, "repeat")[_fit(inside, longest)]
    earliest = float(repeats.min()) if repeats.size else 0.0
    each = [_same(read(inside.at(places), _READ), longest, earliest) for (places,) in by_prompt((inside,))]
    shares: pd.Series = pd.concat(each)
    return shares


def _same(rows: pd.DataFrame, longest: float, earliest: float) -> pd.Series:
    """The same of some prompts, all of whose steady rows these are. `earliest`: the first repeat."""
    numbered = with_pass(rows)
    known = numbered[_fit(numbered, longest)]
    first, others = (known[known["repeat"] == earliest], known[known["repeat"] != earliest])
    both = others.merge(first, on=["prompt_id", "pass"], suffixes=("", "_first"))
    same = (both["output_sha256"] == both["output_sha256_first"]).astype(float)
    shares: pd.Series = same.groupby(both["prompt_id"]).mean()
    return shares


def _fit(rows: Columns, longest: float) -> Mask:
    """Which rows are first turns of a length that tells, with a known answer."""
    tokens, answers = numbers(rows, "tokens"), numbers(rows, "output_sha256")
    fit: Mask = (numbers(rows, "turn") == 0) & (tokens >= SHORTEST) & (tokens <= longest) & ~np.isnan(answers)
    return fit


CHECK: Check[CellEvidence] = Check(
    name="OtherTemperature",
    severities=(Severity.DOUBT,),
    says="Greedy answers do not come back in the next repeat, or sampled ones do.",
    threshold=(
        f"at temperature 0, more than {GREEDY_OTHERS:.0%} of the answers of {SHORTEST} to {LONGEST} tokens are others"
        f" than in the first repeat; from temperature {CLEARLY_SAMPLED:g} on, more than {SAMPLED_SAME:.0%} of those of"
        f" {SHORTEST} tokens or more are the same. First turns of at least {PROMPTS_MIN} prompts"
    ),
    argument=(
        "Rounding turns a near tie about once in a thousand tokens: one greedy answer in ten of up to 128 tokens, not"
        " one in two. A sampled answer of 32 tokens comes back where each token is all but certain, as in copied text;"
        " four in five do not. Between 0 and 0.5 too many do to tell."
    ),
    remedy=(
        "See what the engine made of temperature and seed (its generation config, a proxy that drops fields); compare"
        " one answer by hand at temperature 0."
    ),
    look=_look,
)
