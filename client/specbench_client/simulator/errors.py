"""Errors of the simulator.

::

    SimulatorError
    ├── ConfigError                 an invalid option: nothing is started
    └── SimulatorRequestError       a rejected request: status, error type, parameter
        ├── SimulatorBadRequest     400
        │   └── InvalidRequestBody      the body does not match the route's schema
        ├── SimulatorUnknownModel   404
        ├── EngineNotReady          503
        └── EngineBroken            500
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class SimulatorError(Exception):
    """Base class of the simulator's errors."""


class ConfigError(SimulatorError):
    """An invalid option; the message names it and what to write instead."""


class SimulatorRequestError(SimulatorError):
    """A request that is answered with an error object."""

    status = 500
    kind = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class SimulatorBadRequest(SimulatorRequestError):
    """The body cannot be served."""

    status = 400
    kind = "BadRequestError"


class InvalidRequestBody(SimulatorBadRequest):
    """The body does not match the route's schema; the message is pydantic's list of errors."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(list(found)))


class SimulatorUnknownModel(SimulatorRequestError):
    """The requested model is not the simulated one."""

    status = 404
    kind = "NotFoundError"


class EngineNotReady(SimulatorRequestError):
    """The engine has not finished starting."""

    status = 503
    kind = "ServiceUnavailableError"


class EngineBroken(SimulatorRequestError):
    """An internal failure, worded as engines report it when their core dies."""
