"""Headers that go out with every request: the user's, and the endpoint's key."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from specbench_client.errors import BadInput
from specbench_client.transport.managed import refuse_managed

KEY_VARIABLE = "OPENAI_API_KEY"
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ ]?([^\r\n\0]*)")


def headers_of(given: Sequence[str]) -> dict[str, str]:
    """The user's headers, and the key where they have none. Raises BadInput: malformed, given twice, or not theirs."""
    headers: dict[str, str] = {}
    for text in given:
        found = _HEADER.fullmatch(text)
        if not found:
            raise BadInput(f"--header {text!r} is not 'NAME: VALUE'")
        if found[1].lower() in map(str.lower, headers):
            raise BadInput(f"--header {found[1]} is given twice: give it once")
        headers[found[1]] = found[2]
    refuse_managed(headers)
    return headers if "authorization" in map(str.lower, headers) else {**_key(), **headers}


def _key() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}
