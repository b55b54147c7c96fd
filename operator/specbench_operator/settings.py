"""The operator's settings, read from environment variables.

Names end with the unit (`_s`: seconds). Limits that affect a measurement, such as the deadlines of engines, are fields
of the run instead; these settings are about the operator and the cluster, and users of runs do not need them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from specbench_api.errors import Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.fence.model import Fence, Limits, TerminationMessages
from specbench_api.spec.run import RunSpec
from specbench_operator.errors import Stop

PREFIX = "SPECBENCH_"


@dataclass(frozen=True)
class NetworkPolicySettings:
    """The cluster's part of the NetworkPolicies of runs. Read from JSON with the same keys as in the chart's values."""

    blocked: tuple[str, ...] = ()
    """Address ranges that no pod of a run can reach, such as those of metadata services."""
    engine_from: tuple[Mapping[str, Any], ...] = ()
    """Further peers that may connect to engines, as in `ingress[].from` of a NetworkPolicy."""
    egress: tuple[Mapping[str, Any], ...] = ()
    """Further rules of what pods of runs may reach, as in `egress` of a NetworkPolicy."""

    @classmethod
    def from_json(cls, text: str) -> NetworkPolicySettings:
        """Parse the JSON; a missing key is an empty list. Raises ValueError."""
        match json.loads(text):
            case dict(given) if given.keys() <= set(_POLICY_KEYS) and all(
                isinstance(row, list) for row in given.values()
            ):
                return cls(**{_POLICY_KEYS[key]: tuple(row) for key, row in given.items()})
        raise ValueError(text)


class Lease(NamedTuple):
    """Namespace and name of a Lease."""

    namespace: str
    name: str

    @classmethod
    def from_text(cls, text: str) -> Lease:
        """Parse NAMESPACE/NAME. Raises ValueError."""
        namespace, _, name = text.partition("/")
        if not namespace or not name or "/" in name:
            raise ValueError(text)
        return cls(namespace, name)


NO_LEASE = Lease("", "")


_POLICY_KEYS = {"blockedAddresses": "blocked", "engineFrom": "engine_from", "runEgress": "egress"}


@dataclass(frozen=True)
class OperatorSettings:
    """The settings. Each field is read from the variable SPECBENCH_<NAME IN CAPITALS>."""

    client_image: str
    """Image of the client, report and gate Jobs and of engines of kind `simulator`: the operator's own. Required."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of every container that the operator creates: Always, IfNotPresent or Never."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch, separated by commas, or patterns such as `team-*`. Empty: all namespaces.

    All namespaces and patterns need a ClusterRole.
    """
    probe_engines: bool = False
    """Run an init container in every engine's image that records GPUs, their links, driver and PyTorch."""
    leader_worker_sets: bool = False
    """Allow engines on several nodes (placement.nodes). LeaderWorkerSet must be installed in the cluster."""
    fence: Fence | None = None
    """What runs may use, read from the file that the variable names. Without it, or with enabled: false: everything."""
    operator_namespace: str = ""
    """The operator's own namespace, whose service account runs must not use."""
    lease: Lease = NO_LEASE
    """The Lease by which the operator's replicas elect their leader, as NAMESPACE/NAME. Required."""
    pod_name: str = ""
    """Name of the operator's pod, which is the holder in the Lease. Empty: the host's name and a random suffix."""
    network_policies: NetworkPolicySettings | None = None
    """Create NetworkPolicies for each run: a JSON object with the keys blockedAddresses, engineFrom and runEgress."""
    client_cpu: str = "2"
    """CPU of clients whose run does not set cpu in placement.client.resources, as a Kubernetes quantity; 0: none.

    One core serves 256 streams with exact times (benchmarks/README.md). The second is for the client's other processes,
    because the kernel would pause all of them once they use more than the limit. A whole number allows static CPU
    management.
    """
    client_memory: str = "4Gi"
    """Memory of clients whose run does not set memory in placement.client.resources, as a Kubernetes quantity; 0: none.

    The largest client that was measured selects from 100,000 prompts and uses 1.8 GiB (benchmarks/selection.md).
    """
    pod_ip: str = ""
    """Address of the operator's pod. Its family is the one in which the cluster reaches all pods. Empty: IPv4."""
    image_pull_grace_s: float = 60
    """How long the configuration of a container, or the pull of a missing image, may fail, in seconds."""
    client_start_deadline_s: float = 300
    """How long a ready engine may hold its GPUs while no client runs, in seconds."""
    engine_lost_settle_s: float = 10
    """After a client lost its engine, how long to wait for the engine's own end before it counts as lost, in seconds.

    The kubelet reports the end of the engine's pod a moment later than the client does, and with a better reason.
    """
    gone_after_s: float = 120
    """How long after its deletion time a pod still counts as holding GPUs, in seconds.

    A pod that exists for longer is on a node that no longer answers, so the operator does not wait for it; with inf, it
    waits until Kubernetes removes the pod, because the node returned or was deleted.
    """
    resync_s: float = 30
    """Period of the resync, in seconds: without any event, each run and campaign not at rest is reconciled."""
    watch_silence_s: float = 180
    """How long a watch may lag behind the API server before the liveness probe fails, in seconds.

    After half of it, the watch is compared with the objects: one of a collection that does not change is not behind.
    """
    worker_stuck_s: float = 300
    """How long one reconciliation may take before the liveness probe fails, in seconds."""
    loop_lag_s: float = 20
    """How late the event loop may be before the liveness probe fails, in seconds."""
    workers: int = 4
    """How many runs and campaigns are reconciled at the same time."""
    request_timeout_s: float = 30
    """Timeout of one request to the API server, in seconds."""
    s3_timeout_s: float = 10
    """Timeout of one request to S3, in seconds."""
    s3_look_deadline_s: float = 20
    """Deadline of one read of a run's results in S3, with all of its requests, in seconds."""
    liveness_port: int = 8080
    """TCP port of /healthz and /readyz."""
    metrics_port: int = 9090
    """TCP port of /metrics."""
    metrics_runs_per_namespace: int = 20
    """How many runs of a namespace have metrics of their own: the newest in progress, and the newest that have
    finished. 0: none."""
    log_level: str = "INFO"
    """Log level: DEBUG, INFO, WARNING or ERROR."""

    @cached_property
    def fence_check(self) -> FenceCheck | None:
        """The check of runs against the fence; None if there is no fence."""
        if self.fence is None or not self.fence.enabled:
            return None
        return FenceCheck(self.fence, self.client_image, self.operator_namespace)

    @property
    def listen_host(self) -> str:
        """The host on which the operator and the engines listen: all addresses of the family of `pod_ip`.

        `::` alone would not do: many servers, such as those of asyncio, then accept IPv6 only, and it cannot be bound
        on a node without IPv6.
        """
        return "::" if ":" in self.pod_ip else "0.0.0.0"  # noqa: S104 -- pods are reached at their own addresses

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """The namespaces that have watches of their own; empty: one watch of each kind covers the whole cluster."""
        return () if any(set(name) & set("*?[") for name in self.namespaces) else self.namespaces

    def serves(self, namespace: str) -> bool:
        """Whether runs of this namespace are executed."""
        return not self.namespaces or any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    @property
    def secrets_opt_in(self) -> bool:
        """Whether a run may use only Secrets with the label specbench.io/use."""
        return self.fence_check is not None and self.fence_check.fence.secrets_opt_in

    @property
    def termination_messages(self) -> TerminationMessages | None:
        """How much of an engine's last words is repeated in status, events and logs; None: as much as fits."""
        return self.fence_check.fence.termination_messages if self.fence_check else None

    @property
    def limits(self) -> Limits:
        """The limits of the fence; without a fence, no limits."""
        return self.fence_check.fence.limits if self.fence_check else Limits()

    def refusals(self, spec: RunSpec, namespace: str) -> list[Problem]:
        """Everything in the spec of a run of this namespace that the fence does not allow."""
        return self.fence_check.problems_of(spec, namespace) if self.fence_check else []

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> OperatorSettings:
        """Read the settings from environment variables.

        Raises Stop with reason BadSettings for an invalid value or an unknown variable.
        """
        _reject_unknown(env)
        values = {
            field.name: _parse_setting(field.name, env[_variable(field.name)])
            for field in fields(cls)
            if env.get(_variable(field.name), "").strip()
        }
        for name, meaning in _REQUIRED.items():
            if name not in values:
                raise Stop("BadSettings", f"{_variable(name)} is not set: set it to {meaning}")
        return cls(**values)


_REQUIRED = {
    "client_image": "the image that client Jobs run",
    "lease": "NAMESPACE/NAME of the Lease by which the operator's replicas elect their leader",
}


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _reject_unknown(env: Mapping[str, str]) -> None:
    """Raise Stop for a variable with the operator's prefix that is no setting: ignored, it would have no effect."""
    known = [field.name for field in fields(OperatorSettings)]
    variables = {_variable(name) for name in known}
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in variables:
            near = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), known, n=1)
            page = 'docs, "specbench: the Helm chart"'
            remedy = f"did you mean {_variable(near[0])}?" if near else f"remove it, or use a setting in {page}"
            raise Stop("BadSettings", f"{name} is not a setting of the operator: {remedy}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    """The value of `true` or `false`, as YAML spells them. Raises ValueError for anything else."""
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _fence(path: str) -> Fence:
    """The fence in a file. Raises Stop, because an operator that ignored a bad fence would allow everything."""
    where = f"{_variable('fence')}={path!r}"
    try:
        return Fence.from_json(Path(path).read_bytes())
    except OSError as error:
        raise Stop(
            "BadSettings", f"{where} cannot be read: {error.strerror}: mount the ConfigMap of the chart"
        ) from error
    except ValidationError as error:
        rows = "; ".join(f"fence.{'.'.join(map(str, row['loc']))}: {row['msg']}" for row in error.errors())
        raise Stop("BadSettings", f"{where} is not a valid fence: {rows}: correct the values of the chart") from error


_READERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _flag,
    "str": str,
    "int": int,
    "float": float,
    "tuple[str, ...]": _names,
    "Fence | None": _fence,
    "Lease": Lease.from_text,
    "NetworkPolicySettings | None": NetworkPolicySettings.from_json,
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
}


def _parse_setting(name: str, text: str) -> Any:
    kind = str({field.name: field.type for field in fields(OperatorSettings)}[name])
    try:
        value = _READERS[kind](text.strip())
    except ValueError as error:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} is not a {kind}") from error
    allowed = _CHOICES.get(name)
    if allowed and value not in allowed:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} is not valid: use one of {', '.join(allowed)}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        raise Stop("BadSettings", f"{_variable(name)}={text!r} must be above 0")
    return value
