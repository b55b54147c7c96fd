"""Reads the CRDs of Argo CD and Flux from Go's module cache."""

from __future__ import annotations

from pathlib import Path

from peers.go_program import downloaded

PUBLISHED = {
    "applications.argoproj.io": (
        "github.com/argoproj/argo-cd/v3",
        "v3.1.16",
        "manifests/crds/application-crd.yaml",
    ),
    "kustomizations.kustomize.toolkit.fluxcd.io": (
        "github.com/fluxcd/kustomize-controller",
        "v1.7.3",
        "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
    ),
    "gitrepositories.source.toolkit.fluxcd.io": (
        "github.com/fluxcd/source-controller",
        "v1.7.0",
        "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml",
    ),
}
"""CRD name → module, version, and file in the module."""


def definition(name: str) -> Path:
    """The file of a third-party CustomResourceDefinition. Raises RequirementMissing without Go, CommandFailed."""
    module, version, file = PUBLISHED[name]
    return downloaded(module, version) / file
