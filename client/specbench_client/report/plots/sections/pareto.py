"""What one user gets against what the engine gives, each arm over its loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from specbench_api.outcome.figure import Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.ink import Style, companies, styles_of
from specbench_client.report.plots.pareto import Pareto, Path, Spot, draw_pareto, frontier
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arm_label,
    arms,
    cell_of,
    figure_of,
    known,
    loads,
    rests_on,
    workloads,
)
from specbench_client.report.plots.sections.section import Drawn

PER_GPU, WHOLE = "output_tps_per_gpu", "output_tps"


def pareto(summary: RunSummary) -> Drawn | None:
    """A panel a workload and company of arms, the baseline in each; the frontier is of all arms."""
    up = PER_GPU if any(figure_of(cell, PER_GPU) for cell in summary.cells) else WHOLE
    looks = styles_of(cell.arm for cell in summary.cells)
    panels = []
    for workload, cells in workloads(summary):
        paths = [path for arm in [BASELINE_NAME, *arms(cells)] if (path := _path(cells, arm, up, looks)).spots]
        best = frontier([spot for path in paths for spot in path.spots])
        for together in _companies(paths):
            data = Pareto(tuple(together), best, "tokens a second of one user (median)", _label(up))
            panels.append(Panel(partial(draw_pareto, data=data), workload, f"frontier: {_named(paths, best)}"))
    figures = known(cell.figures.get(up) for cell in summary.cells)
    note = "Up: more from the machine; right: more for each user. The grey line joins what nothing else beats in both."
    caption = (
        f"{rests_on(figures, bounds=False)} {note} Loads stand at each line's ends, where there is room. {INVALID}"
    )
    return Drawn(tuple(panels), caption) if panels else None


def _path(cells: Sequence[Cell], arm: str, up: str, looks: Mapping[str, Style]) -> Path:
    spots = []
    for level in loads(cells):
        cell = cell_of(cells, arm, level)
        user, engine = figure_of(cell, Headline.USER_TPS), figure_of(cell, up)
        if cell and user and engine and user.value is not None and engine.value is not None:
            spots.append(Spot(level.label, user.value, engine.value, cell.valid))
    return Path(arm_label(arm), looks[arm], tuple(spots))


def _companies(paths: Sequence[Path]) -> list[list[Path]]:
    """The baseline in each panel, where it was measured."""
    always = [path for path in paths if path.name == arm_label(BASELINE_NAME)]
    others = {path.name: path for path in paths if path not in always}
    groups = [[others[name] for name in together] for together in companies(list(others))]
    return [[*always, *group] for group in groups] or ([always] if always else [])


def _named(paths: Sequence[Path], best: Sequence[Spot]) -> str:
    at = [(path.name, spot) for spot in best for path in paths if spot in path.spots]
    return ", ".join(f"{name} at {spot.load} ({spot.x:.3g}, {spot.y:.3g})" for name, spot in at) or "none is valid"


def _label(name: str) -> str:
    return "output tokens a second of a GPU" if name == PER_GPU else "output tokens a second of the engine"
