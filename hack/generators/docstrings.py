"""Reads the docstrings below the attributes of a class, which Python does not keep at run time.

The models could (`use_attribute_docstrings`), but each start of a program would then parse their source.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent


@cache
def documented(cls: type) -> dict[str, str]:
    """Return the docstring of each field or member of a class; none if the class has no source."""
    try:
        source = inspect.getsource(cls)
    except OSError:
        return {}
    (body,) = (node.body for node in ast.parse(dedent(source)).body if isinstance(node, ast.ClassDef))
    found = {}
    for field, below in pairwise(body):
        named = field.targets if isinstance(field, ast.Assign) else [getattr(field, "target", None)]
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(named[0], ast.Name) and isinstance(text, ast.Constant):
            found[named[0].id] = reflowed(str(text.value))
    return found


def reflowed(text: str) -> str:
    """Return the text with each paragraph on one line: Python's line length does not matter to readers of the API."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
