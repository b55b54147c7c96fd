"""The CustomResourceDefinition of SpecBenchRun, as data and as the YAML that lies under crds/ and in the chart.

Beside what the models say it holds: the pairs of engine and drafter that do not exist, as rules of admission made from
the one support table, and the print columns. `selectableFields` is left out: Kubernetes 1.29, which the chart still
takes, does not know the word, and `kubectl apply` would refuse the file there.
"""

from __future__ import annotations

from typing import Any

from specbench_api.crdgen.definition import Kind, as_yaml, custom_resource, resource_schema
from specbench_api.crdgen.structural import VALIDATIONS, Schema, structural, validations
from specbench_api.launch.support.table import CELLS
from specbench_api.model import Rule
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.status import RunStatus

_READY = '.status.conditions[?(@.type=="Ready")]'
COLUMNS: tuple[Schema, ...] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Progress",
        "type": "string",
        "jsonPath": ".status.progress",
        "description": "Points with a manifest, of all points of the plan.",
    },
    {
        "name": "Best",
        "type": "string",
        "jsonPath": ".status.best",
        "description": "The largest speed-up that is distinguishable from 1; or none faster.",
    },
    {
        "name": "Trust",
        "type": "string",
        "jsonPath": ".status.verdict",
        "description": "Whether the numbers can be trusted.",
    },
    {"name": "Engine", "type": "string", "jsonPath": ".spec.engine.kind"},
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.name", "priority": 1},
    {"name": "Reason", "type": "string", "jsonPath": f"{_READY}.reason", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": f"{_READY}.message", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
KIND = Kind("SpecBenchRun", "sbr", COLUMNS)
PLURAL = KIND.plural
FILE_NAME = KIND.file_name


def schema() -> Schema:
    """The structural schema of the whole resource."""
    return resource_schema(SpecBenchRun, spec_schema(RunSpec), RunStatus)


def spec_schema(model: type[RunSpec]) -> Schema:
    """The schema of a run's spec with the pairs of engine and drafter that do not exist."""
    return {**structural(model), VALIDATIONS: validations((*model.rules, *support_rules()))}


def support_rules() -> tuple[Rule, ...]:
    """One rule a pair of engine and drafter that does not exist: the reason, and what to use instead."""
    return tuple(
        Rule(
            f"self.engine.kind != '{kind}' || !self.drafters.exists(drafter, drafter.method == '{method}')",
            f"drafters[].method: {kind} cannot do {method}: {cell.how} (use {cell.instead})",
        )
        for (kind, method), cell in CELLS.items()
        if not cell.supported
    )


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition as data."""
    return custom_resource(KIND, schema())


def render() -> str:
    """The file."""
    return as_yaml(definition())
