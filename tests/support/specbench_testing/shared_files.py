"""Files next to the checkout that may not be copied into it: engine traces without a licence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[4] / "shared"


def shared_file(*parts: str) -> Path:
    """A file of the folder SPECBENCH_SHARED, or of `shared` next to the checkout; skips the test if it is missing."""
    path = Path(os.environ.get("SPECBENCH_SHARED") or _BESIDE).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} does not exist: set SPECBENCH_SHARED to the folder with {'/'.join(parts)}")
    return path
