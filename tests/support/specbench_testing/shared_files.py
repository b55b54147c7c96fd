"""What lies beside the checkout and may not be copied into it: engine traces of others, without a licence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[4] / "shared"


def shared_file(*parts: str) -> Path:
    """A file of the folder SPECBENCH_SHARED, or of `shared` beside the checkout; skips the test where it is not."""
    path = Path(os.environ.get("SPECBENCH_SHARED") or _BESIDE).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set SPECBENCH_SHARED to the folder that holds {'/'.join(parts)}")
    return path
