"""Tables of a cell's breakdown by position, context, length, part and turn, and of its reuse of the prompt cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from specbench_client.documents.breakdown import (
    Breakdown,
    BreakdownSlice,
    RequestDistribution,
    Reuse,
    ReuseMissing,
    ReuseSlice,
)
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.text.text_table import AT_LEVEL, DASH, TextTable, Topic, cell_place, number, with_interval
from specbench_client.trust.checks.answer_lengths import output_lengths_differ

DIMENSIONS = {
    "position": "Steps by output position",
    "context": "Steps by context (prompt and output so far)",
    "part": "Steps by part of the answer (reasoning or final)",
    "length": "Requests by length of the answer",
    "length-position": "Steps by output position, grouped by length of the answer",
    "turn": "Requests by turn",
    "request": "Acceptance length from request to request",
}
"""Name of each dimension → title of its table."""

_HEADS = {"length": "Output tokens", "length-position": "Output tokens: position"}
_KEYS = {"request": "acceptance_by_request", "length-position": "by_length"}
"""Name of a dimension in `Breakdown.missing`, where it differs."""

_FIGURES = {
    f"AL emitted {AT_LEVEL}": "acceptance_length_emitted_pooled",
    f"AL verified {AT_LEVEL}": "acceptance_length_verified_pooled",
    f"Accepted {AT_LEVEL}": "acceptance_rate",
    f"TPOT ms {AT_LEVEL}": "tpot_ms_pooled",
    f"TTFT ms {AT_LEVEL}": "ttft_ms_mean",
}


Line = tuple[str, ...]
"""The texts of one row, or the titles above them."""


def breakdown_topics(summary: RunSummary, dimensions: Sequence[str] = tuple(DIMENSIONS)) -> list[Topic]:
    """Return one topic a dimension, over all cells that have it; its lines state why other cells do not."""
    cells = [(cell, cell.breakdown) for cell in summary.cells]
    return [_topic(name, cells) for name in dimensions]


_ENDS = ("Arm", "Workload", "Load", "By", f"AL in the first class {AT_LEVEL}", f"in the last {AT_LEVEL}")
_ORDERED = ("position", "context", "part", "length", "turn")


def ends_topic(summary: RunSummary) -> Topic:
    """Return the acceptance length of the first and the last class: a row for each arm that drafts, and dimension.

    The highest and the lowest of many classes would differ by chance alone.
    """
    rows = []
    for cell, name in product(summary.cells, _ORDERED):
        classes = [
            (figure.value, f"{label}: {with_interval(figure)}")
            for label, each in _labelled(name, cell.breakdown)
            if (figure := each.figures.get(_FIGURES[f"AL emitted {AT_LEVEL}"])) and figure.value is not None
        ]
        if len(classes) > 1 and max(classes)[0] > 1.0:
            rows.append((*cell_place(cell), name, classes[0][1], classes[-1][1]))
    table = TextTable("Where drafts are accepted", _ENDS, rows, words=_ENDS)
    none = [] if rows else ["No arm that drafts has two classes with a known acceptance length."]
    return Topic(table.title, [table], [*none, "--all shows every class, and why one is missing; --by one dimension."])


def _topic(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> Topic:
    """Return one dimension; cells that lack it for the same reason are listed together."""
    head, rows = _spreads(cells) if name == "request" else _classes(name, cells)
    columns = ("Arm", "Workload", "Load", *head)
    table = TextTable(DIMENSIONS[name], columns, rows, words=columns[: 3 if name == "request" else 4])
    return Topic(table.title, [table], list(_missing(name, cells)))


def _spreads(cells: Sequence[tuple[Cell, Breakdown]]) -> tuple[Line, tuple[Line, ...]]:
    """Titles and rows of the distributions over requests."""
    spreads = [(cell, kept.acceptance_by_request) for cell, kept in cells if kept.acceptance_by_request]
    head = ("Requests", "Prompts", "Least", "p10", "p25", "p50", "p75", "p90", "Most")
    return head, tuple((*cell_place(cell), *_spread(spread)) for cell, spread in spreads)


def _classes(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> tuple[Line, tuple[Line, ...]]:
    """Titles and rows of the classes of a dimension, with the figures that any of them has."""
    found = [(cell, label, each) for cell, kept in cells for label, each in _labelled(name, kept)]
    shown = {each for _, _, one in found for each in one.figures}
    figures = tuple(title for title, figure in _FIGURES.items() if figure in shown)
    head = (_HEADS.get(name, name.capitalize()), "Steps", "Requests", "Prompts", *figures)
    return head, tuple((*cell_place(cell), label, *_slice(each, figures)) for cell, label, each in found)


def _labelled(name: str, kept: Breakdown) -> Iterator[tuple[str, BreakdownSlice]]:
    """The slices of a dimension, each with its label."""
    if name == "length-position":
        yield from (
            (f"{group.whole.label}: {each.label}", each) for group in kept.by_length for each in group.by_position
        )
        return
    by_name = {
        "position": kept.by_position,
        "context": kept.by_context,
        "part": kept.by_part,
        "length": [group.whole for group in kept.by_length],
        "turn": kept.by_turn,
    }
    yield from ((each.label, each) for each in by_name[name])


def _slice(each: BreakdownSlice, figures: Sequence[str]) -> tuple[str, ...]:
    counts = (f"{each.steps:,}", f"{each.requests:,}", f"{each.prompts:,}")
    values = (each.figures.get(_FIGURES[title]) for title in figures)
    return (*counts, *(with_interval(figure) for figure in values))


def _spread(spread: RequestDistribution) -> tuple[str, ...]:
    low, high = spread.deciles[0], spread.deciles[-1]
    values = (spread.minimum, low, spread.lower_quartile, spread.median, spread.upper_quartile, high, spread.maximum)
    return (f"{spread.n:,}", f"{spread.prompts:,}", *(number(value) for value in values))


def _missing(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> Iterator[str]:
    key = _KEYS.get(name, f"by_{name}")
    whys: dict[str, list[str]] = {}
    for cell, kept in cells:
        if key in kept.missing:
            whys.setdefault(kept.missing[key], []).append(f"{cell.arm} at {cell.level.label}")
    yield from (f"Missing for {', '.join(dict.fromkeys(where))}: {why}" for why, where in whys.items())
    if name in ("length", "length-position"):
        yield from dict.fromkeys(f"Classes: {kept.length_classes}" for _, kept in cells if kept.length_classes)
    if name in ("position", "context", "part"):
        yield from (
            f"{cell.arm} at {cell.level.label}: steps of {kept.placed_share:.0%} of the requests could be placed"
            for cell, kept in cells
            if kept.placed_share is not None and 0 < kept.placed_share < 1
        )


SHARE_TITLES = (
    "Arm",
    "Workload",
    "Load",
    "Cached",
    "Baseline's",
    f"Computed / baseline's {AT_LEVEL}",
    f"Net {AT_LEVEL}",
)
SLICE_TITLES = ("Arm", "Workload", "Load", "{}", "Pairs", "Cached", "Baseline's", f"Computed / baseline's {AT_LEVEL}")
REUSE_SAYS = (
    "Net: the speed-up in E2E latency, with what each arm reuses from the prompt cache. To see what drafting alone"
    " gains, measure without it (--prompt-cache disabled, or promptCache: Disabled) and compare both runs"
)
_REPORT_OPTIONS = "vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report"
REUSE_MISSING = {
    ReuseMissing.NOT_REPORTED: f"neither server reports cached tokens ({_REPORT_OPTIONS})",
    ReuseMissing.ARM_NOT_REPORTED: f"only the baseline's server reports cached tokens ({_REPORT_OPTIONS})",
    ReuseMissing.BASELINE_NOT_REPORTED: f"the baseline's server reports no cached tokens ({_REPORT_OPTIONS})",
}
"""Why reuse is not compared, and what to do."""


def reuse_lines(cells: Sequence[Cell]) -> list[str]:
    """Return the net speed-up of each cell where a prompt was cached, with the hit shares, and a definition below them.

    Cells whose cached tokens are not reported have one line for each reason. Where reuse is not compared: nothing.
    """
    several = len({cell.workload for cell in cells}) > 1
    compared = [
        f"{cell.arm} at {cell.level.words}{f' on {cell.workload}' if several else ''}: {_net_and_shares(cell, reuse)}"
        + ("" if cell.valid else ". Invalid: see the findings")
        for cell, reuse in _compared(cells)
        if reuse.hit_share.value or reuse.baseline_hit_share.value
    ]
    unknown = [(cell.reuse_missing, cell.arm) for cell in cells if cell.reuse_missing]
    missing = []
    for reason in dict.fromkeys(reason for reason, _ in unknown):
        arms = ", ".join(dict.fromkeys(arm for each, arm in unknown if each is reason))
        missing.append(f"{arms}: Reuse of the prompt cache is not compared: {REUSE_MISSING[reason]}")
    return [*compared, *missing, *([REUSE_SAYS] if compared else [])]


def reuse_tables(cells: Sequence[Cell]) -> list[TextTable]:
    """Return the tables of the cells with reuse: shares, and slices by turn and by depth."""
    found = list(_compared(cells))
    turns = [_reuse_row(cell, each) for cell, reuse in found for each in reuse.by_turn]
    depths = [_reuse_row(cell, each) for cell, reuse in found for each in reuse.by_depth]
    shares = [_shares(cell, reuse) for cell, reuse in found]
    return [
        TextTable("Prompt tokens from the cache", SHARE_TITLES, shares, words=SHARE_TITLES[:2]),
        _reuse_table("By turn", "Turn", turns),
        _reuse_table("By depth: the larger number of cached tokens of both sides", "Depth", depths),
    ]


def _compared(cells: Sequence[Cell]) -> list[tuple[Cell, Reuse]]:
    return [(cell, cell.reuse) for cell in cells if cell.reuse]


def _net_and_shares(cell: Cell, reuse: Reuse) -> str:
    speedup = cell.end_to_end.speedup if cell.end_to_end else None
    net = (speedup.factor if speedup else "") or DASH
    few = f"; {speedup.missing}" if speedup and speedup.missing else ""
    lengths = (
        "; its answers have other lengths, which Net contains" if output_lengths_differ.name in cell.findings else ""
    )
    mine, theirs = (f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share))
    return f"Net {net} ({mine} of the prompt tokens from the cache, {theirs} of the baseline's{few}{lengths})"


def _reuse_table(title: str, name: str, rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title, [each.format(name) for each in SLICE_TITLES], rows, words=SLICE_TITLES[:2])


def _shares(cell: Cell, reuse: Reuse) -> list[str]:
    shares = [f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share)]
    net = with_interval(cell.end_to_end.speedup if cell.end_to_end else None)
    ratio = with_interval(reuse.computed_ratio)
    return [*cell_place(cell), *shares, ratio, net]


def _reuse_row(cell: Cell, each: ReuseSlice) -> list[str]:
    shares = (f"{each.hit_share:.0%}", f"{each.baseline_hit_share:.0%}")
    ratio = with_interval(each.computed_ratio)
    return [*cell_place(cell), each.label, f"{each.pairs}", *shares, ratio]
