"""Parses the arguments of the commands. All functions raise BadInput for invalid values."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.outcome.gate_report import GateRequest
from specbench_api.outcome.layout import run_root
from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.slo import Slo
from specbench_client.errors import BadInput
from specbench_client.store.locations import open_store
from specbench_client.store.store import Store

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REMEDY = "client and operator must be of one version"
M = TypeVar("M", bound=ApiModel)


def read_plan(file: Path) -> Plan:
    """Read the plan from a file."""
    try:
        return Plan.from_json(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give the plan.json of the run", "PlanUnreadable") from error
    except ValidationError as error:
        raise BadInput(f"{file}: not a plan of this version: {error}: {_REMEDY}", "PlanUnreadable") from error


def engine_group_at(plan: Plan, index: int) -> EngineGroup:
    """Return the engine group with this index."""
    if not 0 <= index < len(plan.groups):
        raise BadInput(f"--group {index}: the plan has the groups 0 to {len(plan.groups) - 1}")
    return plan.groups[index]


def open_run_store(plan: Plan, results: str) -> Store:
    """Return the store of the run below the root of all results."""
    return open_store(results).below(run_root(plan.namespace, plan.name, plan.uid))


def new_attempt(given: str) -> str:
    """Return the launch's name with a random suffix, because a restarted container has the same arguments."""
    if not _ATTEMPT.fullmatch(given):
        raise BadInput(f"--attempt {given!r} is not valid in file names: give at most 64 letters, digits, dots, dashes")
    return f"{given}-{secrets.token_hex(3)}"


def parse_gate(given: str) -> GateRequest:
    """Parse the gate that the operator requests."""
    return _parse_document(GateRequest, given, "--asked: not a gate")


def parse_slo(given: str | None) -> Slo | None:
    """Parse the run's SLO; None if there is none."""
    return None if given is None else _parse_document(Slo, given, "--slo: not targets")


def parse_whereabouts(given: str | None) -> HostFacts:
    """Parse the facts of the engine's machine; empty if none are given."""
    return HostFacts() if given is None else _parse_document(HostFacts, given, "--place: not the place of an engine")


def parse_endpoint(endpoint: str) -> str:
    """Return the endpoint if it is a valid URL."""
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port
        usable = False
    if not usable:
        meant = f"http://{endpoint}" if re.fullmatch(r"[\w.-]+(:\d+)?", endpoint) else "http://HOST:PORT"
        raise BadInput(f"--endpoint {endpoint!r} is not the URL of an engine: write {meant}")
    return endpoint


def _parse_document(kind: type[M], given: str, refused: str) -> M:
    try:
        return kind.from_json(given)
    except ValidationError as error:
        raise BadInput(f"{refused}: {error}: {_REMEDY}") from error
