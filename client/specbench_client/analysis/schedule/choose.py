"""The draft length with the largest token goodput at each batch size, and what cannot be told from it.

Token goodput is what SmartSpec maximises (arXiv 2406.14066): tokens a step ÷ time of a step, here of one request; the
batch multiplies every length alike. Nothing is said of batches that were not measured: below the smallest, its length
is carried over and marked, because engines want ranges from 1 on; above the largest, engines keep the last length.

No hysteresis is made up. Where neighbours differ by less than their errors the range names them as tied, and it is for
the run that verifies the schedule to say what switching costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from specbench_api.outcome.schedule import Emitted, Option, Schedule, ScheduleRange
from specbench_client.analysis.stepcost.surface import Surface

SURE = 1.96
"""Times the held-out error, as the half-widths of acceptance lengths are of 95 %."""


def schedule(
    arms: Sequence[str], workload: str, surface: Surface, emitted: Sequence[Emitted], notes: Sequence[str] = ()
) -> Schedule | None:
    """Choose for every batch size that was measured; None where no batch has two lengths to choose from."""
    low, high = surface.batches
    first, last = max(1, math.floor(low)), math.ceil(high)
    chosen = {batch: options(surface, emitted, min(max(batch, low), high)) for batch in range(first, last + 1)}
    told = {batch: found for batch, found in chosen.items() if len(found) > 1}
    if not told:
        return None
    ranges = _ranges(told)
    if ranges[0].first > 1:
        ranges[0] = ranges[0].model_copy(update={"first": 1, "carried": True})
    measured = sorted({min(max(round(cell.batch), first), last) for cell in surface.cells})
    return Schedule(
        arms=list(arms),
        workload=workload,
        basis=surface.cost.basis,
        batches=(first, last),
        emitted=list(emitted),
        ranges=ranges,
        table={batch: told[batch] for batch in measured if batch in told},
        notes=[*surface.cost.notes, *_untold(surface), *notes],
    )


def _untold(surface: Surface) -> list[str]:
    told = "step times are taken as they were measured: how far they may be off is in none of the ties"
    return [] if surface.error else [told]


def options(surface: Surface, emitted: Sequence[Emitted], batch: float) -> list[Option]:
    """Every draft length whose step time is known at this batch, the best first."""
    timed = [(each, time) for each in emitted if (time := surface.step_ms(batch, each.draft_tokens)) is not None]
    ranked = sorted(timed, key=lambda pair: (-pair[0].tokens / pair[1], pair[0].draft_tokens))
    if not ranked:
        return []
    best, least = ranked[0], ranked[0][0].tokens / ranked[0][1]
    return [
        Option(
            draft_tokens=each.draft_tokens,
            step_ms=time,
            tokens_per_s=1000 * each.tokens / time,
            tied=each is not best[0] and each.tokens / time >= least * (1 - _noise(each, best[0], surface.error)),
            how=each.how,
        )
        for each, time in ranked
    ]


def _noise(one: Emitted, other: Emitted, error: float) -> float:
    """Relative error of the ratio of two goodputs, as if theirs were independent: wide rather than narrow."""
    return math.hypot(one.relative_error, other.relative_error, math.sqrt(2) * SURE * error)


def _ranges(chosen: Mapping[int, Sequence[Option]]) -> list[ScheduleRange]:
    """Neighbouring batches with the same best length."""
    every, found = {option.draft_tokens for options in chosen.values() for option in options}, []
    for length, group in groupby(sorted(chosen), key=lambda batch: chosen[batch][0].draft_tokens):
        batches = list(group)
        middle = chosen[batches[len(batches) // 2]]
        tied = {option.draft_tokens for batch in batches for option in chosen[batch] if option.tied}
        known = set.intersection(*({option.draft_tokens for option in chosen[batch]} for batch in batches))
        found.append(
            ScheduleRange(
                first=batches[0],
                last=batches[-1],
                draft_tokens=length,
                tied=sorted(tied),
                gain=_gain(middle),
                unknown=sorted(every - known),
            )
        )
    return found


def _gain(options: Sequence[Option]) -> float | None:
    """The best over no drafts; None where no drafts was not measured there."""
    none = next((each for each in options if not each.draft_tokens), None)
    return options[0].tokens_per_s / none.tokens_per_s if none else None
