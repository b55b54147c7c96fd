"""The audited document: rows with their quantities and settings, their baselines, and sweeps over one setting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import Method
from specbench_client.analysis.audit.columns import Quantity
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, exactly

_BASELINES = re.compile(r"(?:none|base(?:line)?|no(?:rmal)?|without|w/?o|off|autoregressive|ar)\b.*", re.IGNORECASE)
_METHODS = (
    (r"eagle\W?3", Method.EAGLE3),
    (r"eagle", Method.EAGLE),
    (r"medusa", Method.MEDUSA),
    (r"n\W?gram|prompt.?lookup|\bpld\b", Method.NGRAM),
    (r"suffix", Method.SUFFIX),
    (r"mtp|nextn", Method.MTP),
    (r"lookahead", Method.LOOKAHEAD),
    (r"vanilla|draft", Method.DRAFT_MODEL),
)
_IRREGULAR = (Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD)
"""Methods that propose fewer than k tokens, or none, in some steps."""


@dataclass(frozen=True)
class AuditRow:
    """One row: its settings and its measured values. `number` counts from 1 within the table."""

    table: str
    number: int
    settings: Mapping[str, str | float]
    values: Mapping[Quantity, PrintedNumber]
    distinguishing: frozenset[str] = frozenset()
    """Settings in which it differs from other rows of its table."""

    def get(self, name: Quantity) -> PrintedNumber | None:
        """Return a quantity; None if the table does not have it."""
        return self.values.get(name)

    @property
    def drafts(self) -> PrintedNumber | None:
        """Draft tokens per step."""
        value = self.settings.get(Quantity.DRAFT_LENGTH)
        return exactly(value) if isinstance(value, float) else None

    @property
    def concurrency(self) -> float | None:
        """Concurrent streams."""
        value = self.settings.get(Quantity.CONCURRENCY)
        return value if isinstance(value, float) else None

    @property
    def label(self) -> str:
        """Name for messages: the settings in which it differs from other rows."""
        shown = [
            f"{value}"
            if name == Quantity.METHOD
            else f"{name}={value:g}"
            if isinstance(value, float)
            else f"{name}={value}"
            for name, value in self.settings.items()
            if name in self.distinguishing
        ]
        return ", ".join(shown) or f"row {self.number}"

    @property
    def is_baseline(self) -> bool:
        """Whether the row was measured without drafting."""
        method = self.settings.get(Quantity.METHOD)
        if isinstance(method, str):
            return bool(_BASELINES.fullmatch(method.strip()))
        return self.settings.get(Quantity.DRAFT_LENGTH) == 0

    @property
    def method(self) -> Method | None:
        """The drafting method; None if its name is not recognised."""
        name = str(self.settings.get(Quantity.METHOD, ""))
        return next((method for pattern, method in _METHODS if re.search(pattern, name, re.IGNORECASE)), None)

    @property
    def drafts_irregularly(self) -> bool:
        """Whether its drafter proposes k tokens only in some steps."""
        return self.method in _IRREGULAR

    def settings_but(self, *names: Quantity) -> dict[str, str | float]:
        """Return its settings without these."""
        return {name: value for name, value in self.settings.items() if name not in names}


def with_labels(rows: Sequence[AuditRow]) -> list[AuditRow]:
    """Return the rows of one table, each with the settings in which these rows differ."""
    names = {name for row in rows for name in row.settings}
    varying = frozenset(name for name in names if len({row.settings.get(name) for row in rows}) > 1)
    return [
        replace(
            row, distinguishing=varying or frozenset({Quantity.METHOD, Quantity.DRAFT_LENGTH, Quantity.CONCURRENCY})
        )
        for row in rows
    ]


@dataclass(frozen=True)
class AuditDocument:
    """Tables of one publication.

    `settings`: columns used as settings because they are not a known quantity. `doubled`: columns that were not read
    because another column has the same quantity, each with that column. `unread`: columns of another statistic than
    median or mean, or of an ambiguous latency.
    """

    source: str
    tables: Mapping[str, Sequence[AuditRow]]
    settings: tuple[str, ...] = field(default=())
    doubled: tuple[tuple[str, str], ...] = field(default=())
    unread: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> list[AuditRow]:
        """All rows of all tables."""
        return [row for rows in self.tables.values() for row in rows]

    def baseline_of(self, row: AuditRow) -> AuditRow | None:
        """Return the baseline with the same settings, from the row's own table or else from another table."""
        here = [each for each in self.tables[row.table] if each.is_baseline]
        elsewhere = [each for each in self.rows if each.is_baseline and each.table != row.table]
        return next((each for each in (*here, *elsewhere) if _agree(each, row)), None)

    def sweeps(self, over: Quantity) -> Iterator[list[AuditRow]]:
        """Yield the rows of one table that differ only in this setting, sorted by it, without the baseline."""
        for rows in self.tables.values():
            groups: dict[str, list[AuditRow]] = {}
            for row in rows:
                if not row.is_baseline and isinstance(row.settings.get(over), float):
                    groups.setdefault(repr(sorted(row.settings_but(over).items())), []).append(row)
            for group in groups.values():
                if len(group) > 1:
                    yield sorted(group, key=lambda row: float(row.settings[over]))


def _agree(baseline: AuditRow, row: AuditRow) -> bool:
    """Return whether all settings that both rows state are equal, except method and draft length."""
    drafting = (Quantity.METHOD, Quantity.DRAFT_LENGTH)
    one, other = baseline.settings_but(*drafting), row.settings_but(*drafting)
    return all(one[name] == other[name] for name in one.keys() & other.keys())


_FIGURES = {
    Quantity.ACCEPTANCE_RATE: StatusFigure.ACCEPTANCE_RATE.value,
    Quantity.ACCEPTANCE_LENGTH: StatusFigure.ACCEPTANCE_LENGTH.value,
    Quantity.TPOT: f"{StatusFigure.TPOT_MS}_p50",
    Quantity.TTFT: f"{StatusFigure.TTFT_MS}_p50",
    Quantity.E2E: f"{StatusFigure.E2E_MS}_p50",
    Quantity.THROUGHPUT: StatusFigure.OUTPUT_TPS.value,
}

_APART = ("name", "method", "numSpeculativeTokens")
"""Fields of a drafter that have settings of their own, because rows of one sweep differ in them."""


def run_document(plan: Plan, summary: RunSummary) -> AuditDocument:
    """Return a run as a document with one table per workload. Invalid cells are left out."""
    workloads = dict.fromkeys(cell.workload for cell in summary.cells)
    return AuditDocument(
        f"run {summary.name}", {workload: with_labels(_rows(plan, summary, workload)) for workload in workloads}
    )


def _rows(plan: Plan, summary: RunSummary, workload: str) -> list[AuditRow]:
    cells = [cell for cell in summary.cells if cell.workload == workload]
    return [_row(plan, workload, number, cell) for number, cell in enumerate(cells, start=1) if cell.valid]


def _row(plan: Plan, workload: str, number: int, cell: Cell) -> AuditRow:
    arm = plan.arm(cell.arm)
    drafter = arm.drafter
    settings: dict[str, str | float] = {
        Quantity.METHOD: str(drafter.method) if drafter else arm.name,
        "workload": workload,
        Quantity.TEMPERATURE: float(plan.workload(workload).sampling.temperature),
    }
    if drafter or arm.is_baseline:  # of other arms, endpoints and imported files, the drafter is unknown
        settings[Quantity.DRAFT_LENGTH] = float((drafter.num_speculative_tokens or 0) if drafter else 0)
    if drafter:
        knobs = {key: value for key, value in drafter.to_dict().items() if key not in _APART}
        settings["drafter"] = json.dumps(knobs, sort_keys=True)
    if cell.level.concurrency is None:
        settings["load"] = cell.level.label
    else:
        settings[Quantity.CONCURRENCY] = float(cell.level.concurrency)
    figures = {name: cell.figures.get(figure) for name, figure in _FIGURES.items()}
    figures |= {Quantity.SPEEDUP: cell.speedup, Quantity.TPOT_SPEEDUP: cell.tpot_speedup}
    numbers = {name: _printed_number(figure) for name, figure in figures.items()}
    values = {name: each for name, each in numbers.items() if each and (each.value > 0 or name in _RUN_MAY_BE_ZERO)}
    return AuditRow(workload, number, settings, values)


_RUN_MAY_BE_ZERO = (Quantity.ACCEPTANCE_RATE,)


def _printed_number(figure: Figure | None) -> PrintedNumber | None:
    """Return the figure with its interval in place of rounding: statistical noise is no contradiction."""
    if figure is None or figure.value is None:
        return None
    bounds = figure.interval
    return PrintedNumber(figure.value, bounds.low, bounds.high) if bounds else exactly(figure.value)
