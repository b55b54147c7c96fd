"""Errors of the research runtime.

::

    ResearchError
    ├── BadResearchSetup           the command line cannot be served: nothing is started
    └── ResearchRequestError       a rejected request: status and vLLM's error type
        ├── ResearchBadRequest     400
        └── ResearchUnknownModel   404
"""

from __future__ import annotations


class ResearchError(Exception):
    """Base class of the research runtime's errors."""


class BadResearchSetup(ResearchError):
    """An option cannot be served; the message names it and what to write instead."""


class ResearchRequestError(ResearchError):
    """A request that is answered with an error object."""

    status = 500
    kind = "InternalServerError"


class ResearchBadRequest(ResearchRequestError):
    """The request is invalid or uses an unsupported option."""

    status = 400
    kind = "BadRequestError"


class ResearchUnknownModel(ResearchRequestError):
    """The requested model is not the served one."""

    status = 404
    kind = "NotFoundError"
