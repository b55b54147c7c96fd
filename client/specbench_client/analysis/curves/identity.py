"""What two cells must have in common to be points of one curve: everything but the axis.

What was declared (model, engine, drafter, sampling, limits, placement, load) and what was seen (versions, hardware,
number formats, the prompts' fingerprint). What nobody saw is alike with what nobody saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.outcome.facts import FACTS, Alike, FactName
from specbench_api.outcome.summary import Arrivals
from specbench_api.plan.canonical import canonical_json, plain_numbers
from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.compare.result import Result

UNSEEN = "not known"
_PLACE = ("gpus", "gpuResourceName", "nodeSelector", "engineResources", "nodes")
_WHICH_FILE = ("config", "uri", "pvc", "revision", "inputTokens", "count", "seed")
"""Of a data set: what says where its prompts are, how many and how long, and not which kind they are of."""
_FACTS = tuple(name for name, about in FACTS.items() if about.alike is Alike.MUST and name is not FactName.IMAGE)


@dataclass(frozen=True)
class Cell:
    """One arm × workload × load of one result."""

    result: Result
    arm: Arm
    workload: Workload
    level: Level

    @property
    def words(self) -> str:
        """For messages: `ngram on chat at concurrency 8`."""
        return f"{self.arm.name} on {self.workload.name} at {self.level.words}"

    @property
    def key(self) -> tuple[str, str, str]:
        """In the result."""
        return self.arm.name, self.workload.name, self.level.label


def identity(cell: Cell) -> dict[str, str]:
    """By name, as text. The names of axes (`temperature`, `draft tokens`, …) have an entry of their own."""
    plan, workload = cell.result.plan, cell.workload
    sampling = workload.sampling.to_dict()
    drafter = cell.arm.drafter.to_dict() if cell.arm.drafter else {}
    placement, dataset = plan.placement.to_dict(), workload.dataset.to_dict()
    return {
        "simulated": _text(cell.result.summary.simulated),
        **_fields("model", plan.target.to_dict()),
        **_fields("engine", plan.engine.to_dict()),
        **_seen(cell),
        **_fields("placement", {key: placement[key] for key in _PLACE if key in placement}),
        **_fields("drafter", {key: drafter[key] for key in drafter if key not in ("name", "numSpeculativeTokens")}),
        "draft tokens": _text(drafter.get("numSpeculativeTokens")),
        "dataset": dataset_of(cell),
        "selection of prompts": _text({key: value for key, value in dataset.items() if key not in _WHICH_FILE}),
        "temperature": _text(sampling.get("temperature", 0)),
        **_fields("sampling", {key: value for key, value in sampling.items() if key != "temperature"}),
        "limits of the answers": _text(workload.output.to_dict()),
        "fields of the requests": _text(workload.extra_body),
        "arrivals": Arrivals.of(plan.load).words,
        "load": cell.level.label,
        "slots": _text(plan.slots),
    }


def _fields(of: str, data: Mapping[str, Any]) -> dict[str, str]:
    """Each field by a name of its own; what is empty is as if it were not there."""
    return {f"{of}.{name}": _text(value) for name, value in data.items() if value not in ([], {}, None)}


def dataset_of(cell: Cell) -> str:
    """The prompts, by their fingerprint; where nobody kept it, as they were declared."""
    seen = _values(point.dataset_fingerprint for point in cell.result.observed_of(cell.workload.name))
    return ", ".join(seen) or _text(cell.workload.dataset.to_dict())


def _seen(cell: Cell) -> dict[str, str]:
    """Facts of the arm's launches that must be alike, and what the manifests saw of the engine."""
    mine = [launch for launch in cell.result.launches if launch.arm == cell.arm.name]
    told = {str(name): _values(_told(launch.value(name)) for launch in mine) for name in _FACTS}
    versions = _values(seen.engine_version for seen in cell.result.observed_of(cell.workload.name))
    found = {name: ", ".join(values) or UNSEEN for name, values in told.items()}
    return {**found, str(FactName.ENGINE_VERSION): ", ".join(versions) or found[FactName.ENGINE_VERSION]}


def _told(value: Any) -> str | None:
    return None if value is None else _text(value)


def _values(told: Iterable[str | None]) -> list[str]:
    return sorted({value for value in told if value is not None})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(plain_numbers(value))
