"""SpecBenchCampaigns as a user writes them: a minimal valid one, and edits of it by path."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.resources import Resource, edit, resource

ENGINE = {"name": "engine", "path": "engine.kind", "values": ["vllm", "sglang"]}
TEMPERATURE = {"path": "workloads[0].sampling.temperature", "values": [0, 0.7, 1.0]}


def campaign(edits: Mapping[str, Any] | None = None, *, name: str = "nightly") -> Resource:
    """Return a campaign of two engines at three temperatures, edited by path."""
    made: Resource = {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchCampaign",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": resource()["spec"]}, "axes": copy.deepcopy([ENGINE, TEMPERATURE])},
    }
    for path, value in (edits or {}).items():
        edit(made, path, value)
    return made


def campaign_of(edits: Mapping[str, Any] | None = None, *, name: str = "nightly") -> SpecBenchCampaign:
    """Return the campaign as a model."""
    return parse_campaign(campaign(edits, name=name))
