"""A run in every phase, judged by kstatus, by Flux's expressions and by Argo CD: each says what a person would."""

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
    # phase: what kstatus says, Flux with the example's expressions, and Argo CD, with a part of its words
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
MOMENTS = [
    *((f"run: {name}", RUNS[name], told) for name, told in RUN_HEALTH.items()),
    *((f"campaign: {name}", CAMPAIGNS[name], told) for name, told in CAMPAIGN_HEALTH.items()),
]


CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("Ready", "Reconciling", "Stalled"), (None, "True", "False", "Unknown")),
    "others": ("True", "False", "Unknown"),
    "reversed": (False, True),
    "observed": (None, -1, 1, 2),
    "suspend": (False, True),
    "gate": (False, True),
}
"""What a status may hold, as far as tools read it: also what nobody writes."""


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


def test_every_phase_of_a_run_and_of_a_campaign_is_judged() -> None:
    assert {*RUN_HEALTH, "deleting"} == set(RUNS)
    assert set(CAMPAIGN_HEALTH) == set(CAMPAIGNS)


@pytest.mark.parametrize(("name", "moment", "told"), MOMENTS, ids=[moment[0] for moment in MOMENTS])
def test_each_phase_is_told_as_a_person_would(name: str, moment: Any, told: tuple[str, str, str, str]) -> None:
    item = moment()
    health = ArgoScript()(item)
    assert (kstatus(item), health.status) == (told[0], told[2]), name
    assert told[3] in health.message


def test_argo_cds_configmap_holds_the_script_for_both_kinds_and_nothing_else() -> None:
    data = yaml.safe_load(ARGOCD_CM.read_text(encoding="utf-8"))["data"]
    assert data == {
        f"resource.customizations.health.specbench.io_{kind}": HEALTH_LUA.read_text(encoding="utf-8")
        for kind in ("SpecBenchRun", "SpecBenchCampaign")
    }


def test_the_page_says_of_each_phase_what_is_so() -> None:
    page = (GITOPS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| (\w+) \| (\w+) \| (\w+) \|$", page, re.MULTILINE)
    told = {name.removesuffix(" (vocabulary)"): words[:3] for name, words in RUN_HEALTH.items()}
    assert len(rows) >= 10
    assert {name: tuple(words) for name, *words in rows} == {name: told[name] for name, *_ in rows}


def test_flux_is_told_the_same_of_both_kinds() -> None:
    run, campaign = yaml.safe_load(FLUX_KUSTOMIZATION.read_text(encoding="utf-8"))["spec"]["healthCheckExprs"]
    assert (run.pop("kind"), campaign.pop("kind")) == ("SpecBenchRun", "SpecBenchCampaign")
    assert run == campaign


@pytest.mark.process
@pytest.mark.timeout(900)
def test_kstatus_itself_says_the_same_of_every_phase() -> None:
    items = [moment() for _, moment, _ in MOMENTS]
    assert [told.status for told in health_of("kstatus", items)] == [told[0] for _, _, told in MOMENTS]
    (deleting,) = health_of("kstatus", [RUNS["deleting"]()])
    assert deleting.status == kstatus(RUNS["deleting"]()) == "Terminating"


@pytest.mark.process
@pytest.mark.timeout(900)
def test_our_reading_of_kstatus_is_kstatus() -> None:
    items = every_combination()
    assert [told.status for told in health_of("kstatus", items)] == [kstatus(item) for item in items]


@pytest.mark.peers
def test_argo_cd_itself_says_the_same_of_every_phase() -> None:
    items = [moment() for _, moment, _ in MOMENTS]
    script = ArgoScript()
    assert health_of("argo", items, ARGOCD_CM) == [script(item) for item in items]
    (deleting,) = health_of("argo", [RUNS["deleting"]()], ARGOCD_CM)
    assert deleting == HealthResult("Progressing", "Pending deletion")


@pytest.mark.peers
def test_our_lua_is_argo_cds() -> None:
    items = every_combination()
    script = ArgoScript()
    assert health_of("argo", items, ARGOCD_CM) == [script(item) for item in items]


@pytest.mark.peers
def test_flux_itself_says_with_the_expressions_what_a_person_would() -> None:
    items = [moment() for _, moment, _ in MOMENTS]
    assert [told.status for told in health_of("healthchecks", items, FLUX_KUSTOMIZATION)] == [
        told[1] for *_, told in MOMENTS
    ]


@pytest.mark.peers
def test_flux_calls_current_exactly_what_argo_cd_calls_healthy() -> None:
    items = [item for made in every_combination() for item in (made, as_campaign(made)) if sound(item)]
    script = ArgoScript()
    told = zip(health_of("healthchecks", items, FLUX_KUSTOMIZATION), items, strict=True)
    meant = {"Current": "Healthy", "Failed": "Degraded", "InProgress": "Progressing"}
    for flux, item in told:
        argo = script(item).status
        assert meant[flux.status] == argo or (flux.status, argo) == ("InProgress", "Suspended"), item


def sound(item: dict[str, Any]) -> bool:
    """Without what the operator never writes: at work and stalled at once, and ready while either."""
    rows = {row["type"]: row["status"] for row in item["status"]["conditions"]}
    truths = [kind for kind in ("Ready", "Reconciling", "Stalled") if rows.get(kind) == "True"]
    return len(truths) <= 1 and "observedGeneration" in item["status"]
