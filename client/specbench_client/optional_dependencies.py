"""Installation hints for optional dependencies (extras), and commands as the user starts them.

They name the wheel that this program was installed from, or WHEEL, as README does: the `specbench` of the package index
is another program.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

IMAGE_TARGETS = {"llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": "specbench"}
"""Extra → the Dockerfile target whose image contains it."""
_CACHE = "CACHEDIR.TAG"


def install_hint(extra: str) -> str:
    """Return how to install the extra, and how to build an image with it."""
    wheel = f"{_wheel()}[{extra}]"
    if runner := _runner():
        return f"{runner} {shlex.quote(wheel)} specbench …"
    image = f"; as an image: docker build --target {IMAGE_TARGETS[extra]}" if extra in IMAGE_TARGETS else ""
    return f"pip install {shlex.quote(wheel)} (in a clone: '.[{extra}]'{image})"


def as_started(text: str) -> str:
    """Return the text with its commands as this program was started."""
    return text.replace("`specbench ", f"`{program()} ") if "`specbench " in text else text


def program() -> str:
    """How this program was started: some runners put no `specbench` on PATH."""
    runner, extra = _runner(), "[llama-cpp]" if importlib.util.find_spec("xllamacpp") else ""
    return f"{runner} {shlex.quote(_wheel() + extra)} specbench" if runner else "specbench"


def _runner() -> str:
    """What made this program's environment for one use, by uv's and pipx's layout of a cache; empty if nothing did."""
    environment = Path(sys.prefix)
    if (environment.parent.parent / _CACHE).exists():
        return "uvx --from"
    is_pipx = (environment.parent / _CACHE).exists() and (environment / "pipx_metadata.json").exists()
    return "pipx run --spec" if is_pipx else ""


def _wheel() -> str:
    """The file or URL of the wheel that this program was installed from; WHEEL if it was not installed from one."""
    origin = json.loads(distribution("specbench").read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    if not url.path.endswith(".whl"):
        return "WHEEL"
    return unquote(url.path) if url.scheme == "file" else url.geturl()
