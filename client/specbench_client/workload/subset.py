"""So many prompts, or so many turns, spread evenly over the categories. Pure, and the same on every machine.

Without a seed the first prompts of each category are taken. With one, those whose SHA-256 of seed and id is smallest:
the draw knows nothing of the order of rows or of categories, of a library's generator, or of Python's own hashes, so
that a file that was sorted anew or grew keeps most of its draw.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest

from specbench_api.spec.dataset import Selection
from specbench_client.errors import BadInput
from specbench_client.workload.reading import Prompt


def subset(prompts: Sequence[Prompt], selection: Selection) -> list[Prompt]:
    """What count or turns asks for, in the file's order; all of them where neither does. Raises BadInput."""
    if selection.count is not None:
        return _in_order(prompts, islice(_in_turn(prompts, selection.seed), _enough(prompts, selection)))
    if selection.turns is not None:
        return _in_order(prompts, _filled(prompts, selection.turns, selection))
    return list(prompts)


def _enough(prompts: Sequence[Prompt], selection: Selection) -> int:
    count = selection.count or 0
    if count > len(prompts):
        remedy = "lower count; load.requests lets the prompts go round again"
        raise BadInput(f"{selection.where}: count asks for {count} prompts and there are {len(prompts)}: {remedy}")
    return count


def _filled(prompts: Sequence[Prompt], turns: int, selection: Selection) -> list[int]:
    """Conversations are whole: one that would go beyond is passed over, and a shorter one taken."""
    chosen: list[int] = []
    passed: list[int] = []
    left = turns
    for place in _in_turn(prompts, selection.seed):
        fits = len(prompts[place].turns) <= left
        (chosen if fits else passed).append(place)
        left -= len(prompts[place].turns) if fits else 0
    if not left or _exchanged(prompts, chosen, passed, left):
        return chosen
    there = sum(len(prompt.turns) for prompt in prompts)
    if there < turns:
        remedy = "lower turns; load.requests lets the prompts go round again"
        raise BadInput(f"{selection.where}: turns asks for {turns} and all prompts together have {there}: {remedy}")
    message = f"turns: {turns} cannot be had from whole conversations, {turns - left} can"
    raise BadInput(f"{selection.where}: {message}: give turns: {turns - left}")


def _exchanged(prompts: Sequence[Prompt], chosen: list[int], passed: list[int], left: int) -> bool:
    """Exchange the last possible conversation for one that is longer by what is `left`; whether there was one."""
    for place in reversed(chosen):
        wanted = len(prompts[place].turns) + left
        longer = next((other for other in passed if len(prompts[other].turns) == wanted), None)
        if longer is not None:
            chosen[chosen.index(place)] = longer
            return True
    return False


def _in_turn(prompts: Sequence[Prompt], seed: int | None) -> Iterable[int]:
    """Places, one of each category in turn."""
    by_category: dict[str | None, list[int]] = defaultdict(list)
    for place, prompt in enumerate(prompts):
        by_category[prompt.category].append(place)
    turns = list(by_category)
    if seed is not None:
        turns.sort(key=lambda category: _lot(seed, category or ""))  # who has one more than the others, no file decides
        for places in by_category.values():
            places.sort(key=lambda place: _lot(seed, prompts[place].id))
    rounds = zip_longest(*(by_category[category] for category in turns))
    return (place for place in chain.from_iterable(rounds) if place is not None)


def _lot(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def _in_order(prompts: Sequence[Prompt], places: Iterable[int]) -> list[Prompt]:
    return [prompts[place] for place in sorted(places)]
