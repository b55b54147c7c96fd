"""One pair of engine and method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from specbench_api.spec.drafter import Method


class Evidence(StrEnum):
    """How far a cell was tried, from the best to the least."""

    RUN = "run"
    """A real engine was started so and drafted."""
    PARSER = "parser"
    """The engine's own parser of arguments takes what we render."""
    SOURCE = "source"
    """Read in the engine's source of that version."""
    DOCS = "docs"
    """Known from documentation, release notes or the source of another version."""


@dataclass(frozen=True)
class Cell:
    """`supported` with how, or not with why; `instead` is what to write then."""

    supported: bool
    how: str
    source: str
    instead: str = ""
    evidence: Evidence = Evidence.DOCS
    versions: str = ""
    """Releases that have it, as a version specifier (`<0.33`); empty: all that we launch."""

    def has(self, version: str | None) -> bool:
        """Whether a release has it. One whose name is no version (a tag like `nightly`) is believed to."""
        if not self.supported or not self.versions or version is None:
            return self.supported
        try:
            return SpecifierSet(self.versions, prereleases=True).contains(Version(version.removeprefix("v")))
        except InvalidVersion:
            return True


Cells = Mapping[Method, Cell]
