"""A user's own arguments beside the managed ones: all are forwarded, and none may contradict silently.

Neither a managed flag nor one another: of a flag that is given twice an engine takes the last and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from specbench_api.errors import Problem

Aliases = Mapping[str, str] | Callable[[str], str]
"""Short and older spellings with the flag that each stands for, or what tells it of any spelling."""


def flag_of(argument: str) -> str:
    """`--ctx-size=8192` → `--ctx-size`; what is no flag → empty."""
    return argument.split("=", 1)[0] if argument.startswith("-") and not _is_number(argument) else ""


def contradictions(  # noqa: PLR0917 -- the rule is six
    managed: Iterable[str],
    args: Sequence[str],
    path: str,
    aliases: Aliases,
    remedies: Mapping[str, str],
    rendered: Sequence[str] = (),
) -> list[Problem]:
    """Arguments of the user that set a flag which is ours to set.

    `managed` holds canonical flags; `remedies` says, by canonical flag, which field of the spec sets it; `rendered` is
    what we set, so that both values are named.
    """
    owned = set(managed)
    ours = {_canonical(argument, aliases): _with_value(rendered, index) for index, argument in enumerate(rendered)}
    problems = []
    for index, argument in enumerate(args):
        flag = _canonical(argument, aliases)
        if flag in owned:
            remedy = remedies.get(flag, "it is set for every arm by specbench")
            other = f"{ours[flag]!r}, which specbench sets" if flag in ours else "a flag that specbench manages"
            message = f"{_with_value(args, index)!r} contradicts {other}"
            problems.append(Problem(f"{path}[{index}]", message, remedy))
    return problems


def repeated(args: Sequence[str], path: str, aliases: Aliases, repeatable: Iterable[str] = ()) -> list[Problem]:
    """Flags that one list sets twice, in whatever spelling: an engine takes the last, and says nothing.

    `repeatable` holds canonical flags that an engine takes several times. A flag and a key of its value
    (`--config.key`) are one; two keys of it are not.
    """
    allowed, earlier, problems = set(repeatable), dict[str, int](), []
    for index, argument in enumerate(args):
        flag = _canonical(argument, aliases)
        twin = _twin(flag, earlier)
        if twin is not None:
            message = (
                f"{_with_value(args, index)!r} and {_with_value(args, twin)!r} of {path}[{twin}] set the same flag"
            )
            problems.append(Problem(f"{path}[{index}]", message, "leave one of them out: an engine takes the last"))
        elif flag and flag not in allowed:
            earlier[flag] = index
    return problems


def given_twice(
    engine: Sequence[str], arm: Sequence[str], path: str, aliases: Aliases, repeatable: Iterable[str] = ()
) -> list[Problem]:
    """Flags that an arm sets twice, or that `spec.engine.args` sets too: an engine takes one, and says nothing.

    `repeatable` as in `repeated`.
    """
    problems = repeated(arm, path, aliases, repeatable)
    allowed, common = set(repeatable), dict[str, int]()
    for index, argument in enumerate(engine):
        flag = _canonical(argument, aliases)
        if flag and flag not in allowed:
            common.setdefault(flag, index)
    for index, argument in enumerate(arm):
        twin = _twin(_canonical(argument, aliases), common)
        if twin is not None:
            mine, theirs = _with_value(arm, index), _with_value(engine, twin)
            message = f"{mine!r} and {theirs!r} of spec.engine.args[{twin}] set the same flag"
            remedy = "leave it in engine.args, for every arm alike, or give it in each arm's args"
            problems.append(Problem(f"{path}[{index}]", message, remedy))
    return problems


def _canonical(argument: str, aliases: Aliases) -> str:
    flag = flag_of(argument)
    return aliases(flag) if callable(aliases) else aliases.get(flag, flag)


def _twin(flag: str, earlier: Mapping[str, int]) -> int | None:
    """Where the same flag stands already: it itself, its whole value, or a key of it."""
    same = (
        place for other, place in earlier.items() if f"{flag}.".startswith(f"{other}.") or other.startswith(f"{flag}.")
    )
    return next(same, None)


def _with_value(args: Sequence[str], index: int) -> str:
    """`--flag=value` as it is; a flag whose value is the next argument together with it."""
    argument, following = args[index], args[index + 1 : index + 2]
    alone = "=" in argument or not following or flag_of(following[0])
    return argument if alone else f"{argument} {following[0]}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
