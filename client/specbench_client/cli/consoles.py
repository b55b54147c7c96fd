"""Consoles whose reader may go away: see `pipes`."""

from __future__ import annotations

from rich.console import Console

from specbench_client.report.sheets import Sheet, rich_sheet

WIDTH_WHEN_PIPED = 160


class Page(Console):
    """A console that leaves it to us what a broken pipe means; rich ends the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def sheet(self, sheet: Sheet) -> None:
        """Print a table as wide as the page."""
        self.print(rich_sheet(sheet, self.width))


class Ticker(Console):
    """A console on which nothing is said once nobody reads: what is shown there was never the point."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def page() -> Page:
    """A page as wide as the terminal; where there is none, wide enough for a table.

    Texts stand on it as they are: names and words of engines are no markup, and numbers are not coloured.
    """
    console = Page(highlight=False, markup=False)
    return console if console.is_terminal else Page(width=WIDTH_WHEN_PIPED, highlight=False, markup=False)
