"""Requests to an API server that tests stop for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from urllib3.exceptions import HTTPError

from specbench_testing.cluster import ApiError
from specbench_testing.operator_process import eventually

AWAY_S = 60.0
_BUSY = 429

T = TypeVar("T")


def retry_until_available(ask: Callable[[], T]) -> T:
    """The response as soon as there is one. Raises ApiError for a client error."""

    def answer() -> tuple[T] | None:
        try:
            return (ask(),)
        except ApiError as refused:
            if refused.status < 500 and refused.status != _BUSY:
                raise
        except HTTPError:
            pass
        return None

    found = eventually(answer, "the API server does not answer", AWAY_S)
    assert found is not None
    return found[0]
