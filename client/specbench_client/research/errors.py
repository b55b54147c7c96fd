"""What can go wrong in the research runtime, as types.

::

    ResearchError
    ├── BadSetup       it cannot serve what the command line asks for: nothing is started
    └── RequestError   a request is answered with an error object: status and vLLM's error type
        ├── BadRequest     400
        └── UnknownModel   404
"""

from __future__ import annotations


class ResearchError(Exception):
    """Root of the room's errors."""


class BadSetup(ResearchError):
    """The message names the option and what to write instead."""


class RequestError(ResearchError):
    """A request is answered with an error object instead of text."""

    status = 500
    kind = "InternalServerError"


class BadRequest(RequestError):
    """The request cannot be served as it is written."""

    status = 400
    kind = "BadRequestError"


class UnknownModel(RequestError):
    """The model asked for is not the one that is served."""

    status = 404
    kind = "NotFoundError"
