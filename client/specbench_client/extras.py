"""Extras: libraries that only some need. What to do where one is missing is said in one way everywhere."""

from __future__ import annotations

IMAGES = {"llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": "specbench"}
"""An extra → the target of the Dockerfile whose image holds it."""


def remedy(extra: str) -> str:
    """Return how to install the extra, and where an image of it comes from: nothing is installed into a running one."""
    image = f"; as an image: docker build --target {IMAGES[extra]}" if extra in IMAGES else ""
    return f"pip install 'specbench[{extra}]' (in a clone: '.[{extra}]'{image})"
