"""Deterministic names and labels of the objects that a run creates.

A name contains run, group and attempt, so that a child can be found without stored state. The longest name, which is
computed here, limits the length of the run's own name (a Service's name is limited to 63 characters).
"""

from __future__ import annotations

from specbench_api import GROUP

LABEL_RUN = f"{GROUP}/run"
LABEL_RUN_UID = f"{GROUP}/run-uid"
LABEL_GROUP = f"{GROUP}/group"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_ROLE = f"{GROUP}/role"
LABEL_ARM = f"{GROUP}/arm"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
MANAGER = "specbench"

ROLE_ENGINE = "engine"
ROLE_CLIENT = "client"
ROLE_REPORT = "report"
ROLE_GATE = "gate"
ROLE_PLAN = "plan"
ROLE_NETWORK = "network"


def engine_name(run: str, group: int, attempt: int) -> str:
    """Return the name of an engine's Job and Service."""
    return f"{run}-g{group}-{attempt}"


def nodes_name(run: str, group: int, attempt: int) -> str:
    """Return the name of the LeaderWorkerSet of an engine on several nodes; its own Service has the same name."""
    return f"{engine_name(run, group, attempt)}-n"


def client_name(run: str, group: int, attempt: int) -> str:
    """Return the name of a client's Job."""
    return f"{engine_name(run, group, attempt)}-client"


def report_name(run: str) -> str:
    """Return the name of the Job that computes summary and report."""
    return f"{run}-report"


def gate_name(run: str, gate_digest: str) -> str:
    """Return the name of the Job that evaluates a gate. It contains the gate's digest, so each gate has its own Job."""
    return f"{run}-gate-{gate_digest[:8]}"


def plan_name(run: str, added_rounds: int = 0) -> str:
    """Return the name of the ConfigMap with the plan, of which there is one more for each round that was added."""
    return f"{run}-plan{f'-{added_rounds}' if added_rounds else ''}"


def engines_policy_name(run: str) -> str:
    """Return the name of the NetworkPolicy of the run's engines."""
    return f"{run}-engines"


def clients_policy_name(run: str) -> str:
    """Return the name of the NetworkPolicy of the run's clients, report and gate."""
    return f"{run}-clients"
