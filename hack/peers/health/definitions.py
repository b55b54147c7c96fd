"""Reads the definitions of Argo CD's and Flux's own resources from Go's module cache."""

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
"""Module, version, and the file in it."""


def definition(name: str) -> Path:
    """The file with another's CustomResourceDefinition. Raises RequirementMissing without Go, CommandFailed."""
    module, version, file = PUBLISHED[name]
    return downloaded(module, version) / file
