"""Installation hints for optional dependencies (extras), and commands as the user starts them.

They name WHEEL, as README does: the `specbench` of the package index is another program.
"""

from __future__ import annotations

import sys
from pathlib import Path

IMAGE_TARGETS = {"llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": "specbench"}
"""Extra → the Dockerfile target whose image contains it."""


def install_hint(extra: str) -> str:
    """Return how to install the extra, and how to build an image with it."""
    if is_run_by_uvx():
        return f"uvx --from 'WHEEL[{extra}]' specbench …"
    image = f"; as an image: docker build --target {IMAGE_TARGETS[extra]}" if extra in IMAGE_TARGETS else ""
    return f"pip install 'WHEEL[{extra}]' (in a clone: '.[{extra}]'{image})"


def as_started(text: str) -> str:
    """Return the text with its commands as this program was started; `uvx` puts no `specbench` on PATH."""
    return text.replace("`specbench ", "`uvx --from WHEEL specbench ") if is_run_by_uvx() else text


def is_run_by_uvx() -> bool:
    """Return whether this program's environment is in a cache, as those of `uvx` are."""
    return any((folder / "CACHEDIR.TAG").exists() for folder in Path(sys.prefix).parents)
