"""Deterministic names and labels of everything that a run creates.

A name tells run, group and attempt, so that a child can be found again without being remembered. The longest is
computed here and bounds the run's own name (a Service's name ends at 63 characters).
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


def engine_name(run: str, group: int, attempt: int) -> str:
    """Of the engine's Job and of its Service."""
    return f"{run}-g{group}-{attempt}"


def nodes_name(run: str, group: int, attempt: int) -> str:
    """Of the LeaderWorkerSet of an engine on several nodes. It makes a Service of its own name beside ours."""
    return f"{engine_name(run, group, attempt)}-n"


def client_name(run: str, group: int, attempt: int) -> str:
    """Of the client's Job."""
    return f"{engine_name(run, group, attempt)}-client"


def report_name(run: str) -> str:
    """Of the Job that turns point summaries into the answer."""
    return f"{run}-report"


def gate_name(run: str, asked: str) -> str:
    """Of the Job that evaluates a gate; `asked`: the gate's digest, so that another gate has another Job."""
    return f"{run}-gate-{asked[:8]}"


def plan_name(run: str) -> str:
    """Of the ConfigMap that holds the plan."""
    return f"{run}-plan"
