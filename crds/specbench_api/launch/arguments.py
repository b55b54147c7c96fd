"""A user's own arguments beside the managed ones: all are forwarded, and none may contradict silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specbench_api.errors import Problem


def flag_of(argument: str) -> str:
    """`--ctx-size=8192` → `--ctx-size`; what is no flag → empty."""
    return argument.split("=", 1)[0] if argument.startswith("-") and not _is_number(argument) else ""


def contradictions(
    managed: Iterable[str],
    args: Sequence[str],
    path: str,
    aliases: Mapping[str, str],
    remedies: Mapping[str, str],
) -> list[Problem]:
    """Arguments of the user that set a flag which is ours to set.

    `managed` holds canonical flags; `aliases` maps a short or older spelling to the canonical one; `remedies` says,
    by canonical flag, which field of the spec sets it.
    """
    owned = set(managed)
    problems = []
    for index, argument in enumerate(args):
        flag = aliases.get(flag_of(argument), flag_of(argument))
        if flag in owned:
            remedy = remedies.get(flag, "it is set for every arm by specbench")
            problems.append(
                Problem(f"{path}[{index}]", f"{argument!r} contradicts a flag that specbench manages", remedy)
            )
    return problems


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
