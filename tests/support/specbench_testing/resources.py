"""SpecBenchRuns as a user writes them: a minimal valid one, and edits of it by path."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun

Resource = dict[str, Any]


class _Missing:
    """Told alike by every process: names of tests hold it, and workers compare those."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""As the value of an edit: remove the field."""


def resource(edits: Mapping[str, Any] | None = None, *, name: str = "demo", namespace: str = "default") -> Resource:
    """The smallest run that has a drafter, edited by path: `resource({"spec.drafters[0].name": "a"})`."""
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


def run_of(edits: Mapping[str, Any] | None = None, *, name: str = "demo") -> SpecBenchRun:
    """Return the run as a model."""
    return parse_run(resource(edits, name=name))


def edit(target: Resource, path: str, value: Any) -> None:
    """Set or remove the field at `path`, creating missing mappings."""
    *way, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    place: Any = target
    for part in way:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    if value is MISSING:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(copy.deepcopy(value))
    else:
        place[last] = copy.deepcopy(value)
