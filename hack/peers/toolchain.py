"""Finds a Go toolchain that is recent enough for a module, according to its go.mod."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from packaging.version import Version

from specbench_cluster.commands import run
from specbench_cluster.errors import CommandFailed, RequirementMissing

_ASKED = re.compile(r"^go\s+(\S+)", re.MULTILINE)
_TOLD = re.compile(r"\bgo(\d+(?:\.\d+)*(?:(?:rc|beta)\d+)?)")


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
    """The `go` on PATH where it is as new as this go.mod asks; `what` it builds goes into the error.

    Asked in the module's folder: there, a Go that may fetch newer ones (GOTOOLCHAIN) answers as the one that it will
    be. Raises RequirementMissing.
    """
    asked = asked_by(go_mod)
    wanted = f"Go {asked} or newer, as `go` on PATH (it builds {what})"
    found = shutil.which("go")
    if found is None:
        raise _missing(wanted)
    try:
        told = run([found, "version"], env=environment(), cwd=go_mod.parent).strip()
    except CommandFailed as failed:  # it may not fetch what is asked for, or cannot
        raise _missing(f"{wanted}: {failed.output.strip()}") from failed
    has = _TOLD.search(told)
    if has is None or Version(has[1]) < Version(asked):
        raise _missing(f"{wanted}; {found} is `{told}`")
    return found


def asked_by(go_mod: Path) -> str:
    """Return the minimum Go version in a go.mod. Raises ValueError if it has no `go` line."""
    found = _ASKED.search(go_mod.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{go_mod} has no line `go VERSION`")
    return found[1]


def _missing(wanted: str) -> RequirementMissing:
    return RequirementMissing([wanted], cannot="a program of the ecosystem cannot be built on this machine", instead="")
