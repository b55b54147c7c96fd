"""The options of `spec.slo`, which no run must have: how fast an answer must be for its user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from specbench_api.spec.slo import Slo
from specbench_client.cli.flags import Number

_TARGETS = {
    "ttft_ms": "Goodput: longest time to the first token.",
    "tpot_ms": "Goodput: longest time per output token after it.",
    "e2e_ms": "Goodput: longest time to the last token.",
}


def slo_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --slo-ttft-ms, --slo-tpot-ms and --slo-e2e-ms to a command."""
    for name, words in reversed(_TARGETS.items()):
        flag = f"--slo-{name.replace('_', '-')}"
        command = click.option(flag, f"slo_{name}", type=Number(Slo, name), metavar="MS", help=words)(command)
    return command


def asked_slo(ttft_ms: float | None, tpot_ms: float | None, e2e_ms: float | None) -> Slo | None:
    """The targets that were given, None where none was."""
    given = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "e2e_ms": e2e_ms}
    targets = {name: target for name, target in given.items() if target is not None}
    return Slo.model_validate(targets) if targets else None


def overridden(kept: Slo | None, asked: Slo | None) -> Slo | None:
    """The kept targets with those that were asked for in their place."""
    if kept is None or asked is None:
        return asked or kept
    return kept.model_copy(update=asked.targets)
