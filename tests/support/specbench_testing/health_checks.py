"""The health that tools report for a resource: Flux and kstatus, Argo CD. Light stand-ins, and the real programs.

tests/test_peers compares the stand-ins with the real ones in `make test-long`: kstatus' rules with its own program,
Argo CD's Lua (here Lua 5.1 with the libraries that Argo CD provides) with Argo CD's own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51

from peers.registry import PEERS
from specbench_cluster.errors import RequirementMissing

ROOT = Path(__file__).resolve().parents[3]
GITOPS = ROOT / "examples/gitops"
HEALTH_LUA = GITOPS / "health/argocd-health.lua"
ARGOCD_CM = GITOPS / "clusters/argocd/argocd-cm.yaml"
FLUX_KUSTOMIZATION = GITOPS / "clusters/flux/benchmarks.yaml"
FOREIGN = {
    "clusters/argocd/application.yaml": "applications.argoproj.io",
    "clusters/flux/benchmarks.yaml": "kustomizations.kustomize.toolkit.fluxcd.io",
    "clusters/flux/source.yaml": "gitrepositories.source.toolkit.fluxcd.io",
}
"""Manifests of foreign kinds below GITOPS, and the definitions that they must satisfy."""
_NOT_IN_ARGO_CD = ("string", "math", "io", "os", "debug", "python")


@dataclass(frozen=True)
class HealthResult:
    """The health that a tool reports."""

    status: str
    message: str = ""


def kstatus(item: Mapping[str, Any]) -> str:
    """kstatus' rules for an unknown kind (cli-utils, kstatus/status: Compute)."""
    meta, status = item["metadata"], item.get("status", {})
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", meta["generation"]) != meta["generation"]:
        return "InProgress"
    rows = [(row["type"], row["status"]) for row in status.get("conditions", [])]
    for row in rows:
        if row in (("Reconciling", "True"), ("Stalled", "True")):
            return "InProgress" if row[0] == "Reconciling" else "Failed"
    ready = next((value for kind, value in rows if kind == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"


class ArgoScript:
    """health.lua in a Lua as restricted as Argo CD's, without Argo CD's own checks before it (a deletion)."""

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime(register_eval=False, register_builtins=False, unpack_returned_tuples=True)
        for name in _NOT_IN_ARGO_CD:
            self._lua.globals()[name] = None
        self._evaluate = self._lua.eval(f"function(obj)\n{HEALTH_LUA.read_text(encoding='utf-8')}\nend")

    def __call__(self, item: Mapping[str, Any]) -> HealthResult:
        """The health of an object."""
        answer = self._evaluate(self._lua.table_from(item, recursive=True))
        return HealthResult(answer["status"], answer["message"])


def health_of(name: str, items: Iterable[Mapping[str, Any]], *arguments: Path) -> list[HealthResult]:
    """The health that the real program reports for each object. Skips without a cluster: then there is no Go."""
    if os.environ.get("SPECBENCH_NO_CLUSTER") == "1":
        pytest.skip(f"SPECBENCH_NO_CLUSTER=1: not checked by {name}, which is built with Go")
    try:
        call = [str(PEERS[name].built()), *map(str, arguments)]
    except RequirementMissing as error:
        pytest.fail(f"{error}\nSPECBENCH_NO_CLUSTER=1 skips what needs Go.", pytrace=False)
    documents = "".join(json.dumps(item) + "\n" for item in items)
    done = subprocess.run(call, input=documents, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [HealthResult(**json.loads(line)) for line in done.stdout.splitlines()]
