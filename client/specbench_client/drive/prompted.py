"""The prompts of a plan's workloads as they will be sent: read, and rendered where the client applies the template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specbench_api.plan.plan import Plan
from specbench_api.spec.workload import Workload
from specbench_client.dialects.table import dialect_of
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.applied import AppliedTemplate
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.prompts import render_prompts
from specbench_client.workload.prompts import Fetch, Prompts, load_prompts


@dataclass(frozen=True)
class Prompted:
    """A workload's prompts. `template`: what their token ids were made with; None: the engine applies its own.

    `tokens`: of each prompt's longest request by its id, see `Rendered`; None where the engine makes them.
    """

    prompts: Prompts
    template: AppliedTemplate | None = None
    tokens: Mapping[str, int] | None = None


def load_prompted(plan: Plan, names: Iterable[str], base_dir: Path, fetch: Fetch | None = None) -> dict[str, Prompted]:
    """By workload. Blocks. Raises BadInput."""
    return {name: _prompted(plan, plan.workload(name), base_dir, fetch) for name in names}


def _prompted(plan: Plan, workload: Workload, base_dir: Path, fetch: Fetch | None) -> Prompted:
    declared = workload.client_template
    prompts = load_prompts(workload.dataset, base_dir, fetch, with_tools=declared is not None)
    if declared is None:
        return Prompted(prompts)
    try:
        offered = {bool(row.turns[0][0].tools) for row in prompts.rows}
        template = load_template(declared, plan.target, base_dir, fetch, offered=offered)
        _refuse_unsplittable(plan, prompts, template)
        rendered = render_prompts(prompts.rows, template)
    except BadInput as error:
        raise BadInput(f"workload {workload.name!r}: {error}", error.reason) from error
    return Prompted(replace(prompts, rows=rendered.rows), template, rendered.tokens)


def _refuse_unsplittable(plan: Plan, prompts: Prompts, template: AppliedTemplate) -> None:
    """Without its markers a thought cannot be told from an answer, and would stand in the next question's history."""
    dialect = dialect_of(plan.engine)
    if template.special_markers and not dialect.keeps_special_tokens and prompts.turns > len(prompts.rows):
        marks = " ".join(template.special_markers)
        raise BadInput(
            f"the model marks its thoughts by special tokens ({marks}), and an endpoint of the dialect openai cannot be"
            " asked to keep them in its text: give the dialect of the engine behind it, set appliedBy: Engine, or give"
            " prompts of one turn"
        )
