"""Mixes the prompts of several sources, interleaved by weight. Pure and deterministic.

At each position the member that is furthest behind its share comes next, the first one declared on a tie. A run that
ends early has therefore measured nearly the same mix as a complete one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from specbench_api.outcome.prompt_coverage import CategoryCoverage, MemberCoverage, PromptCoverage
from specbench_api.spec.dataset import Dataset, Member
from specbench_client.errors import BadInput
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.word_order import word_order


def mix_prompts(dataset: Dataset, prompts: Mapping[str, Sequence[Prompt]]) -> list[Prompt]:
    """Return `count` prompts, or without `count` all prompts until the first member runs out. Raises BadInput.

    `prompts` maps a member's name to its prompts. The member's name becomes a prompt's category and prefixes its id.
    """
    members = dataset.members or []
    taken: list[Prompt] = []
    sources = {member.name: iter(prompts[member.name]) for member in members}
    for member in islice(turns_of(members), dataset.count):
        prompt = next(sources[member.name], None)
        if prompt is None:
            if dataset.count is None:
                break
            raise BadInput(_too_few(member, members, dataset.count, len(prompts[member.name])))
        taken.append(replace(prompt, id=f"{member.name}/{prompt.id}", category=member.name))
    _raise_if_absent(members, taken)
    return taken


def _raise_if_absent(members: Sequence[Member], taken: Sequence[Prompt]) -> None:
    """Raise BadInput for a member without a single prompt in the mix: it would be missing from all results."""
    there = {prompt.category for prompt in taken}
    absent = [member.name for member in members if member.name not in there]
    if absent:
        remedy = "raise its weight or count, or provide more prompts for the other members"
        raise BadInput(f"members[{absent[0]}]: none of its prompts fits into a mix of {len(taken)}: {remedy}")


def turns_of(members: Sequence[Member]) -> Iterator[Member]:
    """Yield members in the order of their turns, endlessly."""
    whole = sum(member.weight for member in members)
    had = [0] * len(members)
    place = 0
    while True:
        place += 1
        lag = [member.weight * place - whole * count for member, count in zip(members, had, strict=True)]
        chosen = lag.index(max(lag))
        had[chosen] += 1
        yield members[chosen]


def mix_coverage(dataset: Dataset, coverages: Mapping[str, PromptCoverage], used: Sequence[Prompt]) -> PromptCoverage:
    """Return the coverage of the mix, summed over its members."""
    members = dataset.members or []
    whole = sum(member.weight for member in members)
    found = [coverages[member.name] for member in members]
    return PromptCoverage(
        source=str(dataset.source),
        licence="; ".join(dict.fromkeys(one.licence for one in found if one.licence)),
        rows=sum(one.rows for one in found),
        requested=sum(one.requested for one in found),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        unusable=_summed([one.unusable for one in found]),
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


def _category(name: str, found: PromptCoverage, used: Sequence[Prompt]) -> CategoryCoverage:
    mine = [prompt for prompt in used if prompt.category == name]
    turns = sum(len(prompt.turns) for prompt in mine)
    return CategoryCoverage(
        category=name,
        requested=found.requested,
        used=len(mine),
        turns=turns,
        unusable=found.unusable,
        order=word_order(mine),
    )


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _too_few(member: Member, members: Sequence[Member], count: int, available: int) -> str:
    needed = sum(each.name == member.name for each in islice(turns_of(members), count))
    return (
        f"members[{member.name}]: a mix of {count} needs {needed} of its prompts, but there are only {available}:"
        " lower count or its weight; without count the mix ends when the first member runs out"
    )
