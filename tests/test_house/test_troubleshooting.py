"""docs/reference/conditions.md knows every word that a person can meet in a status: types, phases and reasons."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from specbench_api.spec.campaign_status import CampaignConditionType, CampaignPhase
from specbench_api.spec.conditions import ConditionType, EngineReason, GateReason, GateWait, Phase
from specbench_client.store.store import StoreErrorReason
from specbench_operator.reconcile.launches.launch_state import ClientReason

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/conditions.md").read_text(encoding="utf-8")
PLACE_OF_REASON = {
    "RunState": 1, "CampaignState": 1, "StoreFailure": 0, "Retry": 0, "Stop": 0, "Changed": 0, "NotFound": 0,
    "yes": 0, "no": 0, "unknown": 0,
}  # fmt: skip
"""Calls of the operator that give a reason, and which of their arguments it is."""


def reasons() -> Iterator[str]:
    """Every reason that stands as a word in the operator's source."""
    for file in (ROOT / "operator/specbench_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), args=args) if name in PLACE_OF_REASON:
                    yield from (word for argument in args[PLACE_OF_REASON[name] :][:1] for word in _words(argument))
                case ast.Tuple(elts=[ast.Name(id=name), ast.Constant(value=str(word))]) if name in PLACE_OF_REASON:
                    yield word  # the errors that stand for an HTTP status


def events() -> Iterator[tuple[str, bool]]:
    """Every reason of an Event that stands as a word in the operator's source, and whether it is a campaign's."""
    for file in (ROOT / "operator/specbench_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="KubernetesEvent"), args=[_, reason, *_]):
                    yield from ((word, file.parent.name == "campaign") for word in _words(reason))


def _words(argument: ast.expr) -> Iterator[str]:
    return (word.value for word in ast.walk(argument) if isinstance(word, ast.Constant) and isinstance(word.value, str))


def test_every_reason_of_a_condition_is_on_the_page() -> None:
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
    assert known <= words, "the search finds them"
    assert sorted(word for word in words if f"`{word}`" not in PAGE) == []


def test_every_type_of_condition_is_on_the_page() -> None:
    assert [kind for kind in (*ConditionType, *CampaignConditionType) if f"| `{kind}` |" not in PAGE] == []


def test_every_event_is_on_the_page_among_those_of_its_kind() -> None:
    of_runs, of_campaigns = (PAGE.partition(f"### Events of a {kind}\n")[2] for kind in ("run", "campaign"))
    sections = {False: of_runs.partition("\n## ")[0], True: of_campaigns}
    found = set(events())
    known = {("GateNotPassed", False), ("EngineQueued", False), ("Resumed", True), ("FiringSkipped", True)}
    assert known <= found, "the search finds them"
    assert sorted(word for word, campaign in found if f"`{word}`" not in sections[campaign]) == []
