"""The columns that `kubectl get sbr` and `kubectl get sbc` print."""

from __future__ import annotations

from generators.structural_schema import Schema


def _column(name: str, path: str, description: str = "", *, kind: str = "string", wide: bool = False) -> Schema:
    """Return a print column. `wide`: shown only by `kubectl get -o wide`."""
    more = {"priority": 1} if wide else {}
    described = {"description": description} if description else {}
    return {"name": name, "type": kind, "jsonPath": path, **more, **described}


_READY = '.status.conditions[?(@.type=="Ready")]'
_PHASE = _column("Phase", ".status.phase")
_TRUST = _column("Trust", ".status.trust", "Whether the numbers can be trusted.")
_LAST = (
    _column("Reason", f"{_READY}.reason", wide=True),
    _column("Message", f"{_READY}.message", wide=True),
    _column("Age", ".metadata.creationTimestamp", kind="date"),
)

RUN_COLUMNS = (
    _PHASE,
    _column("Progress", ".status.progress", "Measured points of all points, and what is being measured."),
    _column("Best", ".status.best", "Largest speed-up that is distinguishable from 1; or none faster."),
    _TRUST,
    _column("Problem", ".status.problem", 'What is wrong: reasons, as in docs, "Conditions, reasons and events".'),
    _column("Engine", ".spec.engine.kind", wide=True),
    _column("Model", ".spec.model.name", wide=True),
    _column("Gate", ".status.gate.reason", "Outcome of spec.gate.", wide=True),
    *_LAST,
)
CAMPAIGN_COLUMNS = (
    _PHASE,
    _column("Runs", ".status.progress", "Ended runs of all runs of the round."),
    _column("Failed", ".status.counts.failed", "Failed runs.", kind="integer"),
    _column(
        "Best",
        ".status.best",
        "Largest speed-up that is distinguishable from 1, with its combination; or none faster.",
    ),
    _TRUST,
    _column("Gate", ".status.gate", "Summary of the runs' gates."),
    _column("Budget", ".status.budget", "GPU-hours of the round, spent and budgeted."),
    _column("Round", ".status.round.number", kind="integer", wide=True),
    _column("Next", ".status.nextScheduleTime", wide=True),
    *_LAST,
)
