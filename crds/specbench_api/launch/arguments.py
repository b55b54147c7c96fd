"""Checks of the user's own engine arguments, which are forwarded: none may silently override another.

They may neither contradict a managed flag nor repeat one: engines silently use the last of repeated flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from specbench_api.errors import Problem
from specbench_api.launch.launcher import LaunchRequest
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, EngineKind

Aliases = Mapping[str, str] | Callable[[str], str]
"""Mapping of short and old spellings to flags, or a function that returns the flag for any spelling."""


@dataclass(frozen=True)
class EngineFlags:
    """The flags of one engine that need a check.

    `managed`: canonical flags that specbench sets. `remedies`: by canonical flag, what to do instead. `repeatable`:
    flags that the engine accepts several times. `with_keys`: replaces `aliases` in the search for repeated flags, for
    an engine that combines several keys of one flag (`--config.a`, `--config.b`).
    """

    managed: Sequence[str]
    aliases: Aliases
    remedies: Mapping[str, str]
    repeatable: Sequence[str] = ()
    with_keys: Aliases | None = None


def argument_problems(
    order: LaunchRequest, flags: EngineFlags, shared: Sequence[str], drafting: Sequence[str] = ()
) -> list[Problem]:
    """Return the user's contradicting and repeated arguments, of `spec.engine.args` and of the drafter.

    `shared` and `drafting`: the arguments that specbench sets on every arm, and on the drafter's.
    """
    args, path = order.engine.args, "spec.engine.args"
    found = contradictions(flags, args, path, shared) + _repeated(flags, args, path)
    if order.drafter:
        own, path = order.drafter.args, f"{order.drafter_path}.args"
        found += contradictions(flags, own, path, (*shared, *drafting)) + _repeated(flags, own, path)
        found += _given_twice(flags, args, own, path)
    return found


SYNTHETIC = "makes acceptance up, so that the text is not the model's"
"""Why synthetic acceptance is refused: a run with it would pass for a measurement."""
NO_SYNTHETIC = "remove it; use engine.kind simulator for a known acceptance"
_DRAFTS = ("configures drafting on every arm, also the baseline", "remove it; set drafters[].method and its fields")
REFUSED_VARIABLES: Mapping[EngineKind, Mapping[str, tuple[str, str]]] = {
    EngineKind.SGLANG: {"SGLANG_SIMULATE_ACC_": (SYNTHETIC, NO_SYNTHETIC)},
    EngineKind.TENSORRT_LLM: {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": (SYNTHETIC, NO_SYNTHETIC)},
    EngineKind.LLAMA_CPP: {
        "LLAMA_ARG_SPEC_SYNTH_": (SYNTHETIC, NO_SYNTHETIC),
        **dict.fromkeys(("LLAMA_ARG_SPEC_", "LLAMA_ARG_MODEL_DRAFT", "LLAMA_ARG_HFD_", "LLAMA_ARG_DRAFT_"), _DRAFTS),
    },
}
"""By engine, the prefixes of environment variables that may not be set: why not, and what to do instead."""


def variable_problem(kind: EngineKind, name: str, path: str) -> Problem | None:
    """Return the problem of an environment variable that may not be set for this engine; None if it may."""
    rules = REFUSED_VARIABLES.get(kind, {})
    why = next((rule for prefix, rule in rules.items() if name.startswith(prefix)), None)
    return why and Problem(path, f"{name} {why[0]}", why[1])


def value_of(args: Sequence[str], flag: str, aliases: Aliases) -> str | None:
    """Return the value that the arguments give for a flag, or the argument after one without value; None if absent."""
    for index, argument in enumerate(args):
        if _canonical(argument, aliases) == flag:
            _, equals, value = argument.partition("=")
            return value if equals else "".join(args[index + 1 : index + 2])
    return None


def processes_of(engine: Engine, args: Sequence[str], sizes: Sequence[str], aliases: Aliases) -> int:
    """Return the number of processes of an engine with these arguments, each of which has a GPU.

    `sizes`: flags of the parallel sizes that multiply the tensor parallel size. A key of the configuration file takes
    precedence over the flag of its name.
    """
    given = [*(f"--{key}={value}" for key, value in engine.config.items()), *args]
    values = (value_of(given, flag, aliases) or "" for flag in sizes)
    return prod((int(each) for each in values if each.isdecimal()), start=engine.tensor_parallel_size)


def flag_of(argument: str) -> str:
    """Return the flag of an argument: `--ctx-size=8192` → `--ctx-size`; empty if it is not a flag."""
    return argument.split("=", 1)[0] if argument.startswith("-") and not _is_number(argument) else ""


def contradictions(flags: EngineFlags, args: Sequence[str], path: str, rendered: Sequence[str] = ()) -> list[Problem]:
    """Return the user's arguments that set a flag managed by specbench.

    `rendered`: the arguments that specbench sets, so that the message contains both values.
    """
    ours = {_canonical(each, flags.aliases): _with_value(rendered, index) for index, each in enumerate(rendered)}
    problems = []
    for index, argument in enumerate(args):
        flag = _canonical(argument, flags.aliases)
        if flag in flags.managed:
            remedy = flags.remedies.get(flag, "remove it: specbench sets it for every arm")
            given = _with_value(args, index)
            other = f"{ours[flag]!r}, which specbench sets" if flag in ours else "a flag that specbench manages"
            message = f"{given!r} contradicts {other}"
            if ours.get(flag) == given:
                message, remedy = f"{given!r} is already set by specbench", "remove it"
            problems.append(Problem(f"{path}[{index}]", message, remedy))
    return problems


def _repeated(flags: EngineFlags, args: Sequence[str], path: str) -> list[Problem]:
    """Return flags that one list of arguments sets twice, in any spelling: engines silently use the last.

    A flag and a key of its value (`--config.key`) count as the same flag; two different keys do not.
    """
    earlier, problems = dict[str, int](), []
    for index, argument in enumerate(args):
        flag = _canonical(argument, flags.with_keys or flags.aliases)
        earlier_index = _earlier_index(flag, earlier)
        if earlier_index is not None:
            message = (
                f"{_with_value(args, index)!r} and {_with_value(args, earlier_index)!r} of {path}[{earlier_index}]"
                " set the same flag"
            )
            problems.append(Problem(f"{path}[{index}]", message, "remove one of them: engines use the last"))
        elif flag and flag not in flags.repeatable:
            earlier[flag] = index
    return problems


def _given_twice(flags: EngineFlags, engine: Sequence[str], arm: Sequence[str], path: str) -> list[Problem]:
    """Return flags of an arm that `spec.engine.args` also sets: engines silently use one of them."""
    aliases, common, problems = flags.with_keys or flags.aliases, dict[str, int](), []
    for index, argument in enumerate(engine):
        flag = _canonical(argument, aliases)
        if flag and flag not in flags.repeatable:
            common.setdefault(flag, index)
    for index, argument in enumerate(arm):
        earlier_index = _earlier_index(_canonical(argument, aliases), common)
        if earlier_index is not None:
            mine, theirs = _with_value(arm, index), _with_value(engine, earlier_index)
            message = f"{mine!r} and {theirs!r} of spec.engine.args[{earlier_index}] set the same flag"
            remedy = "keep it in engine.args, for all arms, or move it to the args of each drafter"
            problems.append(Problem(f"{path}[{index}]", message, remedy))
    return problems


def _canonical(argument: str, aliases: Aliases) -> str:
    flag = flag_of(argument)
    return aliases(flag) if callable(aliases) else aliases.get(flag, flag)


def _earlier_index(flag: str, earlier: Mapping[str, int]) -> int | None:
    """Return the index at which the flag, its whole value, or one of its keys was set; None if it was not."""
    same = (
        index for other, index in earlier.items() if f"{flag}.".startswith(f"{other}.") or other.startswith(f"{flag}.")
    )
    return next(same, None)


def _with_value(args: Sequence[str], index: int) -> str:
    """Return `--flag=value` as it is; otherwise the flag together with its value, if the next argument is one."""
    argument, following = args[index], args[index + 1 : index + 2]
    has_no_separate_value = "=" in argument or not following or flag_of(following[0])
    return argument if has_no_separate_value else f"{argument} {following[0]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# A drafter field that the engine has no setting for is an error: silently ignored, it would seem to be measured.


def unsupported_fields(drafter: Drafter, path: str, fields: Iterable[str], engine: str, remedy: str) -> list[Problem]:
    """Return a problem for each of the given fields (by Python name) that is set."""
    return [
        Problem(f"{path}.{Drafter.model_fields[name].alias}", f"is not supported by {engine}", remedy)
        for name in fields
        if getattr(drafter, name)
    ]
