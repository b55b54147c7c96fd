"""Cases of a test that `make test` leaves to `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long_after(short: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: `make test` runs the first `short` of these cases, `make test-long` the others too."""
    return [pytest.param(case, marks=[pytest.mark.long] * (at >= short)) for at, case in enumerate(cases)]
