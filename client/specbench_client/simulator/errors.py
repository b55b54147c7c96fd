"""What can go wrong in the simulator, as types.

::

    SimulatorError
    ├── ConfigError        an option that cannot be served: nothing is started
    └── RequestError       a request the engine refuses: status, an error type, the parameter
        ├── BadRequest     400
        │   └── InvalidBody    its body is not of the route's form
        ├── UnknownModel   404
        ├── NotReady       503
        └── EngineBroken   500
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class SimulatorError(Exception):
    """Root of the room's errors."""


class ConfigError(SimulatorError):
    """An option is impossible; the message names it and what to write instead."""


class RequestError(SimulatorError):
    """A request is answered with an error object instead of text."""

    status = 500
    kind = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class BadRequest(RequestError):
    """The body cannot be served."""

    status = 400
    kind = "BadRequestError"


class InvalidBody(BadRequest):
    """The body is not of the route's form; the message is the list of what is wrong, as pydantic's errors are."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(list(found)))


class UnknownModel(RequestError):
    """The model asked for is not the simulated one."""

    status = 404
    kind = "NotFoundError"


class NotReady(RequestError):
    """The engine has not finished starting."""

    status = 503
    kind = "ServiceUnavailableError"


class EngineBroken(RequestError):
    """The engine failed inside, as engines say it when their core dies."""
