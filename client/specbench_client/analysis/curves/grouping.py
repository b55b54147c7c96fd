"""Groups cells into curves: the cells of one curve are alike in everything but the axis.

Compared are declared settings (model, engine, drafter, sampling, limits, placement, load) and observed facts (versions,
hardware, number formats, the prompts' fingerprint). Facts that neither side observed count as equal. Of two cells at
one place the newer is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.outcome.provenance import FACTS, FactComparability, FactName
from specbench_api.outcome.summary import ArrivalPattern
from specbench_api.plan.canonical import canonical_json, plain_numbers
from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.compare.differences import known_values, shorten
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AxisKind
from specbench_client.documents.curves import CurveExclusion

NOT_KNOWN = "not known"
_PLACE = ("gpus", "gpuResourceName", "nodeSelector", "template", "nodes")
_WHICH_FILE = ("config", "uri", "pvc", "revision", "inputTokens", "count", "seed")
"""Fields of a dataset that give the place, number and length of its prompts, and not their kind."""
_FACTS = tuple(
    name
    for name, about in FACTS.items()
    if about.comparability is FactComparability.MUST and name is not FactName.IMAGE
)


@dataclass(frozen=True)
class CurveCell:
    """One arm × workload × load of one result."""

    result: StoredResult
    arm: Arm
    workload: Workload
    level: Level

    @property
    def words(self) -> str:
        """Name for messages: `ngram on chat at concurrency 8`."""
        return f"{self.arm.name} on {self.workload.name} at {self.level.words}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the cell in the result: arm, workload, load."""
        return self.arm.name, self.workload.name, self.level.label


def identity(cell: CurveCell) -> dict[str, str]:
    """Return the settings and facts that identify a curve, as text by name.

    Settings that are axes (`temperature`, `draft tokens`, …) have entries of their own.
    """
    plan, workload = cell.result.plan, cell.workload
    sampling = workload.sampling.to_dict()
    drafter = cell.arm.drafter.to_dict() if cell.arm.drafter else {}
    placement, dataset = plan.placement.to_dict(), workload.dataset.to_dict()
    return {
        "simulated": _text(cell.result.summary.simulated),
        **_fields("model", plan.target.to_dict()),
        **_fields("engine", plan.engine.to_dict()),
        **_observed_facts(cell),
        **_fields("placement", {key: placement[key] for key in _PLACE if key in placement}),
        **_fields("drafter", {key: drafter[key] for key in drafter if key not in ("name", "numSpeculativeTokens")}),
        "draft tokens": _text(drafter.get("numSpeculativeTokens")),
        "dataset": dataset_of(cell),
        "selection of prompts": _text({key: value for key, value in dataset.items() if key not in _WHICH_FILE}),
        "temperature": _text(sampling.get("temperature", 0)),
        **_fields("sampling", {key: value for key, value in sampling.items() if key != "temperature"}),
        "limits of the answers": _text(workload.output.to_dict()),
        "fields of the requests": _text(workload.extra_body),
        **_fields("answers", {} if workload.answers is None else workload.answers.to_dict()),
        "arrivals": ArrivalPattern.of(plan.load).words,
        "load": cell.level.label,
        "slots": _text(plan.slots),
    }


def _fields(of: str, data: Mapping[str, Any]) -> dict[str, str]:
    """Return one entry per field, named `of.field`; empty fields are left out."""
    return {f"{of}.{name}": _text(value) for name, value in data.items() if value not in ([], {}, None)}


def dataset_of(cell: CurveCell) -> str:
    """Return the fingerprint of the prompts, or the declared dataset if there is none."""
    fingerprints = known_values(point.dataset_fingerprint for point in cell.result.observed_of(cell.workload.name))
    return ", ".join(fingerprints) or _text(cell.workload.dataset.to_dict())


def _observed_facts(cell: CurveCell) -> dict[str, str]:
    """Return the facts of the arm's launches that must be equal, and the engine version of the manifests."""
    mine = [launch for launch in cell.result.launches if launch.arm == cell.arm.name]
    facts = {
        str(name): known_values(_text(value) for launch in mine if (value := launch.value(name)) is not None)
        for name in _FACTS
    }
    versions = known_values(point.engine_version for point in cell.result.observed_of(cell.workload.name))
    found = {name: ", ".join(values) or NOT_KNOWN for name, values in facts.items()}
    return {**found, str(FactName.ENGINE_VERSION): ", ".join(versions) or found[FactName.ENGINE_VERSION]}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(plain_numbers(value))


@dataclass(frozen=True)
class CellGroup:
    """Cells of one curve, and the identity that they share, by name."""

    same: Mapping[str, str]
    cells: Sequence[CurveCell]


def group_cells(kind: AxisKind, results: Sequence[StoredResult]) -> tuple[list[CellGroup], list[CurveExclusion]]:
    """Return the cells of each curve, and the cells that are in none, with the reason."""
    left_out: list[CurveExclusion] = []
    found: dict[tuple[tuple[str, str], ...], dict[object, CurveCell]] = {}
    newest_first = sorted(results, key=lambda result: result.summary.created, reverse=True)
    for cell in (cell for result in newest_first for cell in _compared(result)):
        named = identity(cell)
        same = tuple((name, value) for name, value in named.items() if name not in kind.free)
        place = tuple(named.items()) if kind.place is None else kind.place(cell.arm, cell.workload, cell.level)
        why = _unusable(cell) or ("" if place is not None else f"it has no {kind.axis.words()}")
        taken = found.get(same, {}).get(place)
        if not why and taken is not None:
            why = f"measured again by {taken.arm.name} of {taken.result.uri}, which is newer or comes first"
        if why:
            left_out.append(CurveExclusion(what=f"{cell.result.uri}: {cell.words}", reason=why))
        else:
            found.setdefault(same, {})[place] = cell
    return [CellGroup(dict(same), list(cells.values())) for same, cells in found.items()], left_out


def group_differences(first: CellGroup, other: CellGroup) -> list[str]:
    """Return the differences between two curves, without those in the title: the load, and the arms of one run."""
    names = dict.fromkeys([*first.same, *other.same])
    unequal = [name for name in names if name != "load" and first.same.get(name) != other.same.get(name)]
    runs = [{cell.result.uri for cell in group.cells} for group in (first, other)]
    if runs[0] & runs[1]:
        unequal = [name for name in unequal if not name.startswith(("drafter.", "draft tokens"))]
    return [f"{name}: {shorten(first.same.get(name, '–'))} → {shorten(other.same.get(name, '–'))}" for name in unequal]


def _compared(result: StoredResult) -> list[CurveCell]:
    """Return the cells of the result without the baseline's, in the summary's order."""
    plan = result.plan
    return [
        CurveCell(result, plan.arm(cell.arm), plan.workload(cell.workload), cell.level)
        for cell in result.summary.cells
        if cell.arm != BASELINE_NAME
    ]


def _unusable(cell: CurveCell) -> str:
    """Return why a cell cannot be part of a curve; empty if it can."""
    measured = cell.result.cells[cell.key]
    if not measured.valid:
        return measured.why_invalid(cell.result.summary.findings)
    if measured.speedup is None or measured.speedup.value is None:
        return "not compared with a baseline"
    keys = (cell.key, (BASELINE_NAME, *cell.key[1:]))
    return "" if all(cell.result.points_of(key) for key in keys) else "its records are gone"
