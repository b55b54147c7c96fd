"""Installation hints for optional dependencies (extras).

They name WHEEL, as README does: the `specbench` of the package index is another program.
"""

from __future__ import annotations

IMAGE_TARGETS = {"llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": "specbench"}
"""Extra → the Dockerfile target whose image contains it."""


def install_hint(extra: str) -> str:
    """Return how to install the extra, and how to build an image with it."""
    image = f"; as an image: docker build --target {IMAGE_TARGETS[extra]}" if extra in IMAGE_TARGETS else ""
    return f"pip install 'WHEEL[{extra}]' (in a clone: '.[{extra}]'{image})"
