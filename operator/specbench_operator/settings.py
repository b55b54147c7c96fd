"""Environment → frozen Settings. Every knob of the operator is here, with its unit in its name.

Limits that decide about a measurement (deadlines of engines) are fields of the run; what is here is how patient the
operator is with the cluster, which no user of a run should have to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from specbench_operator.errors import Stop

PREFIX = "SPECBENCH_"


@dataclass(frozen=True)
class Settings:
    """Each field is read from SPECBENCH_<NAME IN CAPITALS>."""

    client_image: str
    """Image of client and report Jobs, and of engines of kind simulator: the operator's own."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of every container that the operator creates."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that are watched, comma-separated; empty means all (then a ClusterRole is needed)."""
    probe_engines: bool = False
    """Look around in every engine's image, by an init container, for GPU, links, driver and PyTorch."""
    leader_worker_sets: bool = False
    """LeaderWorkerSet is installed, and the operator may make some: engines on several nodes (placement.nodes)."""
    image_pull_grace_s: float = 60
    """How long an image may fail to be pulled, or a container to be configured, before the engine counts as failed."""
    client_start_deadline_s: float = 300
    """How long a ready engine may hold its GPUs while no client runs."""
    engine_lost_settle_s: float = 10
    """After a client lost its engine: how long the engine's own story is awaited before it counts as lost."""
    gone_after_s: float = 120
    """A pod that should have been gone for so long sits on a dead node and is not waited for."""
    relist_s: float = 30
    """All runs are looked at again so often, whatever the watches say."""
    watch_silence_s: float = 120
    """The watch of runs may lag so far behind the relist before the liveness probe fails."""
    worker_stuck_s: float = 300
    """One reconciliation may take so long before the liveness probe fails."""
    loop_lag_s: float = 20
    """The event loop may be so late before the liveness probe fails."""
    workers: int = 4
    """Runs that are reconciled at the same time."""
    request_timeout_s: float = 30
    """One request to the API server."""
    s3_timeout_s: float = 10
    """One request to S3."""
    liveness_port: int = 8080
    """Port of /healthz."""
    metrics_port: int = 9090
    """Port of /metrics."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read. Raises Stop for what cannot be read."""
        given = {
            field.name: _read(field.name, env[_variable(field.name)])
            for field in fields(cls)
            if env.get(_variable(field.name), "").strip()
        }
        if "client_image" not in given:
            raise Stop("BadSettings", f"{_variable('client_image')} is not set: the image that client Jobs run")
        return cls(**given)


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    """As YAML spells it. Raises ValueError."""
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _flag,
    "str": str,
    "int": int,
    "float": float,
    "tuple[str, ...]": _names,
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
}


def _read(name: str, text: str) -> Any:
    kind = str({field.name: field.type for field in fields(Settings)}[name])
    try:
        value = _READERS[kind](text.strip())
    except ValueError as error:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} is not a {kind}") from error
    allowed = _CHOICES.get(name)
    if allowed and value not in allowed:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} is none of {', '.join(allowed)}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} must be above 0")
    return value
