"""What a container is started with: its variables and command line, as the kubelet computes them from its manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")

Secrets = Mapping[str, Mapping[str, str]]
"""Secret → key → value."""


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by the variable, and `$$` by `$`. An unknown name is left as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)


def environment_of(container: Mapping[str, Any], secrets: Secrets) -> dict[str, str]:
    """The container's variables. A value may refer to the variables before it."""
    variables: dict[str, str] = {}
    for row in container.get("env", ()):
        if "value" in row:
            variables[row["name"]] = expanded(row["value"], variables)
        else:
            reference = row["valueFrom"]["secretKeyRef"]
            value = secrets.get(reference["name"], {}).get(reference["key"])
            assert value is not None or reference.get("optional"), f"the container would not start: {reference}"
            if value is not None:
                variables[row["name"]] = value
    return variables


def command_line_of(container: Mapping[str, Any], secrets: Secrets) -> list[str]:
    """The container's command and arguments."""
    variables = environment_of(container, secrets)
    words = (*container.get("command", ()), *container.get("args", ()))
    return [expanded(str(word), variables) for word in words]
