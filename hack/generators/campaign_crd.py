"""The CustomResourceDefinition of SpecBenchCampaign.

Its template contains the whole schema of a run's spec, including the rules about unsupported drafters, except for the
rule that makes the spec immutable. The server only validates paths and names of axes: values are checked in planning,
because CEL cannot read `axes[].values`.
"""

from __future__ import annotations

from typing import Any

from generators.crd_yaml import Kind, as_yaml, custom_resource, resource_schema
from generators.run_crd import spec_schema
from generators.structural_schema import Schema, structural
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign, TemplateSpec
from specbench_api.spec.campaign_status import CampaignStatus

_READY = '.status.conditions[?(@.type=="Ready")]'
COLUMNS: tuple[Schema, ...] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Runs",
        "type": "string",
        "jsonPath": ".status.progress",
        "description": "Ended runs of all runs of the round.",
    },
    {"name": "Failed", "type": "integer", "jsonPath": ".status.counts.failed", "description": "Failed runs."},
    {
        "name": "Best",
        "type": "string",
        "jsonPath": ".status.best",
        "description": "Largest speed-up that is distinguishable from 1, with its combination; or none faster.",
    },
    {
        "name": "Trust",
        "type": "string",
        "jsonPath": ".status.trust",
        "description": "Whether the numbers can be trusted.",
    },
    {"name": "Gate", "type": "string", "jsonPath": ".status.gate", "description": "Summary of the runs' gates."},
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
    """Return the structural schema of the whole resource."""
    spec = structural(CampaignSpec)
    template = spec["properties"]["template"]["properties"]
    described = template["spec"]["description"]
    template["spec"] = {**spec_schema(TemplateSpec), "description": described}
    return resource_schema(SpecBenchCampaign, spec, CampaignStatus)


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition as data."""
    return custom_resource(KIND, schema())


def render() -> str:
    """Return the contents of the YAML file."""
    return as_yaml(definition())
