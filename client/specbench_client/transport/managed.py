"""Headers that the transport itself sends, and that nobody else may: a second hand would break framing or times."""

from __future__ import annotations

from collections.abc import Iterable

from specbench_client.errors import BadInput

_OWN_CONNECTION = "each request has a connection of its own, which is closed after its answer"
_WHOLE_BODY = "a body is sent whole, with its length"
MANAGED = {
    "host": "it is taken from the endpoint",
    "content-length": "it is counted from the body",
    "content-type": "every body is JSON",
    "transfer-encoding": _WHOLE_BODY,
    "te": _WHOLE_BODY,
    "trailer": _WHOLE_BODY,
    "expect": _WHOLE_BODY,
    "connection": _OWN_CONNECTION,
    "keep-alive": _OWN_CONNECTION,
    "proxy-connection": _OWN_CONNECTION,
    "upgrade": _OWN_CONNECTION,
    "accept-encoding": "a compressed answer could not be timed chunk by chunk",
    "x-request-id": "each request has an id of its own, by which its record is found",
}
"""Name, in lower case, and why it is ours."""


def refuse_managed(names: Iterable[str]) -> None:
    """Raise BadInput for the first header that is not the user's to set."""
    for name in names:
        why = MANAGED.get(name.lower())
        if why is not None:
            raise BadInput(f"the header {name} is set by specbench itself: {why}: leave it out")
