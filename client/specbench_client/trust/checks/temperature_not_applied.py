"""Answers that were sampled although greedy ones were requested, or the other way round.

No field of an answer states its temperature, but its repeats show it: a greedy answer is repeated, a sampled one is
not, because each repeat has its own seed. Answers of one arm to the same prompt are compared, each repeat with the
first one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.pairing import iter_by_prompt, with_pass_number
from specbench_client.metrics.rows import Columns, Rows, iter_pieces, read_columns
from specbench_client.metrics.tidy_frame import Mask, numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHORTEST = 32
LONGEST = 128
PROMPTS_MIN = 8
GREEDY_OTHERS = 0.5
SAMPLED_SAME = 0.8
CLEARLY_SAMPLED = 0.5
_READ = ["repeat", "prompt_id", "turn", "point", "conversation_id", "intended_ns", "tokens", "output_sha256", "steady"]


def _evaluate(evidence: CellEvidence) -> CheckResults:
    temperature = evidence.workload.sampling.temperature
    if 0 < temperature < CLEARLY_SAMPLED:
        return []
    compared = _compared(evidence.rows, longest=LONGEST if evidence.greedy else np.inf)
    if len(compared) < PROMPTS_MIN:
        return []
    same = float(compared.mean())
    wrong, least = (1 - same, GREEDY_OTHERS) if evidence.greedy else (same, SAMPLED_SAME)
    if wrong <= least:
        return []
    message = (
        f"{wrong:.0%} of the answers differ between repeats although temperature 0 was requested: they were sampled"
        if evidence.greedy
        else f"{wrong:.0%} of the answers are the same in another repeat although they were requested at temperature"
        f" {temperature:g} with another seed: the engine did not apply the temperature or the seed"
    )
    return [CheckResult(Severity.WARNING, message, value=wrong, threshold=least)]


def _compared(rows: Rows, longest: float) -> pd.Series:
    """Of each prompt, the share of its first turns of a suitable length that are the same as in the first repeat."""
    inside = steady_rows(rows)
    repeats = [numbers(piece, "repeat")[_fit(piece, longest)] for piece in iter_pieces(inside)]
    earliest = min((float(each.min()) for each in repeats if each.size), default=0.0)
    each = [_same(read_columns(inside.at(places), _READ), longest, earliest) for (places,) in iter_by_prompt((inside,))]
    shares: pd.Series = pd.concat(each)
    return shares


def _same(rows: pd.DataFrame, longest: float, earliest: float) -> pd.Series:
    """Like `_compared`, for some prompts, given all of their steady rows; `earliest` is the first repeat."""
    numbered = with_pass_number(rows)
    known = numbered[_fit(numbered, longest)]
    first, others = (known[known["repeat"] == earliest], known[known["repeat"] != earliest])
    both = others.merge(first, on=["prompt_id", "pass"], suffixes=("", "_first"))
    same = (both["output_sha256"] == both["output_sha256_first"]).astype(float)
    shares: pd.Series = same.groupby(both["prompt_id"]).mean()
    return shares


def _fit(rows: Columns, longest: float) -> Mask:
    """Mask, shape (rows,), of first turns with a known answer of a suitable length."""
    tokens, answers = numbers(rows, "tokens"), numbers(rows, "output_sha256")
    fit: Mask = (numbers(rows, "turn") == 0) & (tokens >= SHORTEST) & (tokens <= longest) & ~np.isnan(answers)
    return fit


CHECK: Check[CellEvidence] = Check(
    name="TemperatureNotApplied",
    severities=(Severity.WARNING,),
    description="Greedy answers are not repeated in the next repeat, or sampled ones are.",
    threshold=(
        f"at temperature 0, more than {GREEDY_OTHERS:.0%} of the answers of {SHORTEST} to {LONGEST} tokens differ"
        f" from the first repeat's; from temperature {CLEARLY_SAMPLED:g} on, more than {SAMPLED_SAME:.0%} of those of"
        f" {SHORTEST} tokens or more are the same. First turns of at least {PROMPTS_MIN} prompts"
    ),
    rationale=(
        "Rounding resolves a near tie differently about once in a thousand tokens: that changes one in ten greedy"
        " answers of up to 128 tokens, not one in two. A sampled answer of 32 tokens is repeated only if each token"
        " is almost certain, as in copied text; four in five are not. Between 0 and 0.5 too many are repeated to"
        " decide."
    ),
    remedy=(
        "Check how the engine interprets temperature and seed (its generation config, a proxy that drops fields);"
        " compare one answer by hand at temperature 0."
    ),
    evaluate=_evaluate,
)
