"""examples/gitops: every manifest is valid for the CRD of its kind, and the README lists the existing files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from peers.health.definitions import definition
from peers.registry import PEERS
from specbench_api.campaign.expansion import expand_campaign
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_campaign, read_run, read_yaml
from specbench_testing.health_checks import FOREIGN, GITOPS

BENCHMARKS = GITOPS / "benchmarks"
WORKFLOWS = sorted((GITOPS / ".github/workflows").glob("*.yaml"))
WORKFLOW = GITOPS / ".github/workflows/gate.yaml"


def manifest(path: Path) -> dict[str, Any]:
    return read_yaml(path.read_text(encoding="utf-8"), path.name)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema that rejects unknown fields, which the API server would drop."""
    below = {name: strict(node) for name, node in schema.get("properties", {}).items()}
    closed = dict(schema) | ({"properties": below, "additionalProperties": False} if below else {})
    if "items" in schema:
        closed["items"] = strict(schema["items"])
    return {key: value for key, value in closed.items() if key != "format"}


def test_the_release_run_and_the_nightly_campaign_can_be_planned() -> None:
    plan = expand(read_run((BENCHMARKS / "release.yaml").read_text(encoding="utf-8")))
    assert {arm.name for arm in plan.arms} == {"none", "eagle3"}
    assert len(expand_campaign(parse_campaign(manifest(BENCHMARKS / "nightly.yaml"))).runs) == 4


def test_the_kustomization_lists_every_benchmark() -> None:
    listed = manifest(BENCHMARKS / "kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(path.name for path in BENCHMARKS.glob("*.yaml") if path.stem != "kustomization")


def test_argo_cd_flux_and_the_workflow_use_the_benchmarks_folder() -> None:
    application = manifest(GITOPS / "clusters/argocd/application.yaml")
    assert application["metadata"]["name"] != "specbench", "Argo CD before 3.0 would prune the Roles of that release"
    argocd = application["spec"]
    flux = manifest(GITOPS / "clusters/flux/benchmarks.yaml")["spec"]
    source = manifest(GITOPS / "clusters/flux/source.yaml")
    assert (GITOPS / argocd["source"]["path"]) == (GITOPS / flux["path"]) == BENCHMARKS
    assert flux["sourceRef"] == {"kind": source["kind"], "name": source["metadata"]["name"]}
    assert argocd["source"]["repoURL"] == source["spec"]["url"]
    assert argocd["destination"]["namespace"] == flux["targetNamespace"]
    assert set(re.findall(r"benchmarks/[\w.-]+", WORKFLOW.read_text(encoding="utf-8"))) == {"benchmarks/release.yaml"}


def workflow_of(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


UNREVIEWED = {"pull_request", "pull_request_target", "push", "issue_comment", "workflow_run"}
"""Events that somebody who is no maintainer can cause."""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_that_anybody_can_start_has_no_secret_and_no_runner_of_the_cluster(path: Path) -> None:
    workflow, text = workflow_of(path), path.read_text()
    if set(workflow["on"]) & UNREVIEWED:
        assert "secrets." not in text
        assert "self-hosted" not in text
        assert workflow["permissions"] == {"contents": "read"}
        assert set(workflow["on"]) == {"pull_request"}  # pull_request_target has the secrets of the base
    else:
        assert set(workflow["on"]) == {"workflow_dispatch"}
        assert {job["environment"] for job in workflow["jobs"].values()} == {"benchmark"}
        assert all("default_branch" in job["if"] for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_get_inputs_as_variables_and_actions_are_pinned_by_commit(path: Path) -> None:
    workflow = workflow_of(path)
    for step in steps_of(workflow):
        assert "${{" not in step.get("run", "")  # otherwise an input would be part of the script
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "x@" + "0" * 40)), step["uses"]
        if "checkout" in step.get("uses", ""):
            assert step["with"] == {"persist-credentials": False}  # of the workflow's own branch
    images = [job["container"] for job in workflow["jobs"].values() if "container" in job]
    assert all("@sha256:" in image for image in images)


def test_the_gate_measures_only_the_reviewed_commit_and_only_its_benchmark() -> None:
    steps = steps_of(workflow_of(WORKFLOW))
    scripts = [step.get("run", "") for step in steps]
    (fetch,) = [script for script in scripts if "contents/benchmarks/release.yaml?ref=$COMMIT" in script]
    assert '[ "$head" = "$COMMIT" ]' in fetch
    assert not [script for script in scripts if "git fetch" in script or "git checkout" in script]
    with_secrets = [step["name"] for step in steps if "secrets." in str(step.get("env"))]
    assert with_secrets == ["Compare with main, and report on the pull request"]


@pytest.mark.long
@pytest.mark.parametrize(("file", "name"), FOREIGN.items())
def test_argo_cd_and_flux_manifests_are_valid_for_their_crds(file: str, name: str) -> None:
    item = manifest(GITOPS / file)
    crd = yaml.safe_load(definition(name).read_text(encoding="utf-8"))
    assert crd["metadata"]["name"] == name
    group, version = item["apiVersion"].split("/")
    assert (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == (group, item["kind"])
    (schema,) = [row["schema"]["openAPIV3Schema"] for row in crd["spec"]["versions"] if row["name"] == version]
    closed = strict(schema)
    closed["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(item, closed)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**item, "spec": {**item["spec"], "unheard": 1}}, closed)


@pytest.mark.long
def test_actionlint_accepts_the_workflows() -> None:
    done = subprocess.run([PEERS["actionlint"].built(), *WORKFLOWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
