"""Errors of the simulator: invalid options, and bodies that do not match the schema of their route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench_client.openai_server_formats import RejectedBody


class ConfigError(Exception):
    """An invalid option; the message names it and what to write instead."""


class InvalidRequestBody(RejectedBody):
    """The body does not match the route's schema; the message is pydantic's list of errors."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(list(found)))
