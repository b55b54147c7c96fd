"""Loads the prompts of a plan's workloads, and checks before the measurement that they fit every arm's context.

An engine rejects or truncates prompts that are too long, and arms may declare different lengths: a drafter needs
memory, and a flag may be set for one arm only. So the smallest declared length applies to all arms. If the client
applies the chat template, the tokens of a request are known, except for earlier answers. Otherwise they are counted in
o200k_base, which is not the model's tokenizer. Most tokenizers need more tokens, and the chat template and earlier
answers add to them, so a prompt that is too long by this count is too long for the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specbench_api.launch.registry import LAUNCHERS
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.dataset import Source
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.workload import Workload
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.minimum_samples import MIN_PROMPTS, few_prompts
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.template import AppliedTemplate, render_prompts
from specbench_client.workload.prompt_lengths import LoadEncoding, cached_encoding, measure_lengths
from specbench_client.workload.prompts import Prompts, load_workload, warn_once
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.selection import round_robin


@dataclass(frozen=True)
class WorkloadPrompts:
    """A workload's prompts as they will be sent.

    `template`: the chat template that the client has applied; None: the engine applies its own. `tokens`: the tokens of
    each prompt's longest request, by prompt id; None if the engine tokenizes.
    """

    prompts: Prompts
    template: AppliedTemplate | None = None
    tokens: Mapping[str, int] | None = None


def load_workload_prompts(plan: Plan, names: Iterable[str], base_dir: Path) -> dict[str, WorkloadPrompts]:
    """Read the prompts of these workloads, and apply the chat template if the client does. Blocks.

    Raises BadInput, also if they are too long for an arm.
    """
    loaded = {name: _load_one(plan, plan.workload(name), base_dir) for name in names}
    reject_too_long_prompts(plan, loaded)
    return loaded


def _load_one(plan: Plan, workload: Workload, base_dir: Path) -> WorkloadPrompts:
    declared = workload.client_template
    prompts = load_workload(workload, base_dir)
    _reject_too_long_answers(workload, prompts.rows)
    _warn_of_few_requests(plan, workload, len(prompts.rows))
    if problem := default_slots_problem(plan, workload, prompts.rows):
        raise BadInput(problem)
    if declared is None:
        return WorkloadPrompts(prompts)
    try:
        offered = {bool(row.turns[0][0].tools) for row in prompts.rows}
        template = load_template(declared, plan.target, base_dir, offered=offered)
        _reject_unsplittable(plan, prompts, template)
        rendered = render_prompts(prompts.rows, template)
    except BadInput as error:
        raise BadInput(f"workload {workload.name!r}: {error}", error.reason) from error
    return WorkloadPrompts(replace(prompts, rows=rendered.rows), template, rendered.tokens)


def _reject_too_long_answers(workload: Workload, rows: Sequence[Prompt]) -> None:
    """Raise BadInput if prompts have longer answers than the workload allows, which plan and checks rely on."""
    allowed = workload.output.max_tokens
    long = {row.id: row.output_tokens for row in rows if row.output_tokens is not None and row.output_tokens > allowed}
    if long:
        first, longest = next(iter(long)), max(long.values())
        raise BadInput(
            f"workload {workload.name!r}: {len(long)} of {len(rows)} answers are to be longer than output.maxTokens"
            f" {allowed}, the first in {first}: set output.maxTokens to {longest}"
        )


def _warn_of_few_requests(plan: Plan, workload: Workload, prompts: int) -> None:
    """Warn if some load sends fewer different prompts of a dataset with enough of them."""
    repeats = plan.load.repeats if plan.repeats_continue else 1
    sent = min((plan.load.requested(level) or prompts) * repeats for level in plan.load.levels)
    if sent < MIN_PROMPTS <= prompts:
        warn_once(f"{few_prompts(workload.name, sent)} (TooFewPrompts): send more requests")


def default_slots_problem(plan: Plan, workload: Workload, rows: Sequence[Prompt]) -> str:
    """Return the problem if sessions have several requests at once, and the engine serves one for each of them."""
    most, name = max((max(row.in_flight), row.id) for row in rows)
    if most == 1 or plan.load.slots is not None or plan.engine.kind is EngineKind.EXTERNAL:
        return ""
    return (
        f"workload {workload.name!r}: the session {name!r} has up to {most} requests in flight at once, and by"
        f" default the engine serves {plan.slots}, one for each session: set load.slots, to {plan.slots * most} if"
        " none is to wait"
    )


def _reject_unsplittable(plan: Plan, prompts: Prompts, template: AppliedTemplate) -> None:
    """Raise BadInput if reasoning could not be separated from answers, and would get into the next turn's history."""
    keeps = all(dialect_of(plan.engine_of(arm)).keeps_special_tokens for arm in plan.arms)
    if template.special_markers and not keeps and any(len(row.turns) > 1 and not row.starts for row in prompts.rows):
        marks = " ".join(template.special_markers)
        raise BadInput(
            f"the model marks its reasoning with special tokens ({marks}), and the dialect openai has no option to keep"
            " them in the answer: give the dialect of the engine behind the endpoint, set"
            " chatTemplate.appliedBy: Engine, or give prompts of one turn"
        )


GOLDEN_RATIO = (5**0.5 - 1) / 2


def prompts_of_point(plan: Plan, point: Point, prompts: Prompts) -> Prompts:
    """Return the prompts in the order in which the point sends them; every arm has the same in each repeat.

    A point of an endpoint that sends only some of them takes the next ones, one of each category in turn: the server
    keeps running, and would have the earlier ones in its prompt cache. With a duration it is unknown how many a point
    sends, and with --until-sure how many points there are. Steps of the golden ratio keep the beginnings of any number
    of points apart.
    """
    requests, count = plan.load.requested(point.level), len(prompts.rows)
    if not plan.repeats_continue or (requests is not None and requests >= count):
        return prompts
    levels = plan.load.levels
    before = [*levels * point.repeat, *levels[: levels.index(point.level)]]
    workload = plan.workload(point.workload)
    in_file_order = workload.dataset.source is Source.MOONCAKE  # which decides what a prefix cache still contains
    order = list(range(count) if in_file_order else round_robin(prompts.rows, workload.sampling.seed))
    sent = sum(plan.load.requested(level) or 0 for level in before)
    start = (round(len(before) * GOLDEN_RATIO * count) if requests is None else sent) % count
    return replace(prompts, rows=tuple(prompts.rows[place] for place in order[start:] + order[:start]))


_MAX_SHOWN = 5
_TEMPLATE_TOKENS = 64
"""Allowance for a chat template in the proposed limit."""


def reject_too_long_prompts(
    plan: Plan, prompts: Mapping[str, WorkloadPrompts], ruler: LoadEncoding = cached_encoding
) -> None:
    """Raise BadInput if prompts exceed the smallest context that an arm declares.

    `prompts`: by workload. Does nothing if no arm declares a context, or if tokens cannot be counted.
    """
    declared = {
        arm.name: context.per_request for arm in plan.arms if (context := declared_context(plan, arm)) is not None
    }
    if not declared:
        return
    narrowest = min(declared, key=lambda arm: declared[arm])
    problems = [
        line
        for name, one in prompts.items()
        for line in _too_long(_ContextLimit(plan, plan.workload(name), narrowest, declared[narrowest]), one, ruler)
    ]
    if problems:
        raise BadInput("\n".join(problems), "OverLongPrompts")


@dataclass(frozen=True)
class _ContextLimit:
    """The smallest context of the arms, in tokens per request, for a workload."""

    plan: Plan
    workload: Workload
    arm: str
    length: int

    @property
    def answer(self) -> int:
        """Tokens that a prompt must leave free."""
        rules = LAUNCHERS[self.plan.engine.kind].context
        return self.workload.output.max_tokens if rules.needs_answer_space else 1


def _too_long(limit: _ContextLimit, prompted: WorkloadPrompts, ruler: LoadEncoding) -> list[str]:
    rows, most = prompted.prompts.rows, limit.length - limit.answer
    exact = prompted.tokens is not None
    tokens = prompted.tokens if prompted.tokens is not None else _count_tokens(rows, most, ruler)
    long = [name for name, count in tokens.items() if count > most]
    if not long:
        return []
    shown = ", ".join(long[:_MAX_SHOWN]) + (f" and {len(long) - _MAX_SHOWN} more" if len(long) > _MAX_SHOWN else "")
    whole = f"the context of {limit.length} tokens of the arm {limit.arm!r}"
    answer = f" with output.maxTokens {limit.answer}" if limit.answer > 1 else ""
    fitting = most - _TEMPLATE_TOKENS
    unit = "the model's own tokens" if exact else "o200k_base"
    drop = f"set dataset.inputTokens: {{max: {fitting}}} to drop them on every arm, or " if fitting > 0 else ""
    message = f"{len(long)} of {len(rows)} prompts are too long for {whole}{answer}: {shown}"
    longest = f"the longest has {max(tokens[key] for key in long)} ({unit})"
    remedy = "raise the context length" + (", or lower output.maxTokens" if answer else "")
    return [f"workload {limit.workload.name!r}: {message}; {longest}: {drop}{remedy}"]


def _count_tokens(rows: Sequence[Prompt], most: int, ruler: LoadEncoding) -> Mapping[str, int]:
    """Return the tokens of the prompts that may have more than `most`; nothing if they cannot be counted."""
    suspects = [prompt for prompt in rows if _bytes(prompt) > most]  # Every token has at least one byte.
    return (measure_lengths(suspects, ruler).tokens or {}) if suspects else {}


def _bytes(prompt: Prompt) -> int:
    return sum(len(message.token_ids or message.content.encode()) for message in prompt.messages)


SHORT_PROMPT_TOKENS = 64
"""Tokens of a question of two or three lines with its chat template; longer prompts are not considered here."""


@dataclass(frozen=True)
class DeclaredContext:
    """A declared context of `tokens`, divided among `slots` concurrent requests."""

    tokens: int
    slots: int = 1

    @property
    def per_request(self) -> int:
        """Tokens of prompt and answer that one request may have."""
        return self.tokens // self.slots


def declared_context(plan: Plan, arm: Arm) -> DeclaredContext | None:
    """Return the context that the arm's flags declare.

    None if they declare none (the engine then takes the model's, which is not known here), or if all slots share it. Of
    several flags the last one counts.
    """
    if plan.engine.is_external:
        return None
    launcher = LAUNCHERS[plan.engine.kind]
    args, rules = launcher.launch(launch_order(plan, arm)).args, launcher.context
    values = list(_flag_values(args, rules.flags))
    if not values or not values[-1].isdecimal() or not int(values[-1]):
        return None
    if not rules.divided_among_slots:
        return DeclaredContext(int(values[-1]))
    if any(argument in rules.sharing_flags for argument in args):
        return None
    return DeclaredContext(int(values[-1]), plan.slots)


def slots_too_small(plan: Plan) -> list[str]:
    """Return a warning for each context whose slots are too small for a short prompt and `maxTokens`.

    llama-server divides its context among its slots and truncates an answer when its slot is full, so the same flag
    leaves less to a request at a higher concurrency. Without the warning, truncated answers would be found only after
    they were measured (PrematureLengthStop).
    """
    rules = LAUNCHERS[plan.engine.kind].context
    if not rules.divided_among_slots:
        return []
    flag = rules.flags[0]
    answer = max(workload.output.max_tokens for workload in plan.workloads)
    contexts = dict.fromkeys(declared_context(plan, arm) for arm in plan.arms)
    return [
        f"spec.engine.args: {flag} {context.tokens} over {plan.slots} slots leaves {context.per_request} tokens to"
        f" a request, too few for an answer of {answer} (output.maxTokens) and its prompt: answers will be truncated;"
        f" set at least {flag}={plan.slots * (answer + SHORT_PROMPT_TOKENS)}, more if prompts are long"
        for context in contexts
        if context is not None and context.per_request < answer + SHORT_PROMPT_TOKENS
    ]


def _flag_values(args: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Yield the values of these flags, written as `--flag value` or `--flag=value`."""
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name in flags and equals:
            yield value
        elif name in flags and index + 1 < len(args):
            yield args[index + 1]
