"""SpecBenchRuns and campaigns as a user writes them: a minimal valid one, and edits of it by path."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.engine import DialectName, Endpoint, Engine, EngineKind
from specbench_api.spec.parsing import parse_campaign, parse_run
from specbench_api.spec.run import SpecBenchRun

ENGINE = {"name": "engine", "path": "engine.kind", "values": ["vllm", "sglang"]}
TEMPERATURE = {"path": "workloads[0].sampling.temperature", "values": [0, 0.7, 1.0]}


Resource = dict[str, Any]


def external_engine(dialect: DialectName | None = None, url: str = "http://127.0.0.1:1") -> Engine:
    """One running endpoint."""
    return Engine(kind=EngineKind.EXTERNAL, endpoints=[Endpoint(name="endpoint", url=url)], dialect=dialect)


def endpoint_edits(*names: str, **engine: Any) -> dict[str, Any]:
    """Edits of a run that measures running servers with these names, on the ports from 8001 upwards."""
    endpoints = [{"name": name, "url": f"http://engine-{name}:800{row}"} for row, name in enumerate(names, start=1)]
    return {"spec.engine": {"kind": "external", "endpoints": endpoints, **engine}, "spec.drafters": []}


class _Missing:
    """Has the same repr in every process: test ids contain it, and xdist workers compare them."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""The value of an edit that removes the field."""


def resource(edits: Mapping[str, Any] | None = None, *, name: str = "demo", namespace: str = "default") -> Resource:
    """The smallest run with a drafter, edited by path: `resource({"spec.drafters[0].name": "a"})`."""
    run: Resource = {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"name": "acme/tiny"},
            "engine": {"kind": "simulator"},
            "drafters": [{"name": "ngram", "method": "ngram"}],
            "workloads": [{"name": "chat", "dataset": {"source": "jsonl", "uri": "prompts.jsonl"}}],
            "load": {"concurrency": [1]},
            "results": {"s3": {"bucket": "results"}},
        },
    }
    for path, value in (edits or {}).items():
        edit(run, path, value)
    return run


def run_of(edits: Mapping[str, Any] | None = None) -> SpecBenchRun:
    """Return the run as a model."""
    return parse_run(resource(edits))


def edit(target: Resource, path: str, value: Any) -> None:
    """Set or remove the field at `path`, creating missing mappings."""
    *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    parent: Any = target
    for part in parents:
        parent = parent.setdefault(part, {}) if isinstance(parent, dict) else parent[part]
    if value is MISSING:
        del parent[last]
    elif isinstance(parent, list) and last == len(parent):
        parent.append(copy.deepcopy(value))
    else:
        parent[last] = copy.deepcopy(value)


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


def campaign_of(edits: Mapping[str, Any] | None = None) -> SpecBenchCampaign:
    """Return the campaign as a model."""
    return parse_campaign(campaign(edits))
