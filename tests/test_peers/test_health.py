"""Health of a run in every phase: kstatus, Flux with the CEL expressions, and Argo CD report the expected status."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import yaml

from specbench_testing.health_checks import (
    ARGOCD_CM,
    FLUX_KUSTOMIZATION,
    GITOPS,
    HEALTH_LUA,
    ArgoScript,
    HealthResult,
    health_of,
    kstatus,
)
from specbench_testing.run_phases import CAMPAIGNS, RUNS, as_campaign

RUN_HEALTH = {
    # phase: health by kstatus, by Flux with the example's expressions, by Argo CD, and a part of Argo CD's message
    "just created": ("InProgress", "InProgress", "Progressing", "waiting for the operator"),
    "accepted": ("InProgress", "InProgress", "Progressing", "group 1 of 2 (0/2)"),
    "invalid": ("Failed", "Failed", "Degraded", "InvalidSpec: "),
    "unschedulable": ("InProgress", "InProgress", "Progressing", "Starting: arm none"),
    "queued (vocabulary)": ("InProgress", "InProgress", "Progressing", "WaitingForQuota: no quota left"),
    "running": ("InProgress", "InProgress", "Progressing", "Running: arm none"),
    "S3 away": ("InProgress", "InProgress", "Progressing", "Running: arm none"),
    "retryable error": ("InProgress", "InProgress", "Progressing", "ApiFailing: "),
    "permanent error": ("Failed", "Failed", "Degraded", "Forbidden: jobs.batch is forbidden"),
    "suspended": ("InProgress", "InProgress", "Suspended", "spec.suspend is true"),
    "resumed": ("InProgress", "InProgress", "Progressing", "waiting for the operator"),
    "analysing": ("InProgress", "InProgress", "Progressing", "the report is being made"),
    "report failed": ("Failed", "Failed", "Degraded", "no space left"),
    "engines failed": ("Failed", "Failed", "Degraded", "no CUDA device"),
    "trustworthy": ("Current", "Current", "Healthy", "ngram is 1.83 times as fast (ngram 1.83x at concurrency 1)"),
    "untrustworthy": ("Current", "Failed", "Degraded", "NeverDrafted: "),
    "finished and suspended": ("Current", "Current", "Healthy", "Finished"),
    "gate passed (vocabulary)": ("Current", "Current", "Healthy", "Finished"),
    "gate failed (vocabulary)": ("Current", "Failed", "Degraded", "Regressed: TPOT +9 %"),
    "gate inconclusive (vocabulary)": ("Current", "Failed", "Degraded", "Inconclusive"),
    "gate undecided (vocabulary)": ("Current", "InProgress", "Progressing", "BaselineNotFinished: main-1"),
    "no gate (vocabulary)": ("Current", "Current", "Healthy", "Finished"),
    "gate of an untrustworthy run (vocabulary)": ("Current", "Failed", "Degraded", "NeverDrafted: "),
}
CAMPAIGN_HEALTH = {
    "just created": ("InProgress", "InProgress", "Progressing", "waiting for the operator"),
    "running": ("InProgress", "InProgress", "Progressing", "Running"),
    "suspended": ("InProgress", "InProgress", "Suspended", "spec.suspend is true"),
    "failed": ("Failed", "Failed", "Degraded", "no CUDA device"),
    "done": ("Current", "Current", "Healthy", "Finished"),
    "untrustworthy": ("Current", "Failed", "Degraded", "NeverDrafted"),
    "gate failed": ("Current", "Failed", "Degraded", "Regressed"),
    "gate undecided": ("Current", "InProgress", "Progressing", "NotYet"),
    "no gate": ("Current", "Current", "Healthy", "Finished"),
    "done, with failed runs": ("Current", "Failed", "Degraded", "2 of 12 runs failed"),
    "budget spent": ("Current", "Failed", "Degraded", "Spent: 40 of 40"),
}
CASES = [
    *((f"run: {name}", RUNS[name], expected) for name, expected in RUN_HEALTH.items()),
    *((f"campaign: {name}", CAMPAIGNS[name], expected) for name, expected in CAMPAIGN_HEALTH.items()),
]


CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("Ready", "Reconciling", "Stalled"), (None, "True", "False", "Unknown")),
    "others": ("True", "False", "Unknown"),
    "reversed": (False, True),
    "observed": (None, -1, 1, 2),
    "suspend": (False, True),
    "gate": (False, True),
}
"""Possible values of the status fields that tools read, including combinations that the operator never writes."""


def every_combination() -> list[dict[str, Any]]:
    return [combination(dict(zip(CHOICES, chosen, strict=True))) for chosen in itertools.product(*CHOICES.values())]


def combination(chosen: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"type": kind, "status": chosen[kind], "reason": "Because", "message": f"{kind} is {chosen[kind]}"}
        for kind in ("Ready", "Reconciling", "Stalled")
        if chosen[kind] is not None
    ]
    rows += [{"type": kind, "status": chosen["others"], "reason": "Because"} for kind in ("Trustworthy", "GatePassed")]
    observed = {} if chosen["observed"] is None else {"observedGeneration": chosen["observed"]}
    return {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": "a", "namespace": "b", "generation": 1},
        "spec": {"suspend": chosen["suspend"], **({"gate": {}} if chosen["gate"] else {})},
        "status": {**observed, "conditions": rows[::-1] if chosen["reversed"] else rows},
    }


def test_every_phase_of_a_run_and_a_campaign_has_an_expected_health() -> None:
    assert {*RUN_HEALTH, "deleting"} == set(RUNS)
    assert set(CAMPAIGN_HEALTH) == set(CAMPAIGNS)


@pytest.mark.parametrize(("name", "make_item", "expected"), CASES, ids=[make_item[0] for make_item in CASES])
def test_kstatus_and_argo_cd_report_the_expected_health_of_each_phase(
    name: str, make_item: Any, expected: tuple[str, str, str, str]
) -> None:
    item = make_item()
    health = ArgoScript()(item)
    assert (kstatus(item), health.status) == (expected[0], expected[2]), name
    assert expected[3] in health.message


def test_the_argo_cd_configmap_contains_only_the_health_script_for_both_kinds() -> None:
    data = yaml.safe_load(ARGOCD_CM.read_text(encoding="utf-8"))["data"]
    assert data == {
        f"resource.customizations.health.specbench.io_{kind}": HEALTH_LUA.read_text(encoding="utf-8")
        for kind in ("SpecBenchRun", "SpecBenchCampaign")
    }


def test_the_readme_table_matches_the_expected_health() -> None:
    page = (GITOPS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| (\w+) \| (\w+) \| (\w+) \|$", page, re.MULTILINE)
    expected = {name.removesuffix(" (vocabulary)"): words[:3] for name, words in RUN_HEALTH.items()}
    assert len(rows) >= 10
    assert {name: tuple(words) for name, *words in rows} == {name: expected[name] for name, *_ in rows}


def test_flux_health_expressions_are_the_same_for_both_kinds() -> None:
    run, campaign = yaml.safe_load(FLUX_KUSTOMIZATION.read_text(encoding="utf-8"))["spec"]["healthCheckExprs"]
    assert (run.pop("kind"), campaign.pop("kind")) == ("SpecBenchRun", "SpecBenchCampaign")
    assert run == campaign


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_python_port_of_kstatus_matches_kstatus() -> None:
    items = [*(make_item() for _, make_item, _ in CASES), *every_combination(), RUNS["deleting"]()]
    assert [health.status for health in health_of("kstatus", items)] == [kstatus(item) for item in items]
    assert kstatus(items[-1]) == "Terminating"


@pytest.mark.long
def test_argo_cd_matches_the_local_script_for_every_phase_and_combination() -> None:
    items = [*(make_item() for _, make_item, _ in CASES), *every_combination()]
    script = ArgoScript()
    assert health_of("argo", items, ARGOCD_CM) == [script(item) for item in items]
    (deleting,) = health_of("argo", [RUNS["deleting"]()], ARGOCD_CM)
    assert deleting == HealthResult("Progressing", "Pending deletion")


@pytest.mark.long
def test_flux_reports_the_expected_health_with_the_expressions() -> None:
    items = [make_item() for _, make_item, _ in CASES]
    assert [health.status for health in health_of("healthchecks", items, FLUX_KUSTOMIZATION)] == [
        expected[1] for *_, expected in CASES
    ]


@pytest.mark.long
def test_flux_and_argo_cd_report_equivalent_health() -> None:
    items = [item for made in every_combination() for item in (made, as_campaign(made)) if writable(item)]
    script = ArgoScript()
    judged = zip(health_of("healthchecks", items, FLUX_KUSTOMIZATION), items, strict=True)
    equivalent = {"Current": "Healthy", "Failed": "Degraded", "InProgress": "Progressing"}
    for flux, item in judged:
        argo = script(item).status
        assert equivalent[flux.status] == argo or (flux.status, argo) == ("InProgress", "Suspended"), item


def writable(item: dict[str, Any]) -> bool:
    """Whether the operator can write this status: at most one condition is true, and observedGeneration is set."""
    rows = {row["type"]: row["status"] for row in item["status"]["conditions"]}
    truths = [kind for kind in ("Ready", "Reconciling", "Stalled") if rows.get(kind) == "True"]
    return len(truths) <= 1 and "observedGeneration" in item["status"]
