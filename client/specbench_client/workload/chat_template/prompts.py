"""All prompts of a workload with the token ids of their first requests, and how long their last requests are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specbench_client.chat import Message
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.applied import AppliedTemplate
from specbench_client.workload.reading import Prompt

PLACEHOLDER = Message("assistant", ".")
"""In the place of an answer that is not known yet: as short as one may be."""


@dataclass(frozen=True)
class Rendered:
    """`rows`: in their order. `tokens`: of each prompt's longest request, by its id.

    Exact for a prompt of one turn; at least so many for others, whose answers are taken to be as short as can be.
    """

    rows: tuple[Prompt, ...]
    tokens: Mapping[str, int]


def render_prompts(prompts: Sequence[Prompt], template: AppliedTemplate) -> Rendered:
    """Render them. Every turn is tried, so that a template which refuses one does so now. Raises BadInput."""
    rows, tokens = list[Prompt](), dict[str, int]()
    for prompt in prompts:
        try:
            first, *later = prompt.turns
            asked = opening = template.asked(first)
            for turn in later:
                asked = template.asked((*asked, PLACEHOLDER, *turn))
        except BadInput as error:
            raise BadInput(f"prompt {prompt.id!r}: {error}") from error
        rows.append(replace(prompt, turns=(opening, *later)))
        tokens[prompt.id] = len(asked[-1].token_ids or ())
    return Rendered(tuple(rows), tokens)
