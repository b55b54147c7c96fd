"""Annotations on Jobs that keep what status would forget when it is lost, or when a write of it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specbench_api import GROUP
from specbench_operator.render.child import Manifest
from specbench_operator.state.jobs import Before

BEFORE = f"{GROUP}/launches-before"
"""Of an engine's Job: how many launches before it were given back, and how many taken away."""
ENGINE_NODES = f"{GROUP}/engine-nodes"
"""Of a client's Job: the nodes on which its engine got ready."""


def told_of(job: Manifest, before: Before) -> Manifest:
    """The engine's Job with what is known of the launches before it; as it is where there is nothing to tell."""
    if before == Before():
        return job
    return _annotated(job, BEFORE, json.dumps({"givenBack": before.given_back, "preemptions": before.preemptions}))


def served_by(job: Manifest, nodes: Sequence[str]) -> Manifest:
    """The client's Job with the nodes of its engine; as it is where none is known."""
    return _annotated(job, ENGINE_NODES, ",".join(nodes)) if nodes else job


def before_of(meta: Mapping[str, Any]) -> Before:
    """What an engine's Job was told. What cannot be read tells nothing."""
    try:
        data = json.loads(meta.get("annotations", {}).get(BEFORE, ""))
        return Before(int(data["givenBack"]), int(data["preemptions"]))
    except (ValueError, KeyError, TypeError):
        return Before()


def nodes_of(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes that a client's Job names; no name of a node holds a comma."""
    return tuple(name for name in meta.get("annotations", {}).get(ENGINE_NODES, "").split(",") if name)


def _annotated(job: Manifest, key: str, value: str) -> Manifest:
    meta = job["metadata"]
    return {**job, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), key: value}}}
