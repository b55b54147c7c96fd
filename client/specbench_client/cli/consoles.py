"""Consoles whose reader may go away: see `pipes`."""

from __future__ import annotations

from rich.console import Console


class Page(Console):
    """A console that leaves it to us what a broken pipe means; rich ends the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Ticker(Console):
    """A console on which nothing is said once nobody reads: what is shown there was never the point."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
