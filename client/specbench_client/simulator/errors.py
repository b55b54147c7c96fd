"""Errors of the simulator.

::

    SimulatorError
    ├── ConfigError                 an invalid option: nothing is started
    └── SimulatorRequestError       a rejected request: status, error type, parameter
        └── SimulatorBadRequest     400
            └── InvalidRequestBody      the body does not match the route's schema
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

_KINDS = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


class SimulatorError(Exception):
    """Base class of the simulator's errors."""


class ConfigError(SimulatorError):
    """An invalid option; the message names it and what to write instead."""


class SimulatorRequestError(SimulatorError):
    """A request that is answered with an error object. ``kind``: the error type for its status, as in vLLM."""

    def __init__(self, message: str, status: HTTPStatus, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = _KINDS[status]
        self.param = param


class SimulatorBadRequest(SimulatorRequestError):
    """The body cannot be served."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, HTTPStatus.BAD_REQUEST, param=param)


class InvalidRequestBody(SimulatorBadRequest):
    """The body does not match the route's schema; the message is pydantic's list of errors."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(list(found)))
