"""What pip-audit's answers mean: known vulnerabilities fail, and what was not audited is reported as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AuditedFile:
    """The answer for one requirements file. `dependencies` is None if pip-audit failed; `error` is its message then."""

    name: str
    dependencies: Sequence[dict[str, Any]] | None
    error: str = ""


def summarize(files: Sequence[AuditedFile]) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print."""
    lines, code = [], 0
    for file in files:
        where = f"requirements/{file.name}.txt"
        if file.dependencies is None:
            lines.append(f"audit skipped: {where}: pip-audit could not run: {file.error.splitlines()[-1:] or ['']}")
            continue
        vulnerable = [each for each in file.dependencies if each.get("vulns")]
        skipped = [each for each in file.dependencies if "skip_reason" in each]
        for each in vulnerable:
            code = 1
            for found in each["vulns"]:
                fixed = ", ".join(found.get("fix_versions", [])) or "no version yet"
                lines.append(f"{where}: {each['name']} {each['version']}: {found['id']}: fixed in {fixed}")
        if len(skipped) == len(file.dependencies):
            lines.append(f"audit skipped: {where}: the package index does not answer about vulnerabilities")
        else:
            rest = f", {len(skipped)} unknown to the index" if skipped else ""
            audited = len(file.dependencies) - len(skipped)
            lines.append(f"{where}: {audited} packages audited{rest}, {len(vulnerable)} vulnerable")
    return code, lines
