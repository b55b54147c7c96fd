"""What the commands were given, as what it means. Each raises BadInput where it means nothing."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from specbench_api.model import ApiModel
from specbench_api.outcome.gate import AskedGate
from specbench_api.outcome.launched import Whereabouts
from specbench_api.outcome.layout import run_root
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.slo import Slo
from specbench_client.errors import BadInput
from specbench_client.store.locate import open_store
from specbench_client.store.store import Store

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REMEDY = "client and operator must be of one version"
M = TypeVar("M", bound=ApiModel)


def read_plan(file: Path) -> Plan:
    """The plan in a file."""
    try:
        return Plan.from_json(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give the plan.json of the run", "PlanUnreadable") from error
    except ValidationError as error:
        raise BadInput(f"{file}: not a plan of this version: {error}: {_REMEDY}", "PlanUnreadable") from error


def group_of(plan: Plan, index: int) -> EngineGroup:
    """The engine group of this index."""
    if not 0 <= index < len(plan.groups):
        raise BadInput(f"--group {index}: the plan has the groups 0 to {len(plan.groups) - 1}")
    return plan.groups[index]


def run_store(plan: Plan, results: str) -> Store:
    """Where the run's results lie below the root of all."""
    return open_store(results).below(run_root(plan.namespace, plan.name, plan.uid))


def new_attempt(given: str) -> str:
    """The launch's name with a suffix of this very process: a container that is restarted keeps its arguments."""
    if not _ATTEMPT.fullmatch(given):
        raise BadInput(f"--attempt {given!r}: letters, digits, dots and dashes, at most 64: it names files")
    return f"{given}-{secrets.token_hex(3)}"


def gate_of(given: str) -> AskedGate:
    """The gate that the operator asks for."""
    return _document(AskedGate, given, "--asked: not a gate")


def slo_of(given: str | None) -> Slo | None:
    """The run's targets; None without any."""
    return None if given is None else _document(Slo, given, "--slo: not targets")


def place_of(given: str | None) -> Whereabouts:
    """Where the engine runs; nowhere that is known where nothing was given."""
    return Whereabouts() if given is None else _document(Whereabouts, given, "--place: not the place of an engine")


def engine_address(endpoint: str) -> str:
    """The same, where an engine may listen there."""
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable:
        meant = f"http://{endpoint}" if re.fullmatch(r"[\w.-]+(:\d+)?", endpoint) else "http://HOST:PORT"
        raise BadInput(f"--endpoint {endpoint!r} is no URL of an engine: write {meant}")
    return endpoint


def _document(kind: type[M], given: str, refused: str) -> M:
    try:
        return kind.from_json(given)
    except ValidationError as error:
        raise BadInput(f"{refused}: {error}: {_REMEDY}") from error
