"""What one step must have taken: time per token × tokens a step. More drafts never make a step shorter."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.numbers import Told
from specbench_client.analysis.audit.rule import Looked, Rule, Seen
from specbench_client.analysis.audit.rules.acceptance import ONE, identity, independent, is_share

TOLERANCE = 0.05
STATED = 0.10
READINGS = ("identity", "independent")
"""Of an acceptance rate. Where the table tells the acceptance length, both are that."""

_Step = tuple[Told, str]
_Pair = tuple[_Step, _Step]


def implied(row: Row) -> dict[str, tuple[Told, str]]:
    """Step time by reading of the acceptance, each with its sum; empty where the columns are missing."""
    tpot, drafts, rate = row.get(Name.TPOT), row.drafts, row.get(Name.ACCEPTANCE_RATE)
    told = row.get(Name.ACCEPTANCE_LENGTH)
    if tpot is None:
        return {}
    if row.is_baseline:
        return dict.fromkeys(READINGS, (tpot, f"{tpot} ms × 1"))
    if told is not None:
        return dict.fromkeys(READINGS, (tpot * told, f"{tpot} ms × {told}"))
    if drafts is None or rate is None or row.uneven or not is_share(rate):
        return {}
    lengths = (identity(rate, drafts), independent(rate, drafts))
    sums = (f"(1 + {rate} × {drafts})", f"(1 − {rate}^{drafts + ONE}) / (1 − {rate})")
    found = [(tpot * length, f"{tpot} ms × {sum_}") for length, sum_ in zip(lengths, sums, strict=True)]
    return dict(zip(READINGS, found, strict=True))


def _look(document: Document) -> Looked:
    asked, seen = 0, []
    for sweep in document.sweeps(Name.DRAFT_LENGTH):
        baseline = document.baseline_of(sweep[0])
        told = [(row, implied(row)) for row in ([baseline] if baseline else []) + sweep]
        known = [(row, steps) for row, steps in told if steps]
        for index, (fewer, first) in enumerate(known):
            falls = []
            for more, second in known[index + 1 :]:
                asked += 1
                pairs = [(first[reading], second[reading]) for reading in READINGS]
                if all(before[0].above(after[0], TOLERANCE) for before, after in pairs):
                    falls.append((more, pairs))
            seen += [_fall(fewer, *min(falls, key=lambda fall: fall[1][0][1][0].value))] if falls else []
    return Looked(asked, seen)


def _fall(fewer: Row, more: Row, pairs: list[_Pair]) -> Seen:
    """The deepest of a row's falls; the others say no more."""
    (first, _), (second, _) = pairs[0]
    message = (
        f"{_named(fewer)} implies a step of {first.value:.0f} ms, longer than the {second.value:.0f} ms of"
        f" {_named(more)}, which drafts more"
    )
    sums = [
        f"{_named(row)}: {sum_} = {step} ms"
        for pair in pairs
        for row, (step, sum_) in zip((fewer, more), pair, strict=True)
    ]
    return Seen((fewer, more), message, tuple(dict.fromkeys(sums)))


def _named(row: Row) -> str:
    return "the baseline" if row.is_baseline else f"k={row.drafts}"


def _stated(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        step, tpot, length = row.get(Name.STEP), row.get(Name.TPOT), row.get(Name.ACCEPTANCE_LENGTH)
        if step and tpot and length:
            asked += 1
            expected = tpot * length
            if step.apart(expected, STATED):
                words = f"{row.label}: a step of {step} ms is not what its tokens take"
                seen.append(Seen((row,), words, (f"{tpot} ms × {length} = {expected} ms",)))
    return Looked(asked, seen)


STATED_STEP = Rule(
    "StepTime",
    "step time = TPOT × acceptance length",
    "a step emits so many tokens, and each takes its share. Under load a request also waits for the prefill of others,"
    " which its TPOT holds and a step time may leave out",
    f"{STATED:.0%}",
    _stated,
)
STEP_TIME = Rule(
    "StepTimeByDraftLength",
    "implied step time = TPOT × acceptance length does not fall as k grows, and is not below the baseline's",
    "a step drafts k tokens and verifies k + 1: each costs some time or none. Where the table tells no acceptance"
    " length, a fall is told only if it is one by 1 + rate × k and by (1 − α^(k+1)) / (1 − α). Not asked of drafters"
    " that look up, whose rate says nothing of steps without drafts",
    f"{TOLERANCE:.0%}",
    _look,
)
