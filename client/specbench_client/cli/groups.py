"""Groups of commands that load one when it is called, and list them under headings by what people do."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping

import click


class LazyGroup(click.Group):
    """Commands by heading, each with one line; pandas and matplotlib take seconds that `--help` need not wait for."""

    headings: Mapping[str, Mapping[str, str]] = {}
    """Heading → name → what it does, in the order in which they are shown."""

    def place_of(self, name: str) -> tuple[str, str]:
        """Module and object of a command."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Every name, in the order of the headings."""
        return [name for commands in self.headings.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, loaded now; None where there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, name = self.place_of(cmd_name)
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a name that is none is refused with the nearest that is one."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(self.list_commands(ctx))}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each heading; one column for all of them."""
        widest = max(map(len, self.list_commands(ctx)))
        for heading, commands in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), what) for name, what in commands.items()])
