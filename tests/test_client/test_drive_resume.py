"""Checks before a run is continued: the store belongs to its plan, and the observed inputs are unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_api.outcome.layout import PLAN as PLAN_KEY
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Plan
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.drive.resume import claim_store, reject_changed_inputs
from specbench_client.errors import BadInput
from specbench_client.store.folder import FolderStore
from specbench_testing.resources import run_of
from specbench_testing.synthetic_records import SyntheticRun

PLAN = SyntheticRun().plan
MEASURED = PointProvenance(
    dataset_fingerprint="prompts", prompts=3, engine_version="1", engine_model="m", image_digest="sha256:a",
    trace_fingerprint="trace", chat_template_sha256="template", tokenizer_sha256="tokenizer", client_version="0",
    launch="0-a",
)  # fmt: skip
ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]
SERVERS = lay_out(run_of({"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []}))


def continue_run(plan: Plan, arm: str, **changed: object) -> None:
    """Continue a run whose first point was measured, with these changes, at an engine of this arm."""
    point = plan.points[0]
    manifest = Manifest(
        hash=point.hash,
        attempt="a",
        started_monotonic_ns=0,
        started_wall="",
        ended_wall="",
        files=[],
        observed=MEASURED,
    )
    now = MEASURED.model_copy(update=changed)
    reject_changed_inputs(plan, {point.hash: manifest}, {point.workload: now}, arm)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("dataset_fingerprint", r"prompts of the workload 'chat' changed from prompts \(3 prompts\) to other"),
        ("engine_version", "engine's version changed from '1' to 'other'"),
        ("engine_model", "model that the engine serves changed from 'm' to 'other'"),
        ("image_digest", "engine's image changed from 'sha256:a' to 'other'"),
        ("trace_fingerprint", "trace of arrivals changed from 'trace' to 'other'"),
        ("chat_template_sha256", "chat template changed from 'template' to 'other'"),
        ("tokenizer_sha256", "tokenizer that the chat template is applied with changed from 'tokenizer' to 'other'"),
    ],
)
def test_changed_input_is_rejected(field: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        continue_run(PLAN, "none", **{field: "other"})
    assert caught.value.reason == "ObservedChanged"
    assert "anew without results.adopt" in str(caught.value), "results.adopt would find the same results again"


@pytest.mark.parametrize("changed", [{"engine_version": None}, {"image_digest": None}, {"launch": "1-b"}], ids=str)
def test_unknown_values_and_another_launch_are_no_changes(changed: dict[str, object]) -> None:
    continue_run(PLAN, "none", **changed)


def test_the_servers_of_an_endpoint_are_compared_with_themselves_only() -> None:
    assert SERVERS.points[0].arm == "none"
    continue_run(SERVERS, "eagle3", engine_version="2")
    with pytest.raises(BadInput, match="engine's version"):
        continue_run(SERVERS, "none", engine_version="2")
    with pytest.raises(BadInput, match="prompts of the workload"):
        continue_run(SERVERS, "eagle3", dataset_fingerprint="other")


def test_a_store_belongs_to_plans_that_measure_the_same(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    claim_store(PLAN, store)
    assert store.get(PLAN_KEY) == PLAN.to_json().encode()
    placement = PLAN.placement.model_copy(update={"queue_name": "bench"})
    claim_store(PLAN.model_copy(update={"placement": placement}), store)
    assert store.get(PLAN_KEY) == PLAN.to_json().encode(), "the stored plan is kept"
    with pytest.raises(BadInput, match="another plan") as caught:
        claim_store(SyntheticRun(repeats=1).plan, store)
    assert caught.value.reason == "OtherPlan"


def test_a_stored_plan_that_cannot_be_read_is_another_plan(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(PLAN_KEY, b"{}")
    with pytest.raises(BadInput, match="cannot be read as a plan") as caught:
        claim_store(PLAN, store)
    assert caught.value.reason == "OtherPlan"
