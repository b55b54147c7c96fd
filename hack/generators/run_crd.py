"""The CustomResourceDefinition of SpecBenchRun, as data and as the YAML under crds/ and in the chart.

In addition to the models' schema it contains a rule for each unsupported combination of engine and drafter, from the
support matrix, and the print columns. `selectableFields` is not used: Kubernetes 1.29, which the chart supports, does
not know it, and `kubectl apply` would reject the file there.
"""

from __future__ import annotations

from typing import Any

from generators.crd_yaml import Kind, as_yaml, custom_resource, resource_schema
from generators.structural_schema import VALIDATIONS, Schema, structural, validations
from specbench_api.launch.support_matrix import SUPPORT_MATRIX
from specbench_api.model import ValidationRule
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.status import RunStatus

_READY = '.status.conditions[?(@.type=="Ready")]'
COLUMNS: tuple[Schema, ...] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Progress",
        "type": "string",
        "jsonPath": ".status.progress",
        "description": "Measured points of all points of the plan.",
    },
    {
        "name": "Best",
        "type": "string",
        "jsonPath": ".status.best",
        "description": "Largest speed-up that is distinguishable from 1; or none faster.",
    },
    {
        "name": "Trust",
        "type": "string",
        "jsonPath": ".status.trust",
        "description": "Whether the numbers can be trusted.",
    },
    {
        "name": "Problem",
        "type": "string",
        "jsonPath": ".status.problem",
        "description": "What is wrong: reasons, which docs/reference/conditions.md lists.",
    },
    {"name": "Engine", "type": "string", "jsonPath": ".spec.engine.kind", "priority": 1},
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.name", "priority": 1},
    {
        "name": "Gate",
        "type": "string",
        "jsonPath": ".status.gate.reason",
        "priority": 1,
        "description": "Outcome of spec.gate.",
    },
    {"name": "Reason", "type": "string", "jsonPath": f"{_READY}.reason", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": f"{_READY}.message", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
KIND = Kind("SpecBenchRun", "sbr", COLUMNS)
PLURAL = KIND.plural
FILE_NAME = KIND.file_name


def schema() -> Schema:
    """Return the structural schema of the whole resource."""
    return resource_schema(SpecBenchRun, spec_schema(RunSpec), RunStatus)


def spec_schema(model: type[RunSpec]) -> Schema:
    """Return the schema of a run's spec, with a rule for each unsupported combination of engine and drafter."""
    return {**structural(model), VALIDATIONS: validations((*model.rules, *support_rules()))}


def support_rules() -> tuple[ValidationRule, ...]:
    """Return one rule per unsupported combination, with the reason and an alternative in its message."""
    return tuple(
        ValidationRule(
            f"self.engine.kind != '{kind}' || !self.drafters.exists(drafter, drafter.method == '{method}')",
            f"drafters[].method: {kind} does not support {method}: {cell.how} (use {cell.instead})",
        )
        for (kind, method), cell in SUPPORT_MATRIX.items()
        if not cell.supported
    )


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition as data."""
    return custom_resource(KIND, schema())


def render() -> str:
    """Return the contents of the YAML file."""
    return as_yaml(definition())
