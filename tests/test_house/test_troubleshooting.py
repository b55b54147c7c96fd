"""docs/reference/conditions.md lists every condition type, phase, reason and event."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from specbench_api.spec.campaign_status import CampaignConditionType, CampaignPhase
from specbench_api.spec.conditions import ConditionType, EngineReason, GateReason, GateWait, Phase
from specbench_client.store.store import StoreErrorReason
from specbench_operator.run.launches.launch_state import ClientReason

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/conditions.md").read_text(encoding="utf-8")
REASON_ARGUMENT = {
    "RunState": 1, "CampaignState": 1, "StoreFailure": 0, "Retry": 0, "Stop": 0, "Changed": 0, "NotFound": 0,
    "yes": 0, "no": 0, "unknown": 0,
}  # fmt: skip
"""Functions and classes of the operator that take a reason, and the index of that argument."""


def reasons() -> Iterator[str]:
    """Every reason that is a string literal in the operator's source."""
    for file in (ROOT / "operator/specbench_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), args=args) if name in REASON_ARGUMENT:
                    yield from (word for argument in args[REASON_ARGUMENT[name] :][:1] for word in _words(argument))
                case ast.Tuple(elts=[ast.Name(id=name), ast.Constant(value=str(word))]) if name in REASON_ARGUMENT:
                    yield word  # errors that are mapped to an HTTP status


def events() -> Iterator[tuple[str, bool]]:
    """Every event reason that is a string literal in the operator's source, and whether it belongs to a campaign."""
    for file in (ROOT / "operator/specbench_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="KubernetesEvent"), args=[_, reason, *_]):
                    yield from ((word, file.parent.name == "campaign") for word in _words(reason))


def _words(argument: ast.expr) -> Iterator[str]:
    return (word.value for word in ast.walk(argument) if isinstance(word, ast.Constant) and isinstance(word.value, str))


def test_the_page_lists_every_condition_reason() -> None:
    words = {
        *reasons(),
        *EngineReason,
        *ClientReason,
        *StoreErrorReason,
        *Phase,
        *CampaignPhase,
        *GateReason,
        *GateWait,
    }
    known = {"NameTaken", "SecretMissing", "WaitingForRelease", "ApiFailing", "TooManyFailed"}
    assert known <= words, "the search misses known reasons"
    assert sorted(word for word in words if f"`{word}`" not in PAGE) == []


def test_the_page_lists_every_condition_type() -> None:
    assert [kind for kind in (*ConditionType, *CampaignConditionType) if f"| `{kind}` |" not in PAGE] == []


def test_the_page_lists_every_event_in_the_section_of_its_kind() -> None:
    of_runs, of_campaigns = (PAGE.partition(f"### Events of a {kind}\n")[2] for kind in ("run", "campaign"))
    sections = {False: of_runs.partition("\n## ")[0], True: of_campaigns}
    found = set(events())
    known = {("GateNotPassed", False), ("EngineQueued", False), ("Resumed", True), ("FiringSkipped", True)}
    assert known <= found, "the search misses known events"
    assert sorted(word for word, campaign in found if f"`{word}`" not in sections[campaign]) == []
