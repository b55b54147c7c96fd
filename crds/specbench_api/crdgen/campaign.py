"""The CustomResourceDefinition of SpecBenchCampaign.

Its template holds the whole schema of a run's spec, the pairs of engine and drafter that do not exist among its rules,
but for the rule that nothing may change. Of axes the server sees paths and names alone: what a value makes of the
template is told in planning, and no rule reads `axes[].values`, which for CEL are not there.
"""

from __future__ import annotations

from typing import Any

from specbench_api.crdgen.definition import Kind, as_yaml, custom_resource, resource_schema
from specbench_api.crdgen.resource import spec_schema
from specbench_api.crdgen.structural import Schema, structural
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign, TemplateSpec
from specbench_api.spec.campaign_status import CampaignStatus

_READY = '.status.conditions[?(@.type=="Ready")]'
COLUMNS: tuple[Schema, ...] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Runs",
        "type": "string",
        "jsonPath": ".status.progress",
        "description": "Runs of the round that have ended, of all.",
    },
    {"name": "Failed", "type": "integer", "jsonPath": ".status.counts.failed", "description": "Runs that failed."},
    {
        "name": "Best",
        "type": "string",
        "jsonPath": ".status.best",
        "description": "The largest speed-up that is distinguishable from 1, with its combination; or none faster.",
    },
    {
        "name": "Trust",
        "type": "string",
        "jsonPath": ".status.verdict",
        "description": "Whether the numbers can be trusted.",
    },
    {"name": "Gate", "type": "string", "jsonPath": ".status.gate", "description": "What the gate found."},
    {
        "name": "Budget",
        "type": "string",
        "jsonPath": ".status.budget",
        "description": "GPU-hours of the round, spent and budgeted.",
    },
    {"name": "Round", "type": "integer", "jsonPath": ".status.round.number", "priority": 1},
    {"name": "Next", "type": "string", "jsonPath": ".status.nextScheduleTime", "priority": 1},
    {"name": "Reason", "type": "string", "jsonPath": f"{_READY}.reason", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": f"{_READY}.message", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
KIND = Kind("SpecBenchCampaign", "sbc", COLUMNS)
PLURAL = KIND.plural
FILE_NAME = KIND.file_name


def schema() -> Schema:
    """The structural schema of the whole resource."""
    spec = structural(CampaignSpec)
    template = spec["properties"]["template"]["properties"]
    described = template["spec"]["description"]
    template["spec"] = {**spec_schema(TemplateSpec), "description": described}
    return resource_schema(SpecBenchCampaign, spec, CampaignStatus)


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition as data."""
    return custom_resource(KIND, schema())


def render() -> str:
    """The file."""
    return as_yaml(definition())
