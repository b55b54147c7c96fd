"""Parses runs and remembers the last ones, because one reconciliation needs the parsed run up to six times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import Metadata, SpecBenchRun

REMEMBERED_MAX = 64
"""More than are reconciled at a time."""
REMEMBERED_BYTES_MAX = 16 * 1024
"""Size up to which a run is remembered: a parsed one takes up to thirteen times its text. Most have 2 to 3 kB."""
_METADATA = tuple(Metadata.model_fields)


def parsed_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """The run, without its status. Raises InvalidSpec with every problem."""
    meta = resource["metadata"]
    read = {**resource, "metadata": {name: meta[name] for name in _METADATA if name in meta}}
    read.pop("status", None)
    text = to_json(read)
    return _remembered(text) if len(text) <= REMEMBERED_BYTES_MAX else parse_run(read)


@lru_cache(maxsize=REMEMBERED_MAX)
def _remembered(text: bytes) -> SpecBenchRun:
    return parse_run(from_json(text))
