"""`--plot FILE`: what a command found, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specbench_client.cli.files import deliver
from specbench_client.errors import BadInput

if TYPE_CHECKING:
    from specbench_client.report.plots.picture import Picture

_KINDS = ("html", "svg", "png")


class PlotFile(click.ParamType[Path]):
    """A file whose name tells its format."""

    name = "file"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        file = Path(value)
        if file.suffix.removeprefix(".") not in _KINDS:
            self.fail(f"{str(file)!r} tells no format: end it with .html, .svg or .png", param, ctx)
        return file


PLOT = click.option(
    "--plot", type=PlotFile(), metavar="FILE", help="Draw it, too: .html (light, dark, paper), .svg or .png."
)


def write_plot(file: Path, picture: Picture, otherwise: str) -> None:
    """Write a picture in the format that its file is named for.

    Raises BadInput: `otherwise`, where there is nothing to draw; or the file cannot be written.
    """
    from specbench_client.report.html import render_plots  # noqa: PLC0415  as is matplotlib: seconds of imports
    from specbench_client.report.plots.picture import paper  # noqa: PLC0415

    if not picture.drawn:
        raise BadInput(f"--plot {file}: {otherwise}", "NothingToDraw")
    kind = file.suffix.removeprefix(".")
    data = render_plots(picture).encode() if kind == "html" else paper(picture, kind)
    deliver("--plot", file, data)
