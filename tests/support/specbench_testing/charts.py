"""Renders the Helm chart with Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[3] / "helm/specbench"
KUBERNETES = "1.35.4"
"""Without a cluster, Helm assumes an old Kubernetes version."""
WATCHED = "runs"
"""The namespace of runs. The chart requires one, and refuses the release's own."""


class ChartRefused(Exception):
    """Helm failed; the message is Helm's output."""


@dataclass(frozen=True)
class Rendered:
    """The objects that a release would create."""

    text: str

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        # libyaml's loader: PyYAML's own takes seconds for the definitions of the custom resources.
        return [document for document in yaml.load_all(self.text, yaml.CSafeLoader) if document]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, in order."""
        return [row for row in self.objects if row["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """Return the only object of a kind."""
        (found,) = self.of_kind(kind)
        return found


@dataclass(frozen=True)
class Helm:
    """The Helm program."""

    program: Path

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        version: str = KUBERNETES,
        namespace: str = "team",
        api_versions: Sequence[str] = (),
    ) -> Rendered:
        """Render the release `bench`, which watches WATCHED unless the values say otherwise. Raises ChartRefused.

        `api_versions`: further APIs of the cluster.
        """
        options = ["--namespace", namespace, "--kube-version", version, "--values", "-"]
        options += [word for api in api_versions for word in ("--api-versions", api)]
        values = values or {}
        given = {"watchNamespaces": [] if values.get("watchAllNamespaces") else [WATCHED], **values}
        return Rendered(self.run("template", "bench", str(CHART), *options, stdin=json.dumps(given)))

    def run(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Run Helm. Raises ChartRefused."""
        cluster = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        command = [str(self.program), *arguments, *cluster]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChartRefused(done.stderr)
        return done.stdout
