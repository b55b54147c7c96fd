"""Finds a Go toolchain that is recent enough for a module, according to its go.mod."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from packaging.version import Version

from specbench_cluster.commands import run
from specbench_cluster.errors import CommandFailed, RequirementMissing

_GO_LINE = re.compile(r"^go\s+(\S+)", re.MULTILINE)
_VERSION = re.compile(r"\bgo(\d+(?:\.\d+)*(?:(?:rc|beta)\d+)?)")


def environment() -> dict[str, str]:
    """Return the environment for Go, without a C compiler and without a surrounding workspace."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def go() -> str:
    """Return the `go` on PATH, of any version. Raises RequirementMissing."""
    found = shutil.which("go")
    if found is None:
        raise _missing("Go, as `go` on PATH")
    return found


def go_for(go_mod: Path, what: str) -> str:
    """Return the `go` on PATH if it is as new as this go.mod requires. Raises RequirementMissing.

    Runs in the module's folder: there, a Go that may download a newer toolchain (GOTOOLCHAIN) reports the version that
    it will use. The error contains `what` would be built.
    """
    minimum = asked_by(go_mod)
    requirement = f"Go {minimum} or newer, as `go` on PATH (it builds {what})"
    found = shutil.which("go")
    if found is None:
        raise _missing(requirement)
    try:
        version = run([found, "version"], env=environment(), cwd=go_mod.parent).strip()
    except CommandFailed as failed:  # downloading the required toolchain is disabled, or fails
        raise _missing(f"{requirement}: {failed.output.strip()}") from failed
    has = _VERSION.search(version)
    if has is None or Version(has[1]) < Version(minimum):
        raise _missing(f"{requirement}; {found} is `{version}`")
    return found


def asked_by(go_mod: Path) -> str:
    """Return the minimum Go version in a go.mod. Raises ValueError if it has no `go` line."""
    found = _GO_LINE.search(go_mod.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{go_mod} has no line `go VERSION`")
    return found[1]


def _missing(requirement: str) -> RequirementMissing:
    return RequirementMissing(
        [requirement], cannot="a program of the ecosystem cannot be built on this machine", instead=""
    )
