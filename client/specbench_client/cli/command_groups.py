"""Command groups: commands listed under headings, and imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any

import click

from specbench_api.errors import did_you_mean


class LazyGroup(click.Group):
    """A group that imports a command when it is called: pandas and matplotlib take seconds that `--help` need not wait.

    `headings`: heading → command name → one line of help, in the order shown. `modules`: command name → module of this
    package that has it, if not one of the command's own name. Objects and modules have `_` for `-`, and `_` after a
    keyword of Python.
    """

    def __init__(
        self, *args: Any, headings: Mapping[str, Mapping[str, str]], modules: Mapping[str, str], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._headings = headings
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return every command name, in the order of the headings."""
        return [name for commands in self._headings.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported unless it was added to the group; None if there is none of this name."""
        if cmd_name in self.commands or cmd_name not in self.list_commands(ctx):
            return self.commands.get(cmd_name)
        name = cmd_name.replace("-", "_") + ("_" if iskeyword(cmd_name) else "")
        command = getattr(importlib.import_module(f"{__package__}.{self._modules.get(cmd_name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; for an unknown name, suggest the closest command."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.list_commands(ctx), f"give one of {', '.join(self.list_commands(ctx))}")
            ctx.fail(f"No such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading, with the command names aligned across sections."""
        widest = max(map(len, self.list_commands(ctx)))
        for heading, commands in self._headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])
