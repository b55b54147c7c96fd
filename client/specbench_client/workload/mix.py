"""A mix of several sources, interleaved by weight. Pure, and the same on every machine.

Members take turns so that none is ever a whole turn ahead of its share: at every place the member that lags its share
most is next, the first one named where two lag alike. A run that ends early has then measured nearly the same mix as
one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from specbench_api.outcome.coverage import CategoryCoverage, Coverage, MemberCoverage
from specbench_api.spec.dataset import Dataset, Member
from specbench_client.errors import BadInput
from specbench_client.workload.reading import Prompt
from specbench_client.workload.word_order import word_order


def mixed(dataset: Dataset, prompts: Mapping[str, Sequence[Prompt]]) -> list[Prompt]:
    """`count` prompts of the members, or as many as there are until one of them has no more. Raises BadInput.

    `prompts`: by the member's name. A prompt's category becomes its member's name, its id begins with it.
    """
    members = dataset.members or []
    taken: list[Prompt] = []
    given = {member.name: iter(prompts[member.name]) for member in members}
    for member in islice(turns_of(members), dataset.count):
        prompt = next(given[member.name], None)
        if prompt is None:
            if dataset.count is None:
                break
            raise BadInput(_too_few(member, members, dataset.count, len(prompts[member.name])))
        taken.append(replace(prompt, id=f"{member.name}/{prompt.id}", category=member.name))
    _refuse_absent(members, taken)
    return taken


def _refuse_absent(members: Sequence[Member], taken: Sequence[Prompt]) -> None:
    """A kind of request that was asked for and never sent would be missing from every figure, and nobody told."""
    there = {prompt.category for prompt in taken}
    absent = [member.name for member in members if member.name not in there]
    if absent:
        remedy = "raise its weight or the count, or give the others more prompts"
        raise BadInput(f"members[{absent[0]}]: a mix of {len(taken)} has no place for any of its prompts: {remedy}")


def turns_of(members: Sequence[Member]) -> Iterator[Member]:
    """Whose turn it is, for ever."""
    whole = sum(member.weight for member in members)
    had = [0] * len(members)
    place = 0
    while True:
        place += 1
        lag = [member.weight * place - whole * count for member, count in zip(members, had, strict=True)]
        chosen = lag.index(max(lag))
        had[chosen] += 1
        yield members[chosen]


def mixed_coverage(dataset: Dataset, coverages: Mapping[str, Coverage], used: Sequence[Prompt]) -> Coverage:
    """One account of all members."""
    members = dataset.members or []
    whole = sum(member.weight for member in members)
    found = [coverages[member.name] for member in members]
    return Coverage(
        source=str(dataset.source),
        licence="; ".join(dict.fromkeys(one.licence for one in found if one.licence)),
        rows=sum(one.rows for one in found),
        asked=sum(one.asked for one in found),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        left_out=_summed([one.left_out for one in found]),
        excluded=_summed([one.excluded for one in found]),
        by_category=[_category(member.name, coverages[member.name], used) for member in members],
        members={member.name: _member(member, whole) for member in members},
        order=word_order(used),
    )


def _member(member: Member, whole: int) -> MemberCoverage:
    expected = member.output_tokens
    return MemberCoverage(
        source=str(member.source),
        share=member.weight / whole,
        output_tokens_min=expected.min if expected else None,
        output_tokens_max=expected.max if expected else None,
    )


def _category(name: str, found: Coverage, used: Sequence[Prompt]) -> CategoryCoverage:
    mine = [prompt for prompt in used if prompt.category == name]
    turns = sum(len(prompt.turns) for prompt in mine)
    return CategoryCoverage(
        category=name,
        asked=found.asked,
        used=len(mine),
        turns=turns,
        left_out=found.left_out,
        order=word_order(mine),
    )


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _too_few(member: Member, members: Sequence[Member], count: int, there: int) -> str:
    needed = sum(each.name == member.name for each in islice(turns_of(members), count))
    return (
        f"members[{member.name}]: a mix of {count} needs {needed} of its prompts and there are {there}:"
        " lower count or its weight; without count the mix ends where the first member does"
    )
